"""What others do while a node stands, and how it is let go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from .node import Call, Said, Word

Script = Callable[[], list[Said]]
T = TypeVar("T")


class Standing:
    """A node that stands still in a call, and how it is let go on; with ``if_needed``, only if others cannot do
    without."""

    def __init__(
        self,
        go_on: Callable[[], object],
        call: Call,
        patience_s: float,
        bound_s: float,
        *,
        if_needed: bool = False,
    ) -> None:
        self._patience_s = patience_s
        self._bound_s = bound_s
        self._go_on = go_on
        self._call = call
        self._if_needed = if_needed

    def while_standing(self, script: Script) -> tuple[list[Said], Said]:
        """What ``script`` heard, in the end, and what the node heard when it had gone on.

        The script is given a while to come to its end. Then the node goes on in any case; whoever was turned away
        because of it tries once more.
        """
        running = Aside(script)
        said = running.wait(self._patience_s)
        if self._if_needed and said is not None and _all_done(said):
            return said, Said(Word.ENDED)
        self._go_on()
        late = self._call.wait(self._bound_s)
        said = running.wait(self._bound_s * 3)
        if said is None:
            return [Said(Word.SILENT, why="it never came to an end")], late
        return (said if _all_done(said) else script()), late


def _all_done(said: list[Said]) -> bool:
    return all(each.word is Word.DONE for each in said)


class Aside(Generic[T]):
    """Something on a thread of its own."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="contract-aside", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._work()
        except BaseException as error:
            self._error = error

    def wait(self, bound_s: float) -> T | None:
        """What it gave; None if it has not come to its end. Raises what it raised."""
        self._thread.join(bound_s)
        if self._error is not None:
            raise self._error
        return self._found
