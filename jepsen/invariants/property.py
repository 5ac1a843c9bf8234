"""What every property has in common: a name, the moments at which it may look, and how it says that it was broken."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from ...raft.core.entry import Entry, Snapshot
from ...raft.core.events import Effects, Event, Persist
from ...raft.core.invariants import Summary
from ...raft.core.messages import Message
from ...raft.core.token import FencingToken
from ...raft.ports import Answer
from ..sim.violation import Violation

if TYPE_CHECKING:
    from ..sim.jobs import Invocation, Reply
    from ..sim.resource import OutsideResource, ResourceCall
    from .ledger import Ledger
    from .observed import Leadership, ObservedNode


class PropertyViolated(Violation):
    """``property_name`` says which one; the text says the nodes, indexes and terms."""

    def __init__(self, property_name: str, text: str) -> None:
        super().__init__(f"{property_name}: {text}")
        self.property_name = property_name


class DiskFate(StrEnum):
    """What was done to a disk behind the back of its node: none of it can be told from inside."""

    LOST = "lost"
    """It is empty."""
    RESTORED = "restored"
    """It is as it was some time ago."""
    DAMAGED = "damaged"
    """Bytes of it are not what was written."""


class Property:
    """Override what you want to see; the others are never called.

    Each raises :class:`PropertyViolated`. What a node has done is in the :class:`ObservedNode` already when a
    property hears of it; the ledger holds an entry once somebody has committed it.
    """

    name: ClassVar[str]

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def broken(self, text: str) -> PropertyViolated:
        return PropertyViolated(self.name, text)

    # -- nodes --------------------------------------------------------------------------------------

    def started(self, node: ObservedNode) -> None:
        """A process is up. ``node.disk`` is as its start has found it, ``node.disk_before`` as it was known to be."""

    def ended(self, node: ObservedNode, why: str) -> None: ...

    def stepped(self, node: ObservedNode, before: Summary, event: Event, effects: Effects) -> None:
        """The core has taken an event that changed something, or that it answered in an unusual way."""

    def special(self, node: ObservedNode, before: Summary, event: Event, effects: Effects) -> None:
        """The same, where the event is none of every day, or where reads are answered or a snapshot is asked for."""

    def configured(self, node: ObservedNode) -> None:
        """The configuration in force has changed, or the newest one in the log has."""

    def changed_role(self, node: ObservedNode, before: Summary) -> None: ...

    def wrote(self, node: ObservedNode, write: Persist, before: Summary) -> None:
        """The core has handed over a write: ``node.asked`` has it."""

    def elected(self, node: ObservedNode, leadership: Leadership) -> None: ...

    def committed(self, node: ObservedNode, before: Summary) -> None:
        """The commit index of a node has moved up."""

    def first_committed(self, node: ObservedNode, entries: Sequence[Entry], before: Summary) -> None:
        """Of these entries nobody knew before that they are committed. They are in the ledger next."""

    def syncing(self, node: ObservedNode, write: Persist) -> None:
        """A write is on the disk; ``node.disk`` is as it was before it."""

    def said(self, node: ObservedNode, to: str, message: Message) -> None:
        """A message has left, and is not one of those that were judged before."""

    def applied(self, node: ObservedNode, entries: list[Entry], results: list[Any]) -> None: ...

    def restored(self, node: ObservedNode, snapshot: Snapshot) -> None:
        """The state machines of a node have been replaced: they are as after ``snapshot.last_index``."""

    def disk_changed(self, node: ObservedNode, fate: DiskFate) -> None:
        """It was declared; ``node.disk`` is still as it was before."""

    # -- resources and clients ----------------------------------------------------------------------

    def leaving(self, node: ObservedNode, resource: str, token: FencingToken) -> None:
        """A call of effects is leaving a node."""

    def called(self, call: ResourceCall, resource: OutsideResource) -> None: ...

    def resource_restored(self, resource: OutsideResource) -> None:
        """A resource has gone back to an old backup of its own, which was declared."""

    def invoked(self, invocation: Invocation) -> None: ...

    def answered(self, invocation: Invocation, answer: Answer | Reply | None) -> None: ...

    # -- the end ------------------------------------------------------------------------------------

    def finished(self) -> None:
        """The run is over, everything was healed, and all nodes are at rest."""


HOOKS = tuple(
    name for name, value in vars(Property).items() if callable(value) and not name.startswith("_") and name != "broken"
)
