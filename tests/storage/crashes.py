"""A crash at every step of something that is done to a disk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from .faulty_disk import Directory, FaultyDisk, Inode

TORN_PER_STEP = 6


class Aftermath(NamedTuple):
    """A disk after a crash, and what had been acknowledged when it came."""

    disk: FaultyDisk
    acknowledged: int
    what: str


def contents(node: Inode | Directory) -> object:
    if isinstance(node, Inode):
        return node.cache
    return tuple(sorted((name, contents(child)) for name, child in node.seen.items() if name != "lock"))


def crash_at_every_step(
    disk: FaultyDisk, act: Callable[[Callable[[], None]], None], *, torn_per_step: int = TORN_PER_STEP
) -> list[Aftermath]:
    """Run ``act`` once and collect the distinct aftermaths behind each of its steps.

    ``act`` gets a function to call for each acknowledgement.
    """
    found: dict[object, Aftermath] = {}
    acknowledged = 0
    steps = 0

    def acknowledge() -> None:
        nonlocal acknowledged
        acknowledged += 1

    def after_step(operation: str) -> None:
        nonlocal steps
        steps += 1
        images = [("kill", disk.after_kill()), ("power", disk.after_power_loss())]
        images += [
            (f"torn {seed}", disk.after_torn_power_loss(Random(f"{steps} {seed}"))) for seed in range(torn_per_step)
        ]
        for kind, image in images:
            what = f"{kind} after step {steps} ({operation})"
            found.setdefault((contents(image.top), acknowledged), Aftermath(image, acknowledged, what))

    disk.after_step = after_step
    act(acknowledge)
    disk.after_step = lambda operation: None
    assert steps
    return list(found.values())
