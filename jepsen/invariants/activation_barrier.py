"""Nothing outside is touched before a leader knows and holds everything (concepts: From winning an election to acting).

No call in a term before its no-op is applied by the node that calls; no effect before the claim was granted at
that resource and the take-over there is applied (S54), and none that leaves after the node has stopped leading.
"""

from __future__ import annotations

from typing import Any

from ...raft.core.entry import Entry, EntryKind
from ...raft.core.events import Role
from ...raft.core.token import FencingToken
from ...raft.outbox.codec import ACTIVATION, Activation, decode
from ..sim.resource import QUESTIONS, OutsideResource, ResourceCall
from .ledger import Ledger
from .observed import ObservedNode
from .property import Property


class ActivationBarrier(Property):
    name = "activation barrier"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._no_ops: dict[tuple[str, int, int], int] = {}
        """By node, boot and term: when that node applied the no-op of the term, nanoseconds of the world."""
        self._activations: dict[tuple[str, int, str, FencingToken], int] = {}
        """By node, boot, resource and token: when it applied its activation."""
        self._granted: dict[tuple[str, FencingToken, str], int] = {}
        """By resource, token and holder: when the first claim was granted."""

    def leaving(self, node: ObservedNode, resource: str, token: FencingToken) -> None:
        raft = node.raft
        if raft.role is not Role.LEADER or raft.current_term != token.term:
            raise self.broken(
                f"{node}, a {raft.role} of term {raft.current_term}, has a call leave for {resource} with token {token}"
            )

    def applied(self, node: ObservedNode, entries: list[Entry], results: list[Any]) -> None:
        now_ns = self.ledger.now_ns
        for entry in entries:
            if entry.kind == EntryKind.NO_OP:
                self._no_ops.setdefault((node.name, node.boot, entry.term), now_ns)
            elif entry.kind == EntryKind.OUTBOX and len(entry.data) > 1 and entry.data[1] == ACTIVATION:
                activation = decode(entry.data)
                assert isinstance(activation, Activation)
                key = (node.name, node.boot, activation.resource, activation.token)
                self._activations.setdefault(key, now_ns)

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        if call.kind in QUESTIONS:
            return
        who, token = f"{call.node}/{call.boot}", call.token
        leadership = self.ledger.leaderships.get(call.token.term)
        if leadership is None or (leadership.name, leadership.boot) != (call.node, call.boot):
            led = "nobody" if leadership is None else f"{leadership.name}/{leadership.boot}"
            raise self.broken(f"{who} calls {call.resource} with token {call.token}, and {led} led that term")
        applied_ns = self._no_ops.get((call.node, call.boot, call.token.term))
        if applied_ns is None or applied_ns > call.sent_ns:
            raise self.broken(
                f"{who} calls {call.resource} with token {call.token} before it has applied the no-op of that term"
            )
        granted = (call.resource, token, call.holder)
        if call.kind == "claim":
            if call.decision == "accepted":
                self._granted.setdefault(granted, call.time_ns)
            return
        claimed_ns = self._granted.get(granted)
        if claimed_ns is None or claimed_ns > call.sent_ns:
            raise self.broken(
                f"{who} executes at {call.resource} with token {call.token}, which no claim there was granted before"
            )
        taken_over_ns = self._activations.get((call.node, call.boot, call.resource, token))
        if taken_over_ns is None or taken_over_ns > call.sent_ns:
            raise self.broken(
                f"{who} executes at {call.resource} with token {call.token} before it has applied its activation there"
            )
