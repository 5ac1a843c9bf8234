"""What happens to disks. A minority may be damaged for good; everything else may happen to all of them."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ....raft.core.options import MILLISECOND
from ..plan import Parameters
from .kind import kind, lasting, number, one_of, whom

if TYPE_CHECKING:
    from ..stage import Stage


@kind("disk.power-cut", whom("leader", "any"), lasting(20, 8000), weight=2)
def power_cut(stage: Stage, parameters: Parameters) -> bool:
    """What was not synced is gone or torn: bytes, cuts and names."""
    name = stage.target(parameters)
    return name is not None and stage.end(name, parameters, stage.world.cut_power)


@kind("disk.power-cut-all", lasting(20, 4000))
def power_cut_all(stage: Stage, parameters: Parameters) -> bool:
    names = [node.name for node in stage.world.up()]
    for place, name in enumerate(names):
        lasts = int(parameters["for_ns"]) * (place + 1) // len(names)
        stage.end(name, {"for_ns": lasts}, stage.world.cut_power)
    return bool(names)


@kind("disk.torn-write", whom("leader", "any"), number("nth", 1, 30), lasting(20, 4000))
def torn_write(stage: Stage, parameters: Parameters) -> bool:
    """The power goes in the middle of whatever the disk does at its nth operation from now."""
    name = stage.target(parameters)
    if name is None:
        return False
    stage.world.cut_at_operation(name, int(parameters["nth"]), power=True)
    return True


@kind("disk.power-cut-starting", whom("leader", "any"), number("cut_at", 1, 40), lasting(20, 2000))
def power_cut_starting(stage: Stage, parameters: Parameters) -> bool:
    """The power goes, and goes again while the node reads its disk and mends it."""
    name = stage.target(parameters)
    if name is None or not stage.end(name, parameters, stage.world.cut_power, starts=False):
        return False
    stage.later(int(parameters["for_ns"]), stage.start_cut_short, name, int(parameters["cut_at"]), True)
    return True


@kind("disk.short-writes", whom("leader", "any"), number("bytes", 100, 4000), lasting(500, 8000))
def short_writes(stage: Stage, parameters: Parameters) -> bool:
    """A write takes only so many bytes at a time (S13)."""
    name = stage.target(parameters)
    if name is None:
        return False
    disk = stage.world.hosts[name].disk
    usual = disk.write_bytes_max
    disk.write_bytes_max = int(parameters["bytes"])
    stage.until_over(parameters, setattr, disk, "write_bytes_max", usual)
    return True


@kind("disk.write-fails", whom("leader", "any"), number("nth", 1, 6))
def write_fails(stage: Stage, parameters: Parameters) -> bool:
    name = stage.target(parameters)
    if name is None:
        return False
    stage.world.hosts[name].disk.fail("write_at", int(parameters["nth"]), errno.EIO)
    return True


@kind(
    "disk.sync-fails",
    whom("leader", "any"),
    number("nth", 1, 6),
    one_of("which", "sync_data", "sync_data", "sync_data", "sync", "sync_directory"),
    weight=3,
)
def sync_fails(stage: Stage, parameters: Parameters) -> bool:
    """One sync fails, and the next would succeed over the hole that it left (S12)."""
    name = stage.target(parameters)
    if name is None:
        return False
    stage.world.hosts[name].disk.fail(str(parameters["which"]), int(parameters["nth"]), errno.EIO)
    return True


@kind("disk.full", whom("leader", "any"), number("left", 0, 6000), lasting(500, 10_000))
def full(stage: Stage, parameters: Parameters) -> bool:
    """Hardly any space is left, and after a while there is some again (S11)."""
    name = stage.target(parameters)
    if name is None:
        return False
    disk = stage.world.hosts[name].disk
    disk.capacity_bytes = disk.used_bytes + int(parameters["left"])
    stage.until_over(parameters, stage.free_space, name)
    return True


@kind("disk.slow-sync", whom("leader", "any"), number("extra_ms", 5, 600), lasting(500, 10_000))
def slow_sync(stage: Stage, parameters: Parameters) -> bool:
    name = stage.target(parameters)
    if name is None:
        return False
    host = stage.world.hosts[name]
    host.sync_extra_ns = int(parameters["extra_ms"]) * MILLISECOND
    stage.until_over(parameters, setattr, host, "sync_extra_ns", 0)
    return True


@kind("disk.hanging-sync", whom("leader", "leader", "any"), lasting(300, 10_000))
def hanging_sync(stage: Stage, parameters: Parameters) -> bool:
    """No sync comes back for a while (S07)."""
    name = stage.target(parameters)
    if name is None:
        return False
    stage.world.hang_syncs(name)
    stage.until_over(parameters, stage.world.syncs_go_on, name)
    return True


@kind("disk.rot", whom("leader", "any"), number("place", 0, 10**9), number("mask", 1, 255), lasting(20, 2000), weight=3)
def rot(stage: Stage, parameters: Parameters) -> bool:
    """A bit of a file on a minority of the disks is not what it was. The node must refuse to start on it, or
    start as if nothing were (where nothing reads that byte): never with another history (S10)."""
    name = stage.target(parameters)
    if name is None or not stage.may_damage(name):
        return False
    stage.end(name, parameters, stage.world.kill, starts=False)
    if not stage.rot(name, int(parameters["place"]), int(parameters["mask"])):
        stage.later(0, stage.start, name)
        return False
    stage.later(int(parameters["for_ns"]), stage.start, name)
    return True


@kind("disk.lost", whom("leader", "any"), lasting(50, 3000), weight=2)
def lost(stage: Stage, parameters: Parameters) -> bool:
    """The directory of one of a minority is gone, and the node starts on an empty disk: whoever has met it
    before turns it away (S21)."""
    name = stage.target(parameters)
    if name is None or not stage.may_damage(name) or not stage.all_have_met(name):
        return False
    stage.end(name, parameters, stage.world.kill, starts=False)
    stage.lose_directory(name)
    stage.later(int(parameters["for_ns"]), stage.start, name)
    return True


@kind("disk.old-copy", whom("follower", "any"), number("age_ms", 200, 6000), lasting(50, 2000), weight=0.7)
def old_copy(stage: Stage, parameters: Parameters) -> bool:
    """The directory of one node goes back to an old copy of itself. Only the leader can tell, and only after a while,
    so this is safe no further than where nothing rests on what it has forgotten, and is only done there
    (``Stage.rests_on_others``)."""
    name = stage.target(parameters)
    if name is None:
        return False
    copy = stage.world.hosts[name].disk.copy()
    age_ns = int(parameters["age_ms"]) * MILLISECOND
    stage.later(age_ns, stage.restore_directory, name, copy, int(parameters["for_ns"]))
    return False  # Not yet; it is counted when it is done.
