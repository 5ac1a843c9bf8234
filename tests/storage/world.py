"""A data directory under test: opening it, writing to it, and what a crash leaves of it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, RLock
from typing import Any, Protocol, cast

import google_crc32c

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind, HardState, Snapshot
from fencepost.raft.core.errors import StorageError
from fencepost.raft.core.events import Persist
from fencepost.storage.disk import Disk, RealDisk
from fencepost.storage.identity import DataDirectory
from fencepost.storage.log_store import FileLogStore
from fencepost.storage.recovery import Recovered

from .faulty_disk import FaultyDisk

ROOT = Path("/data/n1")
FIRST = "log/0000000000000001.log"
FIRST_TIME_NS = 1_700_000_000_000_000_000
NEVER_S = 3600.0
PATIENCE_S = 60.0
"""A bound on waiting for another thread; reaching it is a failure, never a result."""


def entries(first: int, last: int, term: int = 1, size: int = 20) -> list[Entry]:
    """Entries ``first..last``; the data tells index and term, so that a replaced one is seen."""
    return [
        Entry(
            index,
            term,
            EntryKind.OUTBOX,
            FIRST_TIME_NS + index,
            f"{index}:{term}:".encode().ljust(size, b"x"),
        )
        for index in range(first, last + 1)
    ]


VOTERS = Configuration(("n1", "n2", "n3"))


def label(last_index: int, last_term: int = 1, configuration: Configuration = VOTERS) -> Snapshot:
    """A snapshot's label without size and checksum."""
    return Snapshot(last_index, last_term, FIRST_TIME_NS + last_index, configuration, 0)


def label_of(contents: bytes, last_index: int, last_term: int = 1) -> Snapshot:
    """The label of a snapshot with these contents."""
    return label(last_index, last_term)._replace(size_bytes=len(contents), checksum=google_crc32c.value(contents))


def entropy() -> Callable[[int], bytes]:
    """Salts and instance ids that differ from each other and are the same in every run."""
    count = itertools.count(1)
    return lambda size: next(count).to_bytes(size, "big")


def open_directory(
    disk: Disk, root: Path = ROOT, *, cluster_id: str = "c1", node_id: str = "n1", reserve_bytes: int = 0
) -> DataDirectory:
    return DataDirectory.open(
        root,
        cluster_id=cluster_id,
        node_id=node_id,
        voters=("n1", "n2", "n3"),
        disk=disk,
        entropy=entropy(),
        reserve_bytes=reserve_bytes,
    )


@dataclass
class Log:
    """An open store that remembers what it was told and what it answered."""

    directory: DataDirectory
    store: FileLogStore
    recovered: Recovered
    acknowledged: list[int] = field(default_factory=list)
    failures: list[StorageError] = field(default_factory=list)
    sequence: int = 0
    changed: Condition = field(default_factory=Condition)
    at_durable: Callable[[int], None] = lambda sequence: None
    """Called at the moment of an acknowledgement, on the store's thread."""
    stepped: bool = False
    """The store has no thread: it is driven where something is waited for."""

    def write(
        self,
        entries: Iterable[Entry] = (),
        *,
        hard_state: HardState | None = None,
        truncate_from: int = 0,
        commit_index: int = 0,
        reset: Snapshot | None = None,
        compact_to: int = 0,
    ) -> int:
        """Append without waiting; the write's sequence number."""
        self.sequence += 1
        self.store.append(
            Persist(self.sequence, hard_state, truncate_from, list(entries), commit_index, reset, compact_to)
        )
        return self.sequence

    def wait(self, sequence: int) -> None:
        """Until this write is acknowledged."""
        self._until(lambda: self.acknowledged[-1:] >= [sequence] or bool(self.failures))
        assert self.acknowledged[-1:] >= [sequence], self.failures

    def wait_failed(self) -> StorageError:
        self._until(lambda: bool(self.failures))
        return self.failures[0]

    def _until(self, condition: Callable[[], bool]) -> None:
        if self.stepped:
            while not condition():
                assert self.store.step(), (self.acknowledged, self.failures)
            return
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE_S), (self.acknowledged, self.failures)

    def durable(self, sequence: int) -> None:
        self.at_durable(sequence)
        with self.changed:
            self.acknowledged.append(sequence)
            self.changed.notify_all()

    def failed(self, error: StorageError) -> None:
        with self.changed:
            self.failures.append(error)
            self.changed.notify_all()

    def close(self) -> None:
        self.store.close()
        self.directory.close()


def open_log(
    disk: Disk,
    root: Path = ROOT,
    *,
    segment_bytes: int = 1 << 20,
    seal_after_s: float = NEVER_S,
    stepped: bool = False,
) -> Log:
    directory = open_directory(disk, root)
    try:
        store, recovered = FileLogStore.open(directory, segment_bytes=segment_bytes, seal_after_s=seal_after_s)
    except BaseException:
        directory.close()
        raise
    log = Log(directory, store, recovered, stepped=stepped)
    begin = store.start_stepped if stepped else store.start
    begin(log.durable, log.failed)
    return log


@contextmanager
def opened(disk: Disk, root: Path = ROOT, *, segment_bytes: int = 1 << 20, stepped: bool = False) -> Iterator[Log]:
    log = open_log(disk, root, segment_bytes=segment_bytes, stepped=stepped)
    try:
        yield log
    finally:
        log.close()


def recover(disk: Disk, root: Path = ROOT, *, stepped: bool = False) -> Recovered:
    """What an open finds; everything closed again."""
    with opened(disk, root, stepped=stepped) as log:
        return log.recovered


class World(Protocol):
    """Where a data directory lives, for the conformance suite."""

    disk: Disk
    root: Path
    stepped: bool
    """Its stores are driven without a thread."""

    def crash(self) -> World:
        """What is left if everything stops now, as hard as this world can make it."""

    def damage(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Change the bytes of a file in the data directory."""


class Guarded:
    """A disk or file whose operations each hold a mutex, so that a copy can be made between two of them."""

    def __init__(self, target: object, mutex: RLock) -> None:
        self._target = target
        self._mutex = mutex

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._target, name)

        def guarded(*arguments: Any, **named: Any) -> Any:
            with self._mutex:
                result = operation(*arguments, **named)
            return Guarded(result, self._mutex) if name == "open" else result

        return guarded


class RealWorld:
    """A folder. A crash is a copy of it: what a kill leaves (the cache outlives the process)."""

    def __init__(self, folder: Path, *, stepped: bool = False) -> None:
        self.stepped = stepped
        self._mutex = RLock()
        self.disk = cast(Disk, Guarded(RealDisk(), self._mutex))
        self.root = folder / "n1"
        self._folder = folder
        self._crashes = itertools.count(1)

    def crash(self) -> RealWorld:
        copy = self._folder / f"crash-{next(self._crashes)}"
        with self._mutex:
            shutil.copytree(self.root, copy / "n1")
        return RealWorld(copy, stepped=self.stepped)

    def damage(self, name: str, change: Callable[[bytes], bytes]) -> None:
        path = self.root / name
        path.write_bytes(change(path.read_bytes()))


class FakeWorld:
    """A faulty disk. A crash is a power loss."""

    def __init__(self, disk: FaultyDisk | None = None, *, stepped: bool = False) -> None:
        self.stepped = stepped
        self.faulty = disk or FaultyDisk()
        self.disk: Disk = self.faulty
        self.root = ROOT

    def crash(self) -> FakeWorld:
        return FakeWorld(self.faulty.after_power_loss(), stepped=self.stepped)

    def damage(self, name: str, change: Callable[[bytes], bytes]) -> None:
        path = self.root / name
        self.faulty.poke(path, change(self.faulty.read(path)))
