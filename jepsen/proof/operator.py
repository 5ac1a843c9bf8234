"""An operator: members come and go by what a person would ask of the leader, again where it is refused for now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...raft.core.configuration import Change, ChangeKind, Configuration
from ...raft.core.events import Transition
from ...raft.core.options import MILLISECOND, SECOND
from ..sim.node import peer_address

if TYPE_CHECKING:
    from ..sim.members import Question
    from .stage import Stage

ANSWER_WITHIN_NS = 3 * SECOND
PATIENCE_NS = 20 * SECOND
"""An operator gives a procedure up after this long, wherever it stands then."""
REPAIR_PATIENCE_NS = 60 * SECOND
AGAIN_NS = 300 * MILLISECOND
NODES_MAX = 10
"""More than this many nodes are not made in a run."""
MEMBERS_MAX = 7
VOTERS_MIN = 3


class Step:
    """One change, asked for until the configuration in force is as it wants it, or time is up."""

    def __init__(
        self,
        changes: Sequence[Change],
        reached: Callable[[Configuration], bool],
        transition: Transition = Transition.AUTO,
    ) -> None:
        self.changes = tuple(changes)
        self.reached = reached
        self.transition = transition


class Procedure:
    """Steps one after another. What was asked for and not answered for long is asked for again."""

    def __init__(self, stage: Stage, steps: list[Step], *, within_ns: int = PATIENCE_NS) -> None:
        self._stage = stage
        self._steps = steps
        self._deadline_ns = stage.world.now_ns + within_ns
        self._question: Question | None = None
        self.ended = False

    def go_on(self) -> None:
        """Look how things stand, ask for what is next, and look again after a while."""
        world = self._stage.world
        if world.now_ns > self._deadline_ns:
            self.ended = True
        if self.ended:
            return
        world.later(AGAIN_NS, self.go_on)
        question = self._question
        if question is not None and question.open and world.now_ns - question.asked_ns < ANSWER_WITHIN_NS:
            return
        leader = world.leader()
        if leader is None:
            return
        configuration = leader.raft.committed_configuration()
        while self._steps and self._steps[0].reached(configuration):
            self._steps.pop(0)
        if not self._steps:
            self.ended = True
        elif configuration.is_joint and not configuration.auto_leave:
            self._question = world.change_members()
        else:
            step = self._steps[0]
            self._question = world.change_members(*step.changes, transition=step.transition)


class Operator:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.procedures: list[Procedure] = []
        self.absent: dict[str, None] = {}
        """Nodes that were made members and are not there."""
        self._repaired: dict[str, None] = {}

    def add(self, *, absent: bool = False) -> bool:
        """One new node, as a learner and then as a voter. False if that cannot even be begun.

        ``absent``: its machine is never switched on, and whoever asks does not know that."""
        names = self._new_nodes(1, absent=absent)
        return bool(names) and self._begin(self._adding(names))

    def remove(self, name: str) -> bool:
        """Take a member out; where too few would be left, put a new one in its place."""
        configuration = self._configuration()
        if configuration is None or name not in configuration.members or self._stage.damaged:
            return False  # Where disks are damaged, who is whole is needed.
        if name in configuration.voters and len(configuration.voters) <= VOTERS_MIN:
            return self._replace([name])
        return self._begin([_removal([name])])

    def replace(self, count: int) -> bool:
        """So many voters by as many new ones, all at once."""
        configuration = self._configuration()
        if configuration is None or self._stage.damaged:
            return False
        return self._replace(list(configuration.voters[: min(count, len(configuration.voters) - 1)]))

    def transfer(self, pick: int) -> bool:
        stage = self._stage
        leader = stage.world.leader()
        if leader is None:
            return False
        others = [name for name in leader.raft.configuration.voters if name != leader.name]
        target = others[pick % len(others)] if others and pick % 3 else ""
        stage.world.transfer(target)
        return True

    @property
    def busy(self) -> bool:
        return any(not procedure.ended for procedure in self.procedures)

    def repair(self) -> None:
        """Members whose disks are lost are replaced, one procedure for each; where no new node may be made, they
        are only taken out."""
        configuration = self._configuration()
        if configuration is None or self.busy:
            return
        for name in configuration.members:
            if self._stage.is_lost(name) and name not in self._repaired:
                self._repaired[name] = None
                if not self._replace([name], within_ns=REPAIR_PATIENCE_NS):
                    self._begin([_removal([name])], within_ns=REPAIR_PATIENCE_NS)
                return

    def reduce_to(self, count: int) -> None:
        """Take out members that are more than were there in the beginning: learners first, and never the leader."""
        configuration, leader = self._configuration(), self._stage.world.leader()
        if configuration is None or leader is None:
            return
        voters = [name for name in configuration.voters if name != leader.name]
        kept = {leader.name, *voters[: count - 1]}
        gone = [name for name in configuration.members if name not in kept]
        if gone:
            self._begin([_removal(gone)], within_ns=REPAIR_PATIENCE_NS)

    def _replace(self, old: list[str], *, within_ns: int = PATIENCE_NS) -> bool:
        new = self._new_nodes(len(old))
        if not new:
            return False
        changes = [Change(ChangeKind.ADD_VOTER, name) for name in new] + [
            Change(ChangeKind.REMOVE, name) for name in old
        ]

        def reached(configuration: Configuration) -> bool:
            voters = configuration.voters
            return not configuration.is_joint and not set(old) & set(voters) and set(new) <= set(voters)

        return self._begin([_learning(new), Step(changes, reached, Transition.IMPLICIT)], within_ns=within_ns)

    def _adding(self, names: list[str]) -> list[Step]:
        changes = [Change(ChangeKind.ADD_VOTER, name) for name in names]
        return [_learning(names), Step(changes, lambda configuration: set(names) <= set(configuration.voters))]

    def _begin(self, steps: list[Step], *, within_ns: int = PATIENCE_NS) -> bool:
        procedure = Procedure(self._stage, steps, within_ns=within_ns)
        self.procedures.append(procedure)
        procedure.go_on()
        return True

    def _configuration(self) -> Configuration | None:
        leader = self._stage.world.leader()
        return None if leader is None else leader.raft.configuration

    def _new_nodes(self, count: int, *, absent: bool = False) -> list[str]:
        """Machines that no node has run on before, started; none if there are enough already."""
        world = self._stage.world
        configuration = self._configuration()
        if configuration is None or len(world.names) + count > NODES_MAX:
            return []
        if len(configuration.members) + count > MEMBERS_MAX:
            return []
        names = [f"n{len(world.names) + number}" for number in range(1, count + 1)]
        for name in names:
            world.add_node(name)
            if absent:
                self.absent[name] = None
            else:
                world.start(name)
        return names


def _learning(names: list[str]) -> Step:
    changes = [Change(ChangeKind.ADD_LEARNER, name, peer_address(name)) for name in names]
    return Step(changes, lambda configuration: set(names) <= set(configuration.members))


def _removal(names: list[str]) -> Step:
    changes = [Change(ChangeKind.REMOVE, name) for name in names]
    return Step(
        changes, lambda configuration: not configuration.is_joint and not set(names) & set(configuration.members)
    )
