"""Carrying out what one step of the core asks for, in the order that it is meant in.

The write is handed over first; then what needs no write is sent; then entries for slow followers are read, and
parts of snapshots are stored and read; then the state machines are replaced, and entries applied; then a
snapshot is taken of exactly the state that this leaves; and only then anybody is told of roles, transfers,
configurations and reads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog

from ..core.entry import Entry, Snapshot
from ..core.errors import AcknowledgedLost
from ..core.events import Effects, Event, LostEntries, ReadChunk, Role, RoleChange, Send, TransferBegun, TransferEnded
from ..core.step import Raft
from ..ports import Clock, LogStore, Transport
from .applier import Applier
from .applying import Applying
from .entries import EntryReading
from .observers import LoopObserver
from .requests import Reads, Transfers
from .snapshots import SnapshotKeeper
from .waiters import Waiters

_LOG = structlog.get_logger("fencepost.node")


class EffectsCarrier:
    """What :class:`~fencepost.raft.node.loop.RaftLoop` has for its core's effects, and what others read of it."""

    def __init__(
        self, raft: Raft, log_store: LogStore, applier: Applier, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.raft = raft
        self.applier = applier
        self.waiters = Waiters()
        self.reads = Reads()
        self.transfers = Transfers()
        self.transport: Transport | None = None
        self.snapshots: SnapshotKeeper | None = None
        self.turn_away: Callable[[str, AcknowledgedLost], None] | None = None
        """Cuts a peer off, and tells it why when it comes back. Set like ``transport``."""
        self.last_leader: tuple[str, int] | None = None
        """The leader before there was none, and when it was last heard (monotonic nanoseconds)."""
        self._log_store = log_store
        self._clock = clock
        self._loop = loop
        self._observers: list[LoopObserver] = []
        self._leader = ""
        self._applying = Applying(raft, applier, self, applied=self._apply, take=self._capture)
        self._held: deque[Send | ReadChunk] = deque()
        self._durable_sequence = 0
        self._cluster_ahead_ns = clock.time_ns() - clock.monotonic_ns()

    @property
    def entries(self) -> EntryReading | None:
        """Who reads back what is not in memory. Set like ``transport``; without it all has to be."""
        return self._applying.entries

    @entries.setter
    def entries(self, reading: EntryReading) -> None:
        self._applying.entries = reading

    # -- what whoever owns this has -----------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        raise NotImplementedError

    def feed(self, event: Event) -> None:
        raise NotImplementedError

    def wake(self) -> None:
        raise NotImplementedError

    def soon(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    # -- what others read -------------------------------------------------------------------------

    def now(self) -> int:
        return self._clock.monotonic_ns()

    def cluster_time_ns(self) -> int:
        """Cluster time as this leader stamps it now, nanoseconds since the Unix epoch.

        It starts where the log ends and goes on with the monotonic clock: neither a wall clock that
        is set nor one behind the predecessor's makes a deadline in the log come early or late (S46).
        """
        return self._clock.monotonic_ns() + self._cluster_ahead_ns

    def leads_in(self, term: int) -> bool:
        return self.raft.role is Role.LEADER and self.raft.current_term == term

    def term_start_index(self) -> int:
        return self.raft.term_start_index

    def last_leader_contact_ns(self) -> int:
        return max(self.raft.last_leader_contact, 0)

    def stale_read_age_ns(self) -> int | None:
        """How old the state here may be, nanoseconds, as far as this node knows; None if it knows nothing."""
        if self.applier.last_applied < self.raft.apply_reported:
            return None  # The rest is applied by and by.
        return self.raft.stale_age(self._clock.monotonic_ns())

    # -- the order --------------------------------------------------------------------------------

    def _carry_out(self, effects: Effects) -> None:
        for write in effects.persist:
            self._log_store.append(write)
        transport = self.transport
        for send in effects.sends:
            if send.after > self._durable_sequence:
                self._held.append(send)
            elif transport is not None:
                transport.send(send.to, send.message)
        for wanted in effects.read_entries:
            if self.entries is None:
                raise AssertionError(f"{wanted} is asked for on a node that reads none back")
            self.entries.for_follower(wanted)
        if effects.store_chunks or effects.chunks:
            self._move_chunks(effects)
        if effects.restore is not None:
            self._restore(effects.restore)
        if effects.apply_to:
            self._applying.up_to(effects.apply_to)
        if effects.take_snapshot is not None:
            self._applying.snapshot(effects.take_snapshot)
        for lost in effects.lost_entries:
            self._tell_lost(lost)
        if effects.role_changes or effects.reads or effects.transfer or effects.configuration:
            self._tell(effects)

    def _release(self) -> None:
        """Send what was waiting for writes that have become durable."""
        transport = self.transport
        held = self._held
        while held and held[0].after <= self._durable_sequence:
            send = held.popleft()
            if isinstance(send, ReadChunk):
                self._keeper().read(send)
            elif transport is not None:
                transport.send(send.to, send.message)

    # -- snapshots --------------------------------------------------------------------------------

    def _keeper(self) -> SnapshotKeeper:
        if self.snapshots is None:
            raise AssertionError("snapshots are asked for on a node that keeps none")
        return self.snapshots

    def _move_chunks(self, effects: Effects) -> None:
        for part in effects.store_chunks:
            self._keeper().store(part)
        for chunk in effects.chunks:
            if chunk.after > self._durable_sequence:
                self._held.append(chunk)
            else:
                self._keeper().read(chunk)

    def _restore(self, snapshot: Snapshot) -> None:
        if snapshot.last_index <= self.applier.last_applied:
            raise AssertionError(f"restore to {snapshot.last_index}, and {self.applier.last_applied} is applied")
        _LOG.info("state restored", last_index=snapshot.last_index, before=self.applier.last_applied)
        self._keeper().adopt(snapshot)
        self._applying.restored()
        self.waiters.superseded(snapshot.last_index)
        for observer in self._observers:
            observer.restored(snapshot)
        self.reads.applied(snapshot.last_index)

    def _capture(self, label: Snapshot) -> None:
        self._keeper().take(label)

    # -- applying and telling ---------------------------------------------------------------------

    def _apply(self, entries: list[Entry]) -> None:
        results: list[Any] = self.applier.apply(entries)
        self.waiters.applied(entries, results)
        for observer in self._observers:
            observer.applied(entries, results)
        self.reads.applied(entries[-1].index)

    def _tell(self, effects: Effects) -> None:
        for change in effects.role_changes:
            self._role_changed(change)
        transfer = effects.transfer
        if isinstance(transfer, TransferBegun):
            _LOG.info("transfer begun", target=transfer.target)
            for observer in self._observers:
                observer.transfer_begun(transfer)
        elif isinstance(transfer, TransferEnded):
            _LOG.warning("transfer ended", target=transfer.target, reason=transfer.reason)
            self.transfers.ended(transfer)
            for observer in self._observers:
                observer.transfer_ended(transfer)
        if effects.configuration is not None:
            for observer in self._observers:
                observer.configuration_changed(effects.configuration)
        if effects.reads:
            self.reads.answered(effects.reads, self.applier.last_applied)

    def _tell_lost(self, lost: LostEntries) -> None:
        """Nobody may rest on what that follower says any more, and it least of all (S21)."""
        peer, raft = lost.peer, self.raft
        _LOG.error(
            "follower lost acknowledged entries",
            peer=peer,
            acknowledged=lost.acknowledged,
            may_match=lost.may_match,
            term=raft.current_term,
        )
        if self.turn_away is not None:
            self.turn_away(
                peer,
                AcknowledgedLost(
                    f"node {peer} acknowledged the entries up to {lost.acknowledged} to {raft.node_id}, the leader of "
                    f"term {raft.current_term}, and now has none beyond {lost.may_match} that match: its data "
                    "directory was put back to an older copy, or its disk lost what it had synced",
                    next_step=f"stop {peer} and replace it by a node under a new name; docs/operations.md, "
                    "ACKNOWLEDGED_LOST",
                ),
            )

    def _role_changed(self, change: RoleChange) -> None:
        _LOG.info("role changed", role=change.role.value, term=change.term, leader=change.leader, reason=change.reason)
        if self._leader and not change.leader:
            # Heard of until now, or, where this node led, until the last message of it was answered.
            heard_at = (
                self._clock.monotonic_ns() if self._leader == self.raft.node_id else self.raft.last_leader_contact
            )
            self.last_leader = (self._leader, heard_at)
        self._leader = change.leader
        if change.role is Role.LEADER:
            agreed_ns = max(self._clock.time_ns(), self.raft.log.last_time_ns)
            self._cluster_ahead_ns = agreed_ns - self._clock.monotonic_ns()
        elif len(self.waiters):
            self.waiters.leadership_lost(self._clock.monotonic_ns() + 2 * self.raft.options.election_timeout)
        self.transfers.role_changed(change, self.raft.node_id)
        for observer in self._observers:
            observer.role_changed(change)
