"""A linearizable read sees everything that was committed when it was asked for (thesis section 6.4; S29).

Whatever a client has been told is committed, so a read that sees all of that sees what was acknowledged.
"""

from __future__ import annotations

from ...raft.core.events import Effects, Event, Read, ReadReady
from ...raft.core.invariants import Summary
from ...raft.ports import Answer
from ..sim.jobs import Invocation, Kind, Reply
from .ledger import Ledger
from .observed import ObservedNode
from .property import Property


class Reads(Property):
    """Judges the index that the core names, and the one that the answer says it was read at."""

    name = "reads"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._asked: dict[tuple[str, int, int], tuple[int, bool]] = {}
        """By node, boot and request id: what was committed then, and whether the lease was to do."""
        self._invoked: dict[int, int] = {}
        """By request: what was committed when a client sent it."""
        self.confirmed = 0
        self.heard = 0

    def special(self, node: ObservedNode, before: Summary, event: Event, effects: Effects) -> None:
        if type(event) is Read:
            # What this very step commits was not committed when the read came.
            for request_id in event.request_ids:
                self._asked[node.name, node.boot, request_id] = (self.ledger.last_index, event.lease)
        for answer in effects.reads:
            asked = self._asked.pop((node.name, node.boot, answer.request_id), None)
            if asked is None:
                raise self.broken(f"{node} answers read {answer.request_id}, which was not asked for or is answered")
            if type(answer) is ReadReady:
                self.confirmed += 1
                if answer.read_index < asked[0]:
                    how = "from its lease" if asked[1] else "confirmed by a quorum"
                    raise self.broken(
                        f"{node}, term {node.raft.current_term}, lets read {answer.request_id} be answered at index "
                        f"{answer.read_index}, {how}; {asked[0]} was committed when it was asked for"
                    )

    def invoked(self, invocation: Invocation) -> None:
        job = invocation.job
        if job.kind is Kind.READ and job.parameters.get("consistency") in ("linearizable", "lease"):
            self._invoked[invocation.request_id] = self.ledger.last_index

    def answered(self, invocation: Invocation, answer: Answer | Reply | None) -> None:
        committed = self._invoked.pop(invocation.request_id, None)
        if committed is None or not isinstance(answer, Reply) or answer.error is not None:
            return
        self.heard += 1
        label = answer.body.get("read") if isinstance(answer.body, dict) else None
        if label is None or label["applied_index"] < committed:
            raise self.broken(
                f"{invocation.node}/{invocation.boot} answers {invocation.job.name} of {invocation.job.client} from "
                f"its state as of {label}; {committed} was committed when it was sent"
            )

    def ended(self, node: ObservedNode, why: str) -> None:
        self._asked = {key: asked for key, asked in self._asked.items() if key[0] != node.name}
