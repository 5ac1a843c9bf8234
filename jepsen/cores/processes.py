"""Processes that start, stop and crash, and the links between them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from ...raft.core.configuration import Configuration
from ...raft.core.events import Effects, Event
from ...raft.core.options import MILLISECOND, Options
from ...raft.core.step import Raft
from .agenda import Agenda
from .checks import ClusterChecks
from .machine import Machine
from .parts import Node, Violation
from .reads import Reads
from .trace import Trace


class Processes(Agenda):
    """What there is before anything happens: nodes by name, links, and one source of chance."""

    def __init__(self, voters: tuple[str, ...], seed: int, options: Options) -> None:
        super().__init__()
        self.seed = seed
        self.random = random.Random(seed)
        self.options = options
        self.configuration = Configuration(tuple(sorted(voters)))
        self.clock_drift_ppm = 0
        """By how much two clocks differ in rate at the most."""
        self.steps = 0
        self.nodes = {name: Node(name, self.configuration) for name in self.configuration.voters}
        self.blocked: set[tuple[str, str]] = set()
        """Directed links on which every message is lost: (from, to)."""
        self.checks = ClusterChecks(self.nodes)
        self.checks.members.began = self.configuration
        self.reads = Reads()
        self.trace = Trace()
        self.lease_may_lie_until = 0
        """A lease rests on nodes that remember whom they heard and wait for their timers."""

    def step(self, node: Node, event: Event) -> Effects:
        raise NotImplementedError

    # -- processes --------------------------------------------------------------------------------

    def add(self, name: str) -> None:
        """Start a node that has nothing and belongs to nobody yet."""
        self.nodes[name] = Node(name, Configuration(()))
        self.start(name)

    def start(self, name: str) -> None:
        """Start the process on what its disks have."""
        node = self.nodes[name]
        disk, snapshot = node.disk, node.snapshots.newest
        node.boot += 1
        node.clock_offset = self.random.randint(0, 1 << 40)
        half = self.clock_drift_ppm // 2
        node.clock_ppm = self.random.randint(-half, half) if half else 0
        node.held = []
        node.wake_at = -1
        node.paused_until = 0
        node.machine = Machine()
        if snapshot is not None:
            node.machine.restore(node.snapshots.contents(snapshot) or b"")
        entries, older = disk.recover(self.options.window_entries, self.options.window_bytes)
        with self.judged():
            node.raft = Raft(
                node_id=name,
                configuration=node.configuration,
                hard_state=disk.hard_state,
                entries=entries,
                commit_index=disk.commit_index,
                options=self.options,
                between=self.random.randint,
                now=node.clock(self.now),
                snapshot=snapshot,
                previous_index=disk.previous_index,
                previous_term=disk.previous_term,
                older=older,
            )
            self.checks.restarted(node)
        if not self.options.lease_reads:
            self.lease_may_lie_until = self.now + self.options.election_timeout if self.now else 0
        self.note(name, f"started, {disk.hard_state}, entries to {disk.last_index}, snapshot {snapshot}")
        self.wake(node)

    def crash(self, name: str, *, keep_some: bool = False) -> None:
        """Lose the process and what its disks had not completed; ``keep_some`` leaves a part of that to chance."""
        node = self.nodes[name]
        if node.raft is None:
            return
        node.raft = None
        node.held = []
        with self.judged():
            node.disk.crash(self.random.randint if keep_some else None)
            node.snapshots.crash(published=keep_some and self.random.random() < 0.5)
        self.checks.crashed(name)
        self.reads.crashed(name)
        self.note(name, f"crashed, kept {node.disk.hard_state}, entries to {node.disk.last_index}")

    def wake(self, node: Node) -> None:
        """See to it that the core is ticked at its deadline; at most one such wake-up counts."""
        raise NotImplementedError

    def raft(self, name: str) -> Raft:
        raft = self.nodes[name].raft
        assert raft is not None, f"{name} is down"
        return raft

    def up(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.raft is not None]

    def pause(self, name: str, duration: int) -> None:
        """SIGSTOP, and SIGCONT after ``duration``."""
        self.nodes[name].paused_until = self.now + duration
        self.note(name, f"paused for {duration / MILLISECOND:g} ms")

    # -- links ------------------------------------------------------------------------------------

    def cut(self, source: str, to: str) -> None:
        """One direction only."""
        self.blocked.add((source, to))

    def partition(self, *groups: tuple[str, ...]) -> None:
        """Nodes hear only their own group. Whoever is in no group is alone."""
        group_of = {name: number for number, group in enumerate(groups) for name in group}
        self.blocked = {
            (a, b) for a in self.nodes for b in self.nodes if a != b and group_of.get(a, a) != group_of.get(b, b)
        }

    def isolate(self, name: str) -> None:
        self.partition(tuple(other for other in self.nodes if other != name))

    def heal(self) -> None:
        self.blocked.clear()

    # -- telling ----------------------------------------------------------------------------------

    def note(self, name: str, text: str) -> None:
        self.trace.note(self.now, name, text)

    def violation(self, text: str) -> Violation:
        head = f"seed {self.seed}, {self.now / MILLISECOND:g} ms, step {self.steps}: {text}"
        return Violation(f"{head}\n{self.trace.story()}")

    @contextmanager
    def judged(self) -> Iterator[None]:
        """What fails in the block is a violation, told with what led to it."""
        try:
            yield
        except Violation:
            raise
        except AssertionError as error:
            raise self.violation(str(error)) from error
