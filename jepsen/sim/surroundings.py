"""What surrounds the nodes of a world: its time, chance, machines, network and resources, and its record."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

from ...raft.core.errors import CommittedConflict, FencepostError, StateDiverged, StateMiscounted, StorageError
from ...raft.core.events import Role, RoleChange
from ...raft.core.options import MILLISECOND, SECOND, Options
from ...raft.core.token import FencingToken
from ...raft.outbox.codec import Retention
from .agenda import Agenda, Handle
from .clock import SimClock
from .host import Host
from .network import Network
from .node import CLUSTER_ID, SimNode
from .observer import Hooks, Observer
from .process import Process
from .quiet import logging_to
from .resource import OutsideResource, ResourceCall, ResourceSpec
from .settings import DiskSettings, NetworkSettings
from .streams import stream
from .trace import Trace
from .violation import Violation

RUNAWAY = 2_000_000
"""Events in a minute, in one call of ``run_for`` or ``run_until``, beyond which the world has a storm in it."""


class Surroundings:
    """The base of :class:`World`, which says what its arguments are."""

    def __init__(
        self,
        seed: int,
        nodes: int | Sequence[str] = 3,
        *,
        options: Options | None = None,
        resources: Sequence[ResourceSpec] = (ResourceSpec(),),
        network: NetworkSettings | None = None,
        disk: DiskSettings | None = None,
        observers: Sequence[Observer] = (),
        retention: Retention = Retention(),  # noqa: B008 - immutable
    ) -> None:
        self.retention = retention
        self.seed = seed
        self.options = options or Options()
        self.disk_settings = disk or DiskSettings()
        self.agenda = Agenda()
        self.trace = Trace()
        self.hooks = Hooks(self.fail)
        for observer in observers:
            self.hooks.add(observer)
        self.outside = Process(self.agenda, SimClock(self.agenda)).loop
        """The thread of the world: what happens outside of all nodes."""
        self.names: list[str] = (
            [f"n{number}" for number in range(1, nodes + 1)] if isinstance(nodes, int) else list(nodes)
        )
        """All nodes that there are, members or not."""
        self.network = Network(
            self.agenda, self.outside, stream(seed, "network"), self.hooks, network or NetworkSettings(), self.names
        )
        self.newest_token = FencingToken(0, 0)
        """Of the newest leader that was ever elected."""
        self.leaders: dict[int, str] = {}
        """Who was elected, by term."""
        self.resources = {
            spec.name: OutsideResource(
                spec,
                self.outside,
                stream(seed, f"resource {spec.name}"),
                self.hooks,
                cluster_id=CLUSTER_ID,
                newest_token=lambda: self.newest_token,
                record=self._resource_called,
            )
            for spec in resources
        }
        self.hosts: dict[str, Host] = {}
        self.clients_cut: dict[str, None] = {}
        """Nodes that clients do not reach, and that do not reach clients."""
        self._failure: BaseException | None = None
        self._stack = ExitStack()
        self.first_members = tuple(self.names)
        for name in self.names:
            self._add_host(name, self.first_members)

    def _add_host(self, name: str, voters: tuple[str, ...]) -> Host:
        host = self.hosts[name] = Host(
            name, len(self.hosts) + 1, voters, self.agenda, stream(self.seed, f"machine {name}"), self.disk_settings
        )
        return host

    def __enter__(self) -> Self:
        self._stack.enter_context(logging_to(self._logged))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for host in self.hosts.values():
            if host.node is not None:
                host.node.process.kill()
        self._stack.close()

    def observe(self, observer: Observer) -> None:
        """Show everything from now on to one more observer."""
        self.hooks.add(observer)

    # -- time ---------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        return self.agenda.now_ns

    def run_for(self, duration_ns: int) -> None:
        """Let so much time pass. Raises :class:`Violation`, or what a hook raised, with the last events as notes."""
        self._run(lambda end_ns: self.agenda.run_to(end_ns), duration_ns)

    def run_until(self, holds: Callable[[], object], *, within_ns: int = 30 * SECOND, what: str = "it") -> None:
        """Let time pass until ``holds()``, which is looked at after every event."""
        reached: list[bool] = []
        self._run(lambda end_ns: reached.append(self.agenda.run_until(holds, end_ns)), within_ns)
        if not reached[0]:
            raise self.violation(f"{what} did not come to hold within {within_ns / SECOND:g} s")

    def _run(self, run: Callable[[int], None], duration_ns: int) -> None:
        before = self.agenda.last_order
        try:
            run(self.agenda.now_ns + duration_ns)
        except Exception as error:
            cause = self._failure or error
            raise self.violation(f"{type(cause).__name__}: {cause}") from cause
        events = self.agenda.last_order - before
        if events > RUNAWAY * max(1, duration_ns // (60 * SECOND)):
            raise self.violation(f"{events} events in {duration_ns / SECOND:g} s")

    def later(self, delay_ns: int, action: Callable[..., object], *arguments: Any) -> None:
        """Do something after a while."""
        self.outside.call_after_ns(delay_ns, action, *arguments)

    def violation(self, what: str) -> Violation:
        """An error with the seed and the last events."""
        head = f"seed {self.seed}, at {self.now_ns / MILLISECOND:.6f} ms: {what}"
        return Violation(f"{head}\n{self.trace.story()}\n{head}")

    def note(self, *what: object) -> None:
        """Put a line into the trace."""
        self.trace.note(self.now_ns, "--", *what)

    # -- looking ------------------------------------------------------------------------------------

    def up(self) -> list[SimNode]:
        """Every process that runs, stopped ones included, in the order of the nodes."""
        return [host.node for host in self.hosts.values() if host.node is not None]

    def node(self, name: str) -> SimNode:
        node = self.hosts[name].node
        if node is None:
            raise AssertionError(f"{name} is down")
        return node

    # -- what parts tell ----------------------------------------------------------------------------

    def roles_changed(self, node: SimNode, changes: list[RoleChange]) -> None:
        for change in changes:
            if change.role is Role.LEADER:
                self.leaders.setdefault(change.term, node.name)
                token = FencingToken(node.directory.incarnation, change.term)
                self.newest_token = max(self.newest_token, token)
            for look in self.hooks.on_role:
                look(node, change)

    def _resource_called(self, call: ResourceCall) -> None:
        accepted = sum(1 for each in call.attempts if each.outcome is not None)
        self.trace.mix(call.time_ns, -4, call.token.term, call.number, accepted)
        self.trace.tell(
            call.time_ns, call.node, "calls", call.resource, call.kind, call.token,
            [each.operation_id for each in call.attempts], call.decision, "zombie" if call.zombie else "",
        )  # fmt: skip

    def _logged(self, level: str, event: MutableMapping[str, Any]) -> None:
        running = next((node.name for node in self.up() if node.process.loop is self.agenda.running()), "--")
        error = event.pop("exc_info", None)
        self.trace.tell(self.now_ns, running, f"logs {level}:", *(f"{key}={value}" for key, value in event.items()))
        if isinstance(error, BaseException):
            self.trace.tell(self.now_ns, running, f"{error!r}")

    def fail(self, error: BaseException) -> None:
        """End the run because of this, at once, whoever catches it first. For what is found out inside a node."""
        if self._failure is None:
            self._failure = error
            self.agenda.ready.appendleft(Handle(self.outside, _raise, (error,)))

    def judge_end(self, node: SimNode, error: BaseException) -> None:
        """A node has ended by an error. One that no fault of the world explains ends the run."""
        cause = error.__cause__
        broken_writer = isinstance(error, StorageError) and cause and not isinstance(cause, OSError | FencepostError)
        never = isinstance(error, CommittedConflict | StateDiverged | StateMiscounted)
        if broken_writer or never or not isinstance(error, FencepostError):
            raise self.violation(f"{node.name} ended with {type(error).__name__}: {error}") from error


def _raise(error: BaseException) -> None:
    raise error
