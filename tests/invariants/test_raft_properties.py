"""The properties of consensus: each fires on a history that breaks it. That all are silent on right ones is shown by
every world that they look at, and by the longest of these here."""

from __future__ import annotations

import pytest

from fencepost.jepsen.invariants import DiskFate
from fencepost.jepsen.invariants.committed_by_quorum import CommittedByQuorum
from fencepost.jepsen.invariants.committed_for_ever import CommittedForEver
from fencepost.jepsen.invariants.core import Core
from fencepost.jepsen.invariants.election_safety import ElectionSafety
from fencepost.jepsen.invariants.leader_append_only import LeaderAppendOnly
from fencepost.jepsen.invariants.leader_completeness import LeaderCompleteness
from fencepost.jepsen.invariants.log_matching import LogMatching
from fencepost.jepsen.invariants.monotone import Monotone
from fencepost.jepsen.invariants.property import Property
from fencepost.jepsen.invariants.state_machine_safety import StateMachineSafety
from fencepost.raft.core.entry import HardState, Snapshot
from fencepost.raft.core.events import Effects, Tick

from .scene import SECOND, persist, scene


def test_core_wraps_what_a_core_breaks_by_itself() -> None:
    with scene() as it:
        before = it.before()
        it.leader.raft.uncommitted_bytes += 1
        with it.breaks(Core, f"{it.leader.name} in term 1: bytes not yet committed are miscounted"):
            it.of(Core).stepped(it.leader, before, Tick(0), Effects())
        it.leader.raft.uncommitted_bytes -= 1


# -- elections ------------------------------------------------------------------------------------------


def test_election_safety() -> None:
    with scene() as it:
        won = it.ledger.leaderships[it.term]
        for other in (won._replace(name=it.follower.name), won):
            with it.breaks(ElectionSafety, f"leads term {it.term}, and {it.leader} was elected in it before"):
                it.of(ElectionSafety).elected(it.follower, other)
        with it.breaks(ElectionSafety, r"leads term 99 with durable votes of \[\] only"):
            it.of(ElectionSafety).elected(it.follower, won._replace(term=99, name=it.follower.name))
        for voter in it.followers:
            voter.votes[99, it.follower.name] = None
        it.of(ElectionSafety).elected(it.follower, won._replace(term=99, name=it.follower.name))


def test_leader_completeness_at_an_election() -> None:
    with scene() as it:
        later = it.ledger.leaderships[it.term]._replace(term=99, name=it.follower.name)
        it.of(LeaderCompleteness).elected(it.follower, later)
        earlier = later._replace(term=0)
        lost = it.follower.asked.entries.pop()
        with it.breaks(LeaderCompleteness, f"leads term 99 without .*index={lost.index}.*it has None there"):
            it.of(LeaderCompleteness).elected(it.follower, later)
        it.of(LeaderCompleteness).elected(it.follower, earlier)
        it.follower.asked.entries.append(lost._replace(data=b"another"))
        with it.breaks(LeaderCompleteness, f"leads term 99 without .*index={lost.index}.*another"):
            it.of(LeaderCompleteness).elected(it.follower, later)


def test_leader_completeness_of_leaders_that_were_elected_before_a_late_commit() -> None:
    with scene() as it:
        won = it.ledger.leaderships[it.term]
        entry = it.next_entry()
        it.ledger.leaderships[9] = won._replace(term=9, name=it.follower.name, runs=((0, 0), (1, 1), (entry.index, 9)))
        with it.breaks(LeaderCompleteness, "leads term 9 with an entry of term 9 there"):
            it.of(LeaderCompleteness).first_committed(it.leader, [entry], it.before())
        it.ledger.leaderships[9] = won._replace(term=9, name=it.follower.name, runs=((0, 0), (1, 1)))
        it.of(LeaderCompleteness).first_committed(it.leader, [entry], it.before())


# -- logs -----------------------------------------------------------------------------------------------


def test_log_matching_of_what_is_written() -> None:
    with scene() as it:
        known = it.leader.asked.entries[-1]
        it.of(LogMatching).wrote(it.follower, persist([known]), it.before())
        with it.breaks(LogMatching, f"{it.follower} holds .*another.* elsewhere it is"):
            it.of(LogMatching).wrote(it.follower, persist([known._replace(data=b"another")]), it.before())
        it.follower.asked.entries[-2] = it.follower.asked.entries[-2]._replace(term=77)
        with it.breaks(LogMatching, "behind term 77"):
            it.of(LogMatching).wrote(it.follower, persist([known]), it.before())


def test_log_matching_of_memory_and_disk() -> None:
    with scene() as it:
        it.of(LogMatching).changed_role(it.follower, it.before(it.follower))
        it.follower.raft.log.append([it.next_entry(b"never written")])
        with it.breaks(LogMatching, f"{it.follower} has .*never written.* in its log or in what it wrote, not in both"):
            it.of(LogMatching).changed_role(it.follower, it.before(it.follower))


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("truncate", "deletes its log from 3 on"),
        ("reset", "deletes its log for the snapshot"),
        ("entry", "writes entry 2"),
    ],
)
def test_leader_append_only(what: str, says: str) -> None:
    with scene() as it:
        own = it.of(LeaderAppendOnly)
        own.wrote(it.leader, persist([it.next_entry()]), it.before())
        snapshot = Snapshot(3, 1, 0, it.leader.raft.configuration, 0)
        write = {
            "truncate": persist(truncate_from=3),
            "reset": persist(reset=snapshot),
            "entry": persist([it.leader.asked.entries[1]]),
        }[what]
        own.wrote(it.follower, write, it.before(it.follower))  # Followers may.
        with it.breaks(LeaderAppendOnly, f"{it.leader}, leader of term 1, {says}"):
            own.wrote(it.leader, write, it.before())


def test_state_machine_safety() -> None:
    with scene() as it:
        own, entry = it.of(StateMachineSafety), it.leader.asked.entries[-1]
        own.applied(it.follower, [entry], [None])
        with it.breaks(StateMachineSafety, f"{it.follower} has applied .*other.*, and what is committed there is"):
            own.applied(it.follower, [entry._replace(data=b"other")], [None])
        with it.breaks(StateMachineSafety, "has applied .*and what is committed there is None"):
            own.applied(it.follower, [it.next_entry()], [None])
        before = it.before(it.follower)._replace(commit_index=0)
        own.committed(it.follower, before)
        it.follower.asked.entries[-1] = entry._replace(data=b"other")
        with it.breaks(StateMachineSafety, "has committed .*other.* where .* was committed before"):
            own.committed(it.follower, before)
        wrong = Snapshot(entry.index, 44, 0, it.follower.raft.configuration, 0)
        with it.breaks(StateMachineSafety, f"has a snapshot of {entry.index} in term 44"):
            own.restored(it.follower, wrong)


# -- commitment -----------------------------------------------------------------------------------------


def test_committed_by_quorum_is_judged_by_the_disks_of_the_configuration_in_force() -> None:
    with scene() as it:
        own, entry = it.of(CommittedByQuorum), it.next_entry()
        nodes = it.ledger.nodes
        it.leader.disk.entries.append(entry)
        with it.breaks(CommittedByQuorum, rf"with durable copies on \['{it.leader.name}'\] only.* voters n1, n2, n3"):
            own.first_committed(it.leader, [entry], it.before())
        it.follower.disk.entries.append(entry._replace(term=8))
        with it.breaks(CommittedByQuorum, "is no majority"):
            own.first_committed(it.leader, [entry], it.before())
        it.follower.disk.entries[-1] = entry
        own.first_committed(it.leader, [entry], it.before())
        joint = it.before().configuration._replace(outgoing=("n7", "n8", "n9"))
        with it.breaks(CommittedByQuorum, "no majority of outgoing voters n7, n8, n9"):
            own.first_committed(it.leader, [entry], it.before()._replace(configuration=joint))
        nodes["n7"] = nodes["n8"] = it.follower
        own.first_committed(it.leader, [entry], it.before()._replace(configuration=joint))


def test_committed_by_quorum_is_for_leaders_and_entries_of_their_terms() -> None:
    with scene() as it:
        own, entry = it.of(CommittedByQuorum), it.next_entry()
        for node in it.ledger.nodes.values():
            node.disk.entries.append(entry)
        with it.breaks(CommittedByQuorum, f"{it.follower}, a follower of term 1, commits .*no leader has"):
            own.first_committed(it.follower, [entry], it.before(it.follower))
        with it.breaks(CommittedByQuorum, "by counting, in term 1"):
            own.first_committed(it.leader, [it.next_entry(term=-1)], it.before())


def test_committed_for_ever_on_every_disk() -> None:
    with scene() as it:
        own, last = it.of(CommittedForEver), it.ledger.last_index
        own.syncing(it.follower, persist(truncate_from=last + 1))
        with it.breaks(CommittedForEver, rf"the disk of {it.follower} deletes .*index={last}.*, which is committed"):
            own.syncing(it.follower, persist(truncate_from=last))
        snapshot = Snapshot(last - 1, 1, 0, it.follower.raft.configuration, 0)
        own.syncing(it.follower, persist(reset=snapshot._replace(last_index=last)))
        with it.breaks(CommittedForEver, rf"the disk of {it.follower} drops .*index={last}.*, which is committed"):
            own.syncing(it.follower, persist(reset=snapshot))


def test_committed_for_ever_over_restarts() -> None:
    with scene() as it:
        own, node = it.of(CommittedForEver), it.follower
        node.disk_before = node.disk.copy()
        own.started(node)
        lost = node.disk.entries.pop()
        with it.breaks(CommittedForEver, f"the disk of {node} held index {lost.index} of term 1, which is committed"):
            own.started(node)
        node.disk_before = None  # As if it were its first start; then the quorum is short of a copy.
        it.followers[1].disk.entries.pop()
        with it.breaks(CommittedForEver, f"index {lost.index} of term 1, committed by .*, is on .* only"):
            own.started(node)


def test_committed_for_ever_excepts_disks_of_a_minority_that_are_declared() -> None:
    with scene() as it:
        one, other = it.followers
        for node in (one, other):
            it.world.kill(node.name)
            it.world.hosts[node.name].disk.wipe()
            it.properties.disk_changed(node.name, DiskFate.LOST)
            assert node.lost is not None
            assert it.ledger.quorum_lost is (node is other)


def test_a_disk_that_is_lost_without_a_word_is_found() -> None:
    with scene() as it:
        it.world.kill(it.follower.name)
        it.world.hosts[it.follower.name].disk.wipe()
        it.world.start(it.follower.name)
        with pytest.raises(AssertionError, match=f"monotone: {it.follower.name}/1 started with"):
            it.world.run_for(SECOND)


# -- what only goes up ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("term", "term 0 after term 1"),
        ("vote", "vote for n9 in term 1 after one for"),
        ("commit", "commit index .* after 99"),
        ("applied", "asks to apply to .* after 99"),
    ],
)
def test_monotone_over_events(what: str, says: str) -> None:
    with scene() as it:
        own, raft = it.of(Monotone), it.leader.raft
        before = it.before()
        own.stepped(it.leader, before, Tick(0), Effects())
        kept = raft.current_term, raft.voted_for
        match what:
            case "term":
                raft.current_term = 0
            case "vote":
                raft.voted_for = "n9"
            case "commit":
                before = before._replace(commit_index=99)
            case "applied":
                before = before._replace(apply_reported=99)
        with it.breaks(Monotone, f"{it.leader}.*{says}"):
            own.stepped(it.leader, before, Tick(0), Effects())
        raft.current_term, raft.voted_for = kept


def test_monotone_applies_without_gaps() -> None:
    with scene() as it:
        own, applied = it.of(Monotone), it.follower.applied
        entry = it.next_entry()
        assert entry.index == applied + 1
        own.applied(it.follower, [entry], [None])
        for index in (applied, applied + 2):
            with it.breaks(Monotone, f"applied index {index} where {applied + 1} was next"):
                own.applied(it.follower, [entry._replace(index=index)], [None])
        with it.breaks(Monotone, f"went back from index {applied} to a snapshot of 1"):
            own.restored(it.follower, Snapshot(1, 1, 0, it.follower.raft.configuration, 0))


def test_monotone_on_a_disk() -> None:
    with scene() as it:
        own, vote = it.of(Monotone), it.leader.name
        own.syncing(it.follower, persist(hard_state=HardState(1, vote)))
        for saved in (HardState(0, ""), HardState(1, "n9"), HardState(1, "")):
            with it.breaks(Monotone, f"the disk of {it.follower} goes from"):
                own.syncing(it.follower, persist(hard_state=saved))


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("vote", "voted_for='n9'"),
        ("shorter", "its log ends at"),
        ("other", "other entries between"),
        ("gone", "its log begins behind"),
        ("commit", "with commit index 0, and .* was durable$"),
        ("too much", "its log ends at"),
    ],
)
def test_monotone_over_a_restart(what: str, says: str) -> None:
    with scene() as it:
        own, node = it.of(Monotone), it.follower
        node.disk_before = node.disk.copy()
        first, second = it.next_entry(), it.next_entry()._replace(index=it.next_entry().index + 1)
        node.pending.extend([persist([first]), persist([second])])
        own.started(node)
        node.disk.take(node.pending[0])
        own.started(node)  # Written, and not yet synced as far as anybody knew.
        match what:
            case "vote":
                node.disk.hard_state = HardState(1, "n9")
            case "shorter":
                del node.disk.entries[-2:]
            case "other":
                node.disk.entries[1] = node.disk.entries[1]._replace(data=b"rot")
            case "gone":
                del node.disk.entries[:2]
                node.disk.previous_index = 2
            case "commit":
                node.disk.commit_index = 0
            case "too much":
                node.disk.entries += [second, second._replace(index=second.index + 1)]
        with it.breaks(Monotone, f"{node} started.*{says}"):
            own.started(node)


def test_each_property_has_a_name_of_its_own_and_a_docstring() -> None:
    with scene() as it:
        names = [each.name for each in it.properties.all]
        assert len(set(names)) == len(names) == 30
        assert all(type(each) is not Property for each in it.properties.all)
