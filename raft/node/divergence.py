"""Nodes tell each other the digests of their states, and the one that is alone with its own stops.

It stops before it can make its state anybody's truth: leadership and every authority over effects first. What
compares is :mod:`.digests`; this is its mouth, its ears and its emergency brake.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import structlog

from ..core.configuration import Configuration
from ..core.entry import Entry, Snapshot
from ..core.errors import StateDiverged
from ..core.events import RoleChange, TransferBegun, TransferEnded
from ..core.messages import MachineDigest, Message, StateDigest
from ..core.options import SECOND
from ..core.step import Raft
from .applier import Applier
from .digests import DigestLedger, Digests, Finding, Standing

_LOG = structlog.get_logger("fencepost.node")

REPEAT_NS = 5 * SECOND
"""A node's last point is told again after so long: to those who were away, or came back to it."""


class DivergingLoop(Protocol):
    """The part of the node's loop that this needs."""

    raft: Raft
    applier: Applier

    def end_diverged(self, error: StateDiverged) -> None:
        """Give up leadership, then end the node."""


class DivergenceWatch:
    """A :class:`~.observers.LoopObserver`. ``send(to, message)`` hands a message to the transport."""

    def __init__(self, loop: DivergingLoop, send: Callable[[str, Message], None]) -> None:
        self._loop = loop
        self._send = send
        self.ledger = DigestLedger(loop.raft.node_id)
        self._repeat_at = 0

    # -- what happens here --------------------------------------------------------------------------

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        points = self._loop.applier.take_points()
        for index, digests in points:
            configuration = self._loop.raft.configuration_at(index)[1]
            found = self.ledger.reached(index, digests, configuration)
            self._tell(index, digests)
            self._judge(found)

    def restored(self, snapshot: Snapshot) -> None:
        self._loop.applier.take_points()
        self.ledger.forget()

    def before_turn_ends(self, now: int) -> None:
        if now < self._repeat_at:
            return
        self._repeat_at = now + REPEAT_NS
        newest = self.ledger.newest
        if newest is not None:
            self._tell(*newest)

    def role_changed(self, change: RoleChange) -> None: ...

    def configuration_changed(self, configuration: Configuration) -> None: ...

    def transfer_begun(self, transfer: TransferBegun) -> None: ...

    def transfer_ended(self, transfer: TransferEnded) -> None: ...

    def stopped(self) -> None: ...

    # -- what others say ----------------------------------------------------------------------------

    def heard(self, source: str, message: StateDigest) -> None:
        if source not in self._loop.raft.configuration.members:
            return
        theirs = {each.kind: each.digest for each in message.machines}
        with suppress(StateDiverged):  # The node has ended; nobody is there to be told on this way.
            self._judge(self.ledger.heard(source, message.index, theirs))

    # -- both -----------------------------------------------------------------------------------------

    def _tell(self, index: int, digests: Digests) -> None:
        message = StateDigest(index, [MachineDigest(kind, digests[kind]) for kind in sorted(digests)])
        raft = self._loop.raft
        for member in raft.configuration.members:
            if member != raft.node_id:
                self._send(member, message)

    def _judge(self, found: list[Finding]) -> None:
        """Raises :class:`StateDiverged` if this node has to stop, after it has."""
        for finding in found:
            index, holders = finding.index, ", ".join(finding.holders)
            if finding.standing is Standing.DIFFERS:
                _LOG.error(
                    "states differ",
                    index=index,
                    kind=finding.kind,
                    own=finding.own.hex(),
                    other=finding.other.hex(),
                    nodes=holders,
                    next_step="fencepost explain STATE_DIVERGED",
                )
                continue
            error = StateDiverged(
                f"after entry {index} the state of node {self._loop.raft.node_id} has the digest {finding.own.hex()}, "
                f"and a majority of the voters ({holders}) has {finding.other.hex()} (machine of entry kind "
                f"{finding.kind})",
                next_step="keep its data directory for study, remove the node, and add a new one under a new name; "
                "docs/operations.md, STATE_DIVERGED",
            )
            self._loop.end_diverged(error)
            raise error
