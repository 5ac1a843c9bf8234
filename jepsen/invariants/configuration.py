"""The configuration in force is the newest one in log or snapshot; each follows from the one before it by overlapping
majorities; ids that were removed never come back (thesis chapter 4; S25, S27)."""

from __future__ import annotations

from itertools import pairwise

from ...raft.core.configuration import Configuration
from ...raft.core.entry import Snapshot
from ...raft.core.events import Effects, Event, Persist
from ...raft.core.invariants import Summary
from .observed import ObservedNode
from .property import Property


class ConfigurationInForce(Property):
    name = "configuration"

    def started(self, node: ObservedNode) -> None:
        known = node.asked.configurations
        for (_, one), (index, other) in pairwise(known):
            self._check_follows(node, one, other, index)
        self._check_in_force(node)

    def configured(self, node: ObservedNode) -> None:
        self._check_in_force(node)

    def special(self, node: ObservedNode, before: Summary, event: Event, effects: Effects) -> None:
        if effects.take_snapshot is not None:
            self._check_label(node, effects.take_snapshot)

    def wrote(self, node: ObservedNode, write: Persist, before: Summary) -> None:
        known = node.asked.configurations
        if write.entries and known[-1][0] >= write.entries[0].index:
            for (_, one), (index, other) in pairwise(known):
                if index >= write.entries[0].index:
                    self._check_follows(node, one, other, index)

    def _check_in_force(self, node: ObservedNode) -> None:
        index, newest = node.asked.configurations[-1]
        raft = node.raft
        if raft.configuration is not newest and raft.configuration != newest:
            raise self.broken(
                f"{node}, term {raft.current_term}, acts by {raft.configuration} from {raft.configuration_index}, "
                f"and the newest in its log is {newest} at {index}"
            )

    def _check_label(self, node: ObservedNode, label: Snapshot) -> None:
        """A snapshot carries the configuration at its index, not a later one."""
        known = [each for each in node.asked.configurations if each[0] <= label.last_index]
        if known and (label.configuration_index, label.configuration) != known[-1]:
            raise self.broken(
                f"{node} takes a snapshot of {label.last_index} with {label.configuration} from index "
                f"{label.configuration_index}, and there it is {known[-1][1]} from index {known[-1][0]}"
            )

    def _check_follows(self, node: ObservedNode, one: Configuration, other: Configuration, index: int) -> None:
        if not one.members:
            return  # A node that joins begins with no members; the first that it hears of are the cluster's.
        wrong = ""
        lost = [name for name in one.retired if name not in other.retired]
        again = [name for name in other.members if name in one.retired and name not in one.members]
        if lost:
            wrong = f"forgets that {lost} were removed"
        elif again:
            wrong = f"takes {again} back, which were removed"
        elif one.is_joint and other.is_joint:
            wrong = "follows a joint configuration with another"
        elif one.is_joint and other.voters != one.voters:
            wrong = "leaves a joint configuration with other voters than it was to have"
        elif other.is_joint and other.outgoing != one.voters:
            wrong = "enters a joint configuration with other old voters than there were"
        elif not one.is_joint and not other.is_joint and len({*one.voters} ^ {*other.voters}) > 1:
            wrong = "changes more than one voter without a joint configuration"
        if wrong:
            raise self.broken(f"the configuration at {index} of {node} {wrong}: {one}, then {other}")
