"""Handing leadership over (Raft thesis section 3.10).

The leader stops taking proposals, lets the target catch up, and tells it to campaign at once: with
the whole log, and with a vote request that leader stickiness does not hold up (S08). If that takes
too long the leader serves on. Nothing of it outlives the term.
"""

from __future__ import annotations

from .events import Refused, Role, TransferBegun, TransferEnded, TransferLeadership
from .messages import TimeoutNow
from .state import RaftState
from .waiting import Transfer


def handle_transfer(state: RaftState, event: TransferLeadership) -> None:
    if state.role is not Role.LEADER:
        state.out.transfer = Refused("NOT_LEADER", state.leader)
        return
    target = event.target or _best_target(state)
    under_way = state.transfer
    if under_way is not None and target == under_way.target:
        state.out.transfer = TransferBegun(target, under_way.deadline)
        return
    why_not = _why_not(state, target)
    if why_not:
        state.out.transfer = Refused("TRANSFER_REFUSED", state.leader, why_not)
        return
    state.transfer = Transfer(target, state.now + state.options.transfer_timeout)
    state.out.transfer = TransferBegun(target, state.transfer.deadline)
    drive_transfer(state)


def _heard_lately(state: RaftState, peer: str) -> bool:
    progress = state.progress.get(peer)
    return progress is not None and progress.heard and state.now - progress.contact_at < state.options.election_timeout


def _best_target(state: RaftState) -> str:
    """The voter to stay that has the most of the log."""
    candidates = [peer for peer in state.configuration.voters if _heard_lately(state, peer)]
    return max(candidates, key=lambda peer: (state.progress[peer].match_index, peer), default="")


def _why_not(state: RaftState, target: str) -> str:
    if not target:
        return "no other voter was heard of lately"
    if target == state.node_id:
        return f"{target} leads already"
    if state.transfer is not None:
        return f"leadership is being handed over to {state.transfer.target}"
    if not state.configuration.is_voter(target):
        return f"{target} is no voter"
    if not _heard_lately(state, target):
        return f"{target} was not heard of lately"
    return ""


def hand_on(state: RaftState) -> None:
    """This leader is about to give up for good: have somebody campaign at once, rather than wait for a timeout
    of the others. If that comes to nothing, they wait."""
    target = _best_target(state) if state.transfer is None else state.transfer.target
    if target:
        state.send(target, TimeoutNow(state.current_term))


def drive_transfer(state: RaftState) -> None:
    """Tell the target as soon as it has everything; give up at the deadline."""
    transfer = state.transfer
    assert transfer is not None
    # It is a voter still: no configuration is appended while leadership is being handed over.
    match_index = state.progress[transfer.target].match_index
    if state.now >= transfer.deadline:
        state.out.transfer = TransferEnded(transfer.target, f"{transfer.target} did not take over in time")
        state.transfer = None
    elif match_index == state.log.last_index and (
        not transfer.told_at or state.now - transfer.told_at >= state.options.heartbeat_interval
    ):
        # From here on there may be votes for the target that no lease knows of, however late it acts.
        state.lease_forfeited = True
        transfer.told_at = max(state.now, 1)
        state.send(transfer.target, TimeoutNow(state.current_term))
