"""Changing the members of the cluster: the leader's part (Raft thesis chapter 4).

A configuration is in force as soon as it is in the log. So that two changes never meet halfway, the
leader takes one only after it has committed in its own term and the change before it is committed
(the fault of 2015, S23). A joint configuration is driven to its end by whoever leads (S24).
"""

from __future__ import annotations

from collections.abc import Sequence

from .configuration import (
    Change,
    Configuration,
    ConfigurationInvalid,
    change_simply,
    encode_configuration,
    enter_joint,
    leave_joint,
)
from .entry import Entry, EntryKind
from .events import Accepted, ChangeConfiguration, Refused, Role, Transition
from .options import SECOND
from .progress import Progress
from .quorum import quorum_value
from .replication import broadcast_append, send_heartbeat
from .state import RaftState
from .transfer import hand_on


def handle_change_configuration(state: RaftState, event: ChangeConfiguration) -> None:
    """Append the configuration that the changes lead to, or say why not before an index is used."""
    if state.role is not Role.LEADER:
        state.out.proposed = Refused("NOT_LEADER", state.leader)
        return
    if state.transfer is not None:
        state.out.proposed = Refused("BUSY", state.leader, "leadership is being handed over")
        return
    why_not = _why_not_now(state)
    if why_not:
        state.out.proposed = Refused("BUSY", state.leader, why_not)
        return
    try:
        made = _next_configuration(state.configuration, event.changes, event.transition)
        _refuse_retired(state.configuration, made)
    except ConfigurationInvalid as error:
        state.out.proposed = Refused("CHANGE_REFUSED", state.leader, str(error))
        return
    if not event.unchecked:
        behind = _not_caught_up(state, made)
        if behind:
            state.out.proposed = Refused("NOT_CAUGHT_UP", state.leader, behind)
            return
    _append_configuration(state, made)
    state.out.proposed = Accepted(state.log.last_index, state.current_term)


def _why_not_now(state: RaftState) -> str:
    if state.commit_index < state.term_start_index:
        return "the leader has not committed in its term yet"
    if state.configuration_index > state.commit_index:
        return f"the change at index {state.configuration_index} is not committed yet"
    return ""


def _next_configuration(
    configuration: Configuration, changes: Sequence[Change], transition: Transition
) -> Configuration:
    if not changes:
        return leave_joint(configuration)
    if transition is Transition.AUTO and len(changes) == 1:
        return change_simply(configuration, changes)
    return enter_joint(configuration, changes, auto_leave=transition is not Transition.EXPLICIT)


def _refuse_retired(before: Configuration, after: Configuration) -> None:
    for node_id in after.members:
        if node_id in before.retired and node_id not in before.members:
            raise ConfigurationInvalid(f"{node_id} was removed, and ids are not used again: give it a new one")


def _not_caught_up(state: RaftState, after: Configuration) -> str:
    """Why a coming voter would cost the quorum something, or the empty string (S28, section 4.2.1)."""
    for node_id in after.voters:
        if state.configuration.is_voter(node_id):
            continue
        progress = state.progress.get(node_id)
        if progress is None:
            return f"{node_id} is no learner: add it as one first"
        behind = state.log.last_index - progress.match_index
        silent = state.now - progress.contact_at
        if not progress.heard:
            return f"{node_id} is behind by {behind}, last seen never"
        if silent >= state.options.election_timeout:
            return f"{node_id} is behind by {behind}, last seen {silent / SECOND:.1f} s ago"
        if progress.match_index < state.log.previous_index:
            # However short the log is: it may be a small part of the state that this one lacks.
            return f"{node_id} is behind by {behind}, and needs a snapshot"
        if behind > state.options.promotion_lag_max:
            return f"{node_id} is behind by {behind}, at most {state.options.promotion_lag_max} is allowed"
    contacts = {peer: progress.contact_at for peer, progress in state.progress.items() if progress.heard}
    contacts[state.node_id] = state.now
    if state.now - quorum_value(after, contacts) >= state.options.election_timeout:
        return "of the voters that there would be, too few were heard of lately"
    return ""


def _append_configuration(state: RaftState, configuration: Configuration) -> None:
    index = state.log.last_index + 1
    data = encode_configuration(configuration)
    state.append_entries([Entry(index, state.current_term, EntryKind.CONFIGURATION, state.log.last_time_ns, data)])
    state.uncommitted.append((index, len(data)))
    state.uncommitted_bytes += len(data)
    _follow_members(state)
    if not state.lost_quorum():  # Those who are left as voters may have been silent (unchecked changes).
        broadcast_append(state)


def _follow_members(state: RaftState) -> None:
    """Replicate to new members from now on, and to old ones until they have heard that they are out."""
    index = state.configuration_index
    for peer in state.peers:
        if peer not in state.progress:
            state.progress[peer] = Progress(index, state.now)
    members = state.configuration.members
    for peer in state.progress:
        if peer not in members:
            state.departing.setdefault(peer, index)
    state.note_contact()


def configuration_committed(state: RaftState) -> None:
    """The leader's commit index has moved, or its time has: leave a joint configuration that is
    committed, and lead no cluster that one is no voter of (sections 4.2.2 and 4.3)."""
    configuration = state.configuration
    if state.role is not Role.LEADER or state.configuration_index > state.commit_index or state.lost_quorum():
        return
    if configuration.is_joint:
        if configuration.auto_leave and state.transfer is None and state.commit_index >= state.term_start_index:
            _append_configuration(state, leave_joint(configuration))
    elif state.options.step_down_on_removal and not state.is_voter:
        for peer, progress in state.progress.items():
            send_heartbeat(state, peer, progress)  # The others hear first that the change is committed.
        if state.options.hand_on_removal:
            hand_on(state)
        state.become_follower(state.current_term, "", "removed from the configuration")


def let_go(state: RaftState) -> None:
    """Forget removed members that have been told, or that have long been away."""
    for peer, index in list(state.departing.items()):
        progress = state.progress[peer]
        if state.commit_index < index:
            continue
        told = progress.match_index >= index and progress.commit_sent >= index
        away = state.now - progress.contact_at >= 2 * state.options.election_timeout
        if told or away:
            del state.departing[peer], state.progress[peer]
