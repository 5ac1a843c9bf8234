"""What must hold of one core at any time, and what one step may change.

Both run after every step in tests and simulation, never in a server. What takes more than one node
to see (election safety, log matching, leader completeness, state machine safety) is checked by the
simulator, which sees all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from .configuration import Configuration, decode_configuration
from .entry import EntryKind
from .events import (
    Accepted,
    ChangeConfiguration,
    Durable,
    Effects,
    Event,
    Persist,
    Propose,
    Receive,
    Role,
    Send,
    SnapshotReceived,
)
from .messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshotResponse,
    PreVote,
    RequestVote,
    RequestVoteResponse,
    TimeoutNow,
)
from .progress import ProgressState
from .state import RaftState


class Summary(NamedTuple):
    """What has to be remembered of a state in order to judge the next one."""

    role: Role
    current_term: int
    voted_for: str
    failed: bool
    commit_index: int
    commit_term: int
    """The term of the entry at ``commit_index``."""
    last_index: int
    last_term: int
    durable_index: int
    write_sequence: int
    durable_sequence: int
    apply_reported: int
    configuration: Configuration
    quorum_contact: int


def summarize(state: RaftState) -> Summary:
    log = state.log
    return Summary(
        state.role,
        state.current_term,
        state.voted_for,
        state.failed,
        state.commit_index,
        log.term_at(state.commit_index),
        log.last_index,
        log.last_term,
        state.durable_index,
        state.write_sequence,
        state.durable_sequence,
        state.apply_reported,
        state.configuration,
        state.quorum_contact,
    )


# -- what holds now -------------------------------------------------------------------------------


def check(state: RaftState) -> None:
    """Raises AssertionError naming the invariant that ``state`` breaks."""
    last_index = state.log.last_index
    if state.commit_index > last_index:
        raise AssertionError(f"commit index {state.commit_index} is past the log's end {last_index}")
    if state.durable_index > last_index:
        raise AssertionError(f"durable index {state.durable_index} is past the log's end {last_index}")
    if state.apply_reported > min(state.commit_index, state.durable_index):
        raise AssertionError(
            f"applied to {state.apply_reported}, committed {state.commit_index}, durable {state.durable_index}"
        )
    if state.log.last_term > state.current_term:
        raise AssertionError(f"the log's term {state.log.last_term} is above the current term {state.current_term}")
    if last_index >= state.log.window_start and state.log.entry(last_index).index != last_index:
        raise AssertionError(f"entry {state.log.entry(last_index).index} is kept at {last_index}")
    _check_snapshot(state)
    if state.log.window_start > state.apply_reported + 1 and not state.failed:
        raise AssertionError(
            f"in memory from {state.log.window_start} on, and only {state.apply_reported} is durable, committed and "
            "given out to be applied"
        )
    _check_writes(state)
    if state.role is Role.LEADER:
        _check_leader(state)
    else:
        if state.progress or state.uncommitted or state.uncommitted_bytes or state.term_start_index:
            raise AssertionError(f"a {state.role} keeps what only a leader has")
        if state.transfer is not None or state.departing or state.pending_reads:
            raise AssertionError(f"a {state.role} has a leader's business under way")
        if state.role is not Role.FOLLOWER and state.leader:
            raise AssertionError(f"a {state.role} that knows a leader")
        if state.role is Role.CANDIDATE and state.voted_for != state.node_id:
            raise AssertionError("a candidate that did not vote for itself")
    if state.failed and state.role is not Role.FOLLOWER:
        raise AssertionError(f"a {state.role} whose storage has failed")


def _check_snapshot(state: RaftState) -> None:
    """What is gone from the log is in a snapshot and applied; the configuration in force is the newest one."""
    held = 0 if state.snapshot is None else state.snapshot.last_index
    if state.log.previous_index > min(held, state.apply_reported):
        raise AssertionError(
            f"entries up to {state.log.previous_index} are gone, {held} are in a snapshot, "
            f"{state.apply_reported} are applied"
        )
    index = state.configuration_index
    if index >= state.log.window_start:
        entry = state.log.entry(index)
        if entry.kind != EntryKind.CONFIGURATION or decode_configuration(entry.data) != state.configuration:
            raise AssertionError(f"the configuration in force is not the entry at {index} (S25)")
    if state.incoming is not None and state.incoming.offset > state.incoming.snapshot.size_bytes:
        raise AssertionError("more of a snapshot is stored than there is")


def _check_writes(state: RaftState) -> None:
    previous, covered = state.durable_sequence, state.durable_index
    for write in state.pending_writes:
        if not previous < write.sequence <= state.write_sequence:
            raise AssertionError(f"write {write.sequence} is pending after write {previous}")
        if write.last_index > state.log.last_index:
            raise AssertionError(f"write {write.sequence} covers {write.last_index}, past the log's end")
        previous, covered = write.sequence, max(covered, write.last_index)
    # Every entry is durable or on its way: otherwise it would never be acknowledged.
    if not state.failed and covered != state.log.last_index:
        raise AssertionError(f"writes cover the log to {covered} of {state.log.last_index}")
    if state.hard_state_sequence > state.write_sequence:
        raise AssertionError("term and vote wait for a write that was never made")


def _check_leader(state: RaftState) -> None:
    if state.leader != state.node_id or state.voted_for != state.node_id:
        raise AssertionError(f"leader {state.node_id} follows {state.leader!r}, voted for {state.voted_for!r}")
    if state.durable_sequence < state.hard_state_sequence:
        raise AssertionError("a leader whose own vote is not durable")
    in_log = state.term_start_index >= state.log.previous_index
    if in_log and state.log.term_at(state.term_start_index) != state.current_term:
        raise AssertionError(f"no entry of term {state.current_term} where its term starts")
    if sorted(state.progress) != sorted({*state.peers, *state.departing}):
        raise AssertionError(f"progress of {sorted(state.progress)} instead of the peers")
    own_change = state.configuration_index > max(state.commit_index, state.term_start_index)
    if own_change and state.configuration_at(state.configuration_index - 1)[0] > state.commit_index:
        raise AssertionError("more than one change of the configuration is under way (S23)")
    if state.uncommitted_bytes != sum(size for _, size in state.uncommitted):
        raise AssertionError("bytes not yet committed are miscounted")
    for peer, progress in state.progress.items():
        if not progress.match_index < progress.next_index <= state.log.last_index + 1:
            raise AssertionError(
                f"{peer} matches to {progress.match_index}, next is {progress.next_index}, "
                f"the log ends at {state.log.last_index}"
            )
        snapshot = progress.snapshot
        if (snapshot is not None) is not (progress.state is ProgressState.SNAPSHOT):
            raise AssertionError(f"{peer} is in {progress.state} with {snapshot}")
        if snapshot is not None and progress.next_index != snapshot.last_index + 1:
            raise AssertionError(f"{peer} gets {snapshot} and then entries from {progress.next_index}")
        in_flight = progress.in_flight
        if progress.in_flight_bytes != sum(size for _, size in in_flight):
            raise AssertionError(f"bytes in flight to {peer} are miscounted")
        if len(in_flight) > state.options.in_flight_max:
            raise AssertionError(f"{len(in_flight)} messages in flight to {peer}")
        if in_flight and progress.state is not ProgressState.REPLICATE:
            raise AssertionError(f"{peer} is in {progress.state} with {len(in_flight)} messages in flight")
        if in_flight and not progress.match_index < in_flight[0][0] <= in_flight[-1][0] < progress.next_index:
            raise AssertionError(f"in flight to {peer}: {list(in_flight)}, next {progress.next_index}")


# -- what may change ------------------------------------------------------------------------------


def check_step(before: Summary, state: RaftState, event: Event, effects: Effects) -> None:
    """Raises AssertionError naming the rule that the step from ``before`` to ``state`` breaks."""
    if before.failed:
        if effects.persist or effects.sends or effects.apply_to or effects.role_changes:
            raise AssertionError("spoke after its storage had failed (S12)")
        if isinstance(effects.proposed, Accepted):
            raise AssertionError("took a proposal after its storage had failed (S12)")
    if (effects.proposed is not None) is not isinstance(event, Propose | ChangeConfiguration):
        raise AssertionError(f"{event} was answered with {effects.proposed}")
    if before.failed:
        return
    _check_term_and_vote(before, state, effects)
    _check_log(before, state, effects)
    _check_commit(before, state, event)
    if effects.apply_to and not before.apply_reported < effects.apply_to <= min(
        state.commit_index, state.durable_index
    ):
        raise AssertionError(f"apply to {effects.apply_to} after {before.apply_reported}")
    if state.durable_index > before.durable_index and not isinstance(event, Durable) and effects.restore is None:
        raise AssertionError(f"durable to {state.durable_index} without a completed write")
    if effects.restore is not None and effects.restore.last_index <= before.apply_reported:
        raise AssertionError(f"state of {effects.restore.last_index} in place of {before.apply_reported}")
    for send in effects.sends:
        _check_send(before, state, send)
    if effects.chunks and state.role is not Role.LEADER:
        raise AssertionError(f"a {state.role} sends a snapshot")
    if effects.chunks or any(isinstance(send.message, AppendEntries) for send in effects.sends):
        _check_renewing(before, state, event)


def _check_renewing(before: Summary, state: RaftState, event: Event) -> None:
    """Nothing that renews followers without contact with a quorum (S30)."""
    if state.role is Role.LEADER:
        contact = state.quorum_contact
    elif isinstance(event, Receive):
        return  # The last words of a leader that is removed: the contact may have come with the message.
    else:
        contact = before.quorum_contact
    if state.options.check_quorum and state.now - min(contact, state.now) >= state.options.election_timeout:
        raise AssertionError("renewed followers without contact with a quorum")


def _check_term_and_vote(before: Summary, state: RaftState, effects: Effects) -> None:
    if state.current_term < before.current_term:
        raise AssertionError(f"term went back from {before.current_term} to {state.current_term}")
    same_term = state.current_term == before.current_term
    if same_term and before.voted_for and state.voted_for != before.voted_for:
        raise AssertionError(f"vote for {before.voted_for} changed to {state.voted_for!r} in term {state.current_term}")
    if (state.current_term, state.voted_for) != (before.current_term, before.voted_for):
        saved = [persist.hard_state for persist in effects.persist if persist.hard_state is not None]
        if saved != [(state.current_term, state.voted_for)]:
            raise AssertionError(f"term {state.current_term}, vote {state.voted_for!r} saved as {saved} (S05)")
    if (
        state.role is Role.LEADER
        and before.role is not Role.LEADER
        and not (before.role is Role.CANDIDATE and same_term)
    ):
        raise AssertionError(f"a {before.role} of term {before.current_term} became leader of {state.current_term}")


def _check_log(before: Summary, state: RaftState, effects: Effects) -> None:
    gone = before.commit_index < state.log.previous_index
    if not gone and state.log.term_at(before.commit_index) != before.commit_term:
        raise AssertionError(f"committed entry {before.commit_index} of term {before.commit_term} is gone (S17)")
    stays_leader = before.role is Role.LEADER and state.role is Role.LEADER
    if stays_leader and state.log.term_at(before.last_index) != before.last_term:
        raise AssertionError("a leader changed its own log: it only appends")
    if len(effects.persist) > 1:
        raise AssertionError("more than one write in a step")
    if not effects.persist:
        if (state.log.last_index, state.log.last_term) != (before.last_index, before.last_term):
            raise AssertionError("the log changed without a write")
        return
    _check_persist(before, state, effects.persist[0])


def _check_persist(before: Summary, state: RaftState, persist: Persist) -> None:
    if persist.sequence != before.write_sequence + 1 and before.write_sequence != state.write_sequence:
        raise AssertionError(f"write {persist.sequence} follows write {before.write_sequence}")
    if persist.truncate_from and not before.commit_index < persist.truncate_from <= before.last_index:
        raise AssertionError(f"truncation at {persist.truncate_from} of {before.last_index}, committed to "
                             f"{before.commit_index} (S17)")  # fmt: skip
    end = persist.truncate_from - 1 if persist.truncate_from else before.last_index
    if persist.reset is not None:
        repairs = persist.sequence == before.write_sequence  # Dropped at the start, before any step.
        drops_committed = persist.reset.last_index <= before.commit_index and not repairs
        if drops_committed or persist.reset != state.snapshot:
            raise AssertionError(f"the log was dropped for {persist.reset}, committed to {before.commit_index}")
        end = persist.reset.last_index
    if persist.compact_to and (state.snapshot is None or persist.compact_to > state.snapshot.last_index):
        raise AssertionError(f"compaction to {persist.compact_to}, past the snapshot {state.snapshot}")
    for entry in persist.entries:
        end += 1
        if entry.index != end or state.log.term_at(end) != entry.term:
            raise AssertionError(f"wrote entry {entry.index} of term {entry.term} where {end} belongs")
    if end != state.log.last_index:
        raise AssertionError(f"the file ends at {end}, the log at {state.log.last_index}")
    if persist.commit_index > end:
        raise AssertionError(f"wrote commit index {persist.commit_index}, past the end {end}")


def _check_commit(before: Summary, state: RaftState, event: Event) -> None:
    commit_index = state.commit_index
    if commit_index < before.commit_index:
        raise AssertionError(f"commit index went back from {before.commit_index} to {commit_index}")
    if commit_index == before.commit_index:
        return
    if Role.LEADER in (before.role, state.role) and state.current_term == before.current_term:
        _check_counted(before, state)
        return
    if isinstance(event, SnapshotReceived):
        if commit_index != event.snapshot.last_index:
            raise AssertionError(f"committed {commit_index} by a snapshot of {event.snapshot.last_index}")
        return
    message = event.message if isinstance(event, Receive) else None
    if not isinstance(message, AppendEntries):
        raise AssertionError(f"a {state.role} committed {commit_index} without word from a leader")
    if commit_index > min(message.leader_commit, message.prev_log_index + len(message.entries)):
        raise AssertionError(f"committed {commit_index}, more than the message proved to match (S16)")


def _check_counted(before: Summary, state: RaftState) -> None:
    """A leader commits what a quorum of the configuration in force has, of its own term."""
    commit_index = state.commit_index
    if state.log.term_at(commit_index) != state.current_term:
        raise AssertionError(f"committed {commit_index}, an entry of another term, by counting (S22)")
    if state.role is not Role.LEADER:
        if before.configuration.is_voter(state.node_id):
            raise AssertionError(f"committed {commit_index} and stopped leading, though still a voter")
        return  # Removed by what it has committed; who held it is no longer known here.
    holders = {peer for peer, progress in state.progress.items() if progress.match_index >= commit_index}
    if state.durable_index >= commit_index:
        holders.add(state.node_id)
    # What is in force now may be the end of a joint configuration, appended because this was committed.
    for voters in (before.configuration.voters, before.configuration.outgoing):
        if voters and len(holders.intersection(voters)) < len(voters) // 2 + 1:
            raise AssertionError(f"committed {commit_index} with copies on {sorted(holders)} only (S13)")


def _check_send(before: Summary, state: RaftState, send: Send) -> None:
    if send.after > state.write_sequence or 0 < send.after <= state.durable_sequence:
        raise AssertionError(f"{send} waits for no pending write")
    if state.hard_state_sequence > max(send.after, state.durable_sequence):
        raise AssertionError(f"{send} does not wait for term and vote, write {state.hard_state_sequence} (S05)")
    message = send.message
    term = state.current_term + 1 if isinstance(message, PreVote) else state.current_term
    if message.term != term:
        raise AssertionError(f"{send} speaks for term {message.term} in term {state.current_term}")
    match message:
        case AppendEntries():
            led = state.role is Role.LEADER or (
                before.role is Role.LEADER and before.current_term == state.current_term
            )
            if not led or message.leader_commit > state.commit_index:
                raise AssertionError(f"a {state.role} with commit index {state.commit_index} sent {send}")
            if state.log.term_at(message.prev_log_index) != message.prev_log_term:
                raise AssertionError(f"{send} follows an entry that this log does not have")
        case AppendEntriesResponse(success=True, match_index=match_index):
            _check_acknowledged(state, send, match_index)
        case InstallSnapshotResponse(installed=True, last_index=last_index):
            _check_acknowledged(state, send, last_index)
        case TimeoutNow():
            handing_over = state.role is Role.LEADER and state.transfer is not None and state.transfer.target == send.to
            removed = before.role is Role.LEADER and state.role is Role.FOLLOWER and not state.is_voter
            if not handing_over and not (removed and state.configuration.is_voter(send.to)):
                raise AssertionError(f"a {state.role} told {send.to} to campaign")
        case RequestVote():
            if state.role is not Role.CANDIDATE:
                raise AssertionError(f"a {state.role} asked for votes")
        case RequestVoteResponse(granted=True):
            if state.voted_for != send.to:
                raise AssertionError(f"granted {send.to} a vote that is {state.voted_for!r}'s")
        case _:
            pass


def _check_acknowledged(state: RaftState, send: Send, index: int) -> None:
    covered, needed = state.durable_index, 0
    for write in state.pending_writes:
        if covered >= index:
            break
        covered, needed = max(covered, write.last_index), write.sequence
    if covered < index or send.after < needed:
        raise AssertionError(f"{send} acknowledges {index}, durable to {state.durable_index} (S13)")
