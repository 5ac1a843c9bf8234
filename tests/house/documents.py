"""Markdown pages read for what can be run in them.

A fenced block names its language. Before it may stand a comment that says how to take it:

- ``<!-- file: n1.toml -->``: the block is written to that file in the page's scratch folder.
- ``<!-- exits: 4 -->``: the last command of the console block ends with this status, not with 0.
- ``<!-- not executed: why -->``: the block is not run, and the page says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RUN = frozenset({"console", "python"})
"""Blocks that are executed. ``toml`` and ``json`` are parsed; other languages are for the eye only."""
SHOWN = frozenset({"text", "toml", "json", "jsonl", "sql", "makefile", "mermaid"})

_FENCE = re.compile(r"^(?P<mark>`{3,})(?P<language>[\w-]*)\s*$")
_COMMENT = re.compile(r"^<!--\s*(?P<key>file|exits|not executed):\s*(?P<value>.*?)\s*-->$")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str
    file: str
    exits: int
    not_executed: str
    """The reason; empty when the block is executed or is not of a kind that is."""


class Command(NamedTuple):
    line: str
    expected: str
    exits: int


def blocks(page: Path, root: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order. Raises ValueError for one that is never closed."""
    name = page.relative_to(root).as_posix()
    directives: dict[str, str] = {}
    mark, language, opened = "", "", 0
    body: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if mark:
            if line.rstrip() == mark:
                yield _block(name, opened, language, body, directives)
                mark, body, directives = "", [], {}
            else:
                body.append(line)
            continue
        if fence := _FENCE.match(line):
            mark, language, opened = fence["mark"], fence["language"], number
        elif comment := _COMMENT.match(line):
            directives[comment["key"]] = comment["value"]
        elif line.strip():
            directives = {}
    if mark:
        raise ValueError(f"{name}:{opened}: the block is never closed")


def _block(page: str, line: int, language: str, body: list[str], directives: dict[str, str]) -> Block:
    return Block(
        page=page,
        line=line,
        language=language,
        text="".join(f"{row}\n" for row in body),
        file=directives.get("file", ""),
        exits=int(directives.get("exits", "0")),
        not_executed=directives.get("not executed", ""),
    )


def commands(block: Block) -> list[Command]:
    """The commands of a console block: ``$ `` starts one, ``> `` continues it, the rest is its output."""
    found: list[tuple[list[str], list[str]]] = []
    for row in block.text.splitlines():
        if row.startswith("$ "):
            found.append(([row[2:]], []))
        elif not found:
            raise ValueError(f"{block.page}:{block.line}: a console block starts with `$ `")
        elif row.startswith("> ") and not found[-1][1]:
            found[-1][0].append(row[2:])
        else:
            found[-1][1].append(row)
    last = len(found) - 1
    return [
        Command("\n".join(lines), "\n".join(output), block.exits if place == last else 0)
        for place, (lines, output) in enumerate(found)
    ]


def matches(expected: str, printed: str) -> bool:
    """Whether the output is as shown. ``...`` stands for anything, also over several lines; runs of
    blanks are one, since columns are as wide as what is in them. Nothing shown: nothing promised."""
    if not expected.strip():
        return True
    parts = [re.escape(part.strip(" ")) for part in _squeezed(expected).split("...")]
    return re.fullmatch(r"\s*.*?\s*".join(parts), _squeezed(printed), re.DOTALL) is not None


def _squeezed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())
