"""One document that is replaced only where it is still the one that was read: for stores that can do no more.

A refused replacement does not mean that the leader is stale. It means that somebody wrote, and what was written is
read to find out: a higher token (STALE_LEADER), this very batch (a duplicate), or something else (try again).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

from ...core.errors import Outcome, ResourceUnavailable

T = TypeVar("T")

TRIES_MAX = 10


class Versioned(NamedTuple):
    data: bytes | None
    """None where there is no document yet."""
    version: str
    """What the store calls this state of it; empty where there is none."""


class Conflict(Exception):
    """The document was not at the version that was to be replaced. Nothing was written."""


class AnswerLost(Exception):
    """The replacement was sent, and may have been made."""


class Document(Protocol):
    """Raise :class:`ResourceUnavailable` and :class:`ConfigurationError` for what is about the store itself."""

    async def read(self) -> Versioned: ...

    async def replace(self, data: bytes, before: str) -> str:
        """Replace version ``before``, or make the document where it is empty. The new version.

        Raises :class:`Conflict`, :class:`AnswerLost`.
        """


class CompareAndSet:
    """``pause`` waits before try number n: somebody else writes too, and is to come through."""

    def __init__(self, document: Document, pause: Callable[[int], Awaitable[None]] | None = None) -> None:
        self._document = document
        self._pause = pause or _pause
        self._last: Versioned | None = None

    async def read(self) -> bytes | None:
        return (await self._document.read()).data

    async def change(self, decide: Callable[[bytes | None], tuple[bytes | None, T]], what: str) -> T:
        """Let ``decide`` say what to write over what is there, and what to answer; None writes nothing.

        ``decide`` is called again for each state of the document that it meets, so it checks the fence, then
        dedupes, then applies, and leaves no trace of its own. No two documents that it makes may be equal.

        Raises what ``decide`` raises about the document as it is, and :class:`ResourceUnavailable`.
        """
        # What this process wrote last is probably still there. Only for writing, which would tell if it were not.
        found, fresh = self._last, False
        self._last = None
        lost = ""
        for number in range(1, TRIES_MAX + 1):
            if found is None:
                found, fresh = await self._read(lost), True
            try:
                data, answer = decide(found.data)
            except Exception:
                if fresh:
                    raise
                found = None
                continue
            if data is None and not fresh:
                found = None
                continue
            if data is None:
                self._last = found
                return answer
            try:
                version = await self._document.replace(data, found.version)
            except Conflict:
                found = None
            except AnswerLost as error:
                lost = str(error) or type(error).__name__
                found, fresh = await self._read(lost), True
                if found.data == data:
                    self._last = found
                    return answer
            else:
                self._last = Versioned(data, version)
                return answer
            await self._pause(number)
        raise ResourceUnavailable(
            f"{what}: was changed by somebody else {TRIES_MAX} times in a row{lost and f', and {lost}'}",
            next_step="see who else writes there",
            outcome=Outcome.UNKNOWN if lost else Outcome.RETRY,
        )

    async def _read(self, lost: str) -> Versioned:
        try:
            return await self._document.read()
        except ResourceUnavailable as error:
            if lost:
                # Whether the lost write was made is open, whatever the reading says of itself.
                raise ResourceUnavailable(error.message, next_step=error.next_step, outcome=Outcome.UNKNOWN) from error
            raise


async def _pause(number: int) -> None:
    """Grows, and is different for every process without being random: it is who came first that decides."""
    await asyncio.sleep(min(0.01 * 2**number, 0.5))
