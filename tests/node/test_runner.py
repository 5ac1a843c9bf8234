"""Blocking work on a thread of its own, and what the keeper of snapshots does there and on the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind, Snapshot
from fencepost.raft.core.errors import StorageError
from fencepost.raft.core.events import Event, ReadChunk, SnapshotReceived, SnapshotTaken, StoreChunk
from fencepost.raft.core.messages import InstallSnapshot, Message
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.runner import Completion, ThreadRunner
from fencepost.raft.node.snapshots import SnapshotKeeper

from .snapshot_parts import MemorySnapshotStore, NodeDisk

LABEL = Snapshot(1, 1, 1, Configuration(("n1",)), 0)


class Done:
    """Collects completions, and says when there are enough of them."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, BaseException | None, int]] = []
        self._news = asyncio.Event()

    def __call__(self, result: Any, error: BaseException | None) -> None:
        self.heard.append((result, error, threading.get_ident()))
        self._news.set()

    async def count(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.heard) < count:
                self._news.clear()
                await self._news.wait()


async def test_work_is_done_in_order_on_one_thread_and_its_end_is_heard_on_the_loop() -> None:
    runner, done = ThreadRunner(asyncio.get_running_loop(), "work"), Done()
    threads: list[int] = []

    def work(number: int) -> int:
        threads.append(threading.get_ident())
        if number == 3:
            raise StorageError("3")
        return number

    for number in range(6):
        runner.run(lambda number=number: work(number), done)  # type: ignore[misc]
    await done.count(6)
    assert [result for result, *_ in done.heard] == [0, 1, 2, None, 4, 5]
    assert [type(error) for _, error, _ in done.heard if error] == [StorageError]
    assert {thread for *_, thread in done.heard} == {threading.get_ident()}
    assert len(set(threads)) == 1
    assert threading.get_ident() not in threads
    await runner.close()


async def test_s42_close_waits_for_what_is_under_way_and_begins_nothing_more() -> None:
    runner, done = ThreadRunner(asyncio.get_running_loop(), "work"), Done()
    begun, release = threading.Event(), threading.Event()
    later: list[int] = []

    def first() -> str:
        begun.set()
        release.wait()
        return "first"

    runner.run(first, done)
    runner.run(lambda: later.append(1), done)
    await asyncio.to_thread(begun.wait)
    closing = asyncio.create_task(runner.close())
    await asyncio.sleep(0)
    assert not closing.done()
    release.set()
    await closing
    await done.count(1)
    assert [result for result, *_ in done.heard] == ["first"]
    assert not later


async def test_close_is_bounded() -> None:
    release = threading.Event()
    runner = ThreadRunner(asyncio.get_running_loop(), "hangs", close_timeout_s=0.05)
    runner.run(release.wait, Done())
    async with asyncio.timeout(5):
        await runner.close()
    release.set()


class Prepared:
    def __init__(self, state: list[bytes], note: Callable[[str], None]) -> None:
        self.state = state
        self._note = note

    def discard(self) -> None:
        self._note("discard")


class Watched:
    """A machine that notes on which thread it is asked for what."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.state = [b"one", b"two"]
        self.gate: threading.Event | None = None
        self.drawing = threading.Event()

    def _note(self, what: str) -> None:
        self.asked.append((what, threading.get_ident()))

    def apply(self, entry: Entry) -> None: ...

    def snapshot(self) -> Iterable[bytes]:
        self._note("snapshot")
        return self._draw(list(self.state))

    def _draw(self, state: list[bytes]) -> Iterator[bytes]:
        for chunk in state:
            self._note("draw")
            self.drawing.set()
            yield chunk
            if self.gate is not None:
                self.gate.wait()

    def prepare(self, chunks: Iterable[bytes]) -> Prepared:
        self._note("prepare")
        return Prepared(list(chunks), self._note)

    def adopt(self, prepared: Prepared) -> None:
        self._note("adopt")
        self.state = prepared.state

    def restore(self, chunks: Iterable[bytes]) -> None:
        raise AssertionError("in one go")


class Loop:
    """``KeeperLoop`` that collects."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.errors: list[BaseException] = []
        self.news = asyncio.Event()

    def now(self) -> int:
        return 7

    def leads_in(self, term: int) -> bool:
        return True

    def feed(self, event: Event) -> None:
        self.events.append(event)
        self.news.set()

    def fail(self, error: BaseException) -> None:
        self.errors.append(error)
        self.news.set()

    storage_failed = fail

    def guarded(self, callback: Completion) -> Completion:
        return callback

    async def event(self) -> Event:
        async with asyncio.timeout(10):
            await self.news.wait()
        self.news.clear()
        assert not self.errors, self.errors
        return self.events[-1]


class Node:
    def __init__(self) -> None:
        self.machine, self.loop = Watched(), Loop()
        self.disk = NodeDisk()
        self.applier = Applier({EntryKind.EMBEDDED: self.machine})
        self.runner = ThreadRunner(asyncio.get_running_loop(), "snapshots")
        self.store = MemorySnapshotStore(self.disk)
        self.sent: list[tuple[str, InstallSnapshot]] = []
        self.keeper = SnapshotKeeper(
            store=self.store,
            applier=self.applier,
            runner=self.runner,
            loop=self.loop,
            send=self.send,
        )

    def send(self, to: str, message: Message) -> None:
        assert isinstance(message, InstallSnapshot)
        self.sent.append((to, message))

    def threads(self, what: str) -> set[int]:
        return {thread for asked, thread in self.machine.asked if asked == what}


async def test_s40_only_capturing_and_swapping_in_happen_on_the_loop() -> None:
    here = threading.get_ident()
    giver, taker = Node(), Node()
    giver.keeper.take(LABEL)
    taken = await giver.loop.event()
    assert isinstance(taken, SnapshotTaken)
    snapshot, contents = giver.disk.snapshots[0]
    assert taken.snapshot == snapshot
    assert giver.threads("snapshot") == {here}
    assert here not in giver.threads("draw") != set()

    taker.machine.state = []
    taker.keeper.store(StoreChunk(snapshot, 0, contents, True))
    assert await taker.loop.event() == SnapshotReceived(7, snapshot)
    assert here not in taker.threads("prepare") != set()
    assert taker.machine.state == [], "before the core has said so"
    taker.keeper.adopt(snapshot)
    assert taker.threads("adopt") == {here}
    assert (taker.machine.state, taker.applier.last_applied) == ([b"one", b"two"], 1)
    taker.keeper.settled(snapshot)
    with pytest.raises(AssertionError, match="not received"):
        taker.keeper.adopt(snapshot)
    done = Done()
    taker.runner.run(lambda: None, done)
    await done.count(1)
    assert here not in taker.threads("discard") != set()
    await giver.keeper.close()
    await taker.keeper.close()


async def test_a_part_that_is_asked_for_again_while_it_is_being_read_is_read_once() -> None:
    """Reading the first part verifies all of a snapshot. Asked for again every second, it would be done again and
    again, in front of everything else that the runner is given."""
    node = Node()
    node.keeper.take(LABEL)
    await node.loop.event()
    snapshot, contents = node.disk.snapshots[0]
    reads: list[int] = []
    read, begun, release = node.store.read, threading.Event(), threading.Event()

    def slowly(snapshot: Snapshot, offset: int, length: int) -> bytes:
        reads.append(offset)
        begun.set()
        release.wait()
        return read(snapshot, offset, length)

    node.store.read = slowly  # type: ignore[method-assign]

    def ask(to: str, sent_at: int, offset: int = 0) -> None:
        node.keeper.read(ReadChunk(to, InstallSnapshot(1, snapshot, offset, b"", sent_at), 8, 0))

    for sent_at in (1, 2, 3):
        ask("n2", sent_at)
    ask("n3", 3)
    await asyncio.to_thread(begun.wait)
    ask("n2", 4)
    release.set()
    done = Done()
    node.runner.run(lambda: None, done)
    await done.count(1)
    assert reads == [0, 0]
    # It is the newest question that is answered.
    assert [(to, message.sent_at) for to, message in node.sent] == [("n2", 4), ("n3", 3)]
    assert {message.data for _, message in node.sent} == {contents[:8]}
    ask("n2", 5)
    ask("n2", 6, 8)
    node.runner.run(lambda: None, done)
    await done.count(2)
    assert reads == [0, 0, 0, 8]
    assert [(message.offset, message.sent_at) for _, message in node.sent[2:]] == [(0, 5), (8, 6)]
    await node.keeper.close()


async def test_a_snapshot_that_is_being_written_does_not_hold_up_the_end_of_the_node() -> None:
    node = Node()
    node.machine.gate = threading.Event()
    node.keeper.take(LABEL)
    await asyncio.to_thread(node.machine.drawing.wait)
    closing = asyncio.create_task(node.keeper.close())
    await asyncio.sleep(0)
    node.machine.gate.set()
    await closing
    await asyncio.sleep(0)
    assert not node.disk.snapshots
    assert not node.loop.events
    assert not node.loop.errors
