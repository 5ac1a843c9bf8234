"""What lives beside the core on the node's loop, and hears what happens there."""

from __future__ import annotations

from typing import Any, Protocol

from ..core.configuration import Configuration
from ..core.entry import Entry, Snapshot
from ..core.events import RoleChange, TransferBegun, TransferEnded


class LoopObserver(Protocol):
    """Called on the node's loop, within a turn. What it raises ends the node."""

    def role_changed(self, change: RoleChange) -> None: ...

    def applied(self, entries: list[Entry], results: list[Any]) -> None: ...

    def restored(self, snapshot: Snapshot) -> None:
        """The state machines were replaced: they are as they are after ``snapshot.last_index``, and what
        lies between was not applied one by one."""

    def configuration_changed(self, configuration: Configuration) -> None:
        """Another configuration is in force. It may not be committed yet."""

    def transfer_begun(self, transfer: TransferBegun) -> None:
        """This leader is handing over: nothing new is to be begun."""

    def transfer_ended(self, transfer: TransferEnded) -> None:
        """It did not come to it, and this node leads on."""

    def before_turn_ends(self, now: int) -> None:
        """Called once at the end of every turn in which something happened."""

    def stopped(self) -> None:
        """The node has failed or is closing: give up every authority at once."""


class Onlooker:
    """A :class:`LoopObserver` that hears only what its class says: whatever it does not define does nothing."""

    __slots__ = ()

    def role_changed(self, change: RoleChange) -> None:
        pass

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        pass

    def restored(self, snapshot: Snapshot) -> None:
        pass

    def configuration_changed(self, configuration: Configuration) -> None:
        pass

    def transfer_begun(self, transfer: TransferBegun) -> None:
        pass

    def transfer_ended(self, transfer: TransferEnded) -> None:
        pass

    def before_turn_ends(self, now: int) -> None:
        pass

    def stopped(self) -> None:
        pass
