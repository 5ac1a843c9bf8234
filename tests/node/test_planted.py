"""Faults planted in the running node, one at a time: the tests beside must see every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from fencepost.raft.effects import policy
from fencepost.raft.effects.authority import Authority
from fencepost.raft.effects.coordinator import EffectsCoordinator
from fencepost.raft.effects.dispatcher import Dispatcher
from fencepost.raft.effects.queue import DispatchQueue
from fencepost.raft.effects.runtime import GuardedRuntime
from fencepost.raft.effects.tenure import Tenure
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.carrying import EffectsCarrier
from fencepost.raft.node.handover import _Transfer
from fencepost.raft.node.loop import RaftLoop
from fencepost.raft.node.members import _Drive
from fencepost.raft.node.reads import LocalReads, _Asked
from fencepost.raft.node.requests import Reads, Transfers
from fencepost.raft.node.service import ClientService, _SubmissionSink
from fencepost.raft.node.snapshots import SnapshotKeeper
from fencepost.raft.node.waiters import Waiters
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.ports import Guarantee

from ..core.planting import planted
from ..effects import test_activation as activation
from ..effects import test_dispatch as dispatch
from ..effects import test_late as late
from . import test_answers as answers
from . import test_handover as handover
from . import test_members as members
from . import test_reads as reads
from . import test_requests as requests
from . import test_snapshots as snapshots
from . import test_stalls as stalls
from . import test_waiters as waiters
from .chaos import Chaos
from .wilder import Wilder

SEEDS = range(12)


def any_random_life() -> None:
    for seed in SEEDS:
        Chaos(seed).run()


def any_changing_life() -> None:
    for seed in range(3000, 3000 + len(SEEDS)):
        Wilder(seed).run()


class Fault(NamedTuple):
    name: str
    function: Callable[..., Any]
    line: str
    fault: str
    sees: Callable[[], object]


FAULTS = [
    Fault(
        "claims and dispatches before the barrier (S54)",
        Tenure.entries_applied,
        "if last_applied < self._term_start_index:",
        "if False:",
        activation.test_s54_entries_before_the_no_op_alone_are_no_barrier,
    ),
    Fault(
        "claim skipped (S54)",
        Tenure._claim,
        "return await resource.claim(token, holder)",
        "return None",
        activation.test_s54_no_call_before_the_no_op_is_applied_and_the_claim_stands,
    ),
    Fault(
        "dispatches without waiting for its activation (S54)",
        Dispatcher.pump,
        "if self._suspended:",
        "if False:",
        activation.test_s49_drain_finishes_effects_before_leadership_ends,
    ),
    Fault(
        "authority not revoked (S07)",
        Authority.revoke,
        "self._revoked = True",
        "pass",
        lambda: stalls.test_s40_lease_is_not_believed_after_a_stall(False),
    ),
    Fault(
        "lease not looked at before a send (S40)",
        Authority.valid,
        "return not self._revoked and self._holds_lease()",
        "return not self._revoked",
        lambda: stalls.test_s40_lease_is_not_believed_after_a_stall(False),
    ),
    Fault(
        "authority not looked at where the effect starts (S40)",
        Dispatcher._execute,
        "if authority.revoked:",
        "if False:",
        dispatch.test_s40_an_effect_that_waited_for_its_loop_is_not_sent_after_the_authority_is_gone,
    ),
    Fault(
        "stale refusal does not step down (S47)",
        Tenure._trouble,
        'self._node_loop.step_down(f"resource {name} has seen a higher token")',
        "pass",
        activation.test_s47_stale_refusal_makes_a_leader_that_knows_nothing_step_down,
    ),
    Fault(
        "waiters not ended at step-down (S44)",
        Waiters.leadership_lost,
        "batch.expires_at = expires_at",
        "pass",
        answers.test_s44_unknown_within_the_bound_when_nothing_decides,
    ),
    Fault(
        "overtaken waiters called lost (S31)",
        Waiters.add,
        "self._overtaken.append(rest)",
        "overtaken.sink.lost(rest.keys)",
        lambda: waiters.test_s31_overtaken_on_this_node_is_not_lost(Waiters(), waiters.Sink()),
    ),
    Fault(
        "done-waiters leaked (S44)",
        ClientService.role_changed,
        "elif self._done_waiters and not self._done_expire_at:",
        "elif False:",
        answers.test_s44_done_waiters_end_at_step_down_or_hear_the_successors_outcome,
    ),
    Fault(
        "done-waiters of closed connections kept",
        ClientService.closed,
        "self._closed.add(connection)",
        "pass",
        answers.test_done_waiters_of_closed_connections_are_forgotten,
    ),
    Fault(
        "accepted answered twice",
        _SubmissionSink.applied,
        "if key.wait != Wait.ACCEPTED:",
        "if True:",
        answers.test_accepted_is_answered_once_also_when_it_turns_out_a_replay_or_a_reuse,
    ),
    Fault(
        "empty proposals make a batch",
        Waiters.add,
        "if not keys:",
        "if False:",
        answers.test_empty_and_oversize_proposals_end_no_node,
    ),
    Fault(
        "lane released before the outcome of a failure (S52)",
        Dispatcher._propose_outcomes,
        "if succeeded == len(batch.outcomes):",
        "if True:",
        any_random_life,
    ),
    Fault(
        "a failed head goes behind its lane (S52)",
        DispatchQueue.release_lane,
        "self._lanes[name].extendleft(reversed(returned))",
        "self._lanes[name].extend(returned)",
        dispatch.test_s52_same_order_with_a_failover_between,
    ),
    Fault(
        "a success after the office is forgotten",
        Dispatcher._propose_outcomes,
        "self.late(batch)",
        "pass",
        late.test_a_naked_success_after_step_down_is_on_record_once_the_node_leads_again,
    ),
    Fault(
        "a lane stands still for ever behind a head that has ended",
        DispatchQueue.changed,
        "if waits and (name in self._standing or self._lanes[name][0].state in TERMINAL):",
        "if False:",
        late.test_a_success_that_arrives_in_a_later_tenure_frees_the_lane_behind_it,
    ),
    Fault(
        "a head in doubt is passed by (S52)",
        DispatchQueue._enter_lane,
        "while lane and lane[0].state in TERMINAL:",
        "while lane and not self.startable(lane[0]):",
        dispatch.test_s52_head_in_doubt_blocks_its_lane_and_no_other,
    ),
    Fault(
        "retry resets the attempts (S51)",
        OutboxMachine._fail,
        "operation.failures += trigger in _FAILURES",
        "operation.failures = int(trigger in _FAILURES)",
        dispatch.test_s51_poison_is_retried_with_growing_pauses_and_then_dead_while_others_go_on,
    ),
    Fault(
        "backoff reset by a failover (S53)",
        DispatchQueue._enter,
        "if due_ns:",
        "if False:",
        dispatch.test_s51_s53_attempts_and_backoff_survive_a_failover,
    ),
    Fault(
        "retries by the wall clock (S46)",
        RaftLoop.cluster_time_ns,
        "return self._clock.monotonic_ns() + self._cluster_ahead_ns",
        "return self._clock.time_ns()",
        lambda: dispatch.test_s46_retries_do_not_wait_for_a_wall_clock_that_was_set(-1),
    ),
    Fault(
        "entries stamped by another clock than deadlines (S46)",
        RaftLoop._propose,
        "Propose(self._clock.monotonic_ns(), self.cluster_time_ns(), proposals, internal)",
        "Propose(self._clock.monotonic_ns(), self._clock.time_ns(), proposals, internal)",
        dispatch.test_s46_a_deadline_is_never_further_away_than_it_was_drawn,
    ),
    Fault(
        "retry not woken up",
        EffectsCoordinator._wake,
        "self._node_loop.wake()",
        "pass",
        dispatch.test_s51_s53_attempts_and_backoff_survive_a_failover,
    ),
    Fault(
        "no pause for what was not attempted (S53)",
        policy.judge,
        "elif status == AttemptStatus.NOT_ATTEMPTED and error and not suspended:",
        "elif False:",
        lambda: dispatch.test_s53_a_handler_that_always_raises_makes_no_storm(Guarantee.FENCED),
    ),
    Fault(
        "take-over skipped (S50)",
        OutboxMachine._apply_activation,
        "if after is None or operation.token is None or operation.token >= token:",
        "if True:",
        lambda: dispatch.test_s50_crash_around_the_call_and_the_successor_finishes("before", Guarantee.FENCED),
    ),
    Fault(
        "commands committed with a second activation not offered",
        Tenure.entries_applied,
        "return [name for name in activated if self._activate(name)]",
        "[self._activate(name) for name in activated]; return activated",
        activation.test_commands_committed_with_a_second_activation_are_not_lost,
    ),
    Fault(
        "trouble after the claim overlooked",
        Tenure._activate,
        "if seat.claiming or seat.retry is not None:",
        "if False:",
        activation.test_trouble_between_claim_and_activation_waits_for_the_next_claim,
    ),
    Fault(
        "queue not filled from the state (S50)",
        Tenure._activate,
        "seat.dispatcher.offer(operation)",
        "pass",
        lambda: dispatch.test_s50_crash_around_the_call_and_the_successor_finishes("before", Guarantee.FENCED),
    ),
    Fault(
        "batch dropped when the lease lapses for a moment",
        Dispatcher._execute,
        'self._give_back(batch, "the leader had not heard a quorum when it was due")',
        "self._end(batch)",
        activation.test_keyed_batch_is_not_lost_when_the_lease_lapses_for_a_moment,
    ),
    Fault(
        "unfenced effect before its dispatch is committed (S50)",
        Dispatcher._start,
        "batch.beside = self._resource.guarantee is Guarantee.FENCED and self._may_run_beside(operations)",
        "batch.beside = True",
        lambda: dispatch.test_s50_unfenced_effects_wait_for_the_commit_of_their_dispatch(Guarantee.NAKED),
    ),
    Fault(
        "concurrency not bounded (S53)",
        Dispatcher.pump,
        "while queue.has_ready and self._running + others < self._concurrency():",
        "while queue.has_ready:",
        dispatch.test_concurrency_is_bounded_and_used,
    ),
    Fault(
        "concurrency counted by tenure (S53)",
        Dispatcher.pump,
        "others = self._executions.under_way - self._executing",
        "others = 0",
        lambda: dispatch.test_s53_an_effect_that_hangs_from_an_earlier_tenure_counts_against_the_bound(Guarantee.KEYED),
    ),
    Fault(
        "full speed at once after an activation (S53)",
        Dispatcher.resume,
        "self._batch_max = self._dispatch_policy.slow_start",
        "pass",
        dispatch.test_s53_slow_start_after_every_activation,
    ),
    Fault(
        "completion raises unseen (S41)",
        GuardedRuntime.run,
        "self._runtime.run(work, self._guarded(done))",
        "self._runtime.run(work, done)",
        lambda: stalls.test_s41_whatever_raises_ends_the_node_loudly(stalls._execution),
    ),
    Fault(
        "an entry that raises is skipped (S59)",
        Applier._apply_all,
        "append(apply(entry))",
        "append(apply(entry) if b'poison' not in entry.data else None)",
        stalls.test_s59_apply_that_raises_stops_before_the_entry_on_every_node,
    ),
    Fault(
        "stall of the loop costs nothing (S40)",
        RaftLoop._tick,
        "if late > self.raft.options.stall_bound:",
        "if False:",
        stalls.test_s40_a_stall_beyond_its_bound_costs_the_leadership_although_the_lease_still_holds,
    ),
    Fault(
        "drain does not wait (S49)",
        EffectsCoordinator.before_turn_ends,
        "if self._when_idle and tenure.idle:",
        "if self._when_idle:",
        activation.test_s49_drain_finishes_effects_before_leadership_ends,
    ),
    Fault(
        "a leader that is handing over puts what it finishes into the log (S08)",
        RaftLoop._gathers,
        "handing_over = raft.transfer is not None and raft.transfer.told_at > 0",
        "handing_over = False",
        lambda: handover.test_s08_a_leader_whose_target_does_not_come_serves_on(Guarantee.FENCED),
    ),
    Fault(
        "dispatch goes on while leadership is handed over (S49)",
        EffectsCoordinator.transfer_begun,
        "self._tenure.drain()",
        "pass",
        lambda: handover.test_s08_a_leader_whose_target_does_not_come_serves_on(Guarantee.FENCED),
    ),
    Fault(
        "dispatch stands still after a transfer that failed (S08)",
        EffectsCoordinator.transfer_ended,
        "self._resume()",
        "pass",
        handover.test_a_transfer_that_fails_is_told_with_the_reason_and_dispatch_goes_on,
    ),
    Fault(
        "an operator's transfer does not wait for effects (S49)",
        _Transfer.begin,
        "self._calls.effects.begin_drain(self._idle)",
        "self._calls.effects.begin_drain(self._idle); self._ask()",
        handover.test_s49_effects_under_way_are_on_record_before_the_successor_begins,
    ),
    Fault(
        "a drain that is never given up (S08)",
        _Transfer._end_drain,
        "self._calls.effects.end_drain()",
        "pass",
        handover.test_a_transfer_that_fails_is_told_with_the_reason_and_dispatch_goes_on,
    ),
    Fault(
        "elected while draining, and dispatches (S49)",
        EffectsCoordinator.role_changed,
        "if self._drains:",
        "if False:",
        handover.test_a_leader_that_is_elected_while_it_drains_starts_nothing,
    ),
    Fault(
        "reads answered before the state is there (S29)",
        Reads.answered,
        "elif answer.read_index <= last_applied:",
        "elif True:",
        reads.test_a_confirmed_read_waits_until_its_index_is_applied_or_ends,
    ),
    Fault(
        "reads that wait for ever (S29)",
        Reads.expire,
        "read.sink.expired()",
        "pass",
        reads.test_s29_a_question_that_is_lost_ends_by_its_deadline,
    ),
    Fault(
        "refused reads dropped in silence (S29)",
        _Asked.refused,
        "self._done(None, not_leader(leader, self._leader_address))",
        "pass",
        reads.test_s30_a_leader_that_was_cut_off_with_a_minority_does_not_answer,
    ),
    Fault(
        "transfers that nobody ends (S44)",
        Transfers.expire,
        "sink.unknown()",
        "pass",
        requests.test_all_who_wait_for_a_transfer_hear_of_its_end_each_by_its_own_deadline,
    ),
    Fault(
        "waiters of a replaced state kept (S44)",
        EffectsCarrier._restore,
        "self.waiters.superseded(snapshot.last_index)",
        "pass",
        snapshots.test_s44_those_who_wait_for_what_came_as_a_snapshot_hear_of_it,
    ),
    Fault(
        "done-waiters of a replaced state kept (S44)",
        ClientService.restored,
        "self._operation_ended(operation)",
        "pass",
        snapshots.test_s44_those_who_wait_for_what_came_as_a_snapshot_hear_of_it,
    ),
    Fault(
        "a snapshot captured when it is written and not when it is due (S19)",
        SnapshotKeeper.take,
        "contents = self._applier.capture()",
        "contents = (chunk for _ in (0,) for chunk in self._applier.capture())",
        snapshots.test_s19_what_is_applied_while_a_snapshot_is_written_is_not_in_it,
    ),
    Fault(
        "a snapshot's disk failure overlooked (S12)",
        SnapshotKeeper._failed,
        "self._loop.storage_failed(error)",
        "pass",
        snapshots.test_s12_a_disk_that_fails_under_a_snapshot_ends_the_node,
    ),
    Fault(
        "no room for a snapshot ends the node (S11)",
        SnapshotKeeper._taken,
        "if isinstance(error, StorageFull):",
        "if False:",
        snapshots.test_s11_without_room_for_a_snapshot_the_node_serves_on_and_tries_again,
    ),
    Fault(
        "of two snapshots that were received at once the older is forgotten",
        SnapshotKeeper._received,
        "self._prepared[snapshot] = result",
        "self._prepared = {snapshot: result}",
        snapshots.test_two_snapshots_that_are_complete_within_one_turn_are_both_taken_in,
    ),
    Fault(
        "a part of a snapshot is sent after the leadership (S36)",
        SnapshotKeeper._was_read,
        "elif self._loop.leads_in(chunk.message.term):",
        "else:",
        snapshots.test_s36_whoever_leads_no_more_sends_no_part_that_was_still_being_read,
    ),
    Fault(
        "the state stays, and its index moves (S20)",
        EffectsCarrier._restore,
        "self._keeper().adopt(snapshot)",
        "self.applier.last_applied = snapshot.last_index",
        snapshots.test_s15_s36_a_follower_far_behind_gets_one_snapshot_and_nobody_misses_a_heartbeat,
    ),
    Fault(
        "a learner that has not caught up is given up at once (S28)",
        _Drive.refused,
        "if refusal.code in NOT_YET or",
        "if",
        members.test_s28_a_voter_that_never_starts_becomes_a_learner_and_costs_nobody_the_quorum,
    ),
    Fault(
        "an unknown end called not yet (S44)",
        _Drive._overdue,
        "if self._committing:",
        "if False:",
        members.test_a_call_ends_by_its_own_deadline_and_what_it_began_goes_on,
    ),
    Fault(
        "questions of a node that stops are dropped (S44)",
        RaftLoop.stop,
        "waiting = (self.waiters, self.reads, self.transfers, self._questions)",
        "waiting = (self.waiters,)",
        requests.test_questions_that_a_node_has_not_put_yet_when_it_stops_are_refused,
    ),
    Fault(
        "linearizable reads answered at once (S29, S30)",
        LocalReads.read,
        "if consistency is Consistency.STALE:",
        "if True:",
        any_changing_life,
    ),
    Fault(
        "a restored state that still counts as the old one (S20)",
        Applier.adopt,
        "self.last_applied = last_index",
        "self.last_applied = max(self.last_applied, last_index - 1)",
        any_changing_life,
    ),
    Fault(
        "one of two machines restored (S33)",
        Applier.adopt,
        "if isinstance(machine, PreparingMachine):",
        "if kind != 2:",
        any_changing_life,
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_seen(fault: Fault) -> None:
    with planted(fault.function, fault.line, fault.fault), pytest.raises(AssertionError):
        fault.sees()
