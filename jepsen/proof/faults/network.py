"""What happens to messages and connections between nodes, and between nodes and clients."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ....raft.core.options import MILLISECOND, SECOND
from ..plan import Parameters
from .kind import kind, lasting, number, share, whom

if TYPE_CHECKING:
    from ..stage import Stage

# -- for all messages ---------------------------------------------------------------------------------


@kind("network.loss", share("share", 0.01, 0.3), lasting(500, 15_000))
def loss(stage: Stage, parameters: Parameters) -> bool:
    return stage.weather(parameters, loss=float(parameters["share"]))


@kind("network.delay", share("share", 0.01, 0.3), number("tail_ms", 5, 800), lasting(500, 15_000))
def delay(stage: Stage, parameters: Parameters) -> bool:
    """A heavy tail: some messages come long after they were sent."""
    tail_ns = int(parameters["tail_ms"]) * MILLISECOND
    return stage.weather(parameters, tail=float(parameters["share"]), tail_ns=tail_ns)


@kind("network.duplication", share("share", 0.02, 0.5), lasting(500, 15_000))
def duplication(stage: Stage, parameters: Parameters) -> bool:
    return stage.weather(parameters, duplication=float(parameters["share"]))


@kind("network.reordering", number("spread_ms", 5, 200), lasting(500, 15_000))
def reordering(stage: Stage, parameters: Parameters) -> bool:
    """Messages overtake one another."""
    spread_ns = int(parameters["spread_ms"]) * MILLISECOND
    return stage.weather(parameters, ordered=False, delay_spread_ns=spread_ns)


@kind("network.stale", share("share", 0.005, 0.05), lasting(1000, 15_000))
def stale(stage: Stage, parameters: Parameters) -> bool:
    """Copies of messages turn up seconds or minutes later, whoever runs and leads then."""
    return stage.weather(parameters, stale=float(parameters["share"]), stale_max_ns=120 * SECOND)


@kind("network.corruption", share("share", 0.002, 0.05), lasting(500, 15_000))
def corruption(stage: Stage, parameters: Parameters) -> bool:
    return stage.weather(parameters, corruption=float(parameters["share"]))


# -- for single links ---------------------------------------------------------------------------------


@kind("network.partition", number("pick", 0, 999), lasting(500, 20_000), weight=2)
def partition(stage: Stage, parameters: Parameters) -> bool:
    """Two groups that do not hear each other."""
    one, other = stage.two_groups(int(parameters["pick"]))
    return stage.cut_for(parameters, [(a, b) for a in one for b in other] + [(b, a) for a in one for b in other])


@kind("network.isolation", whom("leader", "leader", "any"), lasting(500, 20_000), weight=2)
def isolation(stage: Stage, parameters: Parameters) -> bool:
    """One node hears nobody and is heard by nobody."""
    name = stage.target(parameters)
    return name is not None and stage.cut_for(parameters, stage.links_of(name))


@kind("network.long-tail", number("count", 5, 30), number("which", 0, 999), lasting(2500, 6000), weight=2)
def long_tail(stage: Stage, parameters: Parameters) -> bool:
    """A leader that is cut off fills its log with what is never committed. When it is heard again its successor is
    gone, so that the next leader is elected between a long old log and shorter newer ones."""
    leader = stage.world.leader()
    if leader is None:
        return False
    resource = stage.resource(parameters)
    stage.cut_for(parameters, stage.links_of(leader.name))
    for _ in range(int(parameters["count"])):
        stage.submit_at(leader.name, resource.name, "")

    def successor_goes() -> None:
        successor = stage.world.leader()
        if successor is not None and successor is not leader:
            stage.end(successor.name, {"for_ns": 3 * SECOND}, stage.world.kill)

    stage.until_over(parameters, successor_goes)
    return True


@kind("network.one-way", whom("leader", "any"), number("to", 0, 999), lasting(500, 20_000))
def one_way(stage: Stage, parameters: Parameters) -> bool:
    """One direction of one link, or (a third of the time) all that leaves a node, or all that reaches it."""
    name = stage.target(parameters)
    others = [other for other in stage.world.names if other != name]
    if name is None or not others:
        return False
    choice = int(parameters["to"])
    if choice % 3 == 0:
        links = [(name, others[choice % len(others)])]
    elif choice % 3 == 1:
        links = [(name, other) for other in others]
    else:
        links = [(other, name) for other in others]
    return stage.cut_for(parameters, links)


@kind("network.bridge", number("pick", 0, 999), lasting(1000, 20_000))
def bridge(stage: Stage, parameters: Parameters) -> bool:
    """Two groups that do not hear each other, and one node that hears both."""
    names = stage.shuffled(int(parameters["pick"]))
    if len(names) < 3:
        return False
    half = (len(names) - 1) // 2 or 1
    one, other = names[1 : 1 + half], names[1 + half :]
    return stage.cut_for(parameters, [(a, b) for a in one for b in other] + [(b, a) for a in one for b in other])


@kind("network.ring", number("pick", 0, 999), lasting(1000, 20_000))
def ring(stage: Stage, parameters: Parameters) -> bool:
    """Everybody hears two neighbours and nobody else: each has a majority, and no two have the same one."""
    names = stage.shuffled(int(parameters["pick"]))
    if len(names) < 4:
        return False
    near = {frozenset(pair) for pair in pairwise([*names, names[0]])}
    links = [(a, b) for a in names for b in names if a != b and frozenset((a, b)) not in near]
    return stage.cut_for(parameters, links)


@kind("network.flapping", whom("leader", "any"), number("period_ms", 50, 1500), number("times", 3, 12))
def flapping(stage: Stage, parameters: Parameters) -> bool:
    """A node is cut off and heard again, over and over."""
    name = stage.target(parameters)
    if name is None:
        return False
    links = stage.links_of(name)
    period_ns = int(parameters["period_ms"]) * MILLISECOND
    for turn in range(int(parameters["times"])):
        stage.later(turn * period_ns, stage.cut, links)
        stage.later(turn * period_ns + period_ns // 2, stage.mend, links)
    return True


@kind("network.half-open", whom("leader", "any"), number("to", 0, 999), lasting(1000, 20_000))
def half_open(stage: Stage, parameters: Parameters) -> bool:
    """A connection that takes everything, delivers nothing, and never says so."""
    name = stage.target(parameters)
    others = [other for other in stage.world.names if other != name]
    if name is None or not others:
        return False
    to = others[int(parameters["to"]) % len(others)]
    stage.world.network.half_open(name, to)
    stage.until_over(parameters, stage.mend, [(name, to)])
    return True


@kind("network.reset", whom("leader", "any"))
def reset(stage: Stage, parameters: Parameters) -> bool:
    """Every connection of one node breaks, and is made anew."""
    name = stage.target(parameters)
    if name is None:
        return False
    for source, to in stage.links_of(name):
        stage.world.network.break_link(source, to)
    return True


@kind("network.clients", whom("leader", "any"), lasting(500, 10_000))
def clients(stage: Stage, parameters: Parameters) -> bool:
    """Clients reach a node no more, nor its answers them. Its peers do."""
    name = stage.target(parameters)
    if name is None:
        return False
    stage.world.cut_clients(name)
    stage.until_over(parameters, stage.world.mend_clients, name)
    return True
