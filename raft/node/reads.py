"""Reading the state of this node: linearizably, or as it happens to be here, with its age (thesis section 6.4).

A linearizable read sees everything that was committed before it was asked for, on whichever node; it
waits for a quorum to confirm that, and fails by a deadline otherwise (S29, S30). A stale one is answered at
once and has to be asked for by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from ..core.errors import CommandInvalid, FencepostError, NotLeader
from .calls import not_leader
from .loop import RaftLoop

T = TypeVar("T")


class Consistency(StrEnum):
    LINEARIZABLE = "linearizable"
    """Confirmed by a quorum that was asked after the read came."""
    LEASE = "lease"
    """From the leader's lease where the node's options allow it, else as LINEARIZABLE."""
    STALE = "stale"
    """What is here now."""


def consistency_of(text: Any, default: Consistency) -> Consistency:
    """Raises CommandInvalid for a word that is none."""
    if not text:
        return default
    if text not in list(Consistency):
        raise CommandInvalid(f"no consistency {text!r}", next_step="one of: " + ", ".join(Consistency))
    return Consistency(text)


class LocalReads:
    """Questions to the state machines of this node."""

    def __init__(self, loop: RaftLoop, leader_address: Callable[[str], str]) -> None:
        self._loop = loop
        self._leader_address = leader_address

    def read(
        self,
        query: Callable[[], T],
        done: Callable[[T | None, BaseException | None], None],
        consistency: Consistency = Consistency.LINEARIZABLE,
    ) -> None:
        """Call ``query()`` on the node's loop as soon as the state here is as ``consistency`` wants it, and
        then ``done(result, error)``: what it returned or raised, or :class:`NotLeader` if the state could not
        be confirmed in time. Nothing was done then; asking again is safe."""
        asked = _Asked(query, done, self._leader_address)
        if consistency is Consistency.STALE:
            asked.ready()
        else:
            self._loop.read(asked, lease=consistency is Consistency.LEASE)

    async def ask(self, query: Callable[[], T], consistency: Consistency = Consistency.LINEARIZABLE) -> T:
        """:meth:`read` for whoever can wait. Raises what ``query`` raises, or :class:`NotLeader`."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(result: T | None, error: BaseException | None) -> None:
            if answer.done():
                return  # Whoever asked has given up.
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        self.read(query, done, consistency)
        result: T = await answer
        return result

    def label(self, consistency: Consistency) -> dict[str, Any]:
        """What an answer says about itself: up to which index, and how old it may be, seconds, if that is known."""
        age_ns = 0 if consistency is not Consistency.STALE else self._loop.stale_read_age_ns()
        return {
            "consistency": consistency.value,
            "applied_index": self._loop.applier.last_applied,
            "age_s": None if age_ns is None else age_ns / 1e9,
        }


class _Asked:
    """One read that is waiting (``requests.ReadSink``)."""

    def __init__(
        self,
        query: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None],
        leader_address: Callable[[str], str],
    ) -> None:
        self._query = query
        self._done = done
        self._leader_address = leader_address

    def ready(self) -> None:
        result: Any = None
        raised: BaseException | None = None
        try:
            result = self._query()
        except Exception as error:  # The question's own: it is told, and ends no node.
            raised = error
        self._done(result, raised)

    def refused(self, leader: str) -> None:
        self._done(None, not_leader(leader, self._leader_address))

    def expired(self) -> None:
        error: FencepostError = NotLeader(
            "no quorum has confirmed in time that what this node knows is current",
            next_step="ask again or another node, or ask for what is here, however old: consistency=stale",
        )
        self._done(None, error)
