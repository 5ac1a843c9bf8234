"""What an embedder waits for: who leads, and how far the state is (``raft.node.observers.LoopObserver``)."""

from __future__ import annotations

import asyncio
from typing import Any

from ...raft.core.entry import Entry, Snapshot
from ...raft.core.events import Role, RoleChange
from ...raft.core.token import FencingToken
from ...raft.node.loop import RaftLoop
from ...raft.node.observers import Onlooker
from .values import Leadership


class Watch(Onlooker):
    """Wakes whoever waits; a waiter looks for himself what there is, so that nothing can pile up for a slow one."""

    def __init__(self, loop: RaftLoop, incarnation: int, event_loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._incarnation = incarnation
        self._event_loop = event_loop
        self._leads_in = 0
        """The term in which this node leads and has applied an entry of its own; 0: none."""
        self._for_leadership: list[asyncio.Future[None]] = []
        self._for_entries: list[asyncio.Future[None]] = []
        self.ended = False

    def leadership(self) -> Leadership:
        raft = self._loop.raft
        leads = not self.ended and self._leads_in != 0
        leader = "" if self.ended else raft.leader
        token = FencingToken(self._incarnation, raft.current_term) if leads else None
        return Leadership(leader, raft.current_term, leads, token, self._holds)

    def _holds(self, term: int) -> bool:
        return self._leads_in == term and self._loop.leads_in(term) and self._loop.holds_lease()

    async def leadership_changed(self, *, within_s: float | None = None) -> None:
        """Returns as soon as who leads may have changed, or the node has ended, or ``within_s`` is over."""
        await self._wait(self._for_leadership, within_s)

    async def entries_applied(self) -> None:
        """Returns as soon as something more is applied, or the node has ended."""
        await self._wait(self._for_entries, None)

    async def _wait(self, waiting: list[asyncio.Future[None]], within_s: float | None) -> None:
        if self.ended:
            return
        future: asyncio.Future[None] = self._event_loop.create_future()
        waiting.append(future)
        try:
            await asyncio.wait([future], timeout=within_s)
        finally:
            if future in waiting:
                waiting.remove(future)

    @staticmethod
    def _wake(waiting: list[asyncio.Future[None]]) -> None:
        woken = waiting[:]
        waiting.clear()
        for future in woken:
            if not future.done():
                future.set_result(None)

    # -- LoopObserver -----------------------------------------------------------------------------

    def role_changed(self, change: RoleChange) -> None:
        self._leads_in = 0
        self._wake(self._for_leadership)

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        if self._for_entries:
            self._wake(self._for_entries)
        raft = self._loop.raft
        if raft.role is Role.LEADER and not self._leads_in and entries[-1].term == raft.current_term:
            self._leads_in = raft.current_term
            self._wake(self._for_leadership)

    def restored(self, snapshot: Snapshot) -> None:
        self._wake(self._for_entries)

    def stopped(self) -> None:
        self.ended = True
        self._leads_in = 0
        self._wake(self._for_leadership)
        self._wake(self._for_entries)
