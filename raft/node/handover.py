"""``cluster.transfer_leader`` and ``cluster.step_down``: leadership given away on purpose (semantics: drain).

Effects first: nothing new is started, and what is under way is put on record, within a bound. Then the
target catches up and takes over. If it does not, this leader goes on as if nothing had been (S08, S49).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from ..core.errors import FencepostError, TransferRefused
from ..core.events import Refused
from .calls import Reply, SlowCall, SlowQuery, not_leader, refused_as, timeout_of, unknown
from .loop import RaftLoop

_LOG = structlog.get_logger("fencepost.node")

DRAIN_S = 3.0
"""How long effects under way may hold up a transfer, at the most; half of the call's time where that is shorter."""


class Draining(Protocol):
    """What has effects under way (``raft.effects.coordinator``)."""

    def begin_drain(self, when_idle: Callable[[], None]) -> None: ...

    def end_drain(self) -> None: ...


class HandoverCalls:
    """Slow calls, and :meth:`hand_over` for a node that is about to stop."""

    def __init__(
        self,
        loop: RaftLoop,
        timers: asyncio.AbstractEventLoop,
        effects: Draining,
        *,
        leader_address: Callable[[str], str],
    ) -> None:
        self.loop = loop
        self.timers = timers
        self.effects = effects
        self.leader_address = leader_address

    def methods(self) -> dict[str, SlowQuery]:
        return {"cluster.transfer_leader": self.transfer_leader, "cluster.step_down": self.step_down}

    def transfer_leader(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``target`` (empty: whoever has the most of the log), ``timeout_s``."""
        self._check_leads()
        _Transfer(self, reply, timeout_of(parameters), str(parameters.get("target") or "")).begin()

    def step_down(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``timeout_s``. Answered once somebody leads again."""
        self._check_leads()
        timeout_s = timeout_of(parameters)
        sink = _Elected(self, reply, timeout_s)
        self.loop.transfers.begun(sink, self.loop.now() + int(timeout_s * 1e9))
        self.loop.step_down("an operator asked for it")

    async def hand_over(self, timeout_s: float) -> str:
        """Give leadership to the best follower, if this node has it: the leader then, or the empty string.

        For a node that is about to stop, whose effects have been drained. Never raises for a transfer that
        does not succeed: the node stops all the same.
        """
        if self.loop.raft.leader != self.loop.raft.node_id:
            return self.loop.raft.leader
        heard: asyncio.Future[str] = self.timers.create_future()
        self.loop.transfer_leadership("", _Heard(heard))
        try:
            async with asyncio.timeout(timeout_s):
                return await heard
        except TimeoutError:
            _LOG.warning("nobody has taken over in time", seconds=timeout_s)
            return ""

    def _check_leads(self) -> None:
        raft = self.loop.raft
        if raft.leader != raft.node_id:
            raise not_leader(raft.leader, self.leader_address)


class _Heard:
    """Completes a future with the new leader (``requests.TransferSink``)."""

    def __init__(self, future: asyncio.Future[str]) -> None:
        self._future = future

    def done(self, leader: str, term: int) -> None:
        self._set(leader, "")

    def refused(self, refusal: Refused) -> None:
        self._set("", refusal.detail or refusal.code)

    def ended(self, reason: str) -> None:
        self._set("", reason)

    def unknown(self) -> None:
        self._set("", "nobody was heard of who leads")

    def _set(self, leader: str, why_not: str) -> None:
        if why_not:
            _LOG.warning("leadership not handed over", reason=why_not)
        if not self._future.done():
            self._future.set_result(leader)


class _Transfer:
    """One transfer that an operator asked for (``requests.TransferSink``)."""

    def __init__(self, calls: HandoverCalls, reply: Reply, timeout_s: float, target: str) -> None:
        self._calls = calls
        self._target = target
        self._asked = False
        self._drained = False
        self._draining = True
        self._drain_s = min(timeout_s / 2, DRAIN_S)
        self._call = SlowCall(calls.loop, calls.timers, reply, timeout_s, self._overdue)

    def begin(self) -> None:
        self._call.later(self._drain_s, self._ask)
        self._calls.effects.begin_drain(self._idle)

    def _idle(self) -> None:
        self._drained = not self._asked
        self._ask()

    def _ask(self) -> None:
        if not self._asked and not self._call.ended:
            self._asked = True
            self._calls.loop.transfer_leadership(self._target, self)

    def done(self, leader: str, term: int) -> None:
        self._end_drain()
        self._call.answer({"leader": leader, "term": term, "drained": self._drained})

    def refused(self, refused: Refused) -> None:
        self._end_drain()
        self._call.fail(refused_as(refused, self._calls.leader_address, "fencepost status"))

    def ended(self, reason: str) -> None:
        self._end_drain()
        self._call.fail(TransferRefused(f"{reason}; this node leads on", next_step="fencepost status"))

    def unknown(self) -> None:
        self._end_drain()
        self._call.fail(unknown("somebody else leads now", "fencepost status"))

    def _overdue(self) -> FencepostError:
        self._end_drain()
        return unknown("somebody else will lead", "fencepost status")

    def _end_drain(self) -> None:
        if self._draining:
            self._draining = False
            self._calls.effects.end_drain()


class _Elected:
    """Waits for whoever leads after a leader has stepped down (``requests.TransferSink``)."""

    def __init__(self, calls: HandoverCalls, reply: Reply, timeout_s: float) -> None:
        self._calls = calls
        self._call = SlowCall(calls.loop, calls.timers, reply, timeout_s, self._overdue)

    def done(self, leader: str, term: int) -> None:
        self._call.answer({"leader": leader, "term": term})

    def refused(self, refused: Refused) -> None:
        self.unknown()

    def ended(self, reason: str) -> None:
        """It was elected itself."""
        raft = self._calls.loop.raft
        self._call.answer({"leader": raft.leader, "term": raft.current_term})

    def unknown(self) -> None:
        self._call.fail(self._overdue())

    def _overdue(self) -> FencepostError:
        return unknown("anybody leads; this node stepped down", "fencepost status")
