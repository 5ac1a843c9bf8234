"""Changes of leader and of members that somebody asks for, at the worst of times."""

from __future__ import annotations

from ...raft.core.configuration import Change, ChangeKind, Configuration
from ...raft.core.events import Accepted, TransferBegun, Transition
from .faults import Faults
from .profiles import Profile
from .world import World

NODES_MAX = 9
"""As many nodes a run has at the most, over all its time: ids are not used again."""
VOTERS_LEAST = 2


class Changes(Faults):
    def __init__(self, world: World, profile: Profile) -> None:
        super().__init__(world, profile)
        self.changed = 0
        """Changes that were taken into a log."""
        self.transferred = 0
        """Transfers that were begun."""

    def transfer(self) -> None:
        leader = self.world.leader()
        if leader in self.running():
            target = self.random.choice(["", *self.world.nodes])
            self.transferred += isinstance(self.world.transfer(leader, target), TransferBegun)

    def add(self) -> None:
        """Make a node a learner that belongs to nobody yet."""
        if (found := self._leader()) and (name := self._outsider(found[1])):
            self._ask(found[0], Change(ChangeKind.ADD_LEARNER, name))

    def promote(self) -> None:
        if (found := self._leader()) and (name := self.any(list(found[1].learners))):
            self._ask(found[0], Change(ChangeKind.ADD_VOTER, name))

    def demote(self) -> None:
        if (found := self._leader()) and len(found[1].voters) > VOTERS_LEAST:
            self._ask(found[0], Change(ChangeKind.ADD_LEARNER, self.random.choice(found[1].voters)))

    def remove(self) -> None:
        """It goes on running, and need not know."""
        if (found := self._leader()) and len(found[1].voters) > VOTERS_LEAST:
            self._ask(found[0], Change(ChangeKind.REMOVE, self.random.choice(found[1].members)))

    def replace(self) -> None:
        """Several at once, through a joint configuration."""
        found = self._leader()
        if found is None:
            return
        leader, configuration = found
        changes = []
        if name := self._outsider(configuration):
            changes.append(Change(ChangeKind.ADD_VOTER, name))
        if name := self.any(list(configuration.learners)):
            changes.append(Change(ChangeKind.ADD_VOTER, name))
        leaving = self.random.sample(configuration.voters, self.random.randint(0, len(configuration.voters)))
        if len(configuration.voters) - len(leaving) + len(changes) >= VOTERS_LEAST:
            kinds = (ChangeKind.REMOVE, ChangeKind.ADD_LEARNER)
            changes += [Change(self.random.choice(kinds), name) for name in leaving]
        transition = self.random.choice(list(Transition))
        self._ask(leader, *changes, transition=transition, unchecked=self.random.random() < 0.7)

    def leave(self) -> None:
        if (found := self._leader()) and (found[1].is_joint or self.random.random() < 0.1):
            self._ask(found[0])

    def _leader(self) -> tuple[str, Configuration] | None:
        leader = self.world.leader()
        return (leader, self.world.raft(leader).configuration) if leader in self.running() else None

    def _outsider(self, configuration: Configuration) -> str | None:
        """A node that was never a member as far as ``configuration`` tells, started for that if need be; now
        and then one that was removed, which is to be refused."""
        world = self.world
        if len(world.nodes) < NODES_MAX and self.random.random() < 0.5:
            name = f"n{len(world.nodes) + 1}"
            world.add(name)
            return name
        known = {*configuration.members, *(configuration.retired if self.random.random() < 0.9 else ())}
        return self.any([name for name in world.nodes if name not in known])

    def _ask(
        self, leader: str, *changes: Change, transition: Transition = Transition.AUTO, unchecked: bool = False
    ) -> None:
        outcome = self.world.change(leader, *changes, transition=transition, unchecked=unchecked)
        self.changed += isinstance(outcome, Accepted)
