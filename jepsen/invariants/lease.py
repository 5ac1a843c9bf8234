"""When a newer leader begins to lead, no older one believes that it holds the lease (thesis section 6.4.1; S30).

It is a matter of clocks and of memory, so it is not promised (``Raft.holds_lease``) where a voter has been
restarted within an election timeout, where a node was told to campaign, by hand or by the old leader itself, or
where clocks run at different rates: there, only as much of the lease as their drift leaves.
"""

from __future__ import annotations

from ...raft.core.events import Campaign, Effects, Event, Role
from ...raft.core.invariants import Summary
from ...raft.core.messages import Message, TimeoutNow
from .ledger import Ledger
from .observed import Leadership, ObservedNode
from .property import DiskFate, Property

_MILLION = 1_000_000


class Lease(Property):
    name = "lease"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._told: dict[int, str] = {}
        """By term: whom its leader has told to campaign."""
        self._may_lie_until_ns = 0
        self._rate_changed_ns = 0
        self._timeout_ns = 0

    def started(self, node: ObservedNode) -> None:
        options = node.raft.options
        self._timeout_ns = max(self._timeout_ns, options.election_timeout)
        if not options.lease_reads:
            self._may_lie()  # With lease reads a node keeps its vote to itself for as long after a start.

    def disk_changed(self, node: ObservedNode, fate: DiskFate) -> None:
        self._may_lie()

    def special(self, node: ObservedNode, before: Summary, event: Event, effects: Effects) -> None:
        if type(event) is Campaign:
            self._may_lie()

    def said(self, node: ObservedNode, to: str, message: Message) -> None:
        if type(message) is TimeoutNow:
            self._told[message.term] = to

    def _may_lie(self) -> None:
        """Somebody's promise to keep its vote to itself is forgotten. Clocks may run slow: twice the time is ample."""
        self._may_lie_until_ns = self.ledger.now_ns + 2 * self._timeout_ns

    def elected(self, node: ObservedNode, leadership: Leadership) -> None:
        if not node.raft.options.check_quorum or self.ledger.now_ns < self._may_lie_until_ns:
            return
        rates = [each.node.host.rate_ppm for each in self.ledger.nodes.values() if each.up]
        drift = max(rates) - min(rates)
        for other in self.ledger.nodes.values():
            raft = other.raft
            if not other.up or raft.role is not Role.LEADER or raft.current_term >= leadership.term:
                continue
            if raft.current_term in self._told:
                continue
            now = other.node.clock.monotonic_ns()
            left_ns = raft.options.election_timeout * drift // _MILLION + (1 if drift else 0)
            if raft.holds_lease(now) and raft.holds_lease(now + 2 * left_ns):
                raise self.broken(
                    f"{node} begins to lead term {leadership.term} while {other} holds the lease of term "
                    f"{raft.current_term}, at {now} by its clock, with the contact of a quorum at {raft.quorum_contact}"
                )
