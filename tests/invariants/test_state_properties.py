"""The properties of members, snapshots, state, reads and acknowledgements: each fires on a history that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.jepsen.invariants.acknowledged import Acknowledged
from fencepost.jepsen.invariants.activation_barrier import ActivationBarrier
from fencepost.jepsen.invariants.bounded_concurrency import BoundedConcurrency
from fencepost.jepsen.invariants.configuration import ConfigurationInForce
from fencepost.jepsen.invariants.equal_state import EqualState
from fencepost.jepsen.invariants.one_change_in_flight import OneChangeInFlight
from fencepost.jepsen.invariants.reads import Reads
from fencepost.jepsen.invariants.reference import Reference
from fencepost.jepsen.invariants.snapshot_equals_replay import SnapshotEqualsReplay
from fencepost.jepsen.sim.jobs import Invocation, Reply
from fencepost.raft.core.configuration import Change, ChangeKind, Configuration, encode_configuration
from fencepost.raft.core.entry import EntryKind, Snapshot
from fencepost.raft.core.events import Effects, Read, ReadReady, ReadRefused, SnapshotTaken, Tick
from fencepost.raft.core.options import Options
from fencepost.raft.core.token import FencingToken
from fencepost.raft.ports import Answer, AnswerStatus, Wait

from .scene import SECOND, Scene, persist, scene

# -- members --------------------------------------------------------------------------------------------


def configured(it: Scene, configuration: Configuration) -> Any:
    """The entry of a configuration that follows the leader's log, already handed over by the leader."""
    entry = it.next_entry(encode_configuration(configuration), kind=EntryKind.CONFIGURATION)
    it.leader.asked.take(persist([entry]))
    return entry


def test_one_change_in_flight() -> None:
    with scene() as it:
        own, raft = it.of(OneChangeInFlight), it.leader.raft
        configuration = raft.configuration._replace(learners=("n7",))
        first = configured(it, configuration)
        own.wrote(it.leader, persist([first]), it.before())
        second = first._replace(index=first.index + 1)
        it.leader.asked.take(persist([second]))
        with it.breaks(OneChangeInFlight, f"at {second.index}, and the one at {first.index} is not committed"):
            own.wrote(it.leader, persist([second]), it.before())
        with it.breaks(OneChangeInFlight, "appends configurations at"):
            own.wrote(it.leader, persist([first, second]), it.before())
        it.ledger.extend([first], 1)
        own.wrote(it.leader, persist([second]), it.before())
        raft.term_start_index = second.index + 1
        with it.breaks(
            OneChangeInFlight, f"appends a configuration at {second.index} before it has committed in its term"
        ):
            own.wrote(it.leader, persist([second]), it.before())
        own.wrote(it.follower, persist([second]), it.before())  # Whoever follows takes what it is given.


def test_configuration_in_force_is_the_newest_in_the_log() -> None:
    with scene() as it:
        own, raft = it.of(ConfigurationInForce), it.leader.raft
        own.configured(it.leader)
        entry = configured(it, raft.configuration._replace(learners=("n7",)))
        with it.breaks(ConfigurationInForce, f"the newest in its log is .*'n7'.* at {entry.index}"):
            own.configured(it.leader)
        label = Snapshot(entry.index, 1, 0, raft.configuration, 0)
        with it.breaks(
            ConfigurationInForce, f"takes a snapshot of {entry.index} with .* from index 0, and there it is .*n7"
        ):
            own.special(it.leader, it.before(), Tick(0), Effects(take_snapshot=label))


JOINT = Configuration(("n1", "n2", "n4"), outgoing=("n1", "n2", "n3"))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (Configuration(("n1", "n2", "n3")), Configuration(("n1", "n2")), ""),
        (Configuration(("n1", "n2", "n3")), JOINT, ""),
        (JOINT, Configuration(JOINT.voters, retired=("n3",)), ""),
        (Configuration(("n1", "n2", "n3")), Configuration(("n1", "n4", "n5")), "more than one voter without a joint"),
        (Configuration(("n1", "n2", "n3")), JOINT._replace(outgoing=("n1", "n2", "n5")), "other old voters"),
        (JOINT, JOINT._replace(learners=("n9",)), "follows a joint configuration with another"),
        (JOINT, Configuration(("n1", "n2", "n3")), "other voters than it was to have"),
        (Configuration(("n1",), retired=("n2",)), Configuration(("n1",)), r"forgets that \['n2'\] were removed"),
        (Configuration(("n1",), retired=("n2",)), Configuration(("n1", "n2"), retired=("n2",)), r"takes \['n2'\] back"),
    ],
)
def test_configuration_follows_from_the_one_before(before: Configuration, after: Configuration, says: str) -> None:
    with scene() as it:
        own = it.of(ConfigurationInForce)
        it.leader.asked.configurations = [(0, before)]
        entry = configured(it, after)
        if says:
            with it.breaks(ConfigurationInForce, f"the configuration at {entry.index} of {it.leader} .*{says}"):
                own.wrote(it.leader, persist([entry]), it.before())
        else:
            own.wrote(it.leader, persist([entry]), it.before())


# -- snapshots and state --------------------------------------------------------------------------------


def test_snapshot_equals_replay_where_it_becomes_state() -> None:
    with scene(options=Options(snapshot_entries=5, retained_entries=0)) as it:
        own, node = it.of(SnapshotEqualsReplay), it.follower
        snapshot = node.raft.snapshot
        assert snapshot is not None, "the world is too small to take one"
        at_end = Snapshot(it.ledger.last_index, 1, 0, node.raft.configuration, 0)
        own.restored(node, at_end)
        own.started(node)
        with it.breaks(SnapshotEqualsReplay, f"has restored a snapshot of 3 and stands at {at_end.last_index}"):
            own.restored(node, at_end._replace(last_index=3))
        node.node.registers.values["r"] = "something else"
        with it.breaks(
            SnapshotEqualsReplay, f"{node} has restored a snapshot of index {at_end.last_index} whose state"
        ):
            own.restored(node, at_end)
        with it.breaks(SnapshotEqualsReplay, f"{node} has started from a snapshot of index"):
            own.started(node)
        with it.breaks(SnapshotEqualsReplay, f"{it.leader} has .* and elsewhere the snapshot of {snapshot.last_index}"):
            own.special(it.leader, it.before(), SnapshotTaken(0, snapshot._replace(checksum=1)), Effects())
        with it.breaks(SnapshotEqualsReplay, f"takes a snapshot of 2, and its state is that of {node.applied}"):
            own.special(node, it.before(), Tick(0), Effects(take_snapshot=at_end._replace(last_index=2)))


def test_restored_states_are_looked_at() -> None:
    """The whole way: a follower that was away gets a snapshot, and is compared when it has restored it."""
    with scene(options=Options(snapshot_entries=10, retained_entries=0)) as it:
        own, away = it.of(SnapshotEqualsReplay), it.follower.name
        it.world.kill(away)
        for number in range(12):
            it.submit(f"while it is away {number}")
        heard: list[int] = []
        restored = own.restored
        it.properties._hooks["restored"].append(lambda node, snapshot: heard.append(snapshot.last_index))
        it.world.start(away)
        it.world.run_until(lambda: it.world.settled() and heard)
        assert restored in it.properties._hooks["restored"]
        assert it.ledger.nodes[away].applied == it.ledger.last_index


def test_equal_state() -> None:
    with scene() as it:
        own, index = it.of(EqualState), it.ledger.last_index
        own.finished()
        it.follower.node.registers.values["r"] = 2
        with it.breaks(EqualState, f"at index {index} {it.follower} has state .* and n./1 has"):
            own.look(it.follower, index)
        own._held.clear()
        with it.breaks(EqualState, f"at index {index} {it.follower} has state .*; replaying the log gives"):
            own.look(it.follower, index)
        own._held.clear()
        it.leader.node.machine.pending["ledger"] = dict(it.leader.node.machine.by_index)
        with it.breaks(EqualState, f"{it.leader} at index {index}: .*pending does not agree with operations"):
            own.look(it.leader, index)


def test_the_reference_goes_back_where_it_is_asked_to() -> None:
    with scene() as it:
        forward, back = Reference(it.ledger), Reference(it.ledger)
        last = it.ledger.last_index
        hashes = [forward.hash_at(index) for index in range(last + 1)]
        assert [back.hash_at(index) for index in range(last, -1, -1)] == hashes[::-1]
        assert len(set(hashes)) > last // 2
        assert forward.hash_at(last + 1) is None
        behind = Reference(it.ledger)
        behind.begin_at(last, it.follower.node.applier)
        assert behind.hash_at(last) == hashes[last]
        assert behind.hash_at(last - 1) is None


# -- reads ----------------------------------------------------------------------------------------------


def test_reads_see_what_was_committed_when_they_were_asked_for() -> None:
    with scene() as it:
        own, last, node = it.of(Reads), it.ledger.last_index, it.follower
        own.special(node, it.before(), Read(0, [7, 8, 9]), Effects(reads=[ReadReady(7, last)]))
        own.special(node, it.before(), Tick(0), Effects(reads=[ReadRefused(8, "NOT_LEADER", "")]))
        with it.breaks(
            Reads, f"{node}, term 1, lets read 9 be answered at index {last - 1}, confirmed by a quorum; {last}"
        ):
            own.special(node, it.before(), Tick(0), Effects(reads=[ReadReady(9, last - 1)]))
        with it.breaks(Reads, "answers read 9, which was not asked for or is answered"):
            own.special(node, it.before(), Tick(0), Effects(reads=[ReadReady(9, last)]))
        with it.breaks(Reads, "from its lease"):
            own.special(node, it.before(), Read(0, [10], True), Effects(reads=[ReadReady(10, 0)]))


def test_reads_are_answered_from_a_state_that_is_new_enough() -> None:
    with scene() as it:
        job = it.world.client().read("r")
        it.world.run_until(lambda: job.done)
        assert job.value == 1
        assert it.of(Reads).heard == 1
        last, invocation = it.ledger.last_index, Invocation(job, 99, "n1", 1, 0)
        for label in ({"read": {"applied_index": last - 1}}, {}, None):
            it.of(Reads).invoked(invocation)
            with it.breaks(Reads, f"n1/1 answers read r of c.* from its state as of .*{last} was committed when"):
                it.of(Reads).answered(invocation, Reply(99, label, None))
        it.of(Reads).invoked(invocation)
        it.of(Reads).answered(invocation, None)


# -- acknowledgements -----------------------------------------------------------------------------------


def test_acknowledged_is_committed_with_the_same_bytes() -> None:
    with scene() as it:
        own = it.of(Acknowledged)
        job = it.submit("another")
        invocation, answer = job.tries[-1], job.final
        own.answered(invocation, answer)
        wrong = {
            "; committed there is": answer._replace(index=answer.index - 1),
            "; committed is everything up to": answer._replace(index=999),
            "term 5.*; committed there is": answer._replace(term=5),
        }
        for says, told in wrong.items():
            with it.breaks(Acknowledged, f"told {job.client} that another is committed at index {told.index} .*{says}"):
                own.answered(invocation, told)
        with it.breaks(Acknowledged, "as failed, and before that .* as succeeded"):
            own.answered(invocation, answer._replace(state="failed"))
        job.data = b"other bytes"
        with it.breaks(Acknowledged, "; committed there is"):
            own.answered(invocation, answer)


def test_acknowledged_says_nothing_of_answers_that_promise_nothing() -> None:
    with scene() as it:
        own, job = it.of(Acknowledged), it.submit("another")
        answer: Answer = job.final._replace(index=999)
        own.answered(job.tries[-1], None)
        for status in (AnswerStatus.RETRY, AnswerStatus.REFUSED):
            own.answered(job.tries[-1], answer._replace(status=int(status)))
        own.answered(job.tries[-1], answer._replace(status=int(AnswerStatus.UNKNOWN), index=0))
        job.wait = Wait.ACCEPTED
        own.answered(job.tries[-1], answer)


def test_acknowledged_is_in_every_later_leaders_log_and_on_every_node_in_the_end() -> None:
    with scene() as it:
        own, later = it.of(Acknowledged), it.ledger.leaderships[1]._replace(term=2, name=it.follower.name)
        own.elected(it.follower, later)
        own.finished()
        index = max(own.promises)
        image = it.follower.asked
        image.entries[index - 1] = image.entries[index - 1]._replace(data=b"")
        with it.breaks(Acknowledged, f"{it.follower} leads term 2 without index {index}: n./1 told c"):
            own.elected(it.follower, later)
        own.elected(it.follower, later._replace(term=1))  # It owes nothing to its own term.
        with it.breaks(Acknowledged, f"{it.follower} does not have index {index} in the end"):
            own.finished()


def test_acknowledged_outcomes_are_those_of_the_log() -> None:
    with scene() as it:
        own = it.of(Acknowledged)
        operation = it.properties.reference.at_end().machine.operations["first at ledger"]
        operation.result = b"another"
        with it.breaks(Acknowledged, "first at ledger is committed at index .* as succeeded; in the end it is"):
            own.finished()


# -- activation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["claim", "execute"])
def test_activation_barrier(kind: str) -> None:
    with scene() as it:
        call = it.call(kind)
        it.tell(ActivationBarrier, call)
        it.tell(ActivationBarrier, call._replace(kind="fence", sent_ns=0))
        wrong = {
            "and nobody led that term": call._replace(token=call.token._replace(term=7)),
            f"and {it.leader} led that term": call._replace(node=it.follower.name),
            f"and {it.leader} led that term ": call._replace(boot=2),
            "before it has applied the no-op of that term": call._replace(sent_ns=1),
        }
        if kind == "execute":
            claim = it.call("claim")
            wrong["which no claim there was granted before"] = call._replace(sent_ns=claim.time_ns - 1)
            wrong["which no claim there was granted before "] = call._replace(holder="another")
            wrong["before it has applied its activation there"] = call._replace(sent_ns=claim.time_ns)
        for says, told in wrong.items():
            with it.breaks(ActivationBarrier, f"{told.node}/{told.boot} .*{says.strip()}"):
                it.tell(ActivationBarrier, told)


def test_no_effect_leaves_after_its_leader_has_stopped_leading() -> None:
    with scene() as it:
        own, token = it.of(ActivationBarrier), it.call().token
        own.leaving(it.leader, "ledger", token)
        for node, told in ((it.leader, FencingToken(1, 2)), (it.follower, token)):
            with it.breaks(ActivationBarrier, f"{node}, a .* of term 1, has a call leave for ledger with token {told}"):
                own.leaving(node, "ledger", told)


def test_bounded_concurrency() -> None:
    with scene() as it:
        own, client, token = it.of(BoundedConcurrency), it.leader.node.resources["ledger"], it.call().token
        client.under_way = client.concurrency
        own.leaving(it.leader, "ledger", token)
        client.under_way += 1
        with it.breaks(BoundedConcurrency, f"{it.leader} has 2 calls under way at ledger, which takes 1"):
            own.leaving(it.leader, "ledger", token)


def test_members_that_come_and_go_break_nothing() -> None:
    with scene() as it:
        it.world.add_node("n4")
        it.world.start("n4")
        for change in (ChangeKind.ADD_LEARNER, ChangeKind.ADD_VOTER, ChangeKind.REMOVE):
            it.world.run_for(SECOND)
            question = it.world.change_members(Change(change, "n4"))
            it.world.run_until(lambda question=question: not question.open)  # type: ignore[misc]
            assert question.index, question
        it.submit("afterwards")
