"""When a snapshot of one's own is taken, and what may then go from the log (thesis section 5.1)."""

from __future__ import annotations

from .entry import Snapshot
from .events import Role, SnapshotTaken
from .progress import ProgressState
from .state import RaftState


def want_snapshot(state: RaftState, applied_before: int) -> None:
    """After entries were reported for applying: ask for a snapshot if enough has come since the last."""
    options = state.options
    applied = state.apply_reported
    if options.snapshot_bytes or options.retained_bytes:
        # Those that a start has left on disk are counted by it.
        first = max(applied_before + 1, state.log.window_start)
        state.applied_bytes += state.sizes.add_entries(state.log.slice(first, applied))
    if state.snapshot_wanted or state.now < state.snapshot_again_at:
        return
    newest = 0 if state.snapshot is None else state.snapshot.last_index
    by_entries = options.snapshot_entries and applied - newest >= options.snapshot_entries
    by_bytes = options.snapshot_bytes and state.applied_bytes >= options.snapshot_bytes
    # A node that joins does not know the configuration the cluster began with, and labels nothing before
    # it has applied the one that made it a member.
    known = bool(state.configuration_at(applied)[1].voters)
    if (by_entries or by_bytes) and applied > newest and known and not _is_sending_an_older(state):
        state.snapshot_wanted = True
        state.labelled_bytes = state.applied_bytes
        state.out.take_snapshot = label_at(state, applied)


PARTS_MISSED_MAX = 4
"""A follower that has not got on for so many times the timeout of a part holds up no snapshot."""


def _is_sending_an_older(state: RaftState) -> bool:
    """Two snapshots are kept. A third would take the one that a follower is getting away from under it, and
    where snapshots follow faster than one can be sent, it would get none, ever."""
    patience = PARTS_MISSED_MAX * state.options.chunk_timeout
    return any(
        progress.snapshot not in (None, state.snapshot) and state.now - progress.snapshot_moved_at < patience
        for progress in state.progress.values()
    )


def label_at(state: RaftState, index: int) -> Snapshot:
    """The label of a snapshot of the state after ``index``, which is in the window or right before it (S19)."""
    log = state.log
    configuration_index, configuration = state.configuration_at(index)
    return Snapshot(index, log.term_at(index), log.time_at(index), configuration, configuration_index)


def snapshot_taken(state: RaftState, event: SnapshotTaken) -> None:
    snapshot = event.snapshot
    state.snapshot_wanted = False
    if state.snapshot is not None and snapshot.last_index <= state.snapshot.last_index:
        return  # One that was received meanwhile holds more.
    state.snapshot = snapshot
    state.rebase_configurations(snapshot)
    state.applied_bytes -= state.labelled_bytes
    state.labelled_bytes = 0
    compact(state)


def snapshot_not_taken(state: RaftState) -> None:
    """Try again, but not at once: what was in its way is there for a while."""
    state.snapshot_wanted = False
    state.snapshot_again_at = state.now + state.options.election_timeout


def _retained_behind(state: RaftState, last_index: int) -> int:
    """Of the entries up to ``last_index``, those behind the index returned stay."""
    return max(last_index - state.options.retained_entries, state.sizes.cut(last_index))


def compact(state: RaftState) -> None:
    """Cut the log off in front, except for what somebody still needs."""
    assert state.snapshot is not None
    index = min(_retained_behind(state, state.snapshot.last_index), state.apply_reported)
    if state.role is Role.LEADER:
        for progress in state.progress.values():
            # A follower that is receiving a snapshot needs the entries behind it, or it would need the
            # next snapshot as soon as it has this one, and so on.
            alive = state.now - progress.contact_at < state.options.election_timeout
            if progress.state is ProgressState.SNAPSHOT and progress.snapshot is not None and alive:
                index = min(index, progress.snapshot.last_index)
    if index > state.log.previous_index:
        state.compact_log(index)
