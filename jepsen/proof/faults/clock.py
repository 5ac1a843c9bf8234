"""What happens to clocks: the wall's are set, and all run fast or slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....raft.core.options import SECOND
from ..plan import Parameters
from .kind import kind, lasting, number, one_of, whom

if TYPE_CHECKING:
    from ..stage import Stage


@kind("clock.jump", whom("leader", "any"), one_of("by_s", -3600, -60, -1, 1, 60, 3600, 86_400))
def jump(stage: Stage, parameters: Parameters) -> bool:
    """Somebody sets the wall clock of one machine (S46)."""
    name = stage.target(parameters)
    if name is None:
        return False
    stage.world.hosts[name].jump(int(parameters["by_s"]) * SECOND)
    return True


@kind("clock.skew", number("most_s", 1, 600), number("pick", 0, 999))
def skew(stage: Stage, parameters: Parameters) -> bool:
    """Every wall clock shows another time."""
    most = int(parameters["most_s"])
    for place, host in enumerate(stage.world.hosts.values()):
        host.jump((int(parameters["pick"]) * (place + 1) * 7919 % (2 * most + 1) - most) * SECOND)
    return True


@kind("clock.rate", whom("leader", "any"), number("ppm", -4500, 4500), lasting(2000, 30_000))
def rate(stage: Stage, parameters: Parameters) -> bool:
    """One machine's clocks run fast or slow, within what the lease allows for."""
    name = stage.target(parameters)
    if name is None:
        return False
    host = stage.world.hosts[name]
    host.set_rate(int(parameters["ppm"]))
    stage.until_over(parameters, host.set_rate, 0)
    return True
