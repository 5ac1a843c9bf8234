"""Who has which state at which index, and what follows from a difference. No I/O, no clock.

After every entry whose index is a multiple of :data:`POINT_ENTRIES`, a *point*, each node takes the digests of its
state machines and tells them to the others. All have applied the same entries, so all digests of a point are the
same, unless a node has a defect: in its memory, its disk, its program, or the machine that an embedder gave it.

Which side is right cannot be seen. A majority of the voters counts as right, because its state is what clients
were answered from and what every later leader goes on with; where there is none, nobody can be told to stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from ..core.configuration import Configuration
from ..core.quorum import VoteResult, vote_result

POINT_ENTRIES = 1_000
"""The same on all nodes. Where it is not, they compare what is a multiple of both."""
KEPT_POINTS = 64
"""How many points are remembered, of this node and of each other: for those who come to them later."""

Digests = Mapping[int, bytes]
"""By entry kind. The first byte says how the rest was made: what differs in it is not compared."""


class Standing(Enum):
    DIFFERS = "differs"
    """Some node has another state, and it is not known that this one is in the minority."""
    OUTVOTED = "outvoted"
    """A majority of the voters agrees on another state than this node's."""


class Finding(NamedTuple):
    """A difference between this node and others, of one machine at one point."""

    standing: Standing
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    kind: int
    own: bytes
    other: bytes
    holders: tuple[str, ...]
    """Who has ``other``, sorted."""


class DigestLedger:
    """What one node knows of its own and the others' digests."""

    def __init__(self, node_id: str, *, kept: int = KEPT_POINTS) -> None:
        self._node_id = node_id
        self._kept = kept
        self._own: dict[int, tuple[Digests, Configuration]] = {}
        self._others: dict[int, dict[str, Digests]] = {}
        """By index, then by node id."""
        self._told: dict[tuple[int, int, tuple[str, ...]], None] = {}
        """Differences that were found already, in order."""
        self.agreed_index = 0
        """The highest point at which a majority of the voters, this node among them, has this node's digests."""
        self.differences = 0
        """How many were found."""

    @property
    def newest(self) -> tuple[int, Digests] | None:
        """This node's last point."""
        if not self._own:
            return None
        index = max(self._own)
        return index, self._own[index][0]

    def own(self, index: int) -> Digests | None:
        found = self._own.get(index)
        return None if found is None else found[0]

    def reached(self, index: int, digests: Digests, configuration: Configuration) -> list[Finding]:
        """This node has applied everything up to ``index``, where ``configuration`` was in force."""
        self._own[index] = (digests, configuration)
        _keep_highest(self._own, self._kept)
        return self._judge(index)

    def heard(self, source: str, index: int, digests: Digests) -> list[Finding]:
        """Another node says what it has at ``index``."""
        self._others.setdefault(index, {})[source] = digests
        _keep_highest(self._others, self._kept)
        return self._judge(index)

    def forget(self) -> None:
        """This node's state was replaced by a snapshot of another: what it had before says nothing about it."""
        self._own.clear()
        self._told.clear()

    def _judge(self, index: int) -> list[Finding]:
        known = self._own.get(index)
        if known is None:
            return []
        own, configuration = known
        others = self._others.get(index, {})
        found: list[Finding] = []
        for kind in sorted(own):
            groups: dict[bytes, list[str]] = {own[kind]: [self._node_id]}
            for node in sorted(others):
                digest = others[node].get(kind)
                if digest is not None and digest[:1] == own[kind][:1]:
                    groups.setdefault(digest, []).append(node)
            found += self._differences(index, kind, groups, configuration)
        agree = [node for node in others if _same(own, others[node])]
        if _is_majority(configuration, [*agree, self._node_id]):
            self.agreed_index = max(self.agreed_index, index)
        return found

    def _differences(
        self, index: int, kind: int, groups: dict[bytes, list[str]], configuration: Configuration
    ) -> list[Finding]:
        (own, _), *others = groups.items()
        found = []
        for digest, nodes in others:
            holders = tuple(nodes)
            if (index, kind, holders) in self._told:
                continue
            self._told[index, kind, holders] = None
            while len(self._told) > self._kept:
                del self._told[next(iter(self._told))]
            self.differences += 1
            standing = Standing.OUTVOTED if _is_majority(configuration, nodes) else Standing.DIFFERS
            found.append(Finding(standing, index, kind, own, digest, holders))
        return found


def _same(one: Digests, other: Digests) -> bool:
    return one.keys() == other.keys() and all(other[kind] == digest for kind, digest in one.items())


def _is_majority(configuration: Configuration, nodes: Iterable[str]) -> bool:
    """Of both parts, where the configuration is joint."""
    if not configuration.voters:
        return False
    return vote_result(configuration, dict.fromkeys(nodes, True)) is VoteResult.WON


def _keep_highest(points: dict[int, Any], kept: int) -> None:
    while len(points) > kept:
        del points[min(points)]
