"""Linearizable reads, judged by what had been committed when they began (Raft thesis section 6.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...raft.core.events import ReadReady, ReadRefused, Role
from ...raft.core.state import RaftState
from .checks import ClusterChecks


class Asked(NamedTuple):
    name: str
    committed: int
    """How much was committed anywhere when it was asked."""
    newest_term: int
    """The highest term anybody had led by then."""


class Reads:
    """Every read that is asked for in a world, until it is answered or its node is gone."""

    def __init__(self) -> None:
        self.asked: dict[int, Asked] = {}
        self.ready = 0
        self.refused = 0
        self._next = 1

    def begin(self, name: str, checks: ClusterChecks) -> int:
        request_id, self._next = self._next, self._next + 1
        self.asked[request_id] = Asked(name, len(checks.committed), max(checks.leaders, default=0))
        return request_id

    def crashed(self, name: str) -> None:
        self.asked = {request_id: asked for request_id, asked in self.asked.items() if asked.name != name}

    def answered(self, name: str, raft: RaftState, answers: Sequence[ReadReady | ReadRefused]) -> None:
        for answer in answers:
            asked = self.asked.pop(answer.request_id, None)
            if asked is None or asked.name != name:
                raise AssertionError(f"{name} answered {answer}, which nobody waits for")
            if isinstance(answer, ReadRefused):
                self.refused += 1
                continue
            self.ready += 1
            if answer.read_index < asked.committed:
                raise AssertionError(f"stale read: {name} reads at {answer.read_index}, {asked} (S29, S30)")
            if raft.role is Role.LEADER and raft.current_term < asked.newest_term:
                raise AssertionError(f"{name}, leader of term {raft.current_term}, confirmed a read of {asked} (S30)")

    def check_kept(self, name: str, raft: RaftState) -> None:
        """Nobody waits for an answer that will not come (S44)."""
        leads = raft.role is Role.LEADER
        kept = {request_id for read in raft.pending_reads for request_id in read.request_ids if leads}
        kept |= {request_id for read in raft.forwarded_reads.values() for request_id in read.request_ids}
        waiting = {request_id for request_id, asked in self.asked.items() if asked.name == name}
        if waiting != kept:
            raise AssertionError(f"{name} keeps the reads {sorted(kept)}, asked were {sorted(waiting)}")
