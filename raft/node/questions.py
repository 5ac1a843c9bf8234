"""Questions that the core answers in the step in which it is asked: for a change of members, for a transfer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..core.entry import Entry
from ..core.events import (
    Accepted,
    ChangeConfiguration,
    Effects,
    Event,
    Refused,
    TransferBegun,
    TransferEnded,
    TransferLeadership,
)
from .requests import Transfers, TransferSink
from .waiters import Waiters

STOPPED = Refused("NOT_LEADER", "", "the node is stopping")


class ChangeSink(Protocol):
    """What hears of one change of members. Called on the node's loop; must not raise."""

    def refused(self, refusal: Refused) -> None:
        """Certainly not made, and why."""

    def committed(self, index: int, term: int) -> None:
        """The configuration at ``index`` is committed, and applied here."""

    def lost(self) -> None:
        """Certainly not made: another leader wrote something else in its place."""

    def unknown(self) -> None: ...


class ChangeWaiter:
    """Waits for the entry of a change like for any other (``waiters.ProposalSink``); the keys are its sinks."""

    def accepted(self, keys: Sequence[Any], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[Any], code: str, leader: str) -> None:
        for sink in keys:
            sink.refused(Refused(code, leader))

    def applied(self, keys: Sequence[Any], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        for sink, entry in zip(keys, entries, strict=True):
            sink.committed(entry.index, entry.term)

    def lost(self, keys: Sequence[Any]) -> None:
        for sink in keys:
            sink.lost()

    def unknown(self, keys: Sequence[Any]) -> None:
        for sink in keys:
            sink.unknown()


CHANGE_WAITER = ChangeWaiter()


class ChangeQuestion(NamedTuple):
    event: ChangeConfiguration
    sink: ChangeSink


class TransferQuestion(NamedTuple):
    event: TransferLeadership
    sink: TransferSink


class Questions:
    """What was asked in a turn. The core answers at once; how it ends, the waiters hear."""

    def __init__(self, waiters: Waiters, transfers: Transfers, *, patience_ns: int) -> None:
        """``patience_ns`` is how long after the end of a transfer its target may take to be heard of."""
        self._asked: list[ChangeQuestion | TransferQuestion] = []
        self._waiters = waiters
        self._transfers = transfers
        self._patience_ns = patience_ns

    def __len__(self) -> int:
        return len(self._asked)

    def add(self, question: ChangeQuestion | TransferQuestion) -> None:
        self._asked.append(question)

    def put(self, step: Callable[[Event], Effects], now: int) -> list[Effects]:
        """Put every question to the core, and hear its answers. What else it wants is returned, in order."""
        asked, self._asked = self._asked, []
        wanted = []
        for question in asked:
            effects = step(question.event._replace(now=now))
            wanted.append(effects)
            if isinstance(question, ChangeQuestion):
                self._change_answered(question.sink, effects.proposed)
            else:
                self._transfer_answered(question.sink, effects.transfer)
        return wanted

    def _change_answered(self, sink: ChangeSink, answer: Accepted | Refused | None) -> None:
        if isinstance(answer, Accepted):
            self._waiters.add(CHANGE_WAITER, (sink,), answer.first_index, answer.term)
        elif isinstance(answer, Refused):
            sink.refused(answer)
        else:
            raise AssertionError("a change of members was not answered")

    def _transfer_answered(self, sink: TransferSink, answer: TransferBegun | TransferEnded | Refused | None) -> None:
        if isinstance(answer, TransferBegun):
            self._transfers.begun(sink, answer.deadline + self._patience_ns)
        elif isinstance(answer, Refused):
            sink.refused(answer)
        else:
            raise AssertionError(f"a question for a transfer was answered with {answer}")

    def abandon(self) -> None:
        """The node stops."""
        asked, self._asked = self._asked, []
        for question in asked:
            question.sink.refused(STOPPED)
