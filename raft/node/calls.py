"""Questions of clients and operators beside submissions: their shapes, and those that are answered later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..core.errors import CommandInvalid, FencepostError, NotLeader, OutcomeUnknown, all_errors
from ..core.events import Refused
from .loop import RaftLoop

Query = Callable[[dict[str, Any]], Any]
"""Answers one method of ``call``: parameters in, JSON-like body out. May raise FencepostError."""

Reply = Callable[[Any, FencepostError | None], None]

SlowQuery = Callable[[dict[str, Any], Reply], None]
"""The same, answering later through ``reply(body, error)``, on the node's loop."""

TIMEOUT_S = 30.0
TIMEOUT_MAX_S = 3600.0


class SlowCall:
    """One question that is answered later: once, and by its deadline."""

    def __init__(
        self,
        loop: RaftLoop,
        timers: asyncio.AbstractEventLoop,
        reply: Reply,
        timeout_s: float,
        overdue: Callable[[], FencepostError],
    ) -> None:
        """``overdue()`` is the error to answer with when nothing else has been answered in time."""
        self.loop = loop
        self.ended = False
        self._timers = timers
        self._reply = reply
        self._overdue = overdue
        self._deadline = timers.call_later(timeout_s, loop.guarded(self._too_late))
        self._pause: asyncio.TimerHandle | None = None

    def answer(self, body: Any) -> None:
        self._end(body, None)

    def fail(self, error: FencepostError) -> None:
        self._end(None, error)

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Go on after a pause, unless it has ended by then. One at a time."""
        if not self.ended:
            self._pause = self._timers.call_later(seconds, self.loop.guarded(callback))

    def _too_late(self) -> None:
        self.fail(self._overdue())

    def _end(self, body: Any, error: FencepostError | None) -> None:
        if self.ended:
            return
        self.ended = True
        self._deadline.cancel()
        if self._pause is not None:
            self._pause.cancel()
        self._reply(body, error)


def timeout_of(parameters: dict[str, Any]) -> float:
    """``timeout_s`` of a call. Raises CommandInvalid, ValueError or TypeError."""
    seconds = float(parameters.get("timeout_s") or TIMEOUT_S)
    if not 0 < seconds <= TIMEOUT_MAX_S:
        raise CommandInvalid(f"timeout_s of {seconds:g} is not above 0 and up to {TIMEOUT_MAX_S:g}")
    return seconds


def not_leader(leader: str, leader_address: Callable[[str], str]) -> NotLeader:
    if not leader:
        return NotLeader("this node does not lead, and knows nobody who does", next_step="fencepost status")
    return NotLeader(f"{leader} leads, at {leader_address(leader) or 'an address that is not known yet'}")


def refused_as(refused: Refused, leader_address: Callable[[str], str], next_step: str) -> FencepostError:
    """What the core refused, as the error that a client hears."""
    if refused.code == NotLeader.code:
        return not_leader(refused.leader, leader_address)
    return all_errors()[refused.code](refused.detail or refused.code, next_step=next_step)


def unknown(what: str, next_step: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"it is not known whether {what}", next_step=next_step)
