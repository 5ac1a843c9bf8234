"""Waiting for another process, which gives no event to wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

INTERVAL_S = 0.02


def eventually(look: Callable[[], T | None], *, within_s: float, what: str) -> T:
    """Look again and again until `look` returns something true, and return it.

    `within_s` only bounds a failing test; nothing may be concluded from how long it took.
    Raises AssertionError naming `what` and the last thing seen.
    """
    deadline = time.monotonic() + within_s
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}: not within {within_s} s; last seen: {seen!r}")
        time.sleep(INTERVAL_S)


async def eventually_async(look: Callable[[], Awaitable[T | None]], *, within_s: float, what: str) -> T:
    """The same for a `look` that is awaited."""
    deadline = time.monotonic() + within_s
    while True:
        seen = await look()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}: not within {within_s} s; last seen: {seen!r}")
        await asyncio.sleep(INTERVAL_S)
