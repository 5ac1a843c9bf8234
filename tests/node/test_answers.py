"""What clients hear: four answers and no others, each exactly once (concepts: The four answers)."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.raft.core.options import MILLISECOND, Options
from fencepost.raft.node import queries
from fencepost.raft.outbox.codec import PAYLOAD_BYTES_MAX, Command, encode
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import AnswerStatus, SubmitRequest, Wait

from .world import ELECTION_S, FakeConnection, ResourceSpec, SimNode, World


def test_waits_accepted_committed_done() -> None:
    with World(seed=1) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        (accepted,) = world.submit(leader, "a", wait=Wait.ACCEPTED)
        (committed,) = world.submit(leader, "b", wait=Wait.COMMITTED)
        (done,) = world.submit(leader, "c", wait=Wait.DONE)
        answer = world.answer(accepted)
        assert (answer.status, answer.state, answer.term) == (AnswerStatus.DONE, "accepted", 1)
        assert answer.index > 0
        answer = world.answer(committed)
        assert answer.status == AnswerStatus.DONE
        assert answer.state in (OperationState.COMMITTED, OperationState.DISPATCHED)
        world.advance(2.0)
        assert done not in world.connection.answers
        leader.resource.hold_before = False
        leader.resource.release()
        answer = world.answer(done)
        assert (answer.status, answer.state, answer.result) == (AnswerStatus.DONE, "succeeded", b'{"rows":1}')
        assert answer.index == leader.operation("c").index
        assert not answer.replayed
        world.settle()
        for request in (accepted, committed, done):
            world.connection.only(request)


def test_accepted_is_answered_once_also_when_it_turns_out_a_replay_or_a_reuse() -> None:
    """S34 (ii): both are in flight before either is applied."""
    with World(seed=2) as world:
        leader = world.active_leader()
        first = world.submit(leader, "a", wait=Wait.ACCEPTED)
        again = world.submit(leader, "a", wait=Wait.ACCEPTED)
        other = world.submit(leader, "a", wait=Wait.ACCEPTED, payload=b'{"x":1}')
        world.advance(1.0)
        for request in first + again + other:
            assert world.connection.only(request).state == "accepted"
        world.check_store()
        (now,) = world.submit(leader, "a", wait=Wait.ACCEPTED)
        assert world.answer(now).replayed


def test_answers_of_one_turn_leave_in_one_frame() -> None:
    with World(seed=3) as world:
        leader = world.active_leader()
        requests = world.submit(leader, *[f"a{number}" for number in range(50)], wait=Wait.COMMITTED)
        world.until(lambda: world.answered(requests))
        assert [len(frame) for frame in world.connection.frames] == [50]


@pytest.mark.parametrize("wait", [Wait.COMMITTED, Wait.DONE])
def test_replays_before_and_after_it_is_done(wait: Wait) -> None:
    """S33: the same command again joins the one that runs, then hears its stored answer; on any node."""
    with World(seed=4) as world:
        leader = world.active_leader()
        follower = next(node for node in world.up() if node is not leader)
        leader.resource.hold_before = True
        first = world.submit(leader, "a", wait=wait)
        world.until(lambda: leader.resource.held)
        again = world.submit(leader, "a", wait=wait)
        world.advance(0.1)
        leader.resource.hold_before = False
        leader.resource.release()
        answer = world.answer(first[0])
        joined = world.answer(again[0])
        assert (answer.replayed, joined.replayed) == (False, True)
        assert joined.index == answer.index
        world.settle()
        for node in (leader, follower):
            later = world.answer(world.submit(node, "a", wait=wait)[0])
            assert (later.status, later.replayed, later.state) == (AnswerStatus.DONE, True, "succeeded")
            assert later.result == b'{"rows":1}'
        assert [operation.operation_id for operation in world.specs[0].store.operations] == ["a"]


def test_s34_same_id_with_another_payload_is_refused_while_it_runs_and_after() -> None:
    with World(seed=5) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        first = world.submit(leader, "k", payload=b'{"p":1}')
        in_flight = world.submit(leader, "k", payload=b'{"p":2}')
        world.until(lambda: leader.resource.held)
        running = world.submit(leader, "k", payload=b'{"p":2}')
        leader.resource.hold_before = False
        leader.resource.release()
        assert world.answer(first[0]).status == AnswerStatus.DONE
        after = world.submit(leader, "k", payload=b'{"p":2}')
        lane = world.submit(leader, "k", payload=b'{"p":1}', lane="other")
        for request in in_flight + running + after + lane:
            answer = world.answer(request)
            assert (answer.status, answer.code) == (AnswerStatus.REFUSED, "OPERATION_ID_REUSED")
        assert len(world.specs[0].store.operations) == 1


def test_s34_same_id_at_two_nodes_at_once_is_one_effect() -> None:
    """The ex-leader's copy and the new leader's copy both commit; apply decides."""
    with World(seed=6) as world:
        leader = world.active_leader()
        # Both copies enter one log: the second before the first is applied.
        requests = world.submit(leader, "k") + world.submit(leader, "k")
        answers = [world.answer(request) for request in requests]
        assert sorted(answer.replayed for answer in answers) == [False, True]
        assert len({answer.index for answer in answers}) == 1
        world.settle()
        world.check_store()
        assert len(world.specs[0].store.operations) == 1


@pytest.mark.parametrize("when", ["before it is appended", "before it is committed", "before it is done"])
def test_s32_connection_lost_before_the_answer_and_the_same_id_again(when: str) -> None:
    """S32, the server's side: the effect happens once, and the same id hears its result."""
    with World(seed=24) as world:
        leader = world.active_leader()
        if when == "before it is done":
            leader.resource.hold_before = True
        gone = FakeConnection()
        world.submit(leader, "a", connection=gone)
        if when == "before it is committed":
            world.until(lambda: leader.raft.log.last_index > leader.raft.commit_index)
        elif when == "before it is done":
            world.until(lambda: leader.resource.held)
        leader.process.call_soon(leader.service.closed, gone)
        world.advance(0.01)
        leader.resource.hold_before = False
        leader.resource.release()
        (again,) = world.done(leader, "a")
        assert (again.state, again.result, again.replayed) == ("succeeded", b'{"rows":1}', True)
        world.settle()
        assert len(world.specs[0].store.operations) == 1
        assert not leader.service._answers
        assert not leader.service._done_waiters


def test_a_follower_refuses_with_the_leaders_address() -> None:
    with World(seed=7) as world:
        leader = world.active_leader()
        follower = next(node for node in world.up() if node is not leader)
        answer = world.answer(world.submit(follower, "a")[0])
        assert (answer.status, answer.code) == (AnswerStatus.RETRY, "NOT_LEADER")
        assert answer.detail == f"address-of-{leader.name}"
        answer = world.answer(world.propose(follower, b"x")[0])
        assert (answer.status, answer.code) == (AnswerStatus.RETRY, "NOT_LEADER")


def test_s31_committed_by_another_after_the_leader_was_cut_off() -> None:
    """S31: X reached n2, n1 is cut off and steps down; n2 commits X. n1's client hears unknown, the
    same id on n2 returns the first result, effect count 1."""
    with World(seed=8) as world:
        old = world.active_leader()
        peer = next(node for node in world.up() if node is not old)
        requests = world.submit(old, "x") + world.submit(old, "y", wait=Wait.COMMITTED)
        world.until(lambda: peer.raft.log.last_index == old.raft.log.last_index > old.raft.commit_index)
        world.isolate(old.name)
        new = world.active_leader(other_than=old.name)
        for request in requests:
            answer = world.answer(request)
            assert (answer.status, answer.code) == (AnswerStatus.UNKNOWN, "OUTCOME_UNKNOWN")
        (again,) = world.done(new, "x")
        assert again.replayed
        world.heal()
        world.settle()
        world.check_equal()
        world.check_store()
        assert sorted(each.operation_id for each in world.specs[0].store.operations) == ["x", "y"]


def test_s44_lost_when_another_entry_is_committed_in_its_place() -> None:
    with World(seed=9) as world:
        old = world.active_leader()
        world.isolate(old.name)
        lost = world.submit(old, "x") + world.submit(old, "y", wait=Wait.COMMITTED) + world.propose(old, b"z")
        (accepted,) = world.submit(old, "w", wait=Wait.ACCEPTED)
        world.advance(0.01)
        new = world.active_leader(other_than=old.name)
        world.heal()
        # More entries than were lost, so that every index is decided.
        world.done(new, *[f"n{number}" for number in range(6)])
        for request in lost:
            answer = world.answer(request)
            assert (answer.status, answer.code) == (AnswerStatus.RETRY, "LEADERSHIP_LOST")
        assert world.connection.only(accepted).state == "accepted"
        world.settle()
        assert "x" not in new.machine.operations


def test_s44_unknown_within_the_bound_when_nothing_decides() -> None:
    with World(seed=10) as world:
        old = world.active_leader()
        world.isolate(old.name)
        requests = world.submit(old, "x") + world.propose(old, b"z")
        world.until(lambda: world.answered(requests), within_s=6 * ELECTION_S)
        assert {world.connection.only(request).status for request in requests} == {AnswerStatus.UNKNOWN}
        assert len(old.loop.waiters) == 0


def test_s44_done_waiters_end_at_step_down_or_hear_the_successors_outcome() -> None:
    with World(seed=11) as world:
        old = world.active_leader()
        old.resource.hold_before = True
        (request,) = world.submit(old, "x")
        world.until(lambda: old.resource.held)
        old.loop.step_down("test")
        # The ex-leader follows the new one and hears the outcome from the log.
        answer = world.answer(request)
        assert (answer.status, answer.state) == (AnswerStatus.DONE, "succeeded")
        old = world.active_leader()
        old.resource.hold_before = True
        (request,) = world.submit(old, "y")
        world.until(lambda: old.resource.held)
        world.isolate(old.name)
        answer = world.answer(request)
        assert (answer.status, answer.code) == (AnswerStatus.UNKNOWN, "OUTCOME_UNKNOWN")
        assert answer.index == old.operation("y").index


def test_s44_many_step_downs_leave_no_waiter() -> None:
    with World(seed=12) as world:
        requests: list[int] = []
        for number in range(40):
            leader = world.leader()
            requests += world.submit(leader, f"a{number}", f"b{number}")
            requests += world.submit(leader, f"c{number}", wait=Wait.COMMITTED) + world.propose(leader, b"p")
            world.advance(0.0015)
            leader.loop.step_down("test")
            world.advance(0.01)
        world.until(lambda: world.answered(requests), within_s=10.0)
        world.active_leader()
        world.settle()
        for node in world.up():
            assert len(node.loop.waiters) == 0
            assert not node.service._done_waiters
            assert not node.service._answers
        for request in requests:
            world.connection.only(request)
        world.check_store()
        world.check_equal()


def test_done_waiters_of_closed_connections_are_forgotten() -> None:
    """A command may stay open for as long as its resource is away; who asked for it may not."""
    with World(seed=13) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        stays = FakeConnection()
        (kept,) = world.submit(leader, "a", connection=stays)
        world.until(lambda: leader.resource.held)
        for _ in range(30):
            gone = FakeConnection()
            world.submit(leader, "a", "b", connection=gone)
            world.advance(0.01)
            leader.process.call_soon(leader.service.closed, gone)
        world.advance(0.01)
        assert [len(waiters) for waiters in leader.service._done_waiters.values()] == [1]
        leader.resource.hold_before = False
        leader.resource.release()
        world.until(lambda: kept in stays.answers)
        assert stays.only(kept).status == AnswerStatus.DONE
        world.settle()
        assert not leader.service._done_waiters


def test_busy_is_a_definite_refusal_and_the_leaders_own_entries_pass() -> None:
    options = Options(
        election_timeout=300 * MILLISECOND,
        heartbeat_interval=50 * MILLISECOND,
        stall_bound=300 * MILLISECOND,
        uncommitted_bytes_max=2000,
    )
    with World(seed=14, options=options) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        world.submit(leader, "before", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        for other in world.voters:
            if other != leader.name:
                world.nodes[other].log_store.stick()
        # Nothing is acknowledged by the others for a while: what is appended stays uncommitted.
        first = world.submit(leader, "big", payload=b'"' + b"x" * 3000 + b'"')
        world.advance(0.01)
        second = world.submit(leader, "more")
        plain = world.propose(leader, b"p")
        leader.resource.release()
        world.advance(0.02)
        for request in second + plain:
            answer = world.connection.only(request)
            assert (answer.status, answer.code) == (AnswerStatus.RETRY, "BUSY")
        leader.resource.hold_before = False
        for other in world.voters:
            world.nodes[other].log_store.unstick()
        assert world.answer(first[0]).status == AnswerStatus.DONE
        world.until(lambda: leader.operation("before").state is OperationState.SUCCEEDED)
        world.done(leader, "more")


def test_too_many_open_commands_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.raft.node.service.PENDING_MAX", 2)
    with World(seed=15) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        world.submit(leader, "a", "b")
        world.until(lambda: leader.resource.held)
        answer = world.answer(world.submit(leader, "c")[0])
        assert (answer.status, answer.code) == (AnswerStatus.RETRY, "BUSY")
        # What is known already costs nothing more.
        (joins,) = world.submit(leader, "a", wait=Wait.COMMITTED)
        assert world.answer(joins).replayed


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x02\x90",
        b"\x01\x01",
        b"\x01\x01\xff",
        b"\x09\x01\x95",
        b"\x01\x01\x95\xa1\xff\xa0\xa0\xa0\xc4\x00",
    ],
)
def test_submissions_that_are_none_are_refused_and_the_rest_of_the_frame_is_taken(data: bytes) -> None:
    with World(seed=16) as world:
        leader = world.active_leader()
        good = encode(Command("good", "ledger", "credit", "", b"{}"))
        requests = [SubmitRequest(1001, int(Wait.DONE), data), SubmitRequest(1002, int(Wait.DONE), good)]
        leader.process.call_soon(leader.service.submit, world.connection, requests)
        answer = world.answer(1001)
        assert (answer.status, answer.code) == (AnswerStatus.REFUSED, "COMMAND_INVALID")
        assert world.answer(1002).status == AnswerStatus.DONE
        leader.process.call_soon(leader.service.submit, world.connection, [])
        world.advance(1.0)
        assert leader.leads


def test_empty_and_oversize_proposals_end_no_node() -> None:
    """A frame of no acceptable proposal makes no batch: an empty one would decide nothing and be looked at."""
    with World(seed=17) as world:
        leader = world.active_leader()
        (large,) = world.propose(leader, b"x" * (PAYLOAD_BYTES_MAX + 1))
        leader.process.call_soon(leader.service.propose, world.connection, [])
        leader.process.call_soon(leader.loop.propose, 3, [], leader.service._proposals, [])
        answer = world.answer(large)
        assert (answer.status, answer.code) == (AnswerStatus.REFUSED, "COMMAND_INVALID")
        (fine,) = world.propose(leader, b"x")
        answer = world.answer(fine)
        assert (answer.status, answer.term) == (AnswerStatus.DONE, 1)
        world.settle()
        assert all(not node.loop.failed.done() and node.plain.entries == 1 for node in world.up())


def test_a_lone_node_serves() -> None:
    with World(voters=("n1",), seed=18) as world:
        leader = world.active_leader()
        world.done(leader, "a", "b")
        world.check_store()


# -- questions ------------------------------------------------------------------------------------


def test_a_command_whose_effect_is_unknown_here_waits_and_says_why() -> None:
    with World(seed=19) as world:
        leader = world.active_leader()
        world.answer(world.submit(leader, "odd", effect="debit", wait=Wait.COMMITTED)[0])
        world.answer(world.submit(leader, "lost", resource="elsewhere", wait=Wait.COMMITTED)[0])
        world.done(leader, "fine")
        for operation_id, words in (("odd", "no effect 'debit'"), ("lost", "no resource 'elsewhere'")):
            body = _reply(world, world.call(leader, "command.get", id=operation_id))
            assert body["state"] == "committed"
            assert words in body["waiting_reason"]
        assert _reply(world, world.call(leader, "command.get", id="fine"))["waiting_reason"] == ""
        # A misspelt resource has no row of its own to be counted in.
        assert _reply(world, world.call(leader, "status"))["undefined"] == {"elsewhere": 1}


def test_status_and_events_tell_of_elections_and_activations() -> None:
    with World(seed=20) as world:
        leader = world.active_leader()
        world.done(leader, "a")
        world.settle()
        body = _reply(world, world.call(leader, "status"))
        assert (body["role"], body["leader"], body["confirmed"]) == ("leader", leader.name, True)
        resource = body["resources"]["ledger"]
        assert (resource["activation"], resource["token"]) == ("active", {"incarnation": "1", "term": "1"})
        assert (resource["pending"], resource["in_flight"]) == (0, 0)
        stages = [stage["stage"] for stage in body["last_election"]["stages"]]
        assert stages == ["detect", "elect", "catch-up", "fence", "reconcile", "first-effect"]
        events = _reply(world, world.call(leader, "events"))
        assert [each["holder"] for each in events["activations"]] == [f"{leader.name}/1"]
        after = events["activations"][0]["index"]
        assert _reply(world, world.call(leader, "events", after_index=after))["activations"] == []


def test_slow_questions_are_answered_later_and_within_a_bound() -> None:
    with World(ResourceSpec("one"), ResourceSpec("two"), seed=21) as world:
        leader = world.active_leader()
        request = world.call(leader, "resource.fences")
        world.until(lambda: request in world.connection.replies)
        body = world.connection.replies[request]["resources"]
        assert list(body) == ["one", "two"]
        assert body["one"]["token"] == {"incarnation": "1", "term": "1"}

        async def never() -> Any:
            await leader.process.create_future()

        leader.resources["two"].fence = never  # type: ignore[method-assign]
        world.specs[0].store.down = True
        request = world.call(leader, "resource.fences")
        world.until(lambda: request in world.connection.replies, within_s=15.0)
        body = world.connection.replies[request]["resources"]
        assert "is down" in body["one"]["error"]
        assert "no answer within" in body["two"]["error"]


@pytest.mark.parametrize(
    ("method", "parameters", "code"),
    [
        ("no.such", {}, "NOT_FOUND"),
        ("command.get", {}, "NOT_FOUND"),
        ("command.get", {"id": ["a"]}, "NOT_FOUND"),
        ("command.get", {"id": "a", "consistency": "strong"}, "COMMAND_INVALID"),
        ("command.get", {"id": "a", "consistency": ["stale"]}, "COMMAND_INVALID"),
        ("command.list", {"state": "odd"}, "COMMAND_INVALID"),
        ("command.list", {"state": ["odd"]}, "COMMAND_INVALID"),
        ("command.list", {"limit": "many"}, "COMMAND_INVALID"),
        ("command.list", {"limit": float("inf")}, "COMMAND_INVALID"),
        ("command.list", {"after_index": {}}, None),
        ("events", {"after_index": float("nan")}, "COMMAND_INVALID"),
        ("events", {"after_index": [1]}, "COMMAND_INVALID"),
    ],
)
def test_bad_parameters_are_the_callers_error(method: str, parameters: dict[str, Any], code: str | None) -> None:
    with World(seed=22) as world:
        leader = world.active_leader()
        request = world.call(leader, method, **parameters)
        world.advance(0.01)
        if code is None:
            assert request in world.connection.replies
        else:
            assert world.connection.errors[request].code == code
        assert not leader.loop.failed.done()


def test_commands_are_listed_page_by_page_in_log_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "LIST_SCAN_MAX", 7)
    with World(ResourceSpec("one"), ResourceSpec("two"), seed=25) as world:
        leader = world.active_leader()
        for number in range(25):
            world.done(leader, f"op{number}", resource=("one", "two")[number % 2])
        cases: list[tuple[dict[str, Any], range]] = [
            ({}, range(25)),
            ({"resource": "two"}, range(1, 25, 2)),
            ({"state": "dead"}, range(0)),
        ]
        for filters, expected in cases:
            found: list[str] = []
            after = pages = 0
            while pages == 0 or after:
                page = world.reply(leader, "command.list", limit=5, after_index=after, **filters)
                assert len(page["commands"]) <= 5
                found += [each["id"] for each in page["commands"]]
                after, pages = page["next_after"], pages + 1
            assert found == [f"op{number}" for number in expected]
            assert pages >= 4


def test_s29_s30_only_who_knows_says_that_there_is_no_such_command() -> None:
    """Told "not found", a submitter does it again under another id. Whoever cannot know must not say it."""
    with World(seed=24) as world:

        def code(node: SimNode, operation_id: str, **parameters: Any) -> str:
            request = world.call(node, "command.get", id=operation_id, **parameters)
            world.until(lambda: request in world.connection.errors)
            return world.connection.errors[request].code

        old = world.active_leader()
        follower = next(node for node in world.up() if node is not old)
        assert code(old, "never") == code(follower, "never") == "NOT_FOUND"
        assert code(old, "never", consistency="stale") == "NOT_FOUND", "its lease says that it knows"
        assert code(follower, "never", consistency="stale") == "NOT_LEADER"
        world.isolate(old.name)
        new = world.active_leader(other_than=old.name)
        world.done(new, "a")
        assert code(old, "a") == code(old, "a", consistency="stale") == "NOT_LEADER"
        # Committed by the leader that died, and its successor has only just been elected.
        world.heal()
        world.settle()
        world.crash(new.name)
        world.until(lambda: any(node.leads for node in world.up()))
        elected = next(node for node in world.up() if node.leads)
        assert elected.applier.last_applied < elected.raft.term_start_index
        elected.service.call(world.connection, 10_000, "command.get", {"id": "never", "consistency": "stale"})
        assert world.connection.errors[10_000].code == "NOT_LEADER"
        elected.service.call(world.connection, 10_001, "command.get", {"id": "never"})
        world.advance(0.0005)
        assert 10_001 not in world.connection.errors, "answered before the barrier"
        world.active_leader()
        assert world.connection.errors[10_001].code == code(elected, "never") == "NOT_FOUND"


def test_a_question_with_a_bug_is_answered_and_ends_nothing() -> None:
    with World(seed=23) as world:
        leader = world.active_leader()

        def broken(*_: Any) -> Any:
            raise KeyError("bug")

        leader.service.desk.queries["broken"] = broken
        leader.service.desk.slow_queries["slow"] = broken
        for method in ("broken", "slow"):
            request = world.call(leader, method)
            world.advance(0.01)
            assert world.connection.errors[request].code == "INTERNAL"
        assert [line["method"] for line in world.logged("query raised")] == ["broken", "slow"]
        world.done(leader, "a")


def _reply(world: World, request: int) -> Any:
    world.until(lambda: request in world.connection.replies or request in world.connection.errors)
    return world.connection.replies[request]


def test_a_node_without_a_leader_says_who_led_last_and_when_it_was_heard() -> None:
    with World(seed=31) as world:
        leader = world.active_leader()
        one, other = [node for node in world.up() if node is not leader]
        assert status_of(world, one)["last_leader"] is None
        world.crash(leader.name)
        world.crash(other.name)
        world.advance(10.0)
        last = status_of(world, one)["last_leader"]
        assert last["node"] == leader.name
        assert 9.0 < last["heard_s_ago"] < 11.0


def status_of(world: World, node: SimNode) -> dict[str, Any]:
    request = world.call(node, "status")
    world.advance(0.01)
    body: dict[str, Any] = world.connection.replies[request]
    return body
