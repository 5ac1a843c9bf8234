"""What a kind of fault is: how its parameters are drawn from a plan's chance, and how it is done to a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ....raft.core.options import MILLISECOND
from ..plan import Parameters

if TYPE_CHECKING:
    from ..stage import Stage

Act = Callable[["Stage", Parameters], bool]
"""Does it now. False if it found nothing to act upon: then it did not happen, and is not counted."""
Draw = Callable[[Random], dict[str, Any]]


class Kind(NamedTuple):
    name: str
    """The part of the world before the dot: ``network.loss``."""
    draw: Draw
    act: Act
    weight: float
    """How often it is chosen, beside the others' 1."""


KINDS: dict[str, Kind] = {}
"""By name, in the order of the modules."""


def kind(name: str, *draws: Draw, weight: float = 1.0) -> Callable[[Act], Act]:
    """Put the decorated function on the list. What ``draws`` give together are its parameters."""

    def enter(act: Act) -> Act:
        def draw(random: Random) -> dict[str, Any]:
            return {name: value for part in draws for name, value in part(random).items()}

        KINDS[name] = Kind(name, draw, act, weight)
        return act

    return enter


# -- how parameters are drawn -------------------------------------------------------------------------


def whom(*roles: str) -> Draw:
    """A node that runs: one of these roles, and a number that tells it from others of its role."""
    return lambda random: {"role": random.choice(roles), "pick": random.randrange(1000)}


def lasting(least_ms: int, most_ms: int) -> Draw:
    """For how long. Short ones are as likely as long ones, by order of magnitude."""
    return lambda random: {"for_ns": log_uniform(random, least_ms, most_ms) * MILLISECOND}


def number(name: str, least: int, most: int) -> Draw:
    """A whole number, evenly."""
    return lambda random: {name: random.randint(least, most)}


def share(name: str, least: float, most: float) -> Draw:
    """A chance, to three digits so that a plan can be read."""
    return lambda random: {name: round(random.uniform(least, most), 3)}


def one_of(name: str, *values: int | str) -> Draw:
    return lambda random: {name: random.choice(values)}


def log_uniform(random: Random, least: int, most: int) -> int:
    """A whole number between the two, each order of magnitude as likely as the next."""
    return max(least, min(most, round(float(least * (most / least) ** random.random()))))


def names() -> Iterator[str]:
    yield from KINDS
