"""Damage that is one for certain: a byte that is overwritten may have been that byte before."""

from __future__ import annotations


def flipped(data: bytes, at: int) -> bytes:
    """``data`` with the lowest bit of one byte turned over; ``at`` counts from the end where it is negative."""
    damaged = bytearray(data)
    damaged[at] ^= 1
    return bytes(damaged)
