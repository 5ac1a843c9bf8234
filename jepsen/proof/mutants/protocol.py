"""The protocol: elections, logs, commitment, members, snapshots, reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....raft.core import (
    append_entries,
    commitment,
    election,
    install_snapshot,
    leading,
    membership,
    quorum,
    read_index,
    snapshot,
    transfer,
)
from ....raft.core.log import RaftLog
from ....raft.core.progress import Progress
from ....raft.core.state import RaftState
from ....raft.core.step import Raft
from ....raft.node.applying import Applying
from .mutant import Mutant


def _mutant(name: str, function: Callable[..., Any], line: str, fault: str) -> Mutant:
    return Mutant(name, "protocol", function, line, fault)


MUTANTS = (
    # -- elections
    _mutant("half of the voters elect", quorum.majority_vote, "granted >= quorum", "granted >= len(voters) // 2"),
    _mutant(
        "votes in a joint configuration are counted among the new voters only",
        quorum.vote_result,
        "if configuration.outgoing and result",
        "if False and result",
    ),
    _mutant("a node votes twice in a term", election.handle_request_vote, "state.voted_for not in", "'' not in"),
    _mutant(
        "a vote is not saved before the answer",
        election.handle_request_vote,
        "            state.save_hard_state()\n",
        "",
    ),
    _mutant(
        "answers do not wait for term and vote",
        RaftState.sendable_after,
        "after = max(after, self.hard_state_sequence)",
        "pass",
    ),
    _mutant(
        "a candidate's log is not compared",
        election._vote_refusal,
        "if not state.log.is_up_to_date(last_log_index, last_log_term):",
        "if False:",
    ),
    _mutant(
        "logs are compared by length before term",
        RaftLog.is_up_to_date,
        "(last_log_term, last_log_index) >= (self.last_term, self.last_index)",
        "(last_log_index, last_log_term) >= (self.last_index, self.last_term)",
    ),
    _mutant(
        "the vote is forgotten in the same term",
        RaftState.become_follower,
        "if term > self.current_term:",
        "if term >= self.current_term:",
    ),
    _mutant("a leader without a quorum leads on", RaftState.lost_quorum, "self.options.check_quorum", "False"),
    # -- logs
    _mutant("every append truncates", append_entries._count_known, "return known", "return 0"),
    _mutant(
        "a conflicting tail stays",
        append_entries.handle_append_entries,
        "if first <= log.last_index:",
        "if False:",
    ),
    _mutant(
        "the previous entry's term is not compared",
        append_entries.handle_append_entries,
        "and not log.matches(message.prev_log_index, message.prev_log_term)",
        "and message.prev_log_index > log.last_index",
    ),
    _mutant(
        "a follower's commit index is not capped",
        append_entries.handle_append_entries,
        "min(message.leader_commit, last_new_index)",
        "min(message.leader_commit, log.last_index)",
    ),
    _mutant(
        "an append is acknowledged before its write",
        append_entries.handle_append_entries,
        "after = state.write_sequence",
        "pass",
    ),
    _mutant(
        "a heartbeat's answer claims what is not durable",
        append_entries.handle_append_entries,
        "min(last_new_index, state.durable_index)",
        "last_new_index",
    ),
    _mutant(
        "refusals do not move the probe back",
        Progress.refused,
        "self.next_index = max(min(rejected, may_match + 1), self.match_index + 1)",
        "pass",
    ),
    # -- commitment
    _mutant(
        "entries of old terms are committed by counting",
        commitment.advance_commit_index,
        " or state.log.term_at(index) != state.current_term",
        "",
    ),
    _mutant(
        "a leader counts itself before its disk",
        commitment.advance_commit_index,
        "state.durable_index",
        "state.log.last_index",
    ),
    _mutant(
        "entries are applied before they are durable",
        commitment.report_apply,
        "min(state.commit_index, state.durable_index)",
        "state.commit_index",
    ),
    _mutant(
        "one copy fewer is enough",
        quorum.majority_value,
        "reached[len(voters) // 2]",
        "reached[len(voters) // 2 - 1]",
    ),
    _mutant(
        "copies in a joint configuration are counted among the new voters only",
        quorum.quorum_value,
        "if configuration.outgoing:",
        "if False:",
    ),
    # -- members
    _mutant(
        "members are changed before the leader has committed in its term",
        membership._why_not_now,
        "if state.commit_index < state.term_start_index:",
        "if False:",
    ),
    _mutant(
        "members are changed while another change is not committed",
        membership._why_not_now,
        "if state.configuration_index > state.commit_index:",
        "if False:",
    ),
    _mutant(
        "a joint configuration is never left",
        membership.configuration_committed,
        "_append_configuration(state, leave_joint(configuration))",
        "pass",
    ),
    _mutant(
        "new voters need not have caught up nor be there",
        membership.handle_change_configuration,
        "if not event.unchecked:",
        "if False:",
    ),
    # -- snapshots
    _mutant(
        "a snapshot is labelled with the newest configuration",
        snapshot.label_at,
        "state.configuration_at(index)",
        "(state.configuration_index, state.configuration)",
    ),
    _mutant(
        "the log is compacted past the snapshot",
        snapshot.compact,
        "index = min(_retained_behind(state, state.snapshot.last_index), state.apply_reported)",
        "index = state.apply_reported",
    ),
    _mutant(
        "a received snapshot does not replace the state",
        install_snapshot.snapshot_received,
        "state.out.restore = snapshot",
        "pass",
    ),
    _mutant(
        "a received snapshot keeps a log that conflicts with it",
        install_snapshot.snapshot_received,
        "elif state.log.matches(snapshot.last_index, snapshot.last_term):",
        "elif state.log.last_index >= snapshot.last_index:",
    ),
    _mutant(
        "a follower forgets how much of a snapshot it has",
        install_snapshot.chunk_stored,
        "incoming.offset = event.offset",
        "pass",
    ),
    # -- what a follower has lost
    _mutant(
        "a late refusal is taken for a loss",
        Progress.has_lost,
        "if not rejected or (rejected, sent_at) != self.asked or rejected != (self.lost_index or self.match_index):",
        "if not rejected or rejected > (self.lost_index or self.match_index):",
    ),
    # -- the window of entries in memory
    _mutant(
        "entries leave the window before they are committed",
        Raft.step,
        "self.log.shed(applied, ",
        "self.log.shed(self.log.last_index, ",
    ),
    _mutant(
        "a snapshot is taken on the way to its index",
        Applying._take_due,
        "due.last_index == self._applier.last_applied",
        "due.last_index >= self._applier.last_applied",
    ),
    # -- reads and handing over
    _mutant(
        "reads are not confirmed by a quorum",
        read_index.confirm_reads,
        "pending[0].begun_at <= contact",
        "True",
    ),
    _mutant(
        "reads are answered before the leader has committed in its term",
        read_index._take,
        "state.commit_index if state.commit_index >= state.term_start_index else 0",
        "state.commit_index",
    ),
    _mutant(
        "a transfer is never given up",
        transfer.drive_transfer,
        "if state.now >= transfer.deadline:",
        "if False:",
    ),
    _mutant(
        "a lost probe is never repeated",
        leading.leader_tick,
        "                progress.probe_sent = True\n                send_heartbeat(state, peer, progress)\n",
        "                progress.probe_sent or send_heartbeat(state, peer, progress)\n"
        "                progress.probe_sent = True\n",
    ),
)
