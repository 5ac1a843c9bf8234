"""What faults act upon: a world, whom they mean in it, and how what they did is undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ...raft.core.events import Role, RoleChange
from ...raft.core.options import MILLISECOND, SECOND
from ...raft.ports import Wait
from ..invariants import DiskFate
from ..sim.clients import Client
from ..sim.disk import NO_LIMIT, SimDisk
from ..sim.observer import Observer
from .damage import make_sound, rot_somewhere
from .looks import Looks
from .operator import Operator
from .plan import Parameters
from .tally import Tally

if TYPE_CHECKING:
    from ..invariants import Properties
    from ..sim.node import SimNode
    from ..sim.resource import OutsideResource
    from ..sim.world import World

Links = Iterable[tuple[str, str]]
SUPERVISOR_EVERY_NS = 700 * MILLISECOND
REFUSALS_MAX = 3
"""A node that refuses to start so often is left to an operator."""
UNDER_WAY_WITHIN_NS = 5 * SECOND


class Stage(Observer):
    """``happened`` counts faults by kind. Everything here is done now, unless a delay says when."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.happened: Counter[str] = Counter()
        self.operator = Operator(self)
        self.looks = Looks(self)
        self.over = False
        """The phase with faults has ended; what faults planned for later is not done any more."""
        self.damaged: dict[str, None] = {}
        """Nodes whose disks were damaged for good: never so many that a quorum rests on them."""
        self.properties: Properties | None = None
        """Who has to know what is done to disks."""
        self.tally: Tally | None = None
        self.others: list[Client] = []
        """Clients beside those of the load, each with one job."""
        self.put_back: dict[str, None] = {}
        """Nodes whose directories were put back to an old copy. The leader to which they had acknowledged more finds
        that out and stops them, again and again, so an operator has to replace them."""
        self.wiped: dict[str, tuple[str, ...]] = {}
        """Of these, the ones whose directories are gone, and who had met them before."""
        self._base = world.network.settings
        self._weathers: dict[int, dict[str, Any]] = {}
        self._weather_number = 0
        self._held: dict[str, None] = {}
        """Nodes that a fault keeps down."""
        self._refusals: Counter[str] = Counter()
        self._supervising = False

    # -- whom a fault means -------------------------------------------------------------------------

    def target(self, parameters: Parameters) -> str | None:
        """The node that ``role`` and ``pick`` mean now, among those that run; None if there is none."""
        role, pick = str(parameters["role"]), int(parameters["pick"])
        leader = self.world.leader()
        if role == "leader" and leader is not None:
            return leader.name
        names = [node.name for node in self.world.up() if node.running]
        if role == "follower" and leader is not None:
            names = [name for name in names if name != leader.name]
        return names[pick % len(names)] if names else None

    def members(self) -> tuple[str, ...]:
        """Of the newest configuration that the leader has, or whoever runs."""
        leader = self.world.leader()
        nodes = [leader] if leader is not None else self.world.up()
        newest = max(nodes, key=lambda node: (node.raft.current_term, node.raft.commit_index), default=None)
        return newest.raft.configuration.members if newest is not None else tuple(self.world.names)

    def members_up(self) -> list[str]:
        members = self.members()
        return [node.name for node in self.world.up() if node.name in members]

    def shuffled(self, pick: int) -> list[str]:
        names = sorted(self.members())
        Random(pick).shuffle(names)
        return names

    def two_groups(self, pick: int) -> tuple[list[str], list[str]]:
        """All nodes in two parts, neither empty."""
        names = self.shuffled(pick)
        size = 1 + pick % max(1, len(names) - 1)
        return names[:size], names[size:]

    def old_and_new(self) -> tuple[list[str], list[str]]:
        """A majority of the oldest voters, and everybody else: in a joint configuration, two parts of which each may
        take itself for enough."""
        leader = self.world.leader()
        configuration = leader.raft.configuration if leader is not None else self.world.configuration()
        old = configuration.outgoing or configuration.voters
        going = [name for name in old if name not in configuration.voters]
        size = len(old) // 2 + 1
        one = [*going, *(name for name in old if name not in going)][:size]
        return one, [name for name in configuration.members if name not in one]

    def resource(self, parameters: Parameters) -> OutsideResource:
        resources = list(self.world.resources.values())
        return resources[int(parameters["which"]) % len(resources)]

    # -- when ---------------------------------------------------------------------------------------

    def later(self, delay_ns: int, action: Callable[..., object], *arguments: Any) -> None:
        """Unless the faults are over by then."""
        self.world.later(delay_ns, self._unless_over, action, arguments)

    def _unless_over(self, action: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if not self.over:
            action(*arguments)

    def until_over(self, parameters: Parameters, undo: Callable[..., object], *arguments: Any) -> None:
        """The fault lasts for ``for_ns``; then it is undone, if healing has not done that before."""
        self.later(int(parameters["for_ns"]), undo, *arguments)

    def when_effect_under_way(
        self, kind: str, act: Callable[[str], None], *, within_ns: int = UNDER_WAY_WITHIN_NS
    ) -> bool:
        """Do it to the leader while an effect of its is under way. Counted as ``kind`` when that comes to be,
        so it never counts as having happened now."""
        leader = self.world.leader()
        if leader is None:
            return False

        def found() -> None:
            if not self.over and leader.running:
                self.happened[kind] += 1
                act(leader.name)

        self.world.when_effect_under_way(leader.name, found, within_ns=within_ns)
        return False

    def at_elections(self, for_ns: int, act: Callable[[], object]) -> None:
        """Do it after every election within that time, as soon as the new leader has done with being elected."""
        end_ns = self.world.now_ns + for_ns

        def look(node: SimNode, change: RoleChange) -> None:
            if change.role is Role.LEADER and self.world.now_ns <= end_ns and not self.over:
                self.world.outside.call_soon(act)

        self.world.hooks.on_role.append(look)

    def at_joint(self, delay_ns: int, act: Callable[..., object], *arguments: Any) -> None:
        """Do it so long after a leader has next taken a joint configuration into its log."""
        if self.tally is not None:
            self.tally.at_joint.append(partial(self.later, delay_ns, act, *arguments))

    def read_at(self, name: str) -> None:
        """A client of its own reads something linearizably, and asks this node first."""
        number = len(self.others)
        if self.world.hosts[name].node is not None:
            self._other().read(f"{'rl'[number % 2]}{number // 2 % 2}", at=name)

    def submit_at(self, name: str, resource: str, lane: str, operation_id: str = "") -> None:
        """A client of its own has a command executed, asks this node first, and waits for the commit."""
        if self.world.hosts[name].node is not None:
            self._other().submit(
                operation_id or self.new_id(), resource=resource, lane=lane, wait=Wait.COMMITTED, at=name
            )

    def new_id(self) -> str:
        return f"other-{len(self.others)}"

    def _other(self) -> Client:
        client = Client(self.world, f"other{len(self.others)}")
        self.others.append(client)
        return client

    # -- links --------------------------------------------------------------------------------------

    def links_of(self, name: str) -> list[tuple[str, str]]:
        others = [other for other in self.world.names if other != name]
        return [(name, other) for other in others] + [(other, name) for other in others]

    def cut(self, links: Links) -> None:
        for source, to in links:
            self.world.network.cut(source, to)

    def mend(self, links: Links) -> None:
        for source, to in links:
            self.world.network.mend(source, to)

    def cut_for(self, parameters: Parameters, links: Links) -> bool:
        chosen = list(links)
        self.cut(chosen)
        self.until_over(parameters, self.mend, chosen)
        return bool(chosen)

    def weather(self, parameters: Parameters, **settings: Any) -> bool:
        """Network settings for a while. Where two faults set the same, the later one counts."""
        self._weather_number += 1
        self._weathers[self._weather_number] = settings
        self._set_weather()
        self.until_over(parameters, self._end_weather, self._weather_number)
        return True

    def _end_weather(self, number: int) -> None:
        self._weathers.pop(number, None)
        self._set_weather()

    def _set_weather(self) -> None:
        merged = {name: value for settings in self._weathers.values() for name, value in settings.items()}
        self.world.network.set(self._base._replace(**merged))

    # -- resources ----------------------------------------------------------------------------------

    def slow_ways(self, parameters: Parameters, **settings: Any) -> bool:
        resource = self.resource(parameters)
        resource.settings = resource.spec.settings._replace(**settings)
        self.until_over(parameters, self.usual_ways)
        return True

    def usual_ways(self) -> None:
        for resource in self.world.resources.values():
            resource.settings = resource.spec.settings

    # -- processes ----------------------------------------------------------------------------------

    def end(self, name: str, parameters: Parameters, how: Callable[[str], None], *, starts: bool = True) -> bool:
        """End a node's process, and (``starts``) start another one after ``for_ns``."""
        if self.world.hosts[name].node is None:
            return False
        self._held[name] = None
        how(name)
        if starts:
            self.later(int(parameters["for_ns"]), self.start, name)
        return True

    def start(self, name: str) -> None:
        self._held.pop(name, None)
        if self.world.hosts[name].node is None:
            self.world.start(name)

    def start_cut_short(self, name: str, cut_at: int, power: bool) -> None:
        """Start it, and end it at an operation of its disk while it does. The supervisor starts it anew."""
        self._held.pop(name, None)
        if self.world.hosts[name].node is None:
            self.world.start(name, cut_at=cut_at, power=power)

    def campaign(self, name: str) -> None:
        if self.world.hosts[name].node is not None:
            self.world.campaign(name)

    @staticmethod
    def fast_again(node: SimNode) -> None:
        if node.up:
            node.process.loop.slow_down(0)

    def supervise(self) -> None:
        """Begin to start again, every now and then, whatever has ended by itself."""
        if not self._supervising:
            self._supervising = True
            self._look_after()

    def _look_after(self) -> None:
        if not self._supervising:
            return
        self.looks.strangers()
        for host in self.world.hosts.values():
            if host.node is None and host.name not in self._held and not self.is_off(host.name):
                if host.refused is not None and host.name in self.damaged:
                    self._refusals[host.name] += 1
                self.world.start(host.name)
        self.world.later(SUPERVISOR_EVERY_NS, self._look_after)

    def given_up(self, name: str) -> bool:
        """It has a damaged disk and has refused to start on it again and again."""
        return self._refusals[name] >= REFUSALS_MAX

    def is_off(self, name: str) -> bool:
        return name in self.operator.absent or self.given_up(name)

    def retire(self) -> None:
        """Switch off the machines that are no members any more, and start nothing again by itself from now on."""
        self._supervising = False
        members = self.members()
        for node in self.world.up():
            if node.name not in members:
                self.world.kill(node.name)

    # -- disks --------------------------------------------------------------------------------------

    def may_damage(self, name: str) -> bool:
        """Whether the others could do without this disk for good, those damaged before included, in whatever
        configuration anybody has."""
        if name in self.damaged or self.operator.busy:
            return False
        configurations = [node.raft.configuration for node in self.world.up()]
        parts = [part for each in configurations for part in (each.voters, each.outgoing) if part]
        damaged = {*self.damaged, name}
        return all(len(damaged.intersection(part)) <= (len(part) - 1) // 2 for part in parts)

    def rot(self, name: str, place: int, mask: int) -> bool:
        """Damage a byte that was synced, anywhere but in the last record of the log: that one cannot be told
        from a torn write (formats: Log files)."""
        done = rot_somewhere(self.world.hosts[name].disk, place, mask)
        if done:
            if self.properties is not None and name in self.properties.ledger.nodes:
                self.looks.damaged(name, self.properties.ledger.nodes[name].disk)
            self._declare(name, DiskFate.DAMAGED)
            self.damaged[name] = None
        return done

    def _declare(self, name: str, fate: DiskFate) -> None:
        if self.properties is not None:
            self.properties.disk_changed(name, fate)

    def all_have_met(self, name: str) -> bool:
        """Whether every other node knows the instance of this one, and so would not take an empty disk for it."""
        nodes = {node.name: node for node in self.world.up()}
        return all(
            other in nodes and name in nodes[other].directory.known_instances()
            for other in self.members()
            if other != name
        )

    def lose_directory(self, name: str) -> None:
        self.world.hosts[name].disk.wipe()
        self._declare(name, DiskFate.LOST)
        self.damaged[name] = None
        self.wiped[name] = tuple(other for other in self.members() if other != name)

    def is_lost(self, name: str) -> bool:
        """Only taking it out of the cluster helps: its disk is empty or an old one, or refused, or there is none."""
        gone = (self.wiped, self.put_back, self.operator.absent)
        return any(name in names for names in gone) or self.given_up(name)

    def restore_directory(self, name: str, copy: SimDisk, down_ns: int) -> None:
        if not self.rests_on_others(name):
            return
        self.happened["disk.old-copy"] += 1
        self.end(name, {}, self.world.kill, starts=False)
        self.world.hosts[name].disk.restore(copy)
        self._declare(name, DiskFate.RESTORED)
        self.put_back[name] = None
        self.wiped.pop(name, None)  # If it was empty, it is the directory again that others have met.
        self.later(down_ns, self.start, name)

    def rests_on_others(self, name: str) -> bool:
        """Whether nothing that this node has said is needed: all others run, follow one leader in its term, and
        hold durably whatever any node has in its log."""
        leader = self.world.leader()
        others = [other for other in self.members() if other != name]
        nodes = [self.world.hosts[other].node for other in others]
        if leader is None or leader.name == name or None in nodes:
            return False
        last = max(node.raft.log.last_index for node in self.world.up())
        return all(
            node is not None
            and node.raft.leader == leader.name
            and node.raft.current_term == leader.raft.current_term
            and node.raft.durable_index >= last
            and not node.raft.pending_writes
            for node in nodes
        )

    def free_space(self, name: str) -> None:
        self.world.hosts[name].disk.capacity_bytes = NO_LIMIT

    # -- the end ------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Undo everything that can be undone, and start whatever does not run."""
        world = self.world
        world.note("healed")
        self.over = True
        self._weathers.clear()
        # Where nothing is wrong, no message takes so long that its leader is missed.
        world.network.set(self._base._replace(tail_max_ns=world.options.heartbeat_interval))
        world.network.heal()
        for name in list(world.clients_cut):
            world.mend_clients(name)
        self.usual_ways()
        for resource in world.resources.values():
            resource.come_up()
            resource.go_on()
            resource.lost_answers = 0
            resource.unreached.clear()
        for host in world.hosts.values():
            make_sound(host.disk)
            host.sync_extra_ns = 0
            host.set_rate(0)
            world.syncs_go_on(host.name)
            if host.node is not None:
                self.fast_again(host.node)
                if host.node.process.paused:
                    world.resume(host.name)
        self._held.clear()
        self.supervise()
