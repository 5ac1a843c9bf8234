"""What clients do that is hard to serve: many commands at once, one twice, and reads where an answer is most likely
to be old, at a leader that has just been replaced, or just been elected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....raft.core.options import MILLISECOND
from ..plan import Parameters
from .kind import kind, lasting, number, one_of

if TYPE_CHECKING:
    from ..stage import Stage


@kind("clients.burst", number("count", 5, 40), number("which", 0, 999), one_of("lanes", 0, 1, 2), weight=3)
def burst(stage: Stage, parameters: Parameters) -> bool:
    """Many commands at once, most of them into one or two lanes, where they wait for one another (S52)."""
    leader = stage.world.leader()
    if leader is None:
        return False
    resource = stage.resource(parameters)
    for turn in range(int(parameters["count"])):
        lanes = int(parameters["lanes"])
        stage.submit_at(leader.name, resource.name, f"burst{turn % lanes}" if lanes else "")
    return True


@kind("clients.same-id", number("count", 2, 4), number("which", 0, 999), number("apart_ms", 0, 300), weight=2)
def same_id(stage: Stage, parameters: Parameters) -> bool:
    """Several clients submit one command under one id at about the same time (S34)."""
    leader = stage.world.leader()
    if leader is None:
        return False
    resource = stage.resource(parameters)
    name = stage.new_id()
    for turn in range(int(parameters["count"])):
        after_ns = turn * int(parameters["apart_ms"]) * MILLISECOND
        stage.later(after_ns, stage.submit_at, leader.name, resource.name, "", name)
    return True


@kind("clients.read-at-old-leader", number("after_ms", 0, 30), number("pick", 0, 999), lasting(500, 3000), weight=3)
def at_old_leader(stage: Stage, parameters: Parameters) -> bool:
    """It hands over, is cut off from its peers before it hears of its successor, and is asked by clients (S30)."""
    leader = stage.world.leader()
    if leader is None or not stage.operator.transfer(int(parameters["pick"])):
        return False
    name = leader.name
    stage.later(int(parameters["after_ms"]) * MILLISECOND, stage.cut_for, parameters, stage.links_of(name))
    for turn in range(12):
        stage.later(turn * 60 * MILLISECOND, stage.read_at, name)
    return True


@kind("clients.read-at-election", number("count", 1, 5), lasting(2000, 12_000), weight=2)
def at_election(stage: Stage, parameters: Parameters) -> bool:
    """Whoever is elected is asked at once, before it knows what others have committed (S29)."""

    def ask() -> None:
        leader = stage.world.leader()
        if leader is not None:
            for _ in range(int(parameters["count"])):
                stage.read_at(leader.name)

    stage.at_elections(int(parameters["for_ns"]), ask)
    leader = stage.world.leader()
    if leader is not None:
        stage.world.kill(leader.name)
    return leader is not None
