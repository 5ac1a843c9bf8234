"""Named parameters in SQL for a server that numbers them: ``:account`` becomes ``$1``."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKENS = re.compile(
    r"""
      (?P<comment>--[^\n]*)
    | (?P<block>/\*)
    | (?P<escaped>[eE]'(?:[^'\\]|''|\\.)*')
    | (?P<string>'(?:[^']|'')*')
    | (?P<identifier>"(?:[^"]|"")*")
    | (?P<dollar>\$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?\$(?P=tag)\$)
    | (?P<number>\$\d+)
    | (?P<cast>::)
    | :(?P<name>[A-Za-z_]\w*)
    | (?P<word>[A-Za-z_][\w$]*)
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_ENDS = re.compile(r"/\*|\*/")


class Numbered(NamedTuple):
    """A statement as PostgreSQL takes it."""

    sql: str
    names: tuple[str, ...]
    """The name of ``$1``, ``$2`` and so on. A name that is used twice has one number."""
    words: tuple[str, ...]
    """Every word and quoted identifier outside strings and comments, in lower case, in order."""


def number_parameters(sql: str) -> Numbered:
    """Replace each ``:name`` outside strings, identifiers and comments. ``::type`` is a cast and stays.

    Raises ValueError for ``$1``: which value would that be.
    """
    parts: list[str] = []
    names: list[str] = []
    words: list[str] = []
    position = 0
    while (found := _TOKENS.search(sql, position)) is not None:
        parts.append(sql[position : found.start()])
        position = found.end()
        kind = found.lastgroup
        if kind == "number":
            raise ValueError("its parameters must have names, as in :account")
        if kind == "block":
            position = _end_of_comment(sql, found.end())
        elif kind == "word":
            words.append(found[0].lower())
        elif kind == "identifier":
            words.append(found[0][1:-1].replace('""', '"').lower())
        if kind == "name":
            name = found["name"]
            if name not in names:
                names.append(name)
            parts.append(f"${names.index(name) + 1}")
        else:
            parts.append(sql[found.start() : position])
    parts.append(sql[position:])
    return Numbered("".join(parts), tuple(names), tuple(words))


def _end_of_comment(sql: str, position: int) -> int:
    """Comments nest, by the standard."""
    depth = 1
    while depth:
        found = _BLOCK_ENDS.search(sql, position)
        if found is None:
            return len(sql)
        depth += 1 if found[0] == "/*" else -1
        position = found.end()
    return position
