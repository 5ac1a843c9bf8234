"""Successes that came too late for the tenure they belong to.

Success is a fact, whoever leads by then: an effect that was under way when its leader lost office may
have been done all the same. This process knows it and may be the only one that does, since a naked
resource cannot be asked. So it is kept, and put on record when this node leads again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import structlog

from ..core.entry import Entry, EntryKind
from ..core.token import FencingToken
from ..outbox.codec import Outcome, OutcomeRow, encode
from .batch import in_parts
from .dispatcher import Proposer

_LOG = structlog.get_logger("fencepost.effects")

LATE_ROWS_MAX = 10_000
"""Kept by one process; more than this many effects are hardly ever under way at once."""


class _Late(NamedTuple):
    resource: str
    token: FencingToken
    """Of the leader that carried them out."""
    rows: list[OutcomeRow]


class LateSuccesses:
    """Kept from one tenure to the next; hears of its own entries (``raft.node.waiters.ProposalSink``)."""

    def __init__(self) -> None:
        self._kept: list[_Late] = []

    def __len__(self) -> int:
        return sum(len(late.rows) for late in self._kept)

    def keep(self, resource: str, token: FencingToken, rows: list[OutcomeRow]) -> None:
        """``rows`` are successes and nothing else: failure is an opinion, and dies with the office."""
        if len(self) + len(rows) > LATE_ROWS_MAX:
            _LOG.warning("late successes not kept", resource=resource, token=str(token), commands=len(rows))
            return
        self._kept += [_Late(resource, token, part) for part in in_parts(rows)]

    def propose(self, proposer: Proposer) -> None:
        """Put all of them on record. What is recorded already, or again, changes nothing."""
        kept, self._kept = self._kept, []
        for late in kept:
            _LOG.info("late successes recorded", resource=late.resource, token=str(late.token), commands=len(late.rows))
            proposer.propose_internal(EntryKind.OUTBOX, (encode(Outcome(*late)),), self, (late,))

    def accepted(self, keys: Sequence[_Late], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[_Late], code: str, leader: str) -> None:
        self._kept += keys

    def applied(self, keys: Sequence[_Late], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        pass

    def lost(self, keys: Sequence[_Late]) -> None:
        self._kept += keys

    def unknown(self, keys: Sequence[_Late]) -> None:
        self._kept += keys
