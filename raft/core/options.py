"""Timeouts and limits of the core, each with its unit in its name or in its docstring."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ConfigurationError

MILLISECOND = 1_000_000
"""Nanoseconds."""
SECOND = 1_000_000_000
"""Nanoseconds."""


@dataclass(frozen=True, slots=True)
class Options:
    """All times are nanoseconds. How to choose them from what was measured: operations, Choosing timeouts.

    Raises :class:`ConfigurationError` when the values cannot work together.
    """

    election_timeout: int = SECOND
    """A follower that hears nothing for this long, up to twice this long by chance, campaigns."""
    heartbeat_interval: int = 100 * MILLISECOND
    """A leader looks this often for followers to which it has been silent for at least half of this;
    so none waits longer than one and a half times this."""
    stall_bound: int = SECOND
    """A leader whose oldest write has been pending for longer than this gives up (S07)."""
    transfer_timeout: int = SECOND
    """A transfer of leadership that takes longer is given up, and this leader serves on (S08)."""
    chunk_timeout: int = SECOND
    """A part of a snapshot that is not answered for this long is sent again."""
    commit_notice_delay: int = 10 * MILLISECOND
    """An idle follower hears of a new commit index after at most this long."""
    append_bytes_max: int = 1 << 20
    """Payload bytes in one AppendEntries; one entry is always allowed."""
    in_flight_max: int = 64
    """AppendEntries with entries on their way to one follower."""
    in_flight_bytes_max: int = 16 << 20
    """Payload bytes on their way to one follower; one message is always allowed."""
    uncommitted_bytes_max: int = 64 << 20
    """Payload bytes appended and not yet committed; more is refused as BUSY before an index is used."""
    entry_bytes_max: int = 16 << 20
    """Payload bytes of one entry; a larger one is refused as TOO_LARGE before an index is used."""
    snapshot_entries: int = 0
    """A snapshot is wanted once this many entries were applied since the last one; 0 for never by count."""
    snapshot_bytes: int = 0
    """The same in payload bytes: a log of few large entries fills a disk as well (S11). 0 for never."""
    retained_entries: int = 1000
    """Entries kept in front of the newest snapshot, so that a follower that is a little behind needs none."""
    retained_bytes: int = 0
    """Of these, only the newest that together hold this many payload bytes: with large entries, so many of them
    would be far more than ``snapshot_bytes``. 0 for no bound."""
    window_entries: int = 0
    """Entries kept in memory beyond those that are not yet durable, committed and applied; what is older is
    read back from the disk. 0 for all."""
    window_bytes: int = 0
    """The same in payload bytes; 0 for no bound."""
    chunk_bytes: int = 256 << 10
    """Of a snapshot, in one InstallSnapshot."""
    promotion_lag_max: int = 1000
    """A learner that lacks more entries than this is not made a voter (S28)."""
    pre_vote: bool = True
    check_quorum: bool = True
    step_down_on_removal: bool = True
    """A leader that is no voter of a committed configuration stops leading (thesis section 4.2.2)."""
    hand_on_removal: bool = True
    """Where it does so, it has another voter campaign at once: nobody waits for a timeout (section 3.10)."""
    lease_reads: bool = False
    """Allow reads from the leader's lease without asking a quorum (section 6.4.1). They are as safe as
    ``clock_drift_ppm`` is true of every node's monotonic clock, and a node keeps its vote to itself
    for an election timeout after it was started."""
    clock_drift_ppm: int = 10_000
    """By how much two nodes' monotonic clocks may differ in rate, parts of a million."""

    def __post_init__(self) -> None:
        if self.heartbeat_interval <= 0:
            raise ConfigurationError("heartbeat interval must be positive")
        if self.election_timeout < 3 * self.heartbeat_interval:
            raise ConfigurationError(
                f"election timeout {self.election_timeout / MILLISECOND:g} ms is below three heartbeats of "
                f"{self.heartbeat_interval / MILLISECOND:g} ms: one lost heartbeat would start an election",
                next_step="raise election_timeout or lower heartbeat",
            )
        if self.commit_notice_delay < 0:
            raise ConfigurationError("commit notice delay must not be negative")
        if self.stall_bound < self.heartbeat_interval:
            raise ConfigurationError("stall bound must be at least one heartbeat interval")
        if self.transfer_timeout < self.heartbeat_interval:
            raise ConfigurationError("transfer timeout must be at least one heartbeat interval")
        if self.chunk_timeout < self.heartbeat_interval:
            raise ConfigurationError("chunk timeout must be at least one heartbeat interval")
        if min(self.append_bytes_max, self.in_flight_max, self.in_flight_bytes_max, self.chunk_bytes) <= 0:
            raise ConfigurationError("limits must be positive")
        if min(self.uncommitted_bytes_max, self.entry_bytes_max) <= 0:
            raise ConfigurationError("limits must be positive")
        if min(self.snapshot_entries, self.snapshot_bytes, self.retained_entries, self.promotion_lag_max) < 0:
            raise ConfigurationError("counts of entries and bytes must not be negative")
        if self.retained_bytes < 0:
            raise ConfigurationError("counts of entries and bytes must not be negative")
        if min(self.window_entries, self.window_bytes) < 0:
            raise ConfigurationError("a window of entries must not be negative")
        if not 0 <= self.clock_drift_ppm < 500_000:
            raise ConfigurationError("clock drift must be between 0 and half of a clock's rate")
        if self.lease_reads and not self.check_quorum:
            raise ConfigurationError(
                "a lease rests on followers that stick to their leader: lease_reads needs check_quorum"
            )

    def at_the_fastest(self, interval: int) -> int:
        """How much of an interval of other nodes' clocks has surely not passed, by this one's: nanoseconds."""
        return interval * (1_000_000 - self.clock_drift_ppm) // 1_000_000
