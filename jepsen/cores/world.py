"""A world of cores: network, disks, clocks and crashes under one seed.

Everything that happens is one event at one simulated time, and everything that is left to chance
comes from one generator: the seed is the bug report. After every step the invariants of the core
and of the cluster are checked; the first one that fails ends the run with the last events before it.
"""

from __future__ import annotations

from collections.abc import Callable

from ...raft.core.configuration import Change
from ...raft.core.entry import EntryKind
from ...raft.core.events import (
    Accepted,
    Campaign,
    ChangeConfiguration,
    Durable,
    Effects,
    Event,
    Propose,
    Read,
    Receive,
    Refused,
    Role,
    Send,
    StepDown,
    StorageFailed,
    Tick,
    TransferBegun,
    TransferLeadership,
    Transition,
    Unreachable,
)
from ...raft.core.invariants import check, check_step, summarize
from ...raft.core.messages import Message
from ...raft.core.options import MILLISECOND, Options
from ...raft.core.read_index import lease_allows_reads
from .parts import DiskTimes, Network, Node
from .snapshotting import Snapshotting
from .spoken import check_spoken


class World(Snapshotting):
    """A cluster of cores. All times are simulated nanoseconds since the world began."""

    def __init__(
        self,
        voters: tuple[str, ...] = ("n1", "n2", "n3"),
        *,
        seed: int = 0,
        options: Options | None = None,
        network: Network | None = None,
        disk_times: DiskTimes | None = None,
        clock_drift_ppm: int = 0,
        check_nodes: bool = True,
    ) -> None:
        """``check_nodes=False`` leaves out the invariants of each core: only what can be seen from
        outside is judged, by messages, disks and commitments. Two clocks differ in rate by at most
        ``clock_drift_ppm`` parts of a million."""
        super().__init__(voters, seed, options or Options())
        self.check_nodes = check_nodes
        self.network = network or Network()
        self.disk_times = disk_times or DiskTimes()
        self.clock_drift_ppm = clock_drift_ppm
        self.steps_max = 200_000
        """A world that takes more has a storm of messages in it."""
        self.on_message: Callable[[str, str, Message], None] | None = None
        """Sees every message that leaves a node, whether or not it arrives."""
        for name in self.nodes:
            self.start(name)

    # -- disks ------------------------------------------------------------------------------------

    def stick(self, name: str) -> None:
        """From now on no write of this node completes."""
        self.nodes[name].disk.stuck = True

    def unstick(self, name: str) -> None:
        """The disk goes on; what had been waiting completes at once."""
        node = self.nodes[name]
        node.disk.stuck = False
        self.complete(name, len(node.disk.pending))

    def complete(self, name: str, writes: int = 1) -> None:
        """Complete this many pending writes now, stuck or not."""
        node = self.nodes[name]
        with self.judged():
            for _ in range(writes):
                node.disk.complete()
        if writes:
            self._completed(node)

    # -- events from outside ----------------------------------------------------------------------

    def propose(self, name: str, *data: bytes) -> Accepted | Refused:
        node = self.nodes[name]
        proposals: list[tuple[int, bytes]] = [(EntryKind.EMBEDDED, item) for item in data]
        outcome = self.step(node, Propose(node.clock(self.now), self.now, proposals)).proposed
        assert outcome is not None
        return outcome

    def change(
        self, name: str, *changes: Change, transition: Transition = Transition.AUTO, unchecked: bool = False
    ) -> Accepted | Refused:
        """Ask ``name`` for a change of the members; without changes, to leave the joint configuration."""
        node = self.nodes[name]
        event = ChangeConfiguration(node.clock(self.now), list(changes), transition, unchecked)
        outcome = self.step(node, event).proposed
        assert outcome is not None
        return outcome

    def transfer(self, name: str, target: str = "") -> TransferBegun | Refused:
        node = self.nodes[name]
        outcome = self.step(node, TransferLeadership(node.clock(self.now), target)).transfer
        assert isinstance(outcome, TransferBegun | Refused)
        return outcome

    def read(self, name: str, *, lease: bool = False) -> int:
        """Ask for a read; its id. What it may be answered with is judged when it is."""
        node = self.nodes[name]
        request_id = self.reads.begin(name, self.checks)
        self.step(node, Read(node.clock(self.now), [request_id], lease))
        return request_id

    def campaign(self, name: str) -> None:
        if not self.options.lease_reads:
            self.lease_may_lie_until = self.now + self.options.election_timeout
        self.step(self.nodes[name], Campaign(self.nodes[name].clock(self.now)))

    def step_down(self, name: str) -> None:
        self.step(self.nodes[name], StepDown(self.nodes[name].clock(self.now), "asked to"))

    def unreachable(self, name: str, peer: str) -> None:
        self.step(self.nodes[name], Unreachable(self.nodes[name].clock(self.now), peer))

    def fail_storage(self, name: str) -> None:
        """The next write or sync fails: nothing pending completes, now or later (S12)."""
        node = self.nodes[name]
        node.disk.stuck = True
        self.step(node, StorageFailed(node.clock(self.now)))
        node.held = []

    # -- time -------------------------------------------------------------------------------------

    def run_until(self, holds: Callable[[], bool], *, within: int, what: str) -> None:
        """Raises :class:`Violation` if ``holds`` is not true within that much simulated time."""
        end = self.now + within
        while not holds():
            if not self.is_due(end):
                raise self.violation(f"not within {within / MILLISECOND:g} ms: {what}")
            self.next()

    def leader(self) -> str | None:
        """The leader of the highest term, if its node is up and believes it."""
        leaders = [raft for node in self.nodes.values() if (raft := node.raft) and raft.role is Role.LEADER]
        return max(leaders, key=lambda raft: raft.current_term).node_id if leaders else None

    def elect(self, name: str = "") -> str:
        """Run until there is a leader that has committed in its term; ``name`` is told to campaign."""
        if name:
            self.campaign(name)
        self.run_until(
            lambda: (
                (leader := self.leader()) is not None
                and name in ("", leader)
                and self.raft(leader).commit_index >= self.raft(leader).term_start_index
            ),
            within=20 * self.options.election_timeout,
            what=f"{name or 'anybody'} leads and has committed in its term",
        )
        leader = self.leader()
        assert leader is not None
        return leader

    # -- one step ---------------------------------------------------------------------------------

    def step(self, node: Node, event: Event) -> Effects:
        raft = node.raft
        assert raft is not None, f"{node.name} is down"
        self.steps += 1
        if self.steps > self.steps_max:
            raise self.violation("more steps than a sound world takes")
        effects: Effects | None = None
        with self.judged():
            try:
                before = summarize(raft)
                effects = raft.step(event)
                if self.check_nodes:
                    check_step(before, raft, event, effects)
                    check(raft)
                written = effects.persist[0].entries if effects.persist else []
                self.checks.after_step(node.name, before, raft, written)
                if raft.role is Role.LEADER and before.role is not Role.LEADER:
                    self._check_leases(node)
                if isinstance(event, Tick) and not raft.failed and raft.deadline() <= raft.now:
                    raise AssertionError("a tick at its deadline left the deadline where it was: a busy loop")
            finally:
                self.trace.step(self.now, raft, event, effects)
            self._carry_out(node, effects)
        return effects

    def _carry_out(self, node: Node, effects: Effects) -> None:
        for write in effects.persist:
            node.disk.ask(write)
            delay = self.random.randint(self.disk_times.least, self.disk_times.most)
            node.disk.free_at = max(node.disk.free_at, self.now) + delay
            self.at(node.disk.free_at, self._disk_event(node))
        for send in effects.sends:
            self.send(node, send)
        for part in effects.store_chunks:
            self.store_chunk(node, part)
        for chunk in effects.chunks:
            self.read_chunk(node, chunk)
        for wanted in effects.read_entries:
            self.read_entries(node, wanted)
        if effects.restore is not None:
            self.restore(node, effects.restore)
        if effects.apply_to:
            self._apply(node, effects.apply_to)
        if effects.take_snapshot is not None:
            self.take_snapshot(node, effects.take_snapshot)
        assert node.raft is not None
        if effects.reads:
            self.reads.answered(node.name, node.raft, effects.reads)
        if effects.role_changes:
            self.reads.check_kept(node.name, node.raft)
        self.wake(node)

    def _apply(self, node: Node, apply_to: int) -> None:
        assert node.raft is not None
        held = max(node.disk.last_index, node.snapshots.last_index)
        if apply_to > held:
            raise AssertionError(f"applied {apply_to} with entries to {held} on the disk")
        first, start, behind = node.machine.last_index + 1, node.raft.log.window_start, node.disk.previous_index
        entries = node.raft.log.slice(max(first, start), apply_to)
        if first < start:
            entries = [*node.disk.entries[first - behind - 1 : min(start - 1, apply_to) - behind], *entries]
        for entry in entries:
            self.checks.check_applied(node.name, entry)
            node.machine.apply(entry)

    def _disk_event(self, node: Node) -> Callable[[], None]:
        boot = node.boot

        def complete() -> None:
            disk = node.disk
            if not self.reaches(node, boot, complete) or disk.stuck:
                return
            if not disk.pending:
                return  # An earlier group commit has covered it.
            with self.judged():
                disk.complete()
                while disk.pending and self.random.random() < self.disk_times.grouped:
                    disk.complete()
                if disk.compact_to > disk.previous_index and self.random.random() < 0.5:
                    disk.compact()
            self._completed(node)

        return complete

    def _completed(self, node: Node) -> None:
        """Tell the core how far its disk has got, and let go what waited for it."""
        assert node.raft is not None
        self.step(node, Durable(node.clock(self.now), node.disk.durable_sequence))
        held, node.held = node.held, []
        for send in held:
            self.send(node, send)

    def send(self, node: Node, send: Send) -> None:
        if send.after > node.disk.durable_sequence:
            node.held.append(send)
        else:
            self._transmit(node, send)

    def _transmit(self, node: Node, send: Send) -> None:
        with self.judged():
            check_spoken(node.name, send.to, send.message, node.disk, node.snapshots.last_index)
        if self.on_message is not None:
            self.on_message(node.name, send.to, send.message)
        target = self.nodes.get(send.to)
        if target is None or (node.name, send.to) in self.blocked:
            return
        network = self.network
        copies = 2 if network.duplication and self.random.random() < network.duplication else 1
        for _ in range(copies):
            if network.loss and self.random.random() < network.loss:
                continue
            late = network.late and self.random.random() < network.late
            delay = self.random.randint(network.delay_min, network.late_max if late else network.delay_max)
            self.at(self.now + delay, self._delivery(node.name, target, send.message))

    def _delivery(self, source: str, target: Node, message: Message) -> Callable[[], None]:
        def deliver() -> None:
            if self.reaches(target, target.boot, deliver) and (source, target.name) not in self.blocked:
                self.step(target, Receive(target.clock(self.now), source, message))

        return deliver

    def wake(self, node: Node) -> None:
        assert node.raft is not None
        if node.raft.failed:
            return
        due = max(node.time_of(node.raft.deadline()), self.now)
        if 0 <= node.wake_at <= due:
            return
        node.wake_at = due
        boot = node.boot

        def wake() -> None:
            if node.wake_at != due or not self.reaches(node, boot, wake):
                return
            assert node.raft is not None
            node.wake_at = -1
            if node.raft.deadline() <= node.clock(self.now):
                self.step(node, Tick(node.clock(self.now)))
            self.wake(node)

        self.at(due, wake)

    def _check_leases(self, elected: Node) -> None:
        """No older leader may believe that it holds the lease when a newer one begins to lead."""
        assert elected.raft is not None
        for node in self.nodes.values():
            raft = node.raft
            if raft is None or raft.role is not Role.LEADER or raft.current_term >= elected.raft.current_term:
                continue
            # What the drain of a leader rests on may lie after a transfer or a restart, and is not made
            # for clocks of different rates. What reads rest on may not.
            may_lie = raft.lease_forfeited or self.clock_drift_ppm or self.now < self.lease_may_lie_until
            was, raft.now = raft.now, max(raft.now, node.clock(self.now))
            for_reads, raft.now = lease_allows_reads(raft), was
            if for_reads or (self.options.check_quorum and not may_lie and raft.holds_lease(node.clock(self.now))):
                raise AssertionError(
                    f"{elected.name} leads term {elected.raft.current_term} while {node.name} holds the lease "
                    f"of term {raft.current_term}"
                )
