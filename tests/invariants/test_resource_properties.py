"""The properties of fencing, on resources' own records: each fires on a record that breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fencepost.jepsen.invariants import all_properties
from fencepost.jepsen.invariants.f1_token_order import TokenOrder
from fencepost.jepsen.invariants.f2_effect_once import EffectOnce
from fencepost.jepsen.invariants.f3_effect_committed import EffectCommitted
from fencepost.jepsen.invariants.f4_outcome_recorded import OutcomeRecorded
from fencepost.jepsen.invariants.f5_token_elected import TokenElected
from fencepost.jepsen.invariants.f6_lane_order import LaneOrder
from fencepost.jepsen.invariants.f7_first_result import FirstResult
from fencepost.jepsen.invariants.f8_mark_durable import MarkDurable
from fencepost.jepsen.invariants.f9_stale_means_higher import StaleMeansHigher
from fencepost.jepsen.sim.resource import ResourceCall
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.token import FencingToken
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import AttemptOutcome, AttemptStatus

from .scene import Scene, scene

HIGHER = FencingToken(1, 9)
LOWER = FencingToken(1, 0)
AGAIN = AttemptOutcome(AttemptStatus.SUCCEEDED, b'{"rows":1}', "", True)


def attempted(call: ResourceCall, outcome: AttemptOutcome | None = None, **parts: Any) -> ResourceCall:
    """The same call later, with its first attempt changed."""
    first = call.attempts[0]
    changed = first._replace(outcome=outcome or first.outcome, **parts)
    return call._replace(number=call.number + 100, attempts=(changed, *call.attempts[1:]))


def test_f1_no_lower_token_after_a_higher_one_and_one_holder_a_token() -> None:
    with scene() as it:
        call = it.call()
        it.tell(TokenOrder, call._replace(token=LOWER, decision="STALE_LEADER"))
        it.tell(TokenOrder, it.call(resource="keyed")._replace(token=LOWER))
        with it.breaks(TokenOrder, "of .* with token 1.0 was accepted after call 1 with token 1.1"):
            it.tell(TokenOrder, call._replace(token=LOWER))
        with it.breaks(TokenOrder, "was accepted for another, and call 1 for n"):
            it.tell(TokenOrder, call._replace(holder="another"))


def test_f1_begins_anew_where_a_resource_was_restored() -> None:
    with scene() as it:
        resource = it.world.resources["ledger"]
        backup = resource.backup()
        it.tell(TokenOrder, it.call()._replace(token=HIGHER))
        with it.breaks(TokenOrder, "was accepted after call"):
            it.tell(TokenOrder, it.call())
        resource.restore(backup)
        it.submit("after the restore")
        it.tell(TokenOrder, it.call())


@pytest.mark.parametrize("resource", ["ledger", "keyed", "naked"])
def test_f2_at_most_one_effect(resource: str) -> None:
    with scene() as it:
        call = it.call(resource=resource)
        if resource != "naked":
            it.tell(EffectOnce, attempted(call, AGAIN))
        with it.breaks(EffectOnce, f"'first at {resource}' .*took effect in call .*, and before in call {call.number}"):
            it.tell(EffectOnce, attempted(call))


def test_f2_at_a_naked_resource_no_attempt_is_carried_out_twice_nor_one_behind_a_success() -> None:
    with scene() as it:
        call, failed = it.call(resource="naked"), AttemptOutcome(AttemptStatus.RETRY, b"", "no", False)
        it.tell(EffectOnce, attempted(call, AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", "", False)))
        with it.breaks(EffectOnce, "attempt 1 of 'first at naked' .* was carried out in call .*, and before in call"):
            it.tell(EffectOnce, attempted(call, failed))
        with it.breaks(
            EffectOnce, "attempt 2 of 'first at naked' .* reached a naked resource in call .*had applied it"
        ):
            it.tell(EffectOnce, attempted(call, failed, number=2))


def test_f2_what_a_restore_has_undone_may_be_done_again() -> None:
    with scene() as it:
        resource = it.world.resources["ledger"]
        backup = resource.backup()
        it.submit("undone")
        undone, kept = it.call(), resource.calls[1]
        resource.restore(backup)
        it.tell(EffectOnce, attempted(undone))
        assert kept.attempts[0].operation_id == "first at ledger"
        with it.breaks(EffectOnce, "'first at ledger'"):
            it.tell(EffectOnce, attempted(kept))


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"operation_id": "other"}, "with .*'other'.*; committed there is"),
        ({"lane": "other"}, "with .*'other'.*; committed there is"),
        ({"digest": b"1"}, "; committed there is"),
        ({"payload_digest": b"1"}, "; committed there is"),
        ({"index": 1}, "and committed there is Entry"),
        ({"index": 999}, "and committed there is None"),
    ],
)
def test_f3_effects_are_committed_commands(parts: dict[str, Any], says: str) -> None:
    with scene() as it:
        it.tell(EffectCommitted, it.call())
        with it.breaks(EffectCommitted, f"took effect in call .* as the command at index .*{says}"):
            it.tell(EffectCommitted, attempted(it.call(), **parts))
        it.tell(EffectCommitted, attempted(it.call(), AGAIN, **parts))  # It has taken no effect.


def test_f3_knows_commands_of_before_its_log_from_the_state() -> None:
    with scene() as it:
        it.properties.reference.begin_at(it.ledger.last_index, it.follower.node.applier)
        it.ledger.begin_at(it.ledger.last_index, 1)
        it.tell(EffectCommitted, it.call())
        for parts in ({"operation_id": "other"}, {"digest": b"1"}, {"lane": ""}, {"payload_digest": b"1"}):
            with it.breaks(EffectCommitted, "and the state holds"):
                it.tell(EffectCommitted, attempted(it.call(), **parts))


@pytest.mark.parametrize(
    ("resource", "state", "effects", "error", "says"),
    [
        ("ledger", OperationState.SUCCEEDED, 1, "", ""),
        ("ledger", OperationState.SUCCEEDED, 0, "", "is succeeded after 1 attempts and took effect 0 times"),
        ("naked", OperationState.SUCCEEDED, 2, "", "took effect 2 times"),
        ("ledger", OperationState.FAILED, 0, "why", ""),
        ("ledger", OperationState.FAILED, 0, "", "no reason is on record"),
        ("ledger", OperationState.FAILED, 1, "why", "it was refused for certain"),
        ("keyed", OperationState.DEAD, 1, "why", ""),
        ("ledger", OperationState.DEAD, 1, "why", "a dead letter was certainly not applied"),
        ("naked", OperationState.IN_DOUBT, 1, "why", ""),
        ("ledger", OperationState.IN_DOUBT, 0, "why", "a fenced resource leaves nothing in doubt"),
        ("keyed", OperationState.RETRY_WAIT, 1, "why", "it has no end"),
    ],
)
def test_f4_every_command_has_an_end(resource: str, state: OperationState, effects: int, error: str, says: str) -> None:
    with scene() as it:
        own, name = it.of(OutcomeRecorded), f"first at {resource}"
        own.finished()
        operation = it.properties.reference.at_end().machine.operations[name]
        operation.state, operation.error = state, error
        own._effects[resource, name] = effects
        if says:
            with it.breaks(OutcomeRecorded, f"'{name}' .*at {it.world.resources[resource].spec.guarantee} .*{says}"):
                own.finished()
        else:
            own.finished()


def test_f4_a_deadline_may_leave_in_doubt_what_a_fenced_resource_would_recognise() -> None:
    """Recognised or not: it may not be begun any more."""
    with scene() as it:
        own = it.of(OutcomeRecorded)
        own.finished()
        operation = it.properties.reference.at_end().machine.operations["first at ledger"]
        operation.state, operation.error, operation.deadline_ns = OperationState.IN_DOUBT, "too late", 1
        own.finished()


def test_f4_what_stands_behind_one_in_doubt_has_an_excuse() -> None:
    with scene() as it:
        it.submit("second at naked", resource="naked", lane="lane")
        it.submit("no lane", resource="naked")
        own, operations = it.of(OutcomeRecorded), it.properties.reference.at_end().machine.operations
        first, second, alone = operations["first at naked"], operations["second at naked"], operations["no lane"]
        second.state = OperationState.COMMITTED
        with it.breaks(OutcomeRecorded, "'second at naked' .*it has no end"):
            own.finished()
        first.state, first.error = OperationState.IN_DOUBT, "why"
        own.finished()
        alone.state = OperationState.COMMITTED
        with it.breaks(OutcomeRecorded, "'no lane' .*it has no end"):
            own.finished()


@pytest.mark.parametrize("kind", ["claim", "execute"])
def test_f5_a_token_is_of_a_leader_whose_no_op_is_committed(kind: str) -> None:
    with scene() as it:
        call = it.call(kind, "keyed")
        it.tell(TokenElected, call)
        it.tell(TokenElected, call._replace(token=HIGHER, decision="STALE_LEADER"))
        with it.breaks(TokenElected, "was accepted, and nobody led term 9"):
            it.tell(TokenElected, call._replace(token=HIGHER))
        with it.breaks(TokenElected, f"was accepted, and {it.leader.name} led term 1"):
            it.tell(TokenElected, call._replace(node=it.follower.name))
        with it.breaks(TokenElected, "was accepted; its incarnation is 1"):
            it.tell(TokenElected, call._replace(token=FencingToken(2, 1)))
        del it.ledger.no_ops[1]
        with it.breaks(TokenElected, "the no-op of term 1 at index 1 is not committed"):
            it.tell(TokenElected, call)


def test_f6_lanes_in_log_order() -> None:
    with scene() as it:
        call = it.call()
        index = call.attempts[0].index
        it.tell(LaneOrder, attempted(call, AGAIN))
        it.tell(LaneOrder, attempted(call, lane="other"))
        it.tell(LaneOrder, attempted(call, lane=""))
        it.tell(LaneOrder, attempted(call, index=index + 5, operation_id="later"))
        with it.breaks(
            LaneOrder, f"'earlier' of lane 'lane', index {index + 4}, took effect in .* after 'later', index"
        ):
            it.tell(LaneOrder, attempted(call, index=index + 4, operation_id="earlier"))


def test_f7_a_repetition_gets_the_first_result() -> None:
    with scene() as it:
        call = it.call()
        it.tell(FirstResult, attempted(call, AGAIN))
        with it.breaks(FirstResult, "'first at ledger' is answered with b'2' in call .*, and its first result was"):
            it.tell(FirstResult, attempted(call, AGAIN._replace(result=b"2")))
        with it.breaks(FirstResult, "'new' is no repetition, and is answered as one in call"):
            it.tell(FirstResult, attempted(call, AGAIN, operation_id="new"))


def test_f8_the_mark_is_durable() -> None:
    with scene() as it:
        own, store = it.of(MarkDurable), it.world.resources["ledger"].store
        it.world.resources["ledger"].restart()
        it.submit("after a restart")
        own.finished()
        with it.breaks(MarkDurable, "after call .* resource ledger has 1.1 stored, and in call .* it has let 1.9 in"):
            it.tell(MarkDurable, it.call()._replace(token=HIGHER))
        own.resource_restored(it.world.resources["ledger"])
        store.fences.clear()
        with it.breaks(MarkDurable, "in the end resource ledger has nothing stored"):
            own.finished()


def test_f9_stale_only_where_a_higher_token_was_let_in() -> None:
    with scene() as it:
        refused = it.call()._replace(decision="STALE_LEADER", token=LOWER)
        it.tell(StaleMeansHigher, refused)
        it.tell(StaleMeansHigher, refused._replace(decision="UNAVAILABLE", token=HIGHER))
        with it.breaks(StaleMeansHigher, "was refused as STALE_LEADER, and the highest let in before is 1.1"):
            it.tell(StaleMeansHigher, refused._replace(token=HIGHER))
        duplicate = refused._replace(decision="DUPLICATE_GENERATION", token=it.call().token)
        it.tell(StaleMeansHigher, duplicate._replace(holder="another"))
        with it.breaks(StaleMeansHigher, "was refused as DUPLICATE_GENERATION, and the highest"):
            it.tell(StaleMeansHigher, duplicate)
        with it.breaks(StaleMeansHigher, "by a keyed resource"):
            it.tell(StaleMeansHigher, refused._replace(resource="keyed"))
        it.of(StaleMeansHigher)._highest.clear()
        with it.breaks(StaleMeansHigher, "and no token was let in before"):
            it.tell(StaleMeansHigher, refused)


@contextmanager
def with_a_past() -> Iterator[Scene]:
    """A world whose ledger remembers another life, with a leader of term 3 as its newest one."""
    with scene() as it:
        past = it.world.resources["ledger"].backup()
    with World(3, 3) as world:
        resource = world.resources["ledger"]
        resource.restore(past)
        resource.events.clear()
        stored = resource.store.fences["ledger"]
        resource.store.fences["ledger"] = stored._replace(token=FencingToken(1, 3))
        properties = all_properties(world)
        world.start_all()
        world.run_until(lambda: world.elect().raft.current_term > 3)
        yield Scene(world, properties)


def test_resources_may_have_a_past() -> None:
    """What stands in a resource when the world begins was let in and done before."""
    with with_a_past() as it:
        calls = it.world.resources["ledger"].calls
        assert calls[0].decision == "STALE_LEADER"
        assert calls[-1].token.term > 3
        for kind in (TokenOrder, EffectOnce, OutcomeRecorded, LaneOrder, FirstResult, MarkDurable, StaleMeansHigher):
            it.of(kind).finished()
        it.submit("in this life", lane="lane")
        with it.breaks(EffectOnce, "'first at ledger' .*, and before in call 0"):
            it.tell(EffectOnce, attempted(it.call(), operation_id="first at ledger"))
