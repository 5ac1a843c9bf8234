"""What a write has to be to follow the one before it.

A write that does not fit is a bug of the caller, stopped before it reaches the disk: there it would be
found at the next start, as damage.
"""

from __future__ import annotations

from ..raft.core.entry import HardState
from ..raft.core.events import Persist
from .segments import VOTE_BYTES_MAX
from .standing import LogState


class Admission:
    """The log as it will be once everything that was admitted is written. Used by one thread."""

    __slots__ = ("commit_index", "hard_state", "last_index", "sequence")

    def __init__(self, state: LogState) -> None:
        self.sequence = 0
        self.last_index = state.last_index
        self.hard_state = state.hard_state
        self.commit_index = state.commit_index

    def admit(self, write: Persist) -> None:
        """Constant time: the whole log is checked when it is read, this only where writes meet.

        Raises AssertionError.
        """
        sequence, hard_state, truncate_from, entries, commit_index, reset, compact_to = write
        if sequence <= self.sequence:
            raise AssertionError(f"write {sequence} after write {self.sequence}")
        last, committed = self.last_index, self.commit_index
        if truncate_from:
            if not committed < truncate_from <= last + 1:
                raise AssertionError(f"truncation from {truncate_from}; committed up to {committed}, last index {last}")
            last = truncate_from - 1
        if reset is not None:
            if reset.last_index < max(committed, 1):
                raise AssertionError(f"reset to index {reset.last_index}; committed up to {committed}")
            last = committed = reset.last_index
        if entries:
            if entries[0].index != last + 1 or entries[-1].index != last + len(entries):
                raise AssertionError(f"entries {entries[0].index}..{entries[-1].index} do not follow index {last}")
            last += len(entries)
        if commit_index > last:
            raise AssertionError(f"commit index {commit_index} is above the last index {last}")
        committed = max(committed, commit_index)
        if compact_to > committed:
            raise AssertionError(f"compaction up to {compact_to}; committed up to {committed}")
        if hard_state is not None:
            self._check_hard_state(hard_state)
            self.hard_state = hard_state
        self.sequence = sequence
        self.last_index = last
        self.commit_index = committed

    def _check_hard_state(self, now: HardState) -> None:
        was = self.hard_state
        if now.term < was.term or (now.term == was.term and was.voted_for and now.voted_for != was.voted_for):
            raise AssertionError(f"hard state {now} after {was}")
        if len(now.voted_for.encode()) > VOTE_BYTES_MAX:
            raise AssertionError(f"a node id of over {VOTE_BYTES_MAX} bytes: {now.voted_for!r}")
