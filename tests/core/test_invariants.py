"""The invariants themselves: each one fails on a state or a step that breaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.jepsen.cores.parts import Violation
from fencepost.jepsen.cores.world import World
from fencepost.raft.core.configuration import Configuration, encode_configuration
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.events import (
    Accepted,
    Durable,
    Effects,
    Persist,
    ReadChunk,
    Receive,
    Role,
    Send,
    SnapshotReceived,
    Tick,
)
from fencepost.raft.core.invariants import Summary, check, check_step, summarize
from fencepost.raft.core.messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    PreVote,
    RequestVote,
    RequestVoteResponse,
    TimeoutNow,
)
from fencepost.raft.core.options import SECOND
from fencepost.raft.core.progress import Progress
from fencepost.raft.core.step import Raft
from fencepost.raft.core.waiting import Incoming, PendingRead, Transfer

from .lone import THREE, Lone, entries, entry, label


def leading() -> Raft:
    """A leader of term 3 with five entries, the first two committed."""
    lone = Lone(term=2, log=entries(1, 2), commit_index=2)
    lone.become_leader()
    lone.propose(b"x", b"y")
    lone.settle()
    lone.acknowledge("n2", 3)
    assert (lone.raft.commit_index, lone.raft.log.last_index) == (3, 5)
    return lone.raft


def breaking(raft: Raft, what: str) -> None:
    match what:
        case "commit past the end":
            raft.commit_index = 6
        case "durable past the end":
            raft.durable_index = 6
        case "applied what is not committed":
            raft.apply_reported = 4
        case "log above the term":
            raft.current_term = 2
        case "an entry nobody writes":
            raft.log.append([entry(6, 3)])
        case "leader without its vote":
            raft.voted_for = "n2"
        case "match past next":
            raft.progress["n2"].match_index = 9
        case "window too large":
            raft.progress["n2"].in_flight.extend((index, 0) for index in range(4, 99))
        case "bytes miscounted":
            raft.uncommitted_bytes += 1
        case "progress of a follower":
            raft.role = Role.FOLLOWER
        case "hard state of a write never made":
            raft.hard_state_sequence = 99


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("commit past the end", "commit index 6 is past"),
        ("durable past the end", "durable index 6 is past"),
        ("applied what is not committed", "applied to 4"),
        ("log above the term", "above the current term"),
        ("an entry nobody writes", "writes cover the log to 5 of 6"),
        ("leader without its vote", "voted for 'n2'"),
        ("match past next", "n2 matches to 9"),
        ("window too large", "in flight to n2"),
        ("bytes miscounted", "miscounted"),
        ("progress of a follower", "keeps what only a leader has"),
        ("hard state of a write never made", "never made|not durable"),
    ],
)
def test_state(what: str, says: str) -> None:
    raft = leading()
    check(raft)
    breaking(raft, what)
    with pytest.raises(AssertionError, match=says):
        check(raft)


def spoken(message: Message, after: int = 0) -> Effects:
    return Effects(sends=[Send("n2", message, after)])


@pytest.mark.parametrize(
    ("before", "effects", "says"),
    [
        (lambda s: s._replace(current_term=4), Effects(), "term went back from 4 to 3"),
        (lambda s: s._replace(voted_for="n3"), Effects(), "vote for n3 changed"),
        (lambda s: s._replace(voted_for=""), Effects(), "saved as"),
        (lambda s: s._replace(commit_index=4), Effects(), "commit index went back|is gone"),
        (lambda s: s._replace(commit_index=2, commit_term=1), Effects(), "committed entry 2 of term 1 is gone"),
        (lambda s: s._replace(commit_index=0, commit_term=0), Effects(), None),
        (lambda s: s._replace(last_term=2), Effects(), "only appends"),
        (lambda s: s._replace(role=Role.FOLLOWER, last_index=4), Effects(), "became leader|without a write"),
        (lambda s: s._replace(durable_index=4), Effects(), "without a completed write"),
        (lambda s: s, Effects(apply_to=4), "apply to 4"),
        (lambda s: s, Effects(apply_to=3), "apply to 3 after 3"),
        (lambda s: s, Effects(persist=[Persist(9, None, 3, [], 3)]), "truncation at 3|follows write"),
        (lambda s: s, Effects(persist=[Persist(9, None, 0, [entry(9, 3)], 3)]), "where 6 belongs|follows write"),
        (lambda s: s, spoken(RequestVote(3, 5, 3, False)), "a leader asked for votes"),
        (lambda s: s, spoken(PreVote(3, 5, 3, 1)), "speaks for term 3"),
        (lambda s: s, spoken(RequestVoteResponse(3, True, "")), "a vote that is 'n1'"),
        (lambda s: s, spoken(AppendEntriesResponse(3, True, 6, 0, 0, 0)), "acknowledges 6, durable to 5"),
        (lambda s: s, spoken(AppendEntriesResponse(3, True, 5, 0, 0, 0), 99), "no pending write"),
        (lambda s: s._replace(failed=True), spoken(AppendEntriesResponse(3, True, 5, 0, 0, 0)), "had failed"),
    ],
)
def test_step(before: Callable[[Summary], Summary], effects: Effects, says: str | None) -> None:
    raft = leading()
    check_step(summarize(raft), raft, Tick(0), Effects())
    if says is None:
        check_step(before(summarize(raft)), raft, Tick(0), effects)
        return
    with pytest.raises(AssertionError, match=says):
        check_step(before(summarize(raft)), raft, Tick(0), effects)


def behind_a_snapshot() -> Lone:
    """A leader of term 3 whose log begins at 3; n3 is being sent the snapshot, n2 has everything."""
    members = Configuration(THREE, learners=("n9",))
    changed = Entry(4, 2, EntryKind.CONFIGURATION, 0, encode_configuration(members))
    lone = Lone(term=2, snapshot=label(2, 1, size_bytes=9), previous=(2, 1), log=[entry(3, 2), changed], commit_index=4)
    lone.become_leader()
    lone.refuse("n3", 4, (0, 0))
    lone.acknowledge("n2", 5)
    lone.take()
    return lone


def breaking_what_is_new(raft: Raft, what: str) -> None:
    match what:
        case "gone and in no snapshot":
            raft.snapshot = label(1, 1)
        case "gone and not applied":
            raft.apply_reported = 1
        case "another configuration":
            raft.configuration = Configuration(THREE)
        case "more stored than there is":
            raft.incoming = Incoming(label(9, 9, size_bytes=5), "n2", offset=6)
        case "a peer is forgotten":
            del raft.progress["n9"]
        case "a stranger is replicated to":
            raft.progress["n8"] = Progress(1, 0)
        case "no snapshot to send":
            raft.progress["n3"].snapshot = None
        case "a snapshot beside entries":
            raft.progress["n2"].snapshot = raft.snapshot
        case "a hole behind the snapshot":
            raft.progress["n3"].next_index = 5
        case "no entry of its term":
            raft.term_start_index = 4
        case "two changes":
            joint = Configuration(THREE, outgoing=THREE, learners=("n9",))
            changes = [Entry(at, 3, EntryKind.CONFIGURATION, 0, encode_configuration(joint)) for at in (6, 7)]
            raft.append_entries(changes)
            raft.close_write()
            raft.progress["n2"].next_index = 8
        case "a follower hands over":
            raft.become_follower(3, "", "test")
            raft.transfer = Transfer("n2", 0)
        case "a follower confirms reads":
            raft.become_follower(3, "", "test")
            raft.pending_reads.append(PendingRead(0, "", 0, [1]))
        case "a failed leader":
            raft.failed = True


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("gone and in no snapshot", "entries up to 2 are gone, 1 are in a snapshot"),
        ("gone and not applied", "1 are applied"),
        ("another configuration", "the configuration in force is not the entry at 4"),
        ("more stored than there is", "more of a snapshot is stored than there is"),
        ("a peer is forgotten", "instead of the peers"),
        ("a stranger is replicated to", "instead of the peers"),
        ("no snapshot to send", "n3 is in .* with None"),
        ("a snapshot beside entries", "n2 is in .* with Snapshot"),
        ("a hole behind the snapshot", "n3 gets .* and then entries from 5"),
        ("no entry of its term", "no entry of term 3 where its term starts"),
        ("two changes", "more than one change"),
        ("a follower hands over", "a leader's business"),
        ("a follower confirms reads", "a leader's business"),
        ("a failed leader", "a leader whose storage has failed"),
    ],
)
def test_state_with_members_and_snapshots(what: str, says: str) -> None:
    raft = behind_a_snapshot().raft
    check(raft)
    breaking_what_is_new(raft, what)
    with pytest.raises(AssertionError, match=says):
        check(raft)


LATER = label(9, 3)


@pytest.mark.parametrize(
    ("effects", "says"),
    [
        (Effects(persist=[Persist(3, None, 0, [], 5, reset=LATER)]), "the log was dropped for"),
        (Effects(persist=[Persist(3, None, 0, [], 5, reset=label(5, 3))]), "the log was dropped for"),
        (Effects(persist=[Persist(3, None, 0, [], 5, compact_to=3)]), "compaction to 3, past the snapshot"),
        (Effects(persist=[Persist(3, None, 0, [], 6)]), "wrote commit index 6, past the end 5"),
        (Effects(persist=[Persist(3, None, 0, [], 5), Persist(4, None, 0, [], 5)]), "more than one write"),
        (Effects(restore=label(5, 3)), "state of 5 in place of 5"),
        (spoken(InstallSnapshotResponse(3, 6, 0, True, 0)), "acknowledges 6, durable to 5"),
        (spoken(TimeoutNow(3)), "told n2 to campaign"),
        (spoken(AppendEntries(3, 5, 2, 5, 0, [])), "follows an entry that this log does not have"),
        (spoken(AppendEntries(3, 5, 3, 6, 0, [])), "with commit index 5 sent"),
        (Effects(proposed=Accepted(5, 3)), "was answered with"),
    ],
)
def test_step_with_snapshots_and_transfers(effects: Effects, says: str) -> None:
    raft = behind_a_snapshot().raft
    before = summarize(raft)._replace(write_sequence=2)
    raft.write_sequence = 3
    with pytest.raises(AssertionError, match=says):
        check_step(before, raft, Tick(0), effects)


def test_followers_send_no_snapshots_and_nobody_renews_without_a_quorum() -> None:
    lone = behind_a_snapshot()
    raft = lone.raft
    chunk = ReadChunk("n3", InstallSnapshot(3, label(2, 1), 0, b"", 0), 9, 0)
    heartbeat = spoken(AppendEntries(3, 5, 3, 5, 0, []))
    check_step(summarize(raft), raft, Tick(0), Effects(chunks=[chunk]))
    raft.now += 2 * SECOND
    for effects in (Effects(chunks=[chunk]), heartbeat):
        with pytest.raises(AssertionError, match="without contact with a quorum"):
            check_step(summarize(raft), raft, Tick(0), effects)
    before = summarize(raft)
    raft.become_follower(3, "", "test")
    with pytest.raises(AssertionError, match="without contact with a quorum"):
        check_step(before, raft, Tick(0), heartbeat)
    with pytest.raises(AssertionError, match="a follower sends a snapshot"):
        check_step(before, raft, Tick(0), Effects(chunks=[chunk]))


def test_commits_by_a_snapshot_end_where_it_ends_and_others_need_a_leaders_word() -> None:
    raft = Lone(term=3, log=entries(1, 1, 3), commit_index=3).raft
    before = summarize(raft)._replace(commit_index=1, commit_term=1)
    check_step(before, raft, SnapshotReceived(0, label(3, 3)), Effects())
    with pytest.raises(AssertionError, match="committed 3 by a snapshot of 2"):
        check_step(before, raft, SnapshotReceived(0, label(2, 1)), Effects())
    with pytest.raises(AssertionError, match="without word from a leader"):
        check_step(before, raft, Tick(0), Effects())
    word = AppendEntries(3, 2, 1, 9, 0, [])
    with pytest.raises(AssertionError, match=r"more than the message proved to match \(S16\)"):
        check_step(before, raft, Receive(0, "n2", word), Effects())


def test_leader_may_not_commit_what_too_few_hold_or_what_is_not_of_its_term() -> None:
    raft = leading()
    before = summarize(raft)
    raft.commit_index = 4
    with pytest.raises(AssertionError, match="copies on \\['n1'\\] only"):
        check_step(before, raft, Durable(0, 1), Effects())
    raft.commit_index = 2
    with pytest.raises(AssertionError, match="of another term"):
        check_step(before._replace(commit_index=1, commit_term=1), raft, Durable(0, 1), Effects())


def test_a_violation_tells_the_seed_and_the_events() -> None:
    world = World(seed=42)
    world.elect()
    with pytest.raises(Violation, match=r"seed 42, [\d.]+ ms, step \d+: not within 1000 ms: never") as caught:
        world.run_until(lambda: False, within=SECOND, what="never")
    assert "AppendEntries(" in str(caught.value)


def test_a_storm_of_messages_is_a_violation() -> None:
    world = World(seed=1)
    world.steps_max = 10
    with pytest.raises(Violation, match="more steps than a sound world takes"):
        world.elect()


def test_leader_that_is_deposed_by_a_message_commits_as_the_follower_that_it_is_then() -> None:
    lone = Lone(term=1, log=entries(1, 1))
    lone.become_leader()
    assert lone.append(5, (2, 1), [entry(3, 5)], commit=2) == []
    assert (lone.raft.role, lone.raft.commit_index) == (Role.FOLLOWER, 2)
