"""Everything the command prints goes through one renderer.

Results go to stdout in one of four formats; JSON is the stable contract (``apiVersion``), the table
is for people and may change. Notices, progress and errors go to stderr, as JSON lines when the
result is JSON, so that both streams can be read by a program.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

from ..raft.core.errors import (
    ChangeRefused,
    ClientError,
    CommandFailed,
    FencepostError,
    NotCaughtUp,
    NotFound,
    Outcome,
    OutcomeUnknown,
    TransferRefused,
    TransportError,
)

API_VERSION = "fencepost/v1"
FORMATS = ("table", "json", "jsonl", "tsv")


@dataclass(frozen=True)
class Column:
    """One column of a table: ``read`` takes a row as it is in the JSON and gives its text."""

    title: str
    read: Callable[[Mapping[str, Any]], Any]

    @classmethod
    def of(cls, title: str, key: str = "") -> Column:
        key = key or title.lower().replace(" ", "_")
        return cls(title, lambda row: row.get(key))


class Renderer:
    """Prints results and errors. A reader that goes away (a closed pipe) is not an error: the rest
    of the output is dropped and ``closed`` says so, so that endless commands can end."""

    def __init__(
        self,
        *,
        format: str = "table",
        color: str = "auto",
        time_style: str = "relative",
        quiet: bool = False,
        now_ns: Callable[[], int] | None = None,
    ) -> None:
        self.format = format
        self.quiet = quiet
        self.closed = False
        self._color = color
        self._time_style = time_style
        self._now_ns = now_ns or (lambda: int(datetime.now(UTC).timestamp() * 1e9))

    @property
    def machine(self) -> bool:
        """Whether a program reads the output."""
        return self.format in ("json", "jsonl")

    # -- results ------------------------------------------------------------------------------------

    def show(
        self,
        kind: str,
        body: Mapping[str, Any],
        columns: Sequence[Column],
        *,
        rows: str = "",
        footer: Sequence[str] = (),
    ) -> None:
        """One document. ``rows`` names the list in ``body`` that a table has its rows from; without
        it the document itself is the only row, shown upright. ``footer`` are lines under a table."""
        head = {"apiVersion": API_VERSION, "kind": kind}
        if self.format == "json":
            self._out(json.dumps({**head, **body}, ensure_ascii=False, indent=2))
            return
        found = list(body[rows]) if rows else [body]
        if self.format == "jsonl":
            kind_of_row = kind.removesuffix("List") if rows else kind
            for row in found:
                self._out(json.dumps({"apiVersion": API_VERSION, "kind": kind_of_row, **row}, ensure_ascii=False))
            return
        if self.format == "tsv":
            self._out("\t".join(column.title.lower().replace(" ", "_") for column in columns))
            for row in found:
                self._out("\t".join(_tsv(column.read(row)) for column in columns))
            return
        if rows:
            self._table(columns, found)
        else:
            width = max((len(column.title) for column in columns), default=0)
            for column in columns:
                value = column.read(body)
                if value not in (None, ""):
                    self._out(f"{column.title.lower():<{width}}  {_text(value)}")
        for line in footer:
            self._out(line)

    def stream(self, kind: str, row: Mapping[str, Any]) -> None:
        """One document of an endless result: a JSON line."""
        self._out(json.dumps({"apiVersion": API_VERSION, "kind": kind, **row}, ensure_ascii=False))

    def stream_row(self, titles: Sequence[str] | None, cells: Sequence[Any]) -> None:
        """One row of an endless table; ``titles`` before the first. Columns are as wide as a guess."""
        if self.format == "tsv":
            if titles is not None:
                self._out("\t".join(title.lower().replace(" ", "_") for title in titles))
            self._out("\t".join(_tsv(cell) for cell in cells))
            return
        if titles is not None:
            self._out(self.style("  ".join(f"{title.upper():<12}" for title in titles).rstrip(), "1"))
        self._out("  ".join(f"{_text(cell):<12}" for cell in cells).rstrip())

    def line(self, text: str) -> None:
        """A line for people, on stdout; nothing when a program reads it."""
        if not self.machine:
            self._out(text)

    def raw(self, text: str) -> None:
        """Text that is the result itself, whatever the format (a completion script)."""
        self._out(text)

    def clear(self) -> None:
        """Before the next picture of a watching command: only on a terminal."""
        if self.format == "table" and sys.stdout.isatty():
            self._out("\x1b[H\x1b[2J", end="")

    def _table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        cells = [[column.title.upper() for column in columns]]
        cells += [[_text(column.read(row)) for column in columns] for row in rows]
        widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
        for number, line in enumerate(cells):
            text = "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
            self._out(self.style(text, "1") if number == 0 else text)

    def style(self, text: str, code: str, stream: IO[str] | None = None) -> str:
        """``text`` in an ANSI style, where colour is wanted."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colored(stream or sys.stdout) else text

    def colored(self, stream: IO[str]) -> bool:
        if self._color != "auto":
            return self._color == "always"
        return not os.environ.get("NO_COLOR") and stream.isatty() and os.environ.get("TERM") != "dumb"

    def time(self, ns: int | None) -> str:
        """A time in nanoseconds since the epoch: how long ago, or ISO 8601 in UTC (always in TSV, which
        programs read)."""
        if not ns:
            return ""
        if self._time_style == "iso" or self.format == "tsv":
            return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f"{_ago(self._now_ns() - ns)} ago"

    # -- stderr -------------------------------------------------------------------------------------

    def notice(self, text: str, kind: str = "Notice", **fields: Any) -> None:
        """Something worth knowing beside the result. Silent with ``-q``."""
        if not self.quiet:
            self._say(text, text, kind=kind, **fields)

    def warning(self, text: str) -> None:
        """Something that is wrong beside the result. Said with ``-q`` too."""
        self._say(text, f"{self.style('warning', '33', sys.stderr)}: {text}", kind="Warning")

    def _say(self, text: str, shown: str, kind: str, **fields: Any) -> None:
        document = {"apiVersion": API_VERSION, "kind": kind, "message": text, **fields}
        self._err(json.dumps(document) if self.machine else shown)

    def error(self, error: FencepostError) -> None:
        """An error: its code, whether anything was committed, what each place answered, what to type next."""
        if self.machine:
            body = {**error.as_dict(), "committed": committed(error), "exit_code": error.exit_code}
            self._err(json.dumps({"apiVersion": API_VERSION, "kind": "Error", "error": body}, ensure_ascii=False))
            return
        title = self.style(f"error {error.code}", "1;31", sys.stderr)
        self._err(f"{title}: {error.message}")
        for line in error.tried:
            self._err(f"  {line}")
        said = "committed" in error.message or "nothing was sent" in error.message
        if not said and _about_a_command(error):
            self._err(f"  {_COMMITTED[committed(error)]}")
        if error.next_step:
            self._err(f"  {error.next_step}")

    # -- streams ------------------------------------------------------------------------------------

    def _out(self, text: str, end: str = "\n") -> None:
        if self.closed:
            return
        try:
            sys.stdout.write(text + end)
            sys.stdout.flush()
        except BrokenPipeError:
            self.closed = True
            drop_stdout()

    def _err(self, text: str) -> None:
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except BrokenPipeError:
            pass


def drop_stdout() -> None:
    """After the reader of stdout has gone: what is still buffered goes nowhere, quietly."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process


class Unended(OutcomeUnknown):
    """Known to be in the log, and not known to have ended."""


class HalfDone(NotCaughtUp):
    """A node was added as a learner, which is committed, and is no voter yet."""


_COMMITTED = {
    "no": "nothing was committed",
    "yes": "the command was committed",
    "unknown": "whether anything was committed is unknown",
}


def committed(error: FencepostError) -> str:
    """``yes``, ``no`` or ``unknown``: whether what was asked for is in the log."""
    if isinstance(error, (CommandFailed, HalfDone, Unended)):
        return "yes"
    return "unknown" if error.outcome is Outcome.UNKNOWN else "no"


def _about_a_command(error: FencepostError) -> bool:
    """Whether the reader wonders if something was committed: not after a typing error."""
    if isinstance(error, (NotFound, ChangeRefused, NotCaughtUp, TransferRefused)):
        return False
    return isinstance(error, (ClientError, TransportError)) or type(error) is FencepostError


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    # A database's message may have several lines, and a payload anything: a cell stays one line, and never
    # speaks to the terminal.
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(value))


def _tsv(value: Any) -> str:
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list, bool)) else str(value)
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _ago(ns: int) -> str:
    seconds = max(0, ns) / 1e9
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 or size > 1 else f"{seconds:.1f} s"
    return f"{seconds / 86_400:.0f} d"


def token_text(token: Mapping[str, str] | None) -> str:
    """``{"incarnation": "1", "term": "7"}`` as ``1.7``."""
    return f"{token['incarnation']}.{token['term']}" if token else ""
