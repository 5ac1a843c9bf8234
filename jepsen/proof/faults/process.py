"""What happens to processes: every way to end, to stop for a while, and to be slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....raft.core.options import MILLISECOND, SECOND
from ..plan import Parameters
from .kind import kind, lasting, number, one_of, whom

if TYPE_CHECKING:
    from ..stage import Stage


@kind("process.kill", whom("leader", "follower", "any"), lasting(20, 10_000), weight=2)
def kill(stage: Stage, parameters: Parameters) -> bool:
    name = stage.target(parameters)
    return name is not None and stage.end(name, parameters, stage.world.kill)


@kind("process.kill-all", lasting(20, 5000))
def kill_all(stage: Stage, parameters: Parameters) -> bool:
    """All at once; they come back one after another."""
    names = [node.name for node in stage.world.up()]
    for place, name in enumerate(names):
        stage.end(
            name, {**parameters, "for_ns": int(parameters["for_ns"]) * (place + 1) // len(names)}, stage.world.kill
        )
    return bool(names)


@kind("process.kill-starting", whom("leader", "any"), number("cut_at", 1, 40), lasting(20, 1000))
def kill_starting(stage: Stage, parameters: Parameters) -> bool:
    """Killed, started, and killed again while it reads its disk."""
    name = stage.target(parameters)
    if name is None or not stage.end(name, parameters, stage.world.kill, starts=False):
        return False
    stage.later(int(parameters["for_ns"]), stage.start_cut_short, name, int(parameters["cut_at"]), False)
    return True


@kind("process.stop", whom("leader", "any"), lasting(100, 5000))
def stop(stage: Stage, parameters: Parameters) -> bool:
    """An orderly end, and a start after a while."""
    name = stage.target(parameters)
    return name is not None and stage.end(name, parameters, stage.world.stop)


@kind("process.pause-short", whom("leader", "any"), lasting(5, 500))
def pause_short(stage: Stage, parameters: Parameters) -> bool:
    return _pause(stage, parameters)


@kind("process.pause-long", whom("leader", "leader", "any"), lasting(1000, 20_000), weight=2)
def pause_long(stage: Stage, parameters: Parameters) -> bool:
    """Longer than any lease, and longer than the others need to elect a successor."""
    return _pause(stage, parameters)


def _pause(stage: Stage, parameters: Parameters) -> bool:
    name = stage.target(parameters)
    if name is None:
        return False
    stage.world.pause(name, int(parameters["for_ns"]))
    return True


@kind("process.pause-in-effect", lasting(1000, 15_000), weight=2)
def pause_in_effect(stage: Stage, parameters: Parameters) -> bool:
    """The leader is stopped at a moment at which a call of an effect is on its way, or about to leave."""

    def act(name: str) -> None:
        stage.world.pause(name, int(parameters["for_ns"]))

    return stage.when_effect_under_way("process.pause-in-effect", act)


@kind("process.kill-in-effect", lasting(20, 5000))
def kill_in_effect(stage: Stage, parameters: Parameters) -> bool:
    """The leader is killed between the beginning of an effect and its outcome in the log (S50)."""

    def act(name: str) -> None:
        stage.end(name, parameters, stage.world.kill)

    return stage.when_effect_under_way("process.kill-in-effect", act)


@kind("process.slow", whom("leader", "any"), number("cost_us", 20, 3000), lasting(500, 8000))
def slow(stage: Stage, parameters: Parameters) -> bool:
    """Every callback of the node's loop takes a while."""
    name = stage.target(parameters)
    if name is None:
        return False
    node = stage.world.node(name)
    stage.world.slow_down(name, int(parameters["cost_us"]) * 1000)
    stage.until_over(parameters, stage.fast_again, node)
    return True


@kind("process.block", whom("leader", "leader", "any"), lasting(20, 6000))
def block(stage: Stage, parameters: Parameters) -> bool:
    """One long callback: a collection, a handler that computes (S40)."""
    name = stage.target(parameters)
    if name is None:
        return False
    stage.world.block(name, int(parameters["for_ns"]))
    return True


@kind("process.block-effects", whom("leader"), lasting(50, 6000), weight=2)
def block_effects(stage: Stage, parameters: Parameters) -> bool:
    """A handler holds up the thread of the effects, and the node's own loop goes on."""
    name = stage.target(parameters)
    if name is None:
        return False
    stage.world.block_effects(name, int(parameters["for_ns"]))
    return True


@kind("process.step-down", one_of("times", 1, 1, 3), lasting(200, 3000))
def step_down(stage: Stage, parameters: Parameters) -> bool:
    """The leader gives up for a reason of its own, once or again and again."""

    def act() -> None:
        leader = stage.world.leader()
        if leader is not None:
            stage.world.step_down(leader.name)

    for turn in range(int(parameters["times"])):
        stage.later(turn * (int(parameters["for_ns"]) + SECOND), act)
    return stage.world.leader() is not None


@kind(
    "process.contest",
    number("spread_ms", 0, 40),
    one_of("how", "kill", "isolate"),
    one_of("late", 0, 0, 1),
    lasting(500, 5000),
    weight=2,
)
def contest(stage: Stage, parameters: Parameters) -> bool:
    """The leader goes away, and as soon as the others may forget it all of them campaign at about the same time."""
    leader = stage.world.leader()
    if leader is None:
        return False
    if parameters["how"] == "kill":
        stage.end(leader.name, parameters, stage.world.kill)
    else:
        stage.cut_for(parameters, stage.links_of(leader.name))
    if parameters["late"]:
        # Answers may come when their question was given up long ago.
        timeout_ns = stage.world.options.election_timeout
        stage.weather({"for_ns": 4 * timeout_ns}, tail=0.5, tail_ns=timeout_ns // 3, tail_max_ns=3 * timeout_ns)
    others = [node.name for node in stage.world.up() if node is not leader]
    wait_ns = stage.world.options.election_timeout + stage.world.options.heartbeat_interval
    for place, name in enumerate(others):
        after_ns = int(parameters["spread_ms"]) * MILLISECOND * place // max(1, len(others) - 1)
        stage.later(wait_ns + after_ns, stage.campaign, name)
    return True


@kind("process.campaign", whom("follower", "any"), number("after_ms", 0, 50))
def campaign(stage: Stage, parameters: Parameters) -> bool:
    """A node asks for an election although nothing is wrong."""
    name = stage.target(parameters)
    if name is None:
        return False
    stage.later(int(parameters["after_ms"]) * MILLISECOND, stage.campaign, name)
    return True
