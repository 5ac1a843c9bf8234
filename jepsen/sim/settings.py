"""How the surroundings of the nodes behave when nothing is done to them. Times are nanoseconds, chances of 1."""

from __future__ import annotations

from typing import NamedTuple

from ...raft.core.options import MILLISECOND, SECOND


class NetworkSettings(NamedTuple):
    """How messages between nodes travel."""

    delay_min_ns: int = 300_000
    delay_spread_ns: int = 700_000
    """Between nothing and this comes on top, evenly."""
    tail: float = 0.002
    """The chance of a delay with a heavy tail: Pareto, from ``tail_ns`` on."""
    tail_ns: int = 3 * MILLISECOND
    tail_alpha: float = 1.1
    tail_max_ns: int = 10 * SECOND
    ordered: bool = True
    """Each link is a stream, as a real one is. Otherwise messages overtake one another."""
    loss: float = 0.0
    duplication: float = 0.0
    stale: float = 0.0
    """The chance that a copy of a message is kept, and delivered once more much later, whoever runs then."""
    stale_min_ns: int = 1 * SECOND
    stale_max_ns: int = 300 * SECOND
    corruption: float = 0.0
    """The chance that the bytes of a message are damaged on their way."""
    encoded: float = 0.002
    """The share of messages that travel as bytes, through the real codec, although nothing damages them."""
    ping_timeout_ns: int = 2 * SECOND
    """A connection on which nothing has come back for so long (and up to a quarter more) is closed; 0: never."""
    backoff_min_ns: int = 50 * MILLISECOND
    backoff_max_ns: int = 1 * SECOND
    connect_timeout_ns: int = 1 * SECOND

    @property
    def troubled(self) -> bool:
        """Whether each message needs a second look."""
        return bool(self.loss or self.duplication or self.stale or self.corruption)


class DiskSettings(NamedTuple):
    """How long syncs take, and how large the log's files are."""

    sync_min_ns: int = 400_000
    sync_spread_ns: int = 1_600_000
    tail: float = 0.002
    """The chance of a sync that takes up to ``tail_max_ns``."""
    tail_max_ns: int = 200 * MILLISECOND
    segment_bytes: int = 256 * 1024
    reserve_bytes: int = 16 * 1024
    start_min_ns: int = 20 * MILLISECOND
    """How long a process takes from its start until it has read its disk, least and most."""
    start_max_ns: int = 200 * MILLISECOND


class ResourceSettings(NamedTuple):
    """How an outside resource is reached, and how long it takes."""

    way_min_ns: int = 200_000
    way_spread_ns: int = 800_000
    tail: float = 0.002
    """The chance of a way with a heavy tail, in either direction: a call that arrives when others lead."""
    tail_ns: int = 20 * MILLISECOND
    tail_alpha: float = 0.8
    tail_max_ns: int = 60 * SECOND
    service_min_ns: int = 200_000
    service_spread_ns: int = 800_000
    patience_ns: int = 5 * SECOND
    """A caller waits for so long."""
