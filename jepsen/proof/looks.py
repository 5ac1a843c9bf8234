"""What must hold beside the invariants, and can only be seen by who knows what is being done to the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...raft.core.errors import AcknowledgedLost
from ...raft.outbox.operation import TERMINAL
from ...raft.ports import Answer, AnswerStatus, Wait
from ..invariants import PropertyViolated
from ..sim.jobs import Invocation, Kind, Reply
from ..sim.observer import Observer

if TYPE_CHECKING:
    from ..invariants.image import LogImage
    from ..sim.node import SimNode
    from .stage import Stage

_ENDS = frozenset(state.value for state in TERMINAL)


class Looks(Observer):
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._held: dict[str, LogImage] = {}

    def on_answered(self, invocation: Invocation, answer: Answer | Reply | None) -> None:
        """Who waits for the end of a command is told when it has ended, and not before."""
        job = invocation.job
        if job.kind is not Kind.SUBMIT or job.wait != Wait.DONE or not isinstance(answer, Answer):
            return
        if answer.status == AnswerStatus.DONE and answer.state not in _ENDS:
            raise PropertyViolated("done is done", f"{job.name} is called done, and is {answer.state}")

    def damaged(self, name: str, held: LogImage) -> None:
        """The disk of a node that does not run has been damaged; until then it held this durably."""
        self._held[name] = held

    def node_started(self, node: SimNode) -> None:
        """What is damaged is not taken for shorter: a node starts on all that was durable, or not at all (S10)."""
        held = self._held.pop(node.name, None)
        log = node.raft.log
        if held is not None and (
            log.last_index < held.last_index
            or (held.last_index > log.previous_index and log.term_at(held.last_index) != held.last_term)
            or node.raft.current_term < held.hard_state.term
        ):
            raise PropertyViolated(
                "damage",
                f"{node} has started on a damaged disk in term {node.raft.current_term} with a log "
                f"to {log.last_index}; "
                f"it held {held.hard_state} and a log to {held.last_index}:{held.last_term}",
            )

    def node_ended(self, node: SimNode, why: str) -> None:
        """Who has lost nothing is never told that it has lost what it acknowledged. Nothing that is done here makes
        a node lose any of that but putting its directory back to an old copy (S21)."""
        if AcknowledgedLost.code in why and node.name not in self._stage.put_back:
            raise PropertyViolated("nothing lost", f"{node.name}, whose directory was not put back: {why}")

    def strangers(self) -> None:
        """Called every now and then: an empty disk is not let in by whoever has met the one before it (S21), and
        who was never heard of has no vote (S28)."""
        world = self._stage.world
        for name in self._stage.operator.absent:
            voters = {node.name: node.raft.configuration.voters for node in world.up()}
            made = [other for other, voting in voters.items() if name in voting]
            if made:
                raise PropertyViolated("absent voters", f"{name} is a voter on {made}, and nobody has ever heard of it")
        for name, known_by in self._stage.wiped.items():
            node = world.hosts[name].node
            if node is None:
                continue
            for link in world.network.links.values():
                outward = link.source == name and link.dialled_by is node.transport
                inward = link.to == name and link.reached is node.transport
                other = link.to if outward else link.source
                if link.up and (outward or inward) and other in known_by:
                    raise PropertyViolated("strangers", f"{other} talks to {name}, whose disk was lost")
