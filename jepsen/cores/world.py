"""A world of cores: network, disks, clocks and crashes under one seed.

Everything that happens is one event at one simulated time, and everything that is left to chance
comes from one generator: the seed is the bug report. After every step the invariants of the core
and of the cluster are checked; the first one that fails ends the run with the last events before it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from ...raft.core.configuration import Configuration
from ...raft.core.entry import EntryKind
from ...raft.core.events import (
    Accepted,
    Campaign,
    Durable,
    Effects,
    Event,
    Propose,
    Receive,
    Refused,
    Role,
    Send,
    StepDown,
    StorageFailed,
    Tick,
    Unreachable,
)
from ...raft.core.invariants import check, check_step, summarize
from ...raft.core.messages import Message
from ...raft.core.options import MILLISECOND, Options
from ...raft.core.step import Raft
from .checks import ClusterChecks, check_spoken
from .parts import DiskTimes, Network, Node, Violation
from .trace import Trace


class World:
    """A cluster of cores. All times are simulated nanoseconds since the world began."""

    def __init__(
        self,
        voters: tuple[str, ...] = ("n1", "n2", "n3"),
        *,
        seed: int = 0,
        options: Options | None = None,
        network: Network | None = None,
        disk_times: DiskTimes | None = None,
        check_nodes: bool = True,
    ) -> None:
        """``check_nodes=False`` leaves out the invariants of each core: only what can be seen from
        outside is judged, by messages, disks and commitments."""
        self.seed = seed
        self.random = random.Random(seed)
        self.options = options or Options()
        self.check_nodes = check_nodes
        self.network = network or Network()
        self.disk_times = disk_times or DiskTimes()
        self.configuration = Configuration(tuple(sorted(voters)))
        self.now = 0
        self.steps = 0
        self.steps_max = 200_000
        """A world that takes more has a storm of messages in it."""
        self.nodes = {name: Node(name) for name in self.configuration.voters}
        self.blocked: set[tuple[str, str]] = set()
        """Directed links on which every message is lost: (from, to)."""
        self.checks = ClusterChecks()
        self.trace = Trace()
        self.lease_may_lie_until = 0
        """A lease rests on nodes that remember whom they heard and wait for their timers."""
        self.on_message: Callable[[str, str, Message], None] | None = None
        """Sees every message that leaves a node, whether or not it arrives."""
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        for name in self.nodes:
            self.start(name)

    # -- processes --------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start the process on what its disk has."""
        node = self.nodes[name]
        disk = node.disk
        node.boot += 1
        node.clock_offset = self.random.randint(0, 1 << 40)
        node.held = []
        node.applied_to = 0
        node.wake_at = -1
        node.paused_until = 0
        node.raft = Raft(
            node_id=name,
            configuration=self.configuration,
            hard_state=disk.hard_state,
            entries=list(disk.entries),
            commit_index=disk.commit_index,
            options=self.options,
            between=self.random.randint,
            now=self.now + node.clock_offset,
        )
        self.checks.restarted(name)
        self.lease_may_lie_until = self.now + self.options.election_timeout if self.now else 0
        self.note(name, f"started, {disk.hard_state}, {len(disk.entries)} entries")
        self._wake(node)

    def crash(self, name: str, *, keep_some: bool = False) -> None:
        """Lose the process and what its disk had not completed; ``keep_some`` leaves a part of that to chance."""
        node = self.nodes[name]
        if node.raft is None:
            return
        node.raft = None
        node.held = []
        node.disk.crash(self.random.randint if keep_some else None)
        self.note(name, f"crashed, kept {node.disk.hard_state}, {len(node.disk.entries)} entries")

    def raft(self, name: str) -> Raft:
        raft = self.nodes[name].raft
        assert raft is not None, f"{name} is down"
        return raft

    def up(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.raft is not None]

    # -- links and disks --------------------------------------------------------------------------

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
        for _ in range(writes):
            node.disk.complete()
        if writes:
            self._completed(node)

    # -- events from outside ----------------------------------------------------------------------

    def propose(self, name: str, *data: bytes) -> Accepted | Refused:
        node = self.nodes[name]
        proposals: list[tuple[int, bytes]] = [(EntryKind.EMBEDDED, item) for item in data]
        outcome = self.step(node, Propose(self._clock(node), self.now, proposals)).proposed
        assert outcome is not None
        return outcome

    def campaign(self, name: str) -> None:
        self.lease_may_lie_until = self.now + self.options.election_timeout
        self.step(self.nodes[name], Campaign(self._clock(self.nodes[name])))

    def step_down(self, name: str) -> None:
        self.step(self.nodes[name], StepDown(self._clock(self.nodes[name]), "asked to"))

    def unreachable(self, name: str, peer: str) -> None:
        self.step(self.nodes[name], Unreachable(self._clock(self.nodes[name]), peer))

    def fail_storage(self, name: str) -> None:
        """The next write or sync fails: nothing pending completes, now or later (S12)."""
        node = self.nodes[name]
        node.disk.stuck = True
        self.step(node, StorageFailed(self._clock(node)))
        node.held = []

    # -- time -------------------------------------------------------------------------------------

    def run_for(self, duration: int) -> None:
        end = self.now + duration
        while self._agenda and self._agenda[0][0] <= end:
            self._next()
        self.now = end

    def run_until(self, holds: Callable[[], bool], *, within: int, what: str) -> None:
        """Raises :class:`Violation` if ``holds`` is not true within that much simulated time."""
        end = self.now + within
        while not holds():
            if not self._agenda or self._agenda[0][0] > end:
                raise self.violation(f"not within {within / MILLISECOND:g} ms: {what}")
            self._next()

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

    def pause(self, name: str, duration: int) -> None:
        """SIGSTOP, and SIGCONT after ``duration``."""
        self.nodes[name].paused_until = self.now + duration
        self.note(name, f"paused for {duration / MILLISECOND:g} ms")

    def _reaches(self, node: Node, boot: int, again: Callable[[], None]) -> bool:
        """Whether the process that was meant is running; if it is stopped, ``again`` is called later."""
        if node.boot != boot or node.raft is None:
            return False
        if node.paused_until > self.now:
            self._at(node.paused_until, again)
            return False
        return True

    def _next(self) -> None:
        self.now, _, action = heapq.heappop(self._agenda)
        action()

    def _at(self, time: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (time, self._order, action))

    def after(self, delay: int, action: Callable[[], None]) -> None:
        """Do something at a later simulated time."""
        self._at(self.now + delay, action)

    def _clock(self, node: Node) -> int:
        return self.now + node.clock_offset

    # -- one step ---------------------------------------------------------------------------------

    def step(self, node: Node, event: Event) -> Effects:
        raft = node.raft
        assert raft is not None, f"{node.name} is down"
        self.steps += 1
        if self.steps > self.steps_max:
            raise self.violation("more steps than a sound world takes")
        effects: Effects | None = None
        try:
            before = summarize(raft)
            effects = raft.step(event)
            if self.check_nodes:
                check_step(before, raft, event, effects)
                check(raft)
            written = effects.persist[0].entries if effects.persist else []
            self.checks.after_step(node.name, before.role, raft, written, effects.apply_to)
            if raft.role is Role.LEADER and before.role is not Role.LEADER:
                self._check_leases(node)
            if isinstance(event, Tick) and not raft.failed and raft.deadline() <= raft.now:
                raise AssertionError("a tick at its deadline left the deadline where it was: a busy loop")
            self.trace.step(self.now, raft, event, effects)
            self._carry_out(node, effects)
        except Violation:
            raise
        except AssertionError as error:
            self.trace.step(self.now, raft, event, effects)
            raise self.violation(str(error)) from error
        return effects

    def _carry_out(self, node: Node, effects: Effects) -> None:
        for write in effects.persist:
            node.disk.ask(write)
            delay = self.random.randint(self.disk_times.least, self.disk_times.most)
            node.disk.free_at = max(node.disk.free_at, self.now) + delay
            self._at(node.disk.free_at, self._disk_event(node))
        for send in effects.sends:
            if send.after > node.disk.durable_sequence:
                node.held.append(send)
            else:
                self._transmit(node, send)
        if effects.apply_to:
            if effects.apply_to > len(node.disk.entries):
                raise AssertionError(f"applied {effects.apply_to} with {len(node.disk.entries)} entries on the disk")
            node.applied_to = effects.apply_to
        self._wake(node)

    def _disk_event(self, node: Node) -> Callable[[], None]:
        boot = node.boot

        def complete() -> None:
            disk = node.disk
            if not self._reaches(node, boot, complete) or disk.stuck:
                return
            if not disk.pending:
                return  # An earlier group commit has covered it.
            disk.complete()
            while disk.pending and self.random.random() < self.disk_times.grouped:
                disk.complete()
            self._completed(node)

        return complete

    def _completed(self, node: Node) -> None:
        """Tell the core how far its disk has got, and let go what waited for it."""
        assert node.raft is not None
        self.step(node, Durable(self._clock(node), node.disk.durable_sequence))
        held, node.held = node.held, []
        for send in held:
            if send.after > node.disk.durable_sequence:
                node.held.append(send)
            else:
                self._transmit(node, send)

    def _transmit(self, node: Node, send: Send) -> None:
        try:
            check_spoken(node.name, send.to, send.message, node.disk)
        except AssertionError as error:
            raise self.violation(str(error)) from error
        if self.on_message is not None:
            self.on_message(node.name, send.to, send.message)
        if (node.name, send.to) in self.blocked:
            return
        network = self.network
        copies = 2 if network.duplication and self.random.random() < network.duplication else 1
        for _ in range(copies):
            if network.loss and self.random.random() < network.loss:
                continue
            late = network.late and self.random.random() < network.late
            delay = self.random.randint(network.delay_min, network.late_max if late else network.delay_max)
            self._at(self.now + delay, self._delivery(node.name, self.nodes[send.to], send.message))

    def _delivery(self, source: str, target: Node, message: Message) -> Callable[[], None]:
        def deliver() -> None:
            if self._reaches(target, target.boot, deliver) and (source, target.name) not in self.blocked:
                self.step(target, Receive(self._clock(target), source, message))

        return deliver

    def _wake(self, node: Node) -> None:
        """See to it that the core is ticked at its deadline; at most one such wake-up counts."""
        assert node.raft is not None
        if node.raft.failed:
            return
        due = max(node.raft.deadline() - node.clock_offset, self.now)
        if 0 <= node.wake_at <= due:
            return
        node.wake_at = due
        boot = node.boot

        def wake() -> None:
            if node.wake_at != due or not self._reaches(node, boot, wake):
                return
            assert node.raft is not None
            node.wake_at = -1
            if node.raft.deadline() <= self._clock(node):
                self.step(node, Tick(self._clock(node)))
            self._wake(node)

        self._at(due, wake)

    def _check_leases(self, elected: Node) -> None:
        """No older leader may believe that it holds the lease when a newer one begins to lead."""
        assert elected.raft is not None
        if not self.options.check_quorum or self.now < self.lease_may_lie_until:
            return
        for node in self.nodes.values():
            if node.raft is None or node.raft.current_term >= elected.raft.current_term:
                continue
            if node.raft.holds_lease(self._clock(node)):
                raise AssertionError(
                    f"{elected.name} leads term {elected.raft.current_term} while {node.name} holds the lease "
                    f"of term {node.raft.current_term}"
                )

    # -- telling ----------------------------------------------------------------------------------

    def note(self, name: str, text: str) -> None:
        self.trace.note(self.now, name, text)

    def violation(self, text: str) -> Violation:
        head = f"seed {self.seed}, {self.now / MILLISECOND:g} ms, step {self.steps}: {text}"
        return Violation(f"{head}\n{self.trace.story()}")
