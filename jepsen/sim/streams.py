"""Chance of a run: one seed, and a stream of its own for each purpose.

What one stream gives does not depend on how often another was asked. So when something is left out of what
is done to a world, the clients still want the same, and the disks are still as fast as they were.
"""

from __future__ import annotations

import hashlib
from random import Random


def stream(seed: int, purpose: str) -> Random:
    """The chance of a run with this seed for one purpose."""
    return Random(int.from_bytes(hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest()))
