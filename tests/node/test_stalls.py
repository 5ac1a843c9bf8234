"""A node that cannot make progress gives up its authority; one that is broken says so and stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import StorageError, UnknownEntry
from fencepost.raft.core.options import MILLISECOND, Options
from fencepost.raft.effects.activation import ActivationState
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import AnswerStatus, Wait

from .world import ELECTION_S, ResourceSpec, World


def test_s07_leader_whose_disk_hangs_is_replaced_and_acts_no_more() -> None:
    """S07: the write never completes; another node leads within five timeouts, waiting clients hear
    'unknown', and nothing is executed under the old token any more."""
    with World(seed=7) as world:
        old = world.active_leader()
        world.done(old, "before")
        old.log_store.stick()
        waiting = world.submit(old, "a", "b") + world.submit(old, "c", wait=Wait.COMMITTED)
        world.advance(0.05)
        new = world.active_leader(other_than=old.name, within_s=5 * ELECTION_S)
        world.done(new, "after")
        assert not old.leads
        assert old.effects.status()["ledger"]["activation"] == "follower"
        sent = len(old.resource.batches)
        answers = [world.answer(request, within_s=5 * ELECTION_S) for request in waiting]
        # a, b and c reached the others before the disk was missed: they may be done, lost or unknown,
        # but none may be promised: the old leader never applies them while its disk hangs.
        assert {answer.status for answer in answers} == {AnswerStatus.UNKNOWN}
        world.advance(5 * ELECTION_S)
        assert len(old.resource.batches) == sent
        assert len(old.loop.waiters) == 0
        old.log_store.unstick()
        world.settle()
        world.check_equal()
        world.check_store()


def test_s07_short_stall_costs_no_leadership() -> None:
    with World(seed=1) as world:
        leader = world.active_leader()
        term = leader.raft.current_term
        leader.log_store.stick()
        requests = world.submit(leader, "a")
        world.advance(0.3 * ELECTION_S)
        leader.log_store.unstick()
        assert world.answer(requests[0]).status == AnswerStatus.DONE
        world.advance(2.0)
        assert leader.leads
        assert leader.raft.current_term == term


def test_s40_loop_that_stalled_gives_up_before_any_effect() -> None:
    """S40: the process stands still for three timeouts with commands ready to go; on waking it
    executes nothing under its old token."""
    with World(seed=3) as world:
        old = world.active_leader()
        token = old.effects.token
        world.pause(old.name)
        world.submit(old, "late")  # Arrives while it stands still, is read when it wakes.
        new = world.active_leader(other_than=old.name)
        world.advance(3 * ELECTION_S)
        sent = len(old.resource.batches)
        world.resume(old.name)
        world.advance(1.0)
        assert len(old.resource.batches) == sent
        assert not old.leads
        assert old.loop.longest_lag_ns > 3 * ELECTION_S * 1e9
        assert new.leads
        assert all(operation.token != token for operation in world.specs[0].store.operations)


@pytest.mark.parametrize("isolated", [False, True])
def test_s40_lease_is_not_believed_after_a_stall(isolated: bool) -> None:
    """Also when no other node took over: the stall itself costs the authority."""
    with World(seed=4) as world:
        leader = world.active_leader()
        authority = leader.effects._tenure.authority  # type: ignore[union-attr]
        assert authority.valid()
        for name in world.voters:
            if name != leader.name:
                world.pause(name)
        if isolated:
            world.isolate(leader.name)
        world.pause(leader.name)
        world.advance(1.5 * ELECTION_S)
        assert not authority.valid(), "judged by the clock at call time, before any tick"
        world.resume(leader.name)
        world.advance(0.05)
        assert authority.revoked


def test_s40_a_stall_beyond_its_bound_costs_the_leadership_although_the_lease_still_holds() -> None:
    options = Options(
        election_timeout=300 * MILLISECOND, heartbeat_interval=50 * MILLISECOND, stall_bound=100 * MILLISECOND
    )
    with World(seed=15, options=options) as world:
        leader = world.active_leader()
        world.pause(leader.name)
        world.advance(0.2)
        assert leader.raft.holds_lease(leader.clock.monotonic_ns())
        world.resume(leader.name)
        world.advance(0.02)
        assert not leader.leads
        assert world.logged("event loop stalled")
        world.active_leader()


def test_s12_failed_storage_ends_the_node_and_its_waiters_hear_unknown() -> None:
    with World(seed=5) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        done = world.submit(leader, "committed")
        world.until(lambda: leader.resource.held)
        leader.log_store.stick()
        waiting = world.submit(leader, "a") + world.submit(leader, "b", wait=Wait.COMMITTED)
        plain = world.propose(leader, b"entry")
        world.advance(0.01)
        error = StorageError("fsync failed")
        leader.log_store.fail(error)
        world.advance(0.01)
        assert leader.loop.failed.result() is error
        for request in done + waiting + plain:
            assert world.connection.only(request).status == AnswerStatus.UNKNOWN
        assert leader.effects.token is None
        # Whatever comes now is certainly not taken, and is told so.
        late = world.submit(leader, "late") + world.propose(leader, b"late")
        joins = world.submit(leader, "committed")
        world.advance(0.01)
        assert [world.connection.only(request).status for request in late] == [AnswerStatus.RETRY] * 2
        assert world.connection.only(joins[0]).status == AnswerStatus.UNKNOWN
        sent = len(leader.resource.batches)
        leader.resource.hold_before = False
        world.crash(leader.name)
        new = world.active_leader(other_than=leader.name)
        world.done(new, "a", "b", "late", "committed")
        assert len(leader.resource.batches) == sent
        world.check_store()


class Broken(RuntimeError):
    pass


def _raise(*_: object, **__: object) -> Any:
    raise Broken


def _observer(world: World, node: Any) -> None:
    node.service.applied = _raise


def _role_observer(world: World, node: Any) -> None:
    node.effects.role_changed = _raise
    node.loop.step_down("for the test")


def _turn_observer(world: World, node: Any) -> None:
    node.effects.before_turn_ends = _raise


def _apply(world: World, node: Any) -> None:
    node.applier._apply[EntryKind.OUTBOX] = _raise


def _accepted(world: World, node: Any) -> None:
    node.service._submissions.accepted = _raise


def _applied_sink(world: World, node: Any) -> None:
    node.service._submissions.applied = _raise


def _transport(world: World, node: Any) -> None:
    node.loop.transport.send = _raise


def _log_store(world: World, node: Any) -> None:
    node.log_store.append = _raise


def _connection(world: World, node: Any) -> None:
    world.connection.answer = _raise  # type: ignore[method-assign]


def _execution(world: World, node: Any) -> None:
    node.effects._tenure._seats["ledger"].dispatcher._executed = _raise


def _outcome_sink(world: World, node: Any) -> None:
    node.effects._tenure._seats["ledger"].dispatcher._outcomes.applied = _raise


def _claim_timer(world: World, node: Any) -> None:
    node.effects._tenure._claim = _raise
    world.specs[0].store.down = True


def _expiry(world: World, node: Any) -> None:
    node.loop.waiters.expire = _raise


@pytest.mark.parametrize(
    "plant",
    [
        _observer,
        _role_observer,
        _turn_observer,
        _apply,
        _accepted,
        _applied_sink,
        _transport,
        _log_store,
        _connection,
        _execution,
        _outcome_sink,
        _claim_timer,
        _expiry,
    ],
)
def test_s41_whatever_raises_ends_the_node_loudly(plant: Callable[[World, Any], None]) -> None:
    """S41: observer, apply, sink, completion or timer: within a second the node is marked failed, has
    no authority, and the others go on."""
    with World(seed=6) as world:
        leader = world.active_leader()
        plant(world, leader)
        world.submit(leader, "a")
        world.until(lambda: leader.loop.failed.done(), within_s=1.0, what="failure")
        assert isinstance(leader.loop.failed.result(), Broken | AssertionError)
        assert leader.loop.stopped
        assert leader.effects.token is None
        assert not leader.loop.holds_lease()
        world.crash(leader.name)
        world.specs[0].store.down = False
        new = world.active_leader(other_than=leader.name)
        connection = type(world.connection)()
        (request,) = world.submit(new, "b", connection=connection)
        world.until(lambda: request in connection.answers)
        assert connection.only(request).status == AnswerStatus.DONE


def test_s59_apply_that_raises_stops_before_the_entry_on_every_node() -> None:
    """S59 (ii): no node skips the entry, none looks healthy, none leads."""
    with World(seed=8) as world:
        leader = world.active_leader()
        world.done(leader, "fine")
        for node in world.up():
            original = node.applier._apply[EntryKind.OUTBOX]

            def apply(entry: Entry, original: Callable[[Entry], Any] = original) -> Any:
                if b"poison" in entry.data:
                    raise ZeroDivisionError
                return original(entry)

            node.applier._apply[EntryKind.OUTBOX] = apply
        (request,) = world.submit(leader, "poison")
        # The last one cannot commit the entry alone; it stays before it, too.
        world.until(lambda: sum(node.loop.failed.done() for node in world.up()) == 2, within_s=3.0)
        world.advance(3.0)
        for node in world.up():
            if node.loop.failed.done():
                assert isinstance(node.loop.failed.result(), ZeroDivisionError)
                assert node.raft.log.entry(node.applier.last_applied + 1).data.find(b"poison") > 0
            assert node.applier.last_applied == leader.applier.last_applied
            assert "poison" not in node.machine.operations
            assert not node.loop.holds_lease()
        assert world.connection.only(request).status == AnswerStatus.UNKNOWN


def test_s59_memory_error_on_one_node_stops_only_that_node() -> None:
    with World(seed=9) as world:
        leader = world.active_leader()
        follower = next(node for node in world.up() if node is not leader)

        def apply(entry: Entry) -> Any:
            raise MemoryError

        follower.applier._apply[EntryKind.OUTBOX] = apply
        world.done(leader, "a")
        world.until(lambda: follower.loop.failed.done())
        assert isinstance(follower.loop.failed.result(), MemoryError)
        world.done(leader, "b")


def test_s55_s59_unknown_kind_stops_the_node_before_it() -> None:
    with World(seed=10) as world:
        leader = world.active_leader()
        leader.loop.propose_internal(77, [b"?"], leader.service._proposals, [])
        world.until(lambda: sum(node.loop.failed.done() for node in world.up()) == 2, within_s=3.0)
        failed = [node for node in world.up() if node.loop.failed.done()]
        assert all(isinstance(node.loop.failed.result(), UnknownEntry) for node in failed)
        assert all(node.raft.log.entry(node.applier.last_applied + 1).kind == 77 for node in failed)


def test_a_stopped_node_takes_nothing_in() -> None:
    with World(seed=11) as world:
        leader = world.active_leader()
        leader.loop.stop()
        leader.loop.stop()
        world.advance(3.0)
        assert not leader.loop._inbox
        assert leader.effects.status()["ledger"]["activation"] == ActivationState.FOLLOWER


def test_a_sink_that_raises_at_the_end_keeps_nobody_from_hearing_of_it() -> None:
    with World(seed=12) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        (request,) = world.submit(leader, "a")
        world.until(lambda: leader.resource.held)
        leader.loop.waiters.abandon = _raise  # type: ignore[method-assign]
        leader.loop.stop()
        assert isinstance(leader.loop.failed.result(), Broken)
        assert leader.effects.token is None
        assert world.connection.only(request).status == AnswerStatus.UNKNOWN


def test_what_waits_for_writes_is_bounded_in_bytes() -> None:
    """While writes are under way proposals are gathered; they are refused as BUSY beyond the limit."""
    with World(ResourceSpec(), seed=13) as world:
        leader = world.active_leader()
        limit = leader.raft.options.uncommitted_bytes_max
        leader.log_store.stick()
        for name in ("first", "second"):
            world.submit(leader, name)
            world.advance(0.002)
        chunk = b"x" * (1 << 20)
        requests = []
        for _ in range((limit >> 20) + 4):
            requests += world.propose(leader, chunk)
        world.advance(0.005)
        refused = [request for request in requests if request in world.connection.answers]
        assert {world.connection.only(request).code for request in refused} == {"BUSY"}
        assert 3 <= len(refused) <= 5
        leader.log_store.unstick()
        world.until(lambda: world.answered(requests), within_s=10.0)


def test_committed_states_are_equal_after_a_restart_of_everything() -> None:
    with World(seed=14) as world:
        leader = world.active_leader()
        world.done(leader, "a", "b", lane="l")
        for name in world.voters:
            world.crash(name)
        for name in world.voters:
            world.start(name)
        leader = world.active_leader()
        (again,) = world.done(leader, "a", lane="l")
        assert again.replayed
        world.settle()
        world.check_equal()
        world.check_store()
        assert leader.operation("b").state is OperationState.SUCCEEDED
