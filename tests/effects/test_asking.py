"""Commands that a dead leader left in doubt, at a resource that can be asked about them."""

from __future__ import annotations

import pytest

from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import Attempt, Guarantee

from ..node.world import ResourceSpec, SimNode, World


def can_be_asked(world: World, *, fails: bool = False) -> list[tuple[str, str, int]]:
    """Let every node's resource say what its store holds; who asked what is written down."""
    asked: list[tuple[str, str, int]] = []

    def ability(node: SimNode) -> None:
        async def query(attempt: Attempt) -> bytes | None:
            asked.append((node.name, attempt.operation_id, attempt.number))
            if fails:
                raise OSError("away")
            applied = [each.operation_id for each in world.specs[0].store.operations]
            return b'{"found":1}' if attempt.operation_id in applied else None

        node.resource.query = query  # type: ignore[attr-defined]

    for node in world.nodes.values():
        ability(node)
    return asked


@pytest.mark.parametrize("where", ["before", "after"])
def test_what_was_applied_is_found_and_what_was_not_stays_in_doubt(where: str) -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED), seed=3) as world:
        asked = can_be_asked(world)
        old = world.active_leader()
        setattr(old.resource, f"hold_{where}", True)
        world.submit(old, "a")
        world.until(lambda: old.resource.held)
        world.settle_log()
        world.crash(old.name)
        new = world.active_leader(other_than=old.name)
        world.done(new, "other")
        world.advance(3.0)
        assert asked == [(new.name, "a", 1)]
        assert new.resource.batches == [["other"]], "nothing is repeated"
        operation = new.operation("a")
        if where == "before":
            assert operation.state is OperationState.IN_DOUBT
        else:
            assert (operation.state, operation.result) == (OperationState.SUCCEEDED, b'{"found":1}')
        world.check_equal()


def test_a_lane_behind_it_goes_on_when_it_is_found() -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED, batch_limit=1), seed=4) as world:
        can_be_asked(world)
        old = world.active_leader()
        old.resource.hold_after = True
        world.submit(old, "a", "b", lane="l")
        world.until(lambda: old.resource.held)
        world.settle_log()
        world.crash(old.name)
        new = world.active_leader(other_than=old.name)
        world.until(lambda: new.operation("b").state is OperationState.SUCCEEDED)
        assert new.operation("a").state is OperationState.SUCCEEDED
        assert [each.operation_id for each in world.specs[0].store.operations] == ["a", "b"]


def test_one_that_does_not_answer_leaves_everything_as_it_is() -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED), seed=5) as world:
        asked = can_be_asked(world, fails=True)
        old = world.active_leader()
        old.resource.hold_after = True
        world.submit(old, "a")
        world.until(lambda: old.resource.held)
        world.settle_log()
        world.crash(old.name)
        new = world.active_leader(other_than=old.name)
        world.done(new, "other")
        assert [name for _, name, _ in asked] == ["a"]
        assert new.operation("a").state is OperationState.IN_DOUBT


def test_where_nothing_is_in_doubt_nobody_is_asked() -> None:
    with World(ResourceSpec(guarantee=Guarantee.KEYED), seed=6) as world:
        asked = can_be_asked(world)
        old = world.active_leader()
        old.resource.hold_after = True
        world.submit(old, "a")
        world.until(lambda: old.resource.held)
        world.settle_log()
        world.crash(old.name)
        new = world.active_leader(other_than=old.name)
        world.until(lambda: new.operation("a").state is OperationState.SUCCEEDED)
        assert asked == []
