"""How long a resource may take to answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..core.errors import ResourceUnavailable

ANSWER_TIMEOUT_S = 10.0
"""How long a resource may take to answer a claim, or to say what its fence is."""

ASK_TIMEOUT_S = 3.0
"""How long one may take to say what became of an operation, where a person waits for what depends on it. It may be busy
with a batch, or away."""


@asynccontextmanager
async def bounded(seconds: float, what: str) -> AsyncIterator[None]:
    """Raise :class:`ResourceUnavailable` when the block takes longer."""
    try:
        async with asyncio.timeout(seconds) as timeout:
            yield
    except TimeoutError as error:
        if not timeout.expired():
            raise  # Not ours: what the resource says about itself.
        raise ResourceUnavailable(f"no answer within {seconds:g} s from {what}") from error
