"""Rows of bars over one axis of time, as SVG. The same values give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT = 860, 60, 20
TOP, ROW, GAP, BOTTOM = 40, 90, 38, 40
_INK, _BAR, _BOUND, _MARK = "#24292f", "#3b6ea8", "#b3261e", "#8a8f98"


class Row(NamedTuple):
    title: str
    values: Sequence[int]
    """One a bucket."""
    bound: int
    """What no value may exceed: a line."""


class Mark(NamedTuple):
    at: float
    """In buckets from the beginning."""
    text: str


def bars(title: str, rows: Sequence[Row], marks: Sequence[Mark], *, unit: str, every: int = 10) -> str:
    """The picture. ``unit`` names a bucket, ``every`` says how many of them lie between two numbers on the axis."""
    buckets = max(len(row.values) for row in rows)
    step = (WIDTH - LEFT - RIGHT) / buckets
    height = TOP + len(rows) * (ROW + GAP) + BOTTOM
    bottom = TOP + len(rows) * (ROW + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{_INK}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for mark in marks:
        x = LEFT + mark.at * step
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" stroke="{_MARK}" stroke-dasharray="3 3">'
            f"<title>{escape(mark.text)}</title></line>"
        )
    for number, row in enumerate(rows):
        parts += _row(row, TOP + number * (ROW + GAP), step)
    for bucket in range(0, buckets + 1, every):
        parts.append(f'<text x="{LEFT + bucket * step:.1f}" y="{bottom + 14}" text-anchor="middle">{bucket}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{bottom + 32}" text-anchor="end">{escape(unit)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(row: Row, top: int, step: float) -> list[str]:
    highest = max(row.bound, *row.values, 1)
    floor = top + GAP - 8 + ROW - 10
    scale = (ROW - 10) / highest
    parts = [
        f'<text x="{LEFT}" y="{top + 22}">{escape(row.title)}</text>',
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}" stroke="{_INK}"/>',
        f'<text x="{LEFT - 6}" y="{floor + 4}" text-anchor="end">0</text>',
    ]
    for bucket, value in enumerate(row.values):
        if value:
            size = max(value * scale, 1.0)
            parts.append(
                f'<rect x="{LEFT + bucket * step + 1:.1f}" y="{floor - size:.1f}" width="{step - 2:.1f}" '
                f'height="{size:.1f}" fill="{_BAR}"><title>{value}</title></rect>'
            )
    line = floor - row.bound * scale
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{line:.1f}" y2="{line:.1f}" stroke="{_BOUND}"/>'
        f'<text x="{LEFT - 6}" y="{line + 4:.1f}" text-anchor="end" fill="{_BOUND}">{row.bound}</text>'
    )
    return parts
