"""What a resource answers goes into the log of every node. It may be anybody's code, and must not end them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.batch import RESULT_BYTES_MAX
from fencepost.raft.effects.handlers import Permanent
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import Answered, Attempt, AttemptOutcome, AttemptStatus, Found, Guarantee, Wait

from ..node.world import ResourceSpec, World


def test_an_error_that_no_entry_can_hold_is_written_in_other_words() -> None:
    """A name of a file, or of an account, that is no text: half of a pair of surrogates."""

    def credit(attempt: Attempt) -> bytes:
        raise Permanent("no account '\udc80'")

    with World(ResourceSpec(effects={"credit": credit})) as world:
        leader = world.active_leader()
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.FAILED)
        assert leader.operation("a").error == "no account '\\udc80'"
        assert not any(node.loop.failed.done() for node in world.up())


ODD: dict[str, Any] = {
    "nothing": None,
    "too few": [],
    "no outcome": [b"{}"],
    "no such status": [AttemptOutcome(17, b"", "", False)],  # type: ignore[arg-type]
    "a text for a result": [AttemptOutcome(AttemptStatus.SUCCEEDED, "{}", "", False)],  # type: ignore[arg-type]
    "an error for an error": [AttemptOutcome(AttemptStatus.FAILED, b"", ValueError(), False)],  # type: ignore[arg-type]
    "seconds for a pause": [AttemptOutcome(AttemptStatus.RETRY, b"", "later", False, 1.5)],  # type: ignore[arg-type]
    "a pause for ever": [AttemptOutcome(AttemptStatus.RETRY, b"", "later", False, 1 << 70)],
}


@pytest.mark.parametrize("odd", ODD)
def test_an_answer_that_is_none_leaves_in_doubt_what_was_asked_and_the_node_alive(odd: str) -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED)) as world:
        leader = world.active_leader()
        execute = leader.resource.execute

        async def once(token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> Any:
            leader.resource.execute = execute  # type: ignore[method-assign]
            await execute(token, holder, attempts)
            return ODD[odd]

        leader.resource.execute = once  # type: ignore[method-assign]
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.IN_DOUBT)
        world.done(leader, "b")
        world.settle_log()
        assert not any(node.loop.failed.done() for node in world.up())


def test_a_result_that_is_too_large_is_left_out_and_the_effect_is_done() -> None:
    """It would fit into no entry, and whoever leads would make it again and again."""
    with World(ResourceSpec(effects={"credit": lambda attempt: b"x" * (RESULT_BYTES_MAX + 1)})) as world:
        leader = world.active_leader()
        (answer,) = world.done(leader, "a", lane="k")
        assert (answer.state, answer.result) == ("succeeded", b"null")


@pytest.mark.parametrize("odd", [None, False, Answered("applied"), Answered(Found.APPLIED, "{}")])  # type: ignore[arg-type]
def test_an_answer_to_a_question_that_is_none_leaves_the_doubt_and_the_node_alive(odd: Any) -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED, queryable=True)) as world:
        leader = world.active_leader()
        asked: list[Attempt] = []

        async def query(attempt: Attempt) -> Any:
            asked.append(attempt)
            return odd

        leader.resource.query = query  # type: ignore[attr-defined]
        leader.resource.executes_fail = ConnectionError("no answer")
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: asked)
        world.settle_log()
        assert leader.operation("a").state is OperationState.IN_DOUBT
        assert not any(node.loop.failed.done() for node in world.up())
