"""What must hold of the configurations of a cluster (Raft thesis chapter 4), judged by the logs alone."""

from __future__ import annotations

from itertools import combinations

from ...raft.core.configuration import Configuration, decode_configuration
from ...raft.core.entry import Entry, EntryKind, Snapshot
from ...raft.core.state import RaftState

Voters = tuple[str, ...]


class MemberChecks:
    """Remembers every committed configuration, by index; ``began`` is the one before all of them."""

    def __init__(self) -> None:
        self.history: list[tuple[int, Configuration]] = []
        self.began: Configuration | None = None
        self._gone: set[str] = set()
        self._met: set[tuple[Voters, Voters, Voters, Voters]] = set()

    def newest(self, index: int) -> tuple[int, Configuration | None]:
        """The newest committed configuration at or below ``index``."""
        known = [item for item in self.history if item[0] <= index]
        return known[-1] if known else (0, self.began)

    def check_appended(self, name: str, entry: Entry, raft: RaftState) -> None:
        """One change at a time, by a leader that has committed in its term (S23)."""
        log = raft.log
        before = max(raft.commit_index, log.previous_index)
        if entry.term == raft.current_term and log.term_at(before) != entry.term:
            raise AssertionError(f"{name} changed the members at {entry.index} before it had committed in {entry.term}")
        for other in log.slice(before + 1, entry.index - 1):
            if other.kind == EntryKind.CONFIGURATION:
                raise AssertionError(f"{name} changed the members at {other.index} and {entry.index} at once")

    def check_committed(self, entry: Entry) -> None:
        if entry.kind != EntryKind.CONFIGURATION:
            return
        configuration = decode_configuration(entry.data)
        _, before = self.newest(entry.index)
        if before is not None:
            self._check_meet(before, configuration)
            self._gone |= set(before.members) - set(configuration.members)
        back = self._gone.intersection(configuration.members)
        if back:
            raise AssertionError(f"{sorted(back)} were removed and are members again at {entry.index}")
        self.history.append((entry.index, configuration))

    def check_label(self, name: str, label: Snapshot) -> None:
        known = self.newest(label.last_index)
        if known[1] is not None and known != (label.configuration_index, label.configuration):
            raise AssertionError(f"{name} has {label}, but the configuration there is {known}")

    def _check_meet(self, one: Configuration, other: Configuration) -> None:
        """No quorum of the one leaves a quorum of the other over."""
        pair = (one.voters, one.outgoing, other.voters, other.outgoing)
        if pair in self._met:
            return
        self._met.add(pair)
        voters = sorted({*one.voters, *one.outgoing, *other.voters, *other.outgoing})
        for size in range(len(voters) + 1):
            for those in combinations(voters, size):
                left = set(voters).difference(those)
                if _is_quorum(one, set(those)) and _is_quorum(other, left):
                    raise AssertionError(f"{sorted(those)} decide in {one}, {sorted(left)} in {other}")


def _is_quorum(configuration: Configuration, those: set[str]) -> bool:
    return all(
        len(those.intersection(voters)) >= len(voters) // 2 + 1
        for voters in (configuration.voters, configuration.outgoing)
        if voters
    )
