"""What a node counts of its own part in the cluster, since it was started."""

from __future__ import annotations

from typing import Any

from ..core.configuration import Configuration
from ..core.entry import Entry, Snapshot
from ..core.events import Role, RoleChange, TransferBegun, TransferEnded
from ..outbox.machine import SubmitResult


class NodeMeasures:
    """Implements ``raft.node.observers.LoopObserver``."""

    def __init__(self) -> None:
        self.elections_begun = 0
        """Times that this node became a candidate, and asked for votes."""
        self.elections_won = 0
        self.leader_changes = 0
        """Times that another leader than before was followed or was this node."""
        self.leaderships_lost = 0
        self.submitted = 0
        """Commands applied under an id that was not known: on every node."""
        self.transfers_begun = 0
        self._leader = ""
        self._role = Role.FOLLOWER

    def role_changed(self, change: RoleChange) -> None:
        if change.role is Role.CANDIDATE:
            self.elections_begun += 1
        elif change.role is Role.LEADER:
            self.elections_won += 1
        if self._role is Role.LEADER and change.role is not Role.LEADER:
            self.leaderships_lost += 1
        self._role = change.role
        if change.leader and change.leader != self._leader:
            self._leader = change.leader
            self.leader_changes += 1

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        for result in results:
            if type(result) is SubmitResult and not result.replayed and not result.reused:
                self.submitted += 1

    def transfer_begun(self, transfer: TransferBegun) -> None:
        self.transfers_begun += 1

    def restored(self, snapshot: Snapshot) -> None:
        pass

    def configuration_changed(self, configuration: Configuration) -> None:
        pass

    def transfer_ended(self, transfer: TransferEnded) -> None:
        pass

    def before_turn_ends(self, now: int) -> None:
        pass

    def stopped(self) -> None:
        pass
