"""What goes wrong in a random run: a run with every kind of fault at once hides what each alone would show."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...raft.core.options import MILLISECOND, Options
from .parts import DiskTimes, Network, SnapshotTimes

OPTIONS = Options(
    election_timeout=150 * MILLISECOND,
    heartbeat_interval=40 * MILLISECOND,
    stall_bound=200 * MILLISECOND,
    commit_notice_delay=10 * MILLISECOND,
    transfer_timeout=150 * MILLISECOND,
    chunk_timeout=60 * MILLISECOND,
    append_bytes_max=64,
    in_flight_max=4,
    chunk_bytes=16,
    promotion_lag_max=8,
)
"""Small limits, so that every one of them is reached."""

SNAPSHOTS = replace(OPTIONS, snapshot_entries=12, snapshot_bytes=400, retained_entries=4)
WINDOWS = replace(OPTIONS, window_entries=3)
LEASES = replace(OPTIONS, lease_reads=True, clock_drift_ppm=50_000)
EVERYTHING = replace(
    SNAPSHOTS, lease_reads=True, clock_drift_ppm=50_000, retained_entries=30, window_entries=6, window_bytes=60
)


class Profile(NamedTuple):
    """Names of ``faults`` are methods of :class:`~.chaos.Chaos`."""

    name: str
    faults: tuple[str, ...] = ()
    nodes: int = 3
    network: Network = Network()
    disk_times: DiskTimes = DiskTimes()
    snapshot_times: SnapshotTimes = SnapshotTimes()
    pace: int = 150 * MILLISECOND
    """The mean time between two faults."""
    asks: tuple[str, ...] = ()
    """What is asked for meanwhile, by the same kind of names."""
    ask_pace: int = 60 * MILLISECOND
    options: Options = OPTIONS
    reads: bool = False
    clock_drift_ppm: int = 0


LOSSY = Network(1 * MILLISECOND, 30 * MILLISECOND, loss=0.1, duplication=0.1)
LATE = LOSSY._replace(loss=0.02, late=0.05)
SLOW_DISK = DiskTimes(1 * MILLISECOND, 40 * MILLISECOND, grouped=0.5)
POOR_SNAPSHOTS = SnapshotTimes(1 * MILLISECOND, 25 * MILLISECOND, failed=0.1, damaged=0.2)

MEMBERS = ("add", "promote", "promote", "demote", "remove", "replace", "replace", "replace", "leave", "leave")
TROUBLE = ("isolate_leader", "heal", "heal", "crash", "restart", "restart")

PROFILES = (
    Profile("lossy", network=LOSSY),
    Profile("partitions", ("partition", "one_way", "isolate_leader", "heal"), network=Network(duplication=0.05)),
    Profile("crashes", ("crash", "restart", "restart"), disk_times=SLOW_DISK),
    Profile("disks", ("stick", "unstick", "fail_storage", "restart"), disk_times=SLOW_DISK),
    Profile(
        "power",
        ("power_cut", "crash_leader", "restart", "restart"),
        network=LOSSY,
        disk_times=SLOW_DISK,
        options=WINDOWS,
    ),
    Profile("roles", ("campaign", "step_down", "unreachable", "isolate_leader", "heal"), network=LOSSY),
    Profile("freezes", ("pause", "pause_leader"), network=LATE),
    Profile(
        "five",
        ("partition", "one_way", "crash", "restart", "heal", "isolate_leader", "crash_leader", "pause_leader"),
        nodes=5,
        network=LATE,
        disk_times=SLOW_DISK,
        options=WINDOWS,
    ),
    Profile(
        "everything",
        (
            *("partition", "one_way", "isolate_leader", "heal", "heal", "crash", "crash_leader", "restart", "restart"),
            *("stick", "unstick", "fail_storage", "campaign", "step_down", "unreachable", "power_cut"),
            *("pause", "pause_leader"),
        ),
        network=LATE,
        disk_times=SLOW_DISK,
        pace=80 * MILLISECOND,
    ),
    Profile(
        "members", TROUBLE, network=LOSSY._replace(delay_max=10 * MILLISECOND), pace=300 * MILLISECOND, asks=MEMBERS
    ),
    Profile(
        "members that freeze",
        ("pause_leader", "step_down", "partition", "heal"),
        network=LATE,
        asks=MEMBERS,
        nodes=4,
        pace=300 * MILLISECOND,
    ),
    Profile(
        "transfers",
        (*TROUBLE, "pause_leader", "one_way"),
        network=LOSSY,
        disk_times=SLOW_DISK,
        pace=250 * MILLISECOND,
        asks=("transfer", "transfer", "demote", "promote"),
        ask_pace=120 * MILLISECOND,
        reads=True,
    ),
    Profile(
        "snapshots",
        ("isolate", "isolate", "heal", "crash", "crash_leader", "restart", "restart", "step_down", "unreachable"),
        network=LOSSY,
        snapshot_times=POOR_SNAPSHOTS,
        options=SNAPSHOTS,
    ),
    Profile(
        "snapshots for new members",
        ("isolate", "crash", "power_cut", "restart", "restart", "heal", "heal"),
        snapshot_times=POOR_SNAPSHOTS,
        pace=250 * MILLISECOND,
        options=SNAPSHOTS,
        asks=(*MEMBERS, "transfer"),
    ),
    Profile(
        "reads",
        ("partition", "one_way", "isolate_leader", "heal", "heal", "step_down", "pause_leader", "crash", "restart"),
        network=LATE,
        reads=True,
    ),
    Profile(
        "reads without check-quorum",
        ("partition", "one_way", "isolate_leader", "heal", "heal", "step_down", "pause_leader", "crash", "restart"),
        network=LATE,
        options=replace(OPTIONS, check_quorum=False),
        asks=("transfer",),
        ask_pace=300 * MILLISECOND,
        reads=True,
    ),
    Profile(
        "leases",
        (
            *("partition", "one_way", "isolate_leader", "heal", "heal", "step_down", "campaign"),
            *("pause_leader", "pause_leader", "crash", "crash_leader", "restart", "restart"),
        ),
        network=Network(1 * MILLISECOND, 10 * MILLISECOND),
        options=LEASES,
        asks=("transfer", "add", "promote", "demote"),
        ask_pace=200 * MILLISECOND,
        reads=True,
        clock_drift_ppm=50_000,
    ),
    Profile(
        "all together",
        (
            *("partition", "one_way", "isolate", "isolate_leader", "heal", "heal", "heal", "crash", "crash_leader"),
            *("restart", "restart", "restart", "stick", "unstick", "fail_storage", "campaign", "step_down"),
            *("unreachable", "power_cut", "pause", "pause_leader"),
        ),
        network=LATE,
        disk_times=DiskTimes(1 * MILLISECOND, 15 * MILLISECOND),
        snapshot_times=POOR_SNAPSHOTS,
        pace=200 * MILLISECOND,
        asks=("transfer", *MEMBERS),
        options=EVERYTHING,
        reads=True,
        clock_drift_ppm=50_000,
    ),
)
