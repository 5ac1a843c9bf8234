"""What can be read off an operation id (concepts: Operation ids)."""

from __future__ import annotations

FUTURE_NS_MAX = 300 * 1_000_000_000
"""How far the time in an id may be ahead of cluster time to be believed. The clock of a client that is further
ahead must not make the ids of all others look old."""

_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")


def time_in_id_ns(operation_id: str) -> int:
    """When a UUIDv7 was made by the clock of whoever made it, nanoseconds since the Unix epoch; 0 for other ids."""
    if len(operation_id) != 36 or operation_id[14] != "7" or operation_id[8] != "-" or operation_id[13] != "-":
        return 0
    digits = operation_id[:8] + operation_id[9:13]
    return int(digits, 16) * 1_000_000 if _HEXADECIMAL.issuperset(digits) else 0


def believed_time_ns(operation_id: str, cluster_time_ns: int) -> int:
    """The same, but 0 where it is too far ahead of ``cluster_time_ns`` to be believed."""
    time_ns = time_in_id_ns(operation_id)
    return time_ns if time_ns <= cluster_time_ns + FUTURE_NS_MAX else 0
