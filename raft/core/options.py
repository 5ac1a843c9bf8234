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
    """All times are nanoseconds.

    Raises :class:`ConfigurationError` when the values cannot work together.
    """

    election_timeout: int = SECOND
    """A follower that hears nothing for this long, up to twice this long by chance, campaigns."""
    heartbeat_interval: int = 100 * MILLISECOND
    """A leader looks this often for followers to which it has been silent for at least half of this;
    so none waits longer than one and a half times this."""
    stall_bound: int = SECOND
    """A leader whose oldest write has been pending for longer than this gives up (S07)."""
    commit_notice_delay: int = 10 * MILLISECOND
    """An idle follower hears of a new commit index after at most this long."""
    append_bytes_max: int = 1 << 20
    """Payload bytes in one AppendEntries; one entry is always allowed."""
    in_flight_max: int = 64
    """AppendEntries on their way to one follower."""
    uncommitted_bytes_max: int = 64 << 20
    """Payload bytes appended and not yet committed; more is refused as BUSY before an index is used."""
    pre_vote: bool = True
    check_quorum: bool = True

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
        if min(self.append_bytes_max, self.in_flight_max, self.uncommitted_bytes_max) <= 0:
            raise ConfigurationError("limits must be positive")
