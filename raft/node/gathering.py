"""Proposals of one turn, or of as many turns as writes are under way, on their way into one event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .waiters import ProposalSink

Batch = tuple[ProposalSink, Sequence[Any], int]
"""Who hears of it, by which keys, and how many proposals it has."""


class Gathered(NamedTuple):
    batches: list[Batch]
    proposals: list[tuple[int, bytes]]
    """(entry kind, data) of all batches in order."""
    internal: bool
    """The leader's own are among them."""


class Gathering:
    """Clients' proposals, and the leader's own, which go first and are never refused as BUSY."""

    __slots__ = ("_internal_proposals", "_proposals", "client_bytes", "clients", "internal")

    def __init__(self) -> None:
        self.clients: list[Batch] = []
        self.internal: list[Batch] = []
        self.client_bytes = 0
        self._proposals: list[tuple[int, bytes]] = []
        self._internal_proposals: list[tuple[int, bytes]] = []

    def add(self, kind: int, data: Sequence[bytes], sink: ProposalSink, keys: Sequence[Any]) -> None:
        self.client_bytes += sum(map(len, data))
        self._proposals.extend([(kind, item) for item in data])
        self.clients.append((sink, keys, len(data)))

    def add_internal(self, kind: int, data: Sequence[bytes], sink: ProposalSink, keys: Sequence[Any]) -> None:
        self._internal_proposals.extend([(kind, item) for item in data])
        self.internal.append((sink, keys, len(data)))

    def take(self) -> Gathered:
        """Everything, the leader's own first."""
        gathered = Gathered(
            self.internal + self.clients, self._internal_proposals + self._proposals, bool(self.internal)
        )
        self.internal, self._internal_proposals = [], []
        self._forget_clients()
        return gathered

    def refuse_clients(self, code: str) -> None:
        batches = self.clients
        self._forget_clients()
        for sink, keys, _ in batches:
            sink.refused(keys, code, "")

    def _forget_clients(self) -> None:
        self.clients, self._proposals, self.client_bytes = [], [], 0
