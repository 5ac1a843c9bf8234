"""What a node's disk holds before the run begins, put together in memory and written by the real stores."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from ....raft.core.configuration import Configuration, encode_configuration
from ....raft.core.entry import Entry, EntryKind, Snapshot
from ....raft.core.entry import HardState as TermAndVote
from ....raft.core.events import Persist
from ....raft.core.options import MILLISECOND, SECOND
from ....raft.core.token import FencingToken
from ....raft.node.applier import Applier
from ....raft.outbox.codec import Activation, Command, Dispatch, OutboxEntry, Outcome, encode
from ....raft.outbox.machine import OutboxMachine
from ....storage.identity import DataDirectory
from ....storage.log_store import FileLogStore
from ....storage.snapshots import FileSnapshotStore
from ...sim.clock import WALL_CLOCK_NS
from ...sim.node import CLUSTER_ID, DATA_DIRECTORY
from ...sim.registers import Registers
from ...sim.resource import OutsideResource, Request
from ...sim.world import World

PAST_NS = 60 * SECOND
"""How long before the run the history began."""
INCARNATION = 1


class Log:
    """Entries of one history, stamped as a leader would."""

    def __init__(self, entries: list[Entry] | None = None) -> None:
        self.entries = list(entries or ())

    def copy(self) -> Log:
        return Log(self.entries)

    @property
    def last_index(self) -> int:
        return self.entries[-1].index if self.entries else 0

    def add(self, term: int, kind: EntryKind, data: bytes = b"") -> int:
        """Append one entry; its index."""
        index = self.last_index + 1
        time_ns = WALL_CLOCK_NS - PAST_NS + index * 10 * MILLISECOND
        self.entries.append(Entry(index, term, int(kind), time_ns, data))
        return index

    def no_op(self, term: int) -> int:
        return self.add(term, EntryKind.NO_OP)

    def plain(self, term: int, count: int) -> None:
        """Entries of the plain log, told apart by place and term."""
        for _ in range(count):
            self.add(term, EntryKind.EMBEDDED, b"past-%d-%d" % (term, self.last_index + 1))

    def outbox(self, term: int, entry: OutboxEntry) -> int:
        return self.add(term, EntryKind.OUTBOX, encode(entry))

    def configuration(self, term: int, configuration: Configuration) -> int:
        return self.add(term, EntryKind.CONFIGURATION, encode_configuration(configuration))

    def up_to(self, index: int) -> Log:
        return Log(self.entries[:index])


class Disk(NamedTuple):
    """What one node's disk holds."""

    log: Log
    term: int
    voted_for: str = ""
    commit_index: int = 0
    snapshot_at: int = 0
    """A snapshot holds everything up to there; 0: there is none."""
    begins_behind: int = 0
    """Entries up to here are gone from the log."""


class Past:
    """The beginning of a world under construction. ``names`` are its nodes, the first members."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.names = list(world.names)
        self.disks: dict[str, Disk] = {}
        self._leaders: dict[int, str] = {}

    def holder(self, node: str) -> str:
        """Of a process of this node that has ended."""
        return f"{node}/past/1/00000000"

    def lead(self, term: int, node: str) -> FencingToken:
        """This node was the leader of that term; its token."""
        self._leaders[term] = node
        return FencingToken(INCARNATION, term)

    # -- resources ----------------------------------------------------------------------------------

    def claim(self, log: Log, resource: OutsideResource, token: FencingToken, node: str) -> None:
        """The leader of that token has claimed the resource, and put that on record."""
        self.call(resource, "claim", token, node)
        guarantee = resource.spec.guarantee.value
        log.outbox(token.term, Activation(resource.name, token, self.holder(node), guarantee))

    def call(self, resource: OutsideResource, kind: str, token: FencingToken, node: str, attempts: tuple = ()) -> None:  # type: ignore[type-arg]
        """A call of a process that has ended reached the resource, and its answer nobody."""
        resource._act(
            Request(kind, node, 1, token, self.holder(node), attempts, 0, lambda result, error: None),
            resource._connections,
        )

    # -- writing ------------------------------------------------------------------------------------

    def write(self) -> None:
        """Put everything on the disks. Those of whom nothing was said hold an empty log."""
        world = self.world
        for term, node in self._leaders.items():
            world.leaders[term] = node
            world.newest_token = max(world.newest_token, FencingToken(INCARNATION, term))
        for resource in world.resources.values():
            # Calls of another time: who looks at this run has not seen their leaders. What they did stays.
            resource.calls.clear()
        directories = {name: self._open(name) for name in self.names}
        for name, directory in directories.items():
            for peer, other in directories.items():
                if peer != name:
                    directory.remember_instance(peer, other.instance_id)
        for name, directory in directories.items():
            if name in self.disks:
                self._write_log(directory, self.disks[name])
            directory.close()
            world.hosts[name].disk.kill()

    def _open(self, name: str) -> DataDirectory:
        host = self.world.hosts[name]
        return DataDirectory.open(
            DATA_DIRECTORY,
            cluster_id=CLUSTER_ID,
            node_id=name,
            voters=host.voters,
            disk=host.disk,
            entropy=self.random.randbytes,
            reserve_bytes=self.world.disk_settings.reserve_bytes,
        )

    def _write_log(self, directory: DataDirectory, disk: Disk) -> None:
        store, _ = FileLogStore.open(directory, segment_bytes=self.world.disk_settings.segment_bytes)
        store.start_stepped(lambda sequence: None, _raise)
        snapshot = self._write_snapshot(directory, disk) if disk.snapshot_at else None
        entries = disk.log.entries
        if snapshot is not None and disk.begins_behind >= disk.snapshot_at:
            writes = [Persist(1, TermAndVote(disk.term, disk.voted_for), 0, [], 0, reset=snapshot)]
            entries = entries[disk.snapshot_at :]
        else:
            writes = [Persist(1, TermAndVote(disk.term, disk.voted_for), 0, [], 0)]
        for start in range(0, len(entries), 4):
            part = entries[start : start + 4]
            known = min(disk.commit_index, part[-1].index)
            writes.append(Persist(len(writes) + 1, None, 0, part, known))
        if snapshot is not None and disk.begins_behind and disk.begins_behind < disk.snapshot_at:
            writes.append(Persist(len(writes) + 1, None, 0, [], disk.commit_index, compact_to=disk.begins_behind))
        for write in writes:
            store.append(write)
            store.step()
        store.close()

    def _write_snapshot(self, directory: DataDirectory, disk: Disk) -> Snapshot:
        held = disk.log.up_to(disk.snapshot_at)
        applier = Applier({EntryKind.OUTBOX: OutboxMachine(), EntryKind.EMBEDDED: Registers()})
        applier.apply(held.entries)
        last = held.entries[-1]
        configuration = Configuration(tuple(sorted(directory.voters)))
        label = Snapshot(last.index, last.term, last.time_ns, configuration, 0)
        return FileSnapshotStore.open(directory).write(label, applier.capture())


def _raise(error: BaseException) -> None:
    raise error


class HardState(NamedTuple):
    name: str
    build: Callable[[Past], None]
    needs: tuple[str, ...]
    """Resources that the world must have for it."""


HARD_STATES: dict[str, HardState] = {}
"""By name."""


def hard_state(name: str, *needs: str) -> Callable[[Callable[[Past], None]], Callable[[Past], None]]:
    """Put the decorated builder on the list."""

    def enter(build: Callable[[Past], None]) -> Callable[[Past], None]:
        HARD_STATES[name] = HardState(name, build, needs)
        return build

    return enter


def begin(world: World, name: str, random: Random) -> None:
    """Put the disks and resources of a world that has not begun into a hard state."""
    past = Past(world, random)
    HARD_STATES[name].build(past)
    past.write()


__all__ = ["HARD_STATES", "Command", "Disk", "Dispatch", "HardState", "Log", "Outcome", "Past", "begin", "hard_state"]
