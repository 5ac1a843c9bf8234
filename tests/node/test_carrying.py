"""The order in which one step's effects are carried out, with effects made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from fencepost.jepsen.cores.disk import Disk
from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind, HardState, Snapshot
from fencepost.raft.core.events import (
    Durable,
    Effects,
    Event,
    Persist,
    ReadChunk,
    ReadReady,
    Role,
    RoleChange,
    Send,
    StoreChunk,
    TransferBegun,
    TransferEnded,
)
from fencepost.raft.core.log import RaftLog
from fencepost.raft.core.messages import InstallSnapshot, Message, TimeoutNow
from fencepost.raft.core.step import NEVER, Raft
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.carrying import EffectsCarrier
from fencepost.raft.node.loop import RaftLoop
from fencepost.raft.node.snapshots import SnapshotKeeper

from ..core.planting import planted
from .process import ProcessLoop, SimClock, SimLogStore, as_event_loop
from .test_requests import Sink
from .virtual_time import VirtualTimeLoop
from .world import OPTIONS

MEMBERS = Configuration(("n1", "n2"))
RECEIVED = Snapshot(5, 1, 5, MEMBERS, 0, 100, 7)
LABEL = Snapshot(7, 2, 7, MEMBERS, 0)


class Script:
    """Stands in for the core: gives out effects that were made by hand, one set a step."""

    def __init__(self, *effects: Effects) -> None:
        self.effects = list(effects)
        self.taken: list[Event] = []
        self.node_id, self.options = "n1", OPTIONS
        self.log = RaftLog([Entry(6, 2, EntryKind.NO_OP, 6, b""), Entry(7, 2, EntryKind.NO_OP, 7, b"")], 5, 1)
        self.role, self.transfer, self.is_busy = Role.FOLLOWER, None, False
        self.pending_writes: Sequence[object] = ()
        self.last_leader_contact = 0

    def step(self, event: Event) -> Effects:
        self.taken.append(event)
        return self.effects.pop(0) if self.effects else Effects()

    def deadline(self) -> int:
        return NEVER


class Witness:
    """Everything that effects lead to, in the order in which it happens."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.loop = VirtualTimeLoop()
        self.process = ProcessLoop(self.loop)

    def make(self, *effects: Effects) -> RaftLoop:
        applier = Applier({})
        store = SimLogStore(cast(Disk, self), self.loop, self.process)
        store.append = lambda write: self.seen.append(f"persist {write.sequence}")  # type: ignore[method-assign]
        loop = RaftLoop(
            raft=cast(Raft, Script(*effects)),
            log_store=store,
            applier=applier,
            clock=SimClock(self.loop),
            loop=as_event_loop(self.process),
        )
        loop.transport = self
        loop.snapshots = cast(SnapshotKeeper, self)
        loop.observe(self)
        self.applier = applier
        return loop

    def turn(self, loop: RaftLoop, event: Event | None = None) -> None:
        loop.feed(event or Durable(0, 0))
        self.loop.advance(0.001)
        assert not loop.failed.done(), loop.failed.result()

    # -- Transport, SnapshotKeeper, LoopObserver --------------------------------------------------

    def send(self, to: str, message: Message) -> None:
        self.seen.append(f"send {to}")

    def store(self, part: StoreChunk) -> None:
        self.seen.append(f"store {part.offset}")

    def read(self, chunk: ReadChunk) -> None:
        self.seen.append(f"read for {chunk.to}")

    def adopt(self, snapshot: Snapshot) -> None:
        self.seen.append(f"adopt {snapshot.last_index}")
        self.applier.last_applied = snapshot.last_index

    def take(self, label: Snapshot) -> None:
        self.seen.append(f"take {label.last_index} with {self.applier.last_applied} applied")

    def settled(self, snapshot: Snapshot) -> None: ...

    def role_changed(self, change: RoleChange) -> None:
        self.seen.append(f"role {change.role}")

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        self.seen.append(f"applied {entries[0].index} to {entries[-1].index}")

    def restored(self, snapshot: Snapshot) -> None:
        self.seen.append(f"restored {snapshot.last_index}")

    def configuration_changed(self, configuration: Configuration) -> None:
        self.seen.append("configuration")

    def transfer_begun(self, transfer: TransferBegun) -> None:
        self.seen.append("transfer begun")

    def transfer_ended(self, transfer: TransferEnded) -> None:
        self.seen.append("transfer ended")

    def before_turn_ends(self, now: int) -> None: ...

    def stopped(self) -> None:
        self.seen.append("stopped")


@contextmanager
def witnessing() -> Iterator[Witness]:
    witness = Witness()
    with capture_logs():
        try:
            yield witness
        finally:
            witness.loop.close()


def everything() -> Effects:
    return Effects(
        persist=[Persist(1, HardState(2, ""), 0, [], 0)],
        sends=[Send("n2", TimeoutNow(2), 0)],
        apply_to=7,
        role_changes=[RoleChange(Role.FOLLOWER, 2, "n2", "")],
        restore=RECEIVED,
        take_snapshot=LABEL,
        chunks=[ReadChunk("n3", InstallSnapshot(2, RECEIVED, 0, b"", 0), 10, 0)],
        store_chunks=[StoreChunk(RECEIVED, 30, b"", False)],
        reads=[ReadReady(1, 7)],
        transfer=TransferEnded("n2", "late"),
        configuration=MEMBERS,
    )


def test_everything_that_one_step_can_want_in_its_order() -> None:
    sink = Sink()
    with witnessing() as witness:
        loop = witness.make(Effects(), everything())
        loop.read(sink)
        witness.loop.advance(0.001)
        assert not sink.heard
        loop.applier.last_applied = 3
        witness.turn(loop)
    assert witness.seen == [
        "persist 1",
        "send n2",
        "store 30",
        "read for n3",
        "adopt 5",
        "restored 5",
        "applied 6 to 7",
        "take 7 with 7 applied",
        "role follower",
        "transfer ended",
        "configuration",
    ]
    assert sink.heard == "ready"


def test_s05_what_needs_a_write_waits_for_it_messages_and_parts_of_snapshots_alike() -> None:
    chunk = ReadChunk("n3", InstallSnapshot(2, RECEIVED, 0, b"", 0), 10, 2)
    with witnessing() as witness:
        loop = witness.make(Effects(sends=[Send("n2", TimeoutNow(2), 1), Send("n4", TimeoutNow(2), 2)], chunks=[chunk]))
        witness.turn(loop)
        assert witness.seen == []
        witness.turn(loop, Durable(0, 1))
        assert witness.seen == ["send n2"]
        witness.turn(loop, Durable(0, 2))
        assert witness.seen == ["send n2", "send n4", "read for n3"]


@pytest.mark.parametrize(
    ("effects", "words"),
    [
        (Effects(take_snapshot=LABEL), "snapshot of 7 asked for, and 5 is applied"),
        (Effects(restore=RECEIVED), "restore to 5, and 5 is applied"),
        (Effects(restore=RECEIVED._replace(last_index=4)), "restore to 4, and 5 is applied"),
    ],
)
def test_s19_a_step_that_does_not_fit_what_is_applied_ends_the_node(effects: Effects, words: str) -> None:
    with witnessing() as witness:
        loop = witness.make(effects)
        loop.applier.last_applied = 5
        loop.feed(Durable(0, 0))
        witness.loop.advance(0.001)
        assert words in str(loop.failed.result())
        assert witness.seen == ["stopped"]


def test_entries_that_are_on_disk_only_are_not_skipped_where_nobody_reads_them() -> None:
    with witnessing() as witness:
        loop = witness.make(Effects(apply_to=7))
        loop.applier.last_applied = 3
        loop.feed(Durable(0, 0))
        witness.loop.advance(0.001)
        assert isinstance(loop.failed.result(), AssertionError)
        assert witness.seen == ["stopped"]


def both() -> None:
    test_everything_that_one_step_can_want_in_its_order()
    test_s05_what_needs_a_write_waits_for_it_messages_and_parts_of_snapshots_alike()


@pytest.mark.parametrize(
    ("function", "line", "fault"),
    [
        (EffectsCarrier._carry_out, "for write in effects.persist:", "for write in []:"),
        (
            EffectsCarrier._carry_out,
            "if effects.restore is not None:",
            "if effects.apply_to:\n        self._applying.up_to(effects.apply_to)\n    if effects.restore is not None:",
        ),
        (
            EffectsCarrier._carry_out,
            "if effects.apply_to:",
            "if effects.take_snapshot:\n        self._applying.snapshot(effects.take_snapshot)\n"
            "    if effects.apply_to:",
        ),
        (EffectsCarrier._carry_out, "if send.after > self._durable_sequence:", "if False:"),
        (EffectsCarrier._move_chunks, "if chunk.after > self._durable_sequence:", "if False:"),
    ],
    ids=["not written", "applied before restored", "taken before applied", "message too early", "part too early"],
)
def test_a_planted_fault_is_seen(function: Callable[..., Any], line: str, fault: str) -> None:
    with planted(function, line, fault), pytest.raises(AssertionError):
        both()
