"""The conformance suite of a fenced resource. Subclassed once for the fake and once for the real thing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fencepost.raft.core.errors import DuplicateGeneration, FenceError, StaleLeader, WrongCluster
from fencepost.raft.effects.resources.audit import check_ledger
from fencepost.raft.ports import AttemptStatus, Fence, Guarantee, Resource

from .query_contract import Nodes, QueryContract
from .subjects import Subject, attempt, token

SUCCEEDED = AttemptStatus.SUCCEEDED
FAILED = AttemptStatus.FAILED
NOT_ATTEMPTED = AttemptStatus.NOT_ATTEMPTED


class FencedContract(QueryContract):
    """The rules of the fence (concepts: The fencing token), one by one. ``old`` and ``new`` are
    two nodes' handles on one world."""

    @pytest_asyncio.fixture
    async def nodes(self, subject: Subject) -> AsyncIterator[Nodes]:
        """Makes an open node; each is closed at the end, and the ledger must then be without fault."""
        opened: list[Resource] = []

        async def make(name: str = "ledger", cluster_id: str = "cluster") -> Resource:
            resource = subject.node(name, cluster_id)
            await resource.open()
            opened.append(resource)
            return resource

        yield make
        for resource in opened:
            await resource.close()
        if opened:
            assert check_ledger(subject.ledger()) == []
            for name in ("ledger", "mail"):
                accepted = [each.operation_id for each in subject.ledger().operations if each.resource == name]
                assert subject.world(name) == accepted, "dedupe and effect do not agree"

    async def test_says_what_it_is(self, nodes: Nodes) -> None:
        resource = await nodes()
        assert resource.guarantee is Guarantee.FENCED
        assert resource.effects == frozenset({"credit"})
        assert resource.batch_limit >= 1
        assert resource.concurrency >= 1
        assert await resource.fence() is None

    # -- claim ---------------------------------------------------------------------------------------

    async def test_claim_returns_what_stood_before(self, nodes: Nodes) -> None:
        resource = await nodes()
        assert await resource.claim(token(3), "n1") is None
        assert await resource.claim(token(5), "n2") == Fence(token(3), "n1")
        assert await resource.fence() == Fence(token(5), "n2")

    async def test_claim_may_be_repeated_by_its_holder(self, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.claim(token(3), "n1")
        assert await resource.claim(token(3), "n1") == Fence(token(3), "n1")

    async def test_claim_outlives_its_node(self, subject: Subject, nodes: Nodes) -> None:
        first = await nodes()
        await first.claim(token(3), "n1")
        await first.close()
        assert await (await nodes()).fence() == Fence(token(3), "n1")

    async def test_lower_claim_is_stale_and_on_record(self, subject: Subject, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.claim(token(5), "n2")
        with pytest.raises(StaleLeader, match=r"1\.3.*1\.5"):
            await resource.claim(token(3), "n1")
        (refusal,) = subject.ledger().refusals
        assert (refusal.token, refusal.holder) == (token(3), "n1")
        assert (refusal.stored, refusal.stored_holder) == (token(5), "n2")
        assert (refusal.operations, refusal.reason) == ([], "STALE_LEADER")

    # -- fence ---------------------------------------------------------------------------------------

    async def test_stale_after_newer(self, subject: Subject, nodes: Nodes) -> None:
        """S48: 34 writes, 33 is refused, 35 is accepted."""
        old, new = await nodes(), await nodes()
        await new.execute(token(34), "n2", [attempt("a", 1)])
        with pytest.raises(StaleLeader):
            await old.execute(token(33), "n1", [attempt("b", 2), attempt("c", 3)])
        await new.execute(token(35), "n2", [attempt("d", 4)])
        assert subject.world() == ["a", "d"]
        (refusal,) = subject.ledger().refusals
        assert (refusal.operations, refusal.token, refusal.stored) == (["b", "c"], token(33), token(34))

    async def test_stale_after_a_claim_alone(self, subject: Subject, nodes: Nodes) -> None:
        """Between the new leader's claim and its first effect, the old one is refused already."""
        old, new = await nodes(), await nodes()
        await old.claim(token(1), "n1")
        await old.execute(token(1), "n1", [attempt("a", 1)])
        await new.claim(token(2), "n2")
        with pytest.raises(StaleLeader):
            await old.execute(token(1), "n1", [attempt("b", 2)])
        assert subject.world() == ["a"]

    async def test_a_stale_leader_that_asks_about_a_finished_operation_hears_stale(self, nodes: Nodes) -> None:
        old, new = await nodes(), await nodes()
        await old.execute(token(1), "n1", [attempt("a", 1)])
        await new.claim(token(2), "n2")
        with pytest.raises(StaleLeader):
            await old.execute(token(1), "n1", [attempt("a", 1)])

    async def test_a_stale_leader_with_a_malformed_attempt_hears_stale(self, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.claim(token(2), "n2")
        with pytest.raises(StaleLeader):
            await resource.execute(token(1), "n1", [attempt("a", effect="unheard-of")])

    async def test_an_empty_batch_passes_the_fence_too(self, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.claim(token(2), "n2")
        assert await resource.execute(token(2), "n2", []) == []
        with pytest.raises(StaleLeader):
            await resource.execute(token(1), "n1", [])

    async def test_a_greater_token_raises_the_fence_by_writing(self, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.claim(token(1), "n1")
        await resource.execute(token(2), "n2", [attempt("a")])
        assert await resource.fence() == Fence(token(2), "n2")
        with pytest.raises(StaleLeader):
            await resource.claim(token(1), "n1")

    async def test_equal_token_of_another_holder(self, subject: Subject, nodes: Nodes) -> None:
        resource, other = await nodes(), await nodes()
        await resource.claim(token(4), "n1")
        with pytest.raises(DuplicateGeneration):
            await other.claim(token(4), "n2")
        with pytest.raises(DuplicateGeneration):
            await other.execute(token(4), "n2", [attempt("a")])
        assert await resource.fence() == Fence(token(4), "n1")
        assert subject.world() == []
        assert [refusal.reason for refusal in subject.ledger().refusals] == ["DUPLICATE_GENERATION"] * 2

    async def test_incarnation_comes_before_term(self, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.claim(token(9), "n1")
        await resource.claim(token(1, incarnation=2), "n1")
        with pytest.raises(StaleLeader):
            await resource.execute(token(10), "n1", [attempt("a")])

    async def test_wrong_cluster_is_no_comparison(self, subject: Subject, nodes: Nodes) -> None:
        resource, foreign = await nodes(), await nodes(cluster_id="another")
        await resource.claim(token(1), "n1")
        for term in (0, 1, 9):
            with pytest.raises(WrongCluster):
                await foreign.claim(token(term), "n1")
            with pytest.raises(WrongCluster):
                await foreign.execute(token(term), "n1", [attempt("a")])
        assert await resource.fence() == Fence(token(1), "n1")
        assert subject.world() == []
        assert subject.ledger().refusals == []

    async def test_two_resources_of_one_store_are_independent(self, subject: Subject, nodes: Nodes) -> None:
        ledger, mail = await nodes("ledger"), await nodes("mail")
        await ledger.claim(token(9), "n1")
        assert await mail.claim(token(1), "n2") is None
        await mail.execute(token(1), "n2", [attempt("a", 5, lane="k")])
        (outcome,) = await ledger.execute(token(9), "n1", [attempt("a", 3, lane="k")])
        assert (outcome.status, outcome.replayed) == (SUCCEEDED, False)
        assert (subject.world("ledger"), subject.world("mail")) == (["a"], ["a"])

    # -- dedupe --------------------------------------------------------------------------------------

    async def test_same_id_twice_gives_the_first_result(self, subject: Subject, nodes: Nodes) -> None:
        resource = await nodes()
        (first,) = await resource.execute(token(1), "n1", [attempt("a", 1)])
        (between,) = await resource.execute(token(1), "n1", [attempt("b", 2)])
        (again,) = await resource.execute(token(1), "n1", [attempt("a", 1)])
        assert (first.status, first.replayed, again.replayed) == (SUCCEEDED, False, True)
        assert again.result == first.result != between.result
        assert subject.world() == ["a", "b"]

    async def test_same_id_from_two_leaders(self, subject: Subject, nodes: Nodes) -> None:
        """S50: the effect took place and its leader died before the outcome was committed."""
        old, new = await nodes(), await nodes()
        (first,) = await old.execute(token(1), "n1", [attempt("a", 1)])
        await new.claim(token(2), "n2")
        (again,) = await new.execute(token(2), "n2", [attempt("a", 1, number=2)])
        assert (again.status, again.replayed, again.result) == (SUCCEEDED, True, first.result)
        assert subject.world() == ["a"]

    async def test_two_attempts_in_one_term(self, subject: Subject, nodes: Nodes) -> None:
        """Rule 6: the token alone does not tell a hung first attempt from the second."""
        resource = await nodes()
        await resource.execute(token(1), "n1", [attempt("a", 1, number=2)])
        (hung,) = await resource.execute(token(1), "n1", [attempt("a", 1, number=1)])
        assert hung.replayed
        assert subject.world() == ["a"]

    async def test_same_id_twice_in_one_batch(self, subject: Subject, nodes: Nodes) -> None:
        resource = await nodes()
        first, again = await resource.execute(token(1), "n1", [attempt("a", 1), attempt("a", 1)])
        assert (first.replayed, again.replayed, again.result) == (False, True, first.result)
        assert subject.world() == ["a"]

    async def test_same_id_with_another_payload(self, subject: Subject, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.execute(token(1), "n1", [attempt("a", 1, cents=1)])
        (other,) = await resource.execute(token(1), "n1", [attempt("a", 1, cents=2)])
        assert other.status is FAILED
        assert "OPERATION_ID_REUSED" in other.error
        assert subject.world() == ["a"]

    # -- order and failure -----------------------------------------------------------------------------

    async def test_outcomes_are_in_the_order_of_the_attempts(self, subject: Subject, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.execute(token(1), "n1", [attempt("b", 2)])
        batch = [attempt("a", 1), attempt("b", 2), attempt("c", 3, cents=-1), attempt("d", 4)]
        outcomes = await resource.execute(token(1), "n1", batch)
        assert [outcome.status for outcome in outcomes] == [SUCCEEDED, SUCCEEDED, FAILED, SUCCEEDED]
        assert [outcome.replayed for outcome in outcomes] == [False, True, False, False]
        assert subject.world() == ["b", "a", "d"]

    async def test_one_failure_stops_its_lane_and_nothing_else(self, subject: Subject, nodes: Nodes) -> None:
        """S51, S52."""
        resource = await nodes()
        outcomes = await resource.execute(
            token(1),
            "n1",
            [
                attempt("k1", 1, lane="k"),
                attempt("k2", 2, lane="k", cents=-1),
                attempt("j1", 3, lane="j"),
                attempt("k3", 4, lane="k"),
                attempt("x", 5),
                attempt("k4", 6, lane="k"),
            ],
        )
        assert [outcome.status for outcome in outcomes] == [
            SUCCEEDED,
            FAILED,
            SUCCEEDED,
            NOT_ATTEMPTED,
            SUCCEEDED,
            NOT_ATTEMPTED,
        ]
        assert outcomes[1].error
        assert subject.world() == ["k1", "j1", "x"]

    async def test_a_failed_attempt_leaves_the_id_free(self, subject: Subject, nodes: Nodes) -> None:
        """Failure is the log's to remember; the resource remembers what it did."""
        resource = await nodes()
        (failed,) = await resource.execute(token(1), "n1", [attempt("a", 1, cents=-1)])
        (done,) = await resource.execute(token(1), "n1", [attempt("a", 1, cents=1, number=2)])
        assert (failed.status, done.status, done.replayed) == (FAILED, SUCCEEDED, False)
        assert subject.world() == ["a"]

    async def test_a_lane_never_goes_back(self, subject: Subject, nodes: Nodes) -> None:
        """The hung attempt of a command that was given up wakes after its lane went on."""
        resource = await nodes()
        await resource.execute(token(1), "n1", [attempt("later", 7, lane="k")])
        late, other, free = await resource.execute(
            token(1), "n1", [attempt("earlier", 5, lane="k"), attempt("other", 4, lane="j"), attempt("free", 3)]
        )
        assert late.status is FAILED
        assert "LANE_SUPERSEDED" in late.error
        assert (other.status, free.status) == (SUCCEEDED, SUCCEEDED)
        assert subject.world() == ["later", "other", "free"]

    async def test_out_of_order_within_one_batch(self, subject: Subject, nodes: Nodes) -> None:
        resource = await nodes()
        first, second = await resource.execute(token(1), "n1", [attempt("b", 7, lane="k"), attempt("a", 5, lane="k")])
        assert (first.status, second.status) == (SUCCEEDED, FAILED)

    async def test_a_replay_of_a_whole_lane_is_not_out_of_order(self, subject: Subject, nodes: Nodes) -> None:
        old, new = await nodes(), await nodes()
        lane = [attempt(f"k{index}", index, lane="k") for index in range(1, 6)]
        await old.execute(token(1), "n1", lane[:3])
        outcomes = await new.execute(token(2), "n2", lane)
        assert [outcome.replayed for outcome in outcomes] == [True, True, True, False, False]
        assert subject.world() == ["k1", "k2", "k3", "k4", "k5"]

    async def test_a_restored_cluster_counts_its_indexes_anew(self, subject: Subject, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.execute(token(9), "n1", [attempt("before", 100, lane="k")])
        (after,) = await resource.execute(token(1, incarnation=2), "n1", [attempt("after", 40, lane="k")])
        assert after.status is SUCCEEDED

    async def test_an_unknown_effect_waits_with_its_reason(self, subject: Subject, nodes: Nodes) -> None:
        resource = await nodes()
        waits, behind, other = await resource.execute(
            token(1),
            "n1",
            [attempt("a", 1, lane="k", effect="unheard-of"), attempt("b", 2, lane="k"), attempt("c", 3)],
        )
        assert (waits.status, behind.status, other.status) == (NOT_ATTEMPTED, NOT_ATTEMPTED, SUCCEEDED)
        assert "unheard-of" in waits.error
        assert subject.world() == ["c"]

    # -- side by side ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("order", ["old first", "new first"])
    async def test_old_and_new_leader_at_once(self, subject: Subject, nodes: Nodes, order: str) -> None:
        """S48: both orders, and whatever happens in between."""
        old, new = await nodes(), await nodes()
        batch = [attempt(f"a{index}", index) for index in range(1, 20)]
        calls = [old.execute(token(1), "n1", batch), new.execute(token(2), "n2", batch)]
        if order == "new first":
            calls.reverse()
        results = await asyncio.gather(*calls, return_exceptions=True)
        refused = [result for result in results if isinstance(result, BaseException)]
        assert all(isinstance(error, StaleLeader) for error in refused)
        assert len(refused) <= 1
        assert subject.world() == [each.operation_id for each in batch]
        assert await new.fence() == Fence(token(2), "n2")

    @pytest.mark.parametrize("seed", range(8))
    async def test_random_leaders(self, subject: Subject, nodes: Nodes, seed: int) -> None:
        """Leaders of any token with any mixture of new, repeated, failing and overtaken attempts.

        The fixture's end checks the ledger; here is checked that what succeeded stays as it was.
        """
        chance = random.Random(seed)
        handles = [await nodes(), await nodes(), await nodes()]
        results: dict[str, bytes] = {}
        highest = token(0)
        for _ in range(40):
            node = chance.randrange(3)
            mine = token(max(1, highest.term + chance.choice([-2, -1, 0, 0, 0, 1])) * 3 + node)
            batch = []
            for index in sorted(chance.choices(range(1, 60), k=chance.randint(1, 8))):
                cents = -1 if index % 11 == 0 else index
                batch.append(attempt(f"a{index}", index, cents=cents, lane=["", "k", "j"][index % 3]))
            try:
                outcomes = await handles[node].execute(mine, f"n{node}", batch)
            except FenceError:
                continue
            highest = max(highest, token(mine.term // 3))
            for each, outcome in zip(batch, outcomes, strict=True):
                if outcome.status is SUCCEEDED:
                    assert outcome.replayed == (each.operation_id in results)
                    assert results.setdefault(each.operation_id, outcome.result) == outcome.result
        assert sorted(subject.world()) == sorted(results)
        assert results
