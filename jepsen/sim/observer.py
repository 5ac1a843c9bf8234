"""What can be seen of a run: every hook that checks and recorders may hang on to.

A hook that raises ends the run. Hooks that nobody overrides cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...raft.core.entry import Entry
from ...raft.core.events import Effects, Event, RoleChange
from ...raft.core.invariants import Summary
from ...raft.core.messages import Message
from ...raft.core.token import FencingToken
from ...raft.ports import Answer

if TYPE_CHECKING:
    from .jobs import Invocation, Reply
    from .node import SimNode
    from .resource import OutsideResource, ResourceCall


class Observer:
    """Override what you want to see; the others are never called."""

    def node_started(self, node: SimNode) -> None:
        """A process is up: its log has been read, its loop has not yet made a turn."""

    def node_ended(self, node: SimNode, why: str) -> None:
        """It is gone: killed, cut off, or by its own exit."""

    def before_step(self, node: SimNode, event: Event) -> None:
        """The core is about to take an event."""

    def on_step(self, node: SimNode, before: Summary, event: Event, effects: Effects) -> None:
        """The core has taken an event and nothing of what it asks for has been done."""

    def on_role(self, node: SimNode, change: RoleChange) -> None:
        """A step has changed the role of a node, or whom it follows."""

    def on_sent(self, source: str, to: str, message: Message) -> None:
        """A message has left a node, whether or not it will arrive."""

    def on_delivered(self, source: str, to: str, message: Message) -> None:
        """A message has arrived at a live process."""

    def on_sync(self, node: SimNode, sequence: int) -> None:
        """The write with this sequence and all before it are on the disk; the node does not know yet."""

    def on_applied(self, node: SimNode, entries: list[Entry], results: list[Any]) -> None:
        """The state machines have taken these entries."""

    def on_effect(self, node: str, resource: str, token: FencingToken) -> None:
        """A call of an effect is about to leave a node."""

    def on_resource(self, call: ResourceCall) -> None:
        """A call has reached a resource, and the resource has decided."""

    def on_restored(self, resource: OutsideResource) -> None:
        """A resource has gone back to an old backup of its own."""

    def on_invoked(self, invocation: Invocation) -> None:
        """A client has sent a request."""

    def on_answered(self, invocation: Invocation, answer: Answer | Reply | None) -> None:
        """A client has got its answer; None: it has given up waiting."""


class Hooks:
    """For each hook the callbacks of the observers that override it.

    ``failed(error)`` ends the run; it is for hooks called from within a node, which would catch it.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self.failed = failed
        self.stepping: list[str] = []
        """Not empty if anybody looks at steps: names of hooks."""
        self.node_started: list[Callable[[SimNode], None]] = []
        self.node_ended: list[Callable[[SimNode, str], None]] = []
        self.before_step: list[Callable[[SimNode, Event], None]] = []
        self.on_step: list[Callable[[SimNode, Summary, Event, Effects], None]] = []
        self.on_role: list[Callable[[SimNode, RoleChange], None]] = []
        self.on_sent: list[Callable[[str, str, Message], None]] = []
        self.on_delivered: list[Callable[[str, str, Message], None]] = []
        self.on_sync: list[Callable[[SimNode, int], None]] = []
        self.on_applied: list[Callable[[SimNode, list[Entry], list[Any]], None]] = []
        self.on_effect: list[Callable[[str, str, FencingToken], None]] = []
        self.on_resource: list[Callable[[ResourceCall], None]] = []
        self.on_restored: list[Callable[[OutsideResource], None]] = []
        self.on_invoked: list[Callable[[Invocation], None]] = []
        self.on_answered: list[Callable[[Invocation, Answer | Reply | None], None]] = []

    def add(self, observer: Observer) -> None:
        for name, callbacks in vars(self).items():
            if name not in ("failed", "stepping") and getattr(type(observer), name) is not getattr(Observer, name):
                callbacks.append(getattr(observer, name))
                if name in ("before_step", "on_step"):
                    self.stepping.append(name)
