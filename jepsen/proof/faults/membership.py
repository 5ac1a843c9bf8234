"""What operators do: members come, go and are replaced, and leadership is handed over, whatever else is going on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....raft.core.options import MILLISECOND
from ..plan import Parameters
from .kind import kind, lasting, number, one_of, whom

if TYPE_CHECKING:
    from ..stage import Stage

_FATE = one_of("then", "nothing", "nothing", "kill", "isolate", "pause", "power", "others", "part", "part")
"""What happens in the middle of a change: to the leader; or all others are stopped for a while; or the old voters
that go, and as many of those that stay as it takes, are parted from the rest."""


@kind("membership.add", number("after_ms", 5, 500), _FATE, lasting(1000, 8000), weight=2)
def add(stage: Stage, parameters: Parameters) -> bool:
    """A new node: a learner first, and a voter once it has caught up."""
    return stage.operator.add() and _and_then(stage, parameters)


@kind("membership.remove", whom("leader", "follower", "any"), number("after_ms", 5, 500), _FATE, lasting(1000, 8000))
def remove(stage: Stage, parameters: Parameters) -> bool:
    """A member is taken out for good, perhaps the leader itself."""
    name = stage.target(parameters)
    return name is not None and stage.operator.remove(name) and _and_then(stage, parameters)


@kind("membership.replace", number("count", 1, 2), number("after_ms", 5, 500), _FATE, lasting(1000, 8000), weight=2)
def replace(stage: Stage, parameters: Parameters) -> bool:
    """Several members at once by as many new ones, through a joint configuration (S24)."""
    # A joint configuration is in force for as long as one round takes.
    stage.at_joint(int(parameters["after_ms"]) * MILLISECOND // 50, _meanwhile, stage, parameters)
    return stage.operator.replace(int(parameters["count"]))


@kind(
    "membership.in-partition",
    number("pick", 0, 999),
    one_of("what", "add", "remove", "replace"),
    lasting(1500, 15_000),
    weight=2,
)
def in_partition(stage: Stage, parameters: Parameters) -> bool:
    """The change is asked for while the cluster is parted, on the side that can make it or on the other."""
    one, other = stage.two_groups(int(parameters["pick"]))
    stage.cut_for(parameters, [(a, b) for a in one for b in other] + [(b, a) for a in one for b in other])
    what = str(parameters["what"])
    if what == "add":
        return stage.operator.add()
    if what == "replace":
        return stage.operator.replace(1)
    names = stage.members_up()
    return bool(names) and stage.operator.remove(names[int(parameters["pick"]) % len(names)])


@kind("membership.transfer", number("pick", 0, 999), number("after_ms", 0, 300), _FATE, lasting(500, 5000), weight=2)
def transfer(stage: Stage, parameters: Parameters) -> bool:
    """The leader is told to hand over, to a named node or to whom it likes (S08)."""
    return stage.operator.transfer(int(parameters["pick"])) and _and_then(stage, parameters)


@kind("membership.at-election", one_of("what", "add", "remove", "replace"), lasting(2000, 12_000), weight=2)
def at_election(stage: Stage, parameters: Parameters) -> bool:
    """Whoever is elected is asked for a change at once, before it has committed anything (S23)."""

    def ask() -> None:
        what = str(parameters["what"])
        leader = stage.world.leader()
        if what == "add":
            stage.operator.add()
        elif what == "replace":
            stage.operator.replace(1)
        elif leader is not None:
            stage.operator.remove(leader.name)

    stage.at_elections(int(parameters["for_ns"]), ask)
    leader = stage.world.leader()
    if leader is not None:
        stage.world.step_down(leader.name)
    return leader is not None


@kind("membership.absent", lasting(1000, 6000))
def absent(stage: Stage, parameters: Parameters) -> bool:
    """A learner whose machine is never switched on, and which is to be made a voter all the same (S28)."""
    return stage.operator.add(absent=True)


def _and_then(stage: Stage, parameters: Parameters) -> bool:
    stage.later(int(parameters["after_ms"]) * MILLISECOND, _meanwhile, stage, parameters)
    return True


def _meanwhile(stage: Stage, parameters: Parameters) -> None:
    """What ``then`` says."""
    leader = stage.world.leader()
    then = str(parameters["then"])
    if leader is None:
        return
    if then == "kill":
        stage.end(leader.name, parameters, stage.world.kill)
    elif then == "power":
        stage.end(leader.name, parameters, stage.world.cut_power)
    elif then == "pause":
        stage.world.pause(leader.name, int(parameters["for_ns"]))
    elif then == "isolate":
        stage.cut_for(parameters, stage.links_of(leader.name))
    elif then == "part":
        one, other = stage.old_and_new()
        stage.cut_for(parameters, [(a, b) for a in one for b in other] + [(b, a) for a in one for b in other])
    elif then == "others":
        for node in stage.world.up():
            if node is not leader and node.running:
                stage.world.pause(node.name, int(parameters["for_ns"]))
