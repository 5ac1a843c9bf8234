"""Scenario texts: directives, and below each the whole of what has to happen.

    directive
    ----
    what happens, a line each

    the next directive

A text is read from top to bottom on one stage. To write a text, put the directives down with a
``----`` below each, run ``python -m tests.scenarios.texts FILE...``, and read what it made of them: an
expectation is kept only when it is understood.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from .stage import Stage

FOLDER = Path(__file__).resolve().parent


class Part(NamedTuple):
    line: int
    """Of the directive, from 1."""
    before: list[str]
    """Comments and empty lines above it."""
    directive: str
    expected: list[str]


def parse(text: str) -> list[Part]:
    """Raises ValueError for a directive without its ``----``."""
    parts: list[Part] = []
    lines = text.split("\n")
    place = 0
    before: list[str] = []
    while place < len(lines):
        line = lines[place]
        if not line.strip() or line.startswith("#"):
            before.append(line)
            place += 1
            continue
        if place + 1 >= len(lines) or lines[place + 1] != "----":
            raise ValueError(f"line {place + 1}: {line!r} has no ---- below it")
        end = place + 2
        while end < len(lines) and lines[end].strip():
            end += 1
        parts.append(Part(place + 1, before, line, lines[place + 2 : end]))
        before, place = [], end
    return parts


def differences(text: str) -> list[str]:
    """Where what happens is not what is written; empty where everything agrees."""
    stage = Stage()
    for part in parse(text):
        happened = stage.do(part.directive)
        if happened != part.expected:
            wanted, got = "\n  ".join(part.expected), "\n  ".join(happened)
            return [f"line {part.line}: {part.directive}\n written:\n  {wanted}\n happened:\n  {got}"]
    return []


def rewritten(text: str) -> str:
    stage = Stage()
    lines: list[str] = []
    for part in parse(text):
        lines += [*part.before, part.directive, "----", *stage.do(part.directive)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(rewritten(Path(name).read_text()))
