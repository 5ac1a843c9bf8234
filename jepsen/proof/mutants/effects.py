"""Activation, dispatch and the answers to clients: who may act when, and who hears what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....raft.effects import policy
from ....raft.effects.authority import Authority
from ....raft.effects.dispatcher import Dispatcher
from ....raft.effects.due import DueTimes
from ....raft.effects.queue import DispatchQueue
from ....raft.effects.tenure import Tenure
from ....raft.node.loop import RaftLoop
from ....raft.node.service import ClientService
from ....raft.node.waiters import Waiters
from .mutant import Mutant


def _mutant(name: str, function: Callable[..., Any], line: str, fault: str) -> Mutant:
    return Mutant(name, "effects", function, line, fault)


MUTANTS = (
    _mutant("resources are not claimed", Tenure._claim, "return await resource.claim(token, holder)", "return None"),
    _mutant("authority is never revoked", Authority.revoke, "self._revoked = True", "pass"),
    _mutant(
        "the queue is not filled from what predecessors left",
        Tenure._activate,
        "seat.dispatcher.offer(operation)",
        "pass",
    ),
    _mutant(
        "an effect that needs a committed dispatch does not wait for it",
        Dispatcher._start,
        "batch.beside = self._resource.guarantee is Guarantee.FENCED and self._may_run_beside(operations)",
        "batch.beside = True",
    ),
    _mutant(
        "a lane goes on before its head's failure is known",
        Dispatcher._propose_outcomes,
        "if succeeded == len(batch.outcomes):",
        "if True:",
    ),
    _mutant(
        "a failed head goes behind its lane",
        DispatchQueue.release_lane,
        "self._lanes[name].extendleft(reversed(returned))",
        "self._lanes[name].extend(returned)",
    ),
    _mutant(
        "a head in doubt is passed by",
        DispatchQueue._enter_lane,
        "while lane and lane[0].state in TERMINAL:",
        "while lane and not self.startable(lane[0]):",
    ),
    _mutant(
        "no answer of a naked resource is taken for a failure that may be repeated",
        policy.judge,
        "elif status == AttemptStatus.UNKNOWN and guarantee is Guarantee.NAKED:",
        "elif False:",
    ),
    _mutant(
        "more effects run at once than the resource takes",
        Dispatcher.pump,
        "while queue.has_ready and self._running + others < self._concurrency():",
        "while queue.has_ready:",
    ),
    _mutant(
        "retries are timed by the wall clock",
        RaftLoop.cluster_time_ns,
        "return self._clock.monotonic_ns() + self._cluster_ahead_ns",
        "return self._clock.time_ns()",
    ),
    _mutant(
        "a deadline is looked at by nobody",
        DueTimes._expire,
        "elif operation.state in _FREE:",
        "elif False:",
    ),
    _mutant("a retry is woken by nothing", Dispatcher.pump, "queue.wake(self._cluster_time_ns())", "pass"),
    _mutant(
        "whoever waits hears that another's entry was committed as his own",
        Waiters._decide,
        "ours = sum(1 for entry in entries if entry.term == batch.term)",
        "ours = len(entries)",
    ),
    _mutant(
        "a command is called done when it is taken in",
        ClientService._answer_submission,
        "elif wait == Wait.DONE and operation.state not in TERMINAL:",
        "elif False:",
    ),
)
