"""What happens to outside resources, and to calls on their way there and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....raft.core.options import MILLISECOND, SECOND
from ..plan import Parameters
from .kind import kind, lasting, number, one_of, share, whom

if TYPE_CHECKING:
    from ..stage import Stage

_WHICH = number("which", 0, 999)


@kind("resource.down", _WHICH, lasting(200, 15_000))
def down(stage: Stage, parameters: Parameters) -> bool:
    resource = stage.resource(parameters)
    resource.go_down()
    stage.until_over(parameters, resource.come_up)
    return True


@kind("resource.restart", _WHICH)
def restart(stage: Stage, parameters: Parameters) -> bool:
    """Its connections break; of what was under way some has happened."""
    stage.resource(parameters).restart()
    return True


@kind("resource.hang", _WHICH, lasting(200, 12_000))
def hang(stage: Stage, parameters: Parameters) -> bool:
    """It takes calls and does nothing for a while; then it carries them out, whoever leads by then."""
    resource = stage.resource(parameters)
    resource.hang()
    stage.until_over(parameters, resource.go_on)
    return True


@kind("resource.slow", _WHICH, number("way_ms", 5, 2000), lasting(500, 10_000))
def slow(stage: Stage, parameters: Parameters) -> bool:
    way_ns = int(parameters["way_ms"]) * MILLISECOND
    return stage.slow_ways(parameters, way_min_ns=way_ns // 4, way_spread_ns=way_ns)


@kind("resource.late-calls", _WHICH, share("tail", 0.1, 0.6), number("tail_ms", 500, 4000), lasting(1000, 15_000))
def late_calls(stage: Stage, parameters: Parameters) -> bool:
    """Some calls arrive seconds later, and so do some answers."""
    tail_ns = int(parameters["tail_ms"]) * MILLISECOND
    return stage.slow_ways(parameters, tail=float(parameters["tail"]), tail_ns=tail_ns)


@kind("resource.answers-lost", _WHICH, number("count", 1, 5), one_of("told", 0, 1))
def answers_lost(stage: Stage, parameters: Parameters) -> bool:
    """It acts, and the answer never arrives."""
    stage.resource(parameters).lose_answers(int(parameters["count"]), told=bool(parameters["told"]))
    return True


@kind("resource.unreached", _WHICH, whom("leader", "leader", "any"), lasting(500, 15_000))
def unreached(stage: Stage, parameters: Parameters) -> bool:
    """One node reaches the resource no more, nor its answers that node."""
    name = stage.target(parameters)
    if name is None:
        return False
    resource = stage.resource(parameters)
    resource.unreached[name] = None
    stage.until_over(parameters, resource.unreached.pop, name, None)
    return True


@kind("resource.restored", _WHICH, lasting(500, 8000), weight=0.5)
def restored(stage: Stage, parameters: Parameters) -> bool:
    """It goes back to a backup of a while ago, fence and memory of operations with it."""
    resource = stage.resource(parameters)
    backup = resource.backup()
    stage.until_over(parameters, resource.restore, backup)
    return True


@kind(
    "resource.zombie",
    number("tenths", 22, 45),
    one_of("gone", "isolated", "paused", "killed", "cut"),
    lasting(3000, 12_000),
    weight=2,
)
def zombie(stage: Stage, parameters: Parameters) -> bool:
    """A call of the leader is long on its way, and its leader is superseded before it arrives (S47)."""
    # In election timeouts: as long as the others need to find a successor, and longer.
    way_ns = int(parameters["tenths"]) * stage.world.options.election_timeout // 10
    for which in range(len(stage.world.resources)):
        stage.slow_ways({"which": which, "for_ns": SECOND}, way_min_ns=way_ns, way_spread_ns=way_ns // 4)

    def act(name: str) -> None:
        stage.usual_ways()
        gone = str(parameters["gone"])
        if gone == "isolated":
            stage.cut_for(parameters, stage.links_of(name))
        elif gone == "paused":
            stage.world.pause(name, int(parameters["for_ns"]))
        elif gone == "killed":
            stage.end(name, {"for_ns": SECOND}, stage.world.kill)
        else:
            stage.cut_for(parameters, [(other, name) for other in stage.world.names if other != name])

    return stage.when_effect_under_way("resource.zombie", act, within_ns=SECOND)
