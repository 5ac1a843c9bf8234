"""What must hold of each core by itself (``raft.core.invariants``), after every event it takes."""

from __future__ import annotations

from ...raft.core.events import Effects, Event
from ...raft.core.invariants import Summary, check, check_step
from .observed import ObservedNode
from .property import Property


class Core(Property):
    """For events that change nothing, ``watch`` judges what is sent, and nothing else there can be wrong."""

    name = "core"

    def stepped(self, node: ObservedNode, before: Summary, event: Event, effects: Effects) -> None:
        try:
            check_step(before, node.raft, event, effects)
            check(node.raft)
        except AssertionError as error:
            raise self.broken(f"{node.name} in term {node.raft.current_term}: {error}") from error
