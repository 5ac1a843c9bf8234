"""What operators do: members come, go and are replaced, and leadership is handed over, whatever else is going on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....raft.core.options import MILLISECOND
from ..plan import Parameters
from .kind import kind, lasting, number, one_of, whom

if TYPE_CHECKING:
    from ..stage import Stage

_FATE = one_of("then", "nothing", "nothing", "kill", "isolate", "pause", "power")
"""What happens to the leader in the middle of a change."""


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
    return stage.operator.replace(int(parameters["count"])) and _and_then(stage, parameters)


@kind(
    "membership.in-partition",
    number("pick", 0, 999),
    one_of("what", "add", "remove", "replace"),
    lasting(1500, 15_000),
    weight=4,
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


def _and_then(stage: Stage, parameters: Parameters) -> bool:
    def act() -> None:
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

    stage.later(int(parameters["after_ms"]) * MILLISECOND, act)
    return True
