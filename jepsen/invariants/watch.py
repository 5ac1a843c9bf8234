"""Looking at every step of a core, at a price that steps which change nothing hardly notice.

Most steps are heartbeats and their answers. Such a step is judged here: that it has changed nothing of what
``raft.core.invariants`` reads, and that what it sends may be sent. Only where either is not so at a glance, all
properties look.

Why that is enough: ``check`` speaks of a state, so it holds of an equal one; ``check_step`` speaks of changes, of
which there are none, and of what is sent, which is compared here with what it would have to be in the usual case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...raft.core.events import Effects, Event, Receive, Role, Tick
from ...raft.core.messages import AppendEntries, AppendEntriesResponse, InstallSnapshotResponse
from .observed import ObservedNode

if TYPE_CHECKING:
    from ..sim.node import SimRaft

Look = Callable[[ObservedNode, Event, Effects], None]


def state_of(raft: SimRaft) -> tuple[object, ...]:
    """What invariants read of a core, but for what :func:`watched` looks at one by one.

    That function has the same list once more, written out, as a call for it would cost as much as all of it.
    """
    entries = raft.log._entries
    return (
        raft.current_term,
        raft.commit_index,
        raft.role,
        raft.write_sequence,
        raft.durable_sequence,
        raft.durable_index,
        raft.apply_reported,
        raft.leader,
        raft.voted_for,
        len(entries),
        entries[-1] if entries else None,
        raft.configuration,
        raft.hard_state_sequence,
        raft.failed,
        raft.snapshot,
        raft.incoming,
        raft.transfer,
        raft.uncommitted_bytes,
        raft.term_start_index,
    )


def is_settled(raft: SimRaft) -> bool:
    """Whether the steps that follow may be judged at a glance while the state stays as it is."""
    return (
        not raft.failed
        and raft.hard_state_sequence <= raft.durable_sequence
        and raft.role in (Role.LEADER, Role.FOLLOWER)
        and bool(raft.log._entries)
    )


def watched(node: ObservedNode, look: Look) -> Callable[[Event], Effects]:
    """``node.raft.step``, with a glance behind it. ``look`` is called for every step that needs more."""
    raft = node.raft
    step, log = raft.step, raft.log
    entries = log._entries
    leader = Role.LEADER

    def glance(event: Event) -> Effects:
        effects = step(event)
        kind = type(event)
        if (
            node.settled
            and entries
            and (kind is Receive or kind is Tick)
            and (
                raft.current_term,
                raft.commit_index,
                raft.role,
                raft.write_sequence,
                raft.durable_sequence,
                raft.durable_index,
                raft.apply_reported,
                raft.leader,
                raft.voted_for,
                len(entries),
                entries[-1],
                raft.configuration,
                raft.hard_state_sequence,
                raft.failed,
                raft.snapshot,
                raft.incoming,
                raft.transfer,
                raft.uncommitted_bytes,
                raft.term_start_index,
            )
            == node.state
            and effects.proposed is None
            and effects.transfer is None
            and not (effects.reads or effects.chunks or raft.pending_reads or raft.departing)
        ):
            if raft.role is leader:
                if _leads_on(raft, effects):
                    if kind is Receive:
                        note_contact(node, event)  # type: ignore[arg-type]
                        node.quorum_contact = raft.quorum_contact
                    return effects
            elif not raft.progress and not raft.uncommitted:
                for _, message, after in effects.sends:
                    if (
                        type(message) is not AppendEntriesResponse
                        or after
                        or message.match_index > raft.durable_index
                        or message.term != raft.current_term
                        or not message.success
                    ):
                        break
                else:
                    return effects
        look(node, event, effects)
        return effects

    return glance


def _leads_on(raft: SimRaft, effects: Effects) -> bool:
    """What it knows of each follower is sound, and heartbeats are of its term, commit index and log."""
    log = raft.log
    last_index = log.last_index
    for progress in raft.progress.values():
        if (
            progress.in_flight
            or progress.in_flight_bytes
            or progress.snapshot is not None
            or not progress.match_index < progress.next_index <= last_index + 1
        ):
            return False
    sends = effects.sends
    if sends:
        if raft.now - raft.quorum_contact >= raft.options.election_timeout:
            return False
        term, last_term, commit_index = raft.current_term, log.last_term, raft.commit_index
        for _, message, after in sends:
            if (
                type(message) is not AppendEntries
                or after
                or message.prev_log_index != last_index
                or message.prev_log_term != last_term
                or message.leader_commit > commit_index
                or message.term != term
            ):
                return False
    return True


def note_contact(node: ObservedNode, event: Receive) -> None:
    """Remember when the newest message was sent that this peer has answered (``authority``)."""
    _, source, message = event
    if type(message) in _ANSWERS and message.term == node.raft.current_term:
        contacts = node.contacts
        sent_at = message.sent_at  # type: ignore[union-attr]
        if source not in contacts or contacts[source] < sent_at:
            contacts[source] = sent_at


_ANSWERS = (AppendEntriesResponse, InstallSnapshotResponse)
