"""What snapshots do on the node's loop: next to nothing. All that takes time is left to the runner (S19, S36, S40)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import EntryKind, Snapshot
from fencepost.raft.core.events import ReadChunk, SnapshotReceived, SnapshotTaken, StoreChunk
from fencepost.raft.core.messages import InstallSnapshot
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.runner import Completion
from fencepost.raft.node.snapshots import SnapshotKeeper
from fencepost.raft.outbox import capture, snapshot
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.state_digest import operation_terms

from ..core.planting import planted
from ..outbox.script import Script
from ..storage.memory_snapshots import MemorySnapshotStore


class Runner:
    """Notes what it is given, and does it when told to. ``on_it`` says whether it is at it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Completion]] = []
        self.on_it = False

    def run(self, work: Callable[[], Any], done: Completion) -> None:
        self.jobs.append((work, done))

    def work(self) -> None:
        while self.jobs:
            work, done = self.jobs.pop(0)
            self.on_it = True
            result = work()
            self.on_it = False
            done(result, None)

    async def close(self) -> None: ...


class Loop:
    """Takes the events that a keeper feeds."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def now(self) -> int:
        return 0

    def leads_in(self, term: int) -> bool:
        return True

    def feed(self, event: Any) -> None:
        self.events.append(event)

    def fail(self, error: BaseException) -> None:
        raise error

    def storage_failed(self, error: BaseException) -> None:
        raise error

    def guarded(self, callback: Completion) -> Completion:
        return callback


class Store(MemorySnapshotStore):
    """Checks that only the runner calls it."""

    runner: Runner

    def write(self, label: Snapshot, chunks: Iterable[bytes]) -> Snapshot:
        assert self.runner.on_it
        return super().write(label, chunks)

    def read(self, snapshot: Snapshot, offset: int, length: int) -> bytes:
        assert self.runner.on_it
        return super().read(snapshot, offset, length)

    def contents(self, snapshot: Snapshot) -> Iterator[bytes]:
        assert self.runner.on_it
        return super().contents(snapshot)

    def store_chunk(self, snapshot: Snapshot, offset: int, data: bytes) -> int:
        assert self.runner.on_it
        return super().store_chunk(snapshot, offset, data)

    def finish(self, snapshot: Snapshot) -> bool:
        assert self.runner.on_it
        return super().finish(snapshot)


class Node:
    def __init__(self, machine: OutboxMachine) -> None:
        self.machine = machine
        self.applier = Applier({EntryKind.OUTBOX: machine})
        self.runner, self.loop, self.store = Runner(), Loop(), Store()
        self.store.runner = self.runner
        self.sent: list[InstallSnapshot] = []
        self.keeper = SnapshotKeeper(
            store=self.store,
            applier=self.applier,
            runner=self.runner,
            loop=self.loop,
            send=lambda to, message: self.sent.append(message),  # type: ignore[arg-type]
        )


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> list[Runner]:
    """Whatever looks at operations for a snapshot must be on one of these runners."""
    runners: list[Runner] = []

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            assert any(runner.on_it for runner in runners), f"{function.__name__} on the loop"
            return function(*arguments)

        return call

    monkeypatch.setattr(capture, "record_of", watched(snapshot.record_of))
    monkeypatch.setattr(snapshot, "_load_operations", watched(snapshot._load_operations))
    monkeypatch.setattr(snapshot, "operation_terms", watched(operation_terms))
    return runners


def filled() -> OutboxMachine:
    script = Script()
    script.activate(1)
    for number in range(600):
        script.submit(f"op{number}")
    return script.machine


def test_neither_taking_nor_sending_nor_restoring_looks_at_an_operation_on_the_loop(busy: list[Runner]) -> None:
    one, other = Node(filled()), Node(OutboxMachine())
    busy += [one.runner, other.runner]
    label = Snapshot(one.machine.last_applied, 1, 1, Configuration(("n1",)), 0)
    one.keeper.take(label)
    one.runner.work()
    (taken,) = one.loop.events
    assert isinstance(taken, SnapshotTaken)
    made, offset, chunk_bytes = taken.snapshot, 0, 4096
    while offset < made.size_bytes:
        one.keeper.read(ReadChunk("n2", InstallSnapshot(1, made, offset, b"", 0), chunk_bytes, 0))
        one.runner.work()
        part = one.sent[-1]
        assert len(part.data) <= chunk_bytes
        offset += len(part.data)
        other.keeper.store(StoreChunk(made, part.offset, part.data, offset == made.size_bytes))
        other.runner.work()
    assert other.loop.events[-1] == SnapshotReceived(0, made)
    other.keeper.adopt(made)
    assert other.machine.state_digest() == one.machine.state_digest()
    assert other.applier.last_applied == made.last_index


@pytest.mark.endure
@pytest.mark.parametrize(
    ("function", "line", "fault"),
    [
        (SnapshotKeeper.take, "contents = self._applier.capture()", "contents = list(self._applier.capture())"),
        (
            SnapshotKeeper.store,
            "self._run(partial(self._receive, part), partial(self._received, part.snapshot))",
            "self._received(part.snapshot, self._receive(part), None)",
        ),
    ],
    ids=["encoded on the loop", "read in on the loop"],
)
def test_a_planted_fault_is_seen(function: Any, line: str, fault: str, busy: list[Runner]) -> None:
    with planted(function, line, fault), pytest.raises(AssertionError):
        test_neither_taking_nor_sending_nor_restoring_looks_at_an_operation_on_the_loop(busy)
