"""What the demo tells: acts, sentences, facts with their time, and a verdict.

One narrator for terminals, with a live picture of the cluster under the story, and one that prints
plain lines.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH = 96


class NodePicture(NamedTuple):
    name: str
    condition: str
    role: str
    fence: str


class Picture(NamedTuple):
    nodes: list[NodePicture]
    submitted: int
    answered: int


class Narrator(Protocol):
    def act(self, title: str) -> None:
        """A new chapter."""

    def say(self, text: str) -> None:
        """What is going to be seen, and why it matters."""

    def fact(self, text: str) -> None:
        """Something that was just observed."""

    def rows(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Aligned rows: a name, a figure, what it means."""

    def finding(self, claim: str, problems: Sequence[str]) -> None:
        """One line of the proof."""

    def verdict(self, text: str, *, good: bool) -> None: ...

    def commands(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """What to type next, and what for."""

    def picture(self, look: Callable[[], Picture]) -> AbstractContextManager[None]:
        """While the block runs, show how the cluster stands, where there is a place for it."""


class _Story:
    """What both have in common: the clock, the numbering and the widths."""

    def __init__(self, emit: Callable[[str, str], None]) -> None:
        """``emit(text, style)`` prints one line; the style is a name of :data:`STYLES`."""
        self._emit = emit
        self._acts = 0
        self._started = time.monotonic()

    def act(self, title: str) -> None:
        self._acts += 1
        self._emit("", "")
        self._emit(f"{self._acts}  {title}", "act")

    def say(self, text: str) -> None:
        for line in textwrap.wrap(text, WIDTH - 3):
            self._emit(f"   {line}", "say")

    def fact(self, text: str) -> None:
        stamp = f"   {time.monotonic() - self._started:5.1f} s  "
        for number, line in enumerate(textwrap.wrap(text, WIDTH - len(stamp))):
            self._emit((stamp if number == 0 else " " * len(stamp)) + line, "fact")

    def rows(self, rows: Sequence[tuple[str, str, str]]) -> None:
        widths = [max(len(row[at]) for row in rows) for at in range(2)]
        for name, figure, meaning in rows:
            self._emit(f"            {name:<{widths[0]}}  {figure:>{widths[1]}}  {meaning}".rstrip(), "fact")

    def finding(self, claim: str, problems: Sequence[str]) -> None:
        self._list("holds" if not problems else "FAILS", claim, "good" if not problems else "bad")
        for problem in problems:
            for number, line in enumerate(textwrap.wrap(problem, WIDTH - 12)):
                self._emit(f"          {'- ' if number == 0 else '  '}{line}", "bad")

    def _list(self, mark: str, text: str, style: str) -> None:
        for number, line in enumerate(textwrap.wrap(text, WIDTH - 10)):
            self._emit(f"   {mark if number == 0 else '':5}  {line}", style)

    def verdict(self, text: str, *, good: bool) -> None:
        self._emit("", "")
        lines = textwrap.wrap(f"verdict: {text}", WIDTH)
        for line in lines:
            self._emit(line, "verdict" if good else "failed")

    def commands(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        self._emit("", "")
        self._emit(title, "act")
        width = max(len(command) for command, _ in rows)
        for command, purpose in rows:
            self._emit(f"   {command:<{width}}   {purpose}".rstrip(), "fact")


class PlainNarrator(_Story):
    """Plain lines, through ``write``."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__(lambda text, style: write(text))

    @contextmanager
    def picture(self, look: Callable[[], Picture]) -> Iterator[None]:
        yield


STYLES = {
    "": "",
    "act": "bold",
    "say": "dim",
    "fact": "",
    "good": "green",
    "bad": "bold red",
    "verdict": "bold green",
    "failed": "bold red",
}


class TerminalNarrator(_Story):
    """Styled lines that scroll above a live picture of the cluster."""

    def __init__(self, console: Console) -> None:
        super().__init__(self._print)
        self._console = console

    def _print(self, text: str, style: str) -> None:
        self._console.print(text, style=STYLES[style] or None, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def picture(self, look: Callable[[], Picture]) -> Iterator[None]:
        from rich.live import Live

        with Live(get_renderable=lambda: render(look()), console=self._console, refresh_per_second=8, transient=True):
            yield


_CONDITION_STYLES = {"frozen": "cyan", "killed": "red", "stopped": "yellow", "starting": "yellow"}


def render(picture: Picture) -> RenderableType:
    """The cluster as a small table with the client's progress under it."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 3))
    for node in picture.nodes:
        style = _CONDITION_STYLES.get(node.condition) or ("bold" if node.role == "leader" else "")
        table.add_row(*(Text(cell, style=style) for cell in (node.name, node.condition, node.role, node.fence)))
    payments = Table.grid(padding=(0, 3))
    under_way = picture.submitted - picture.answered
    payments.add_row(
        Text("payments"),
        ProgressBar(total=max(picture.submitted, 1), completed=picture.answered, width=30),
        Text(f"{picture.answered} answered, {under_way} under way", style="bold" if under_way > 10 else ""),
    )
    return Padding(Group(table, payments), (1, 0, 0, 3))
