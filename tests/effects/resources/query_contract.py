"""The part of the conformance suite that is about being asked what has become of an operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from fencepost.raft.core.errors import StaleLeader
from fencepost.raft.ports import Answered, Attempt, AttemptStatus, Fence, Found, QueryableResource, Resource

from .subjects import Subject, attempt, token

Nodes = Callable[..., Awaitable[Resource]]

NOT_APPLIED = Answered(Found.NOT_APPLIED)


async def ask(resource: Resource, each: Attempt) -> Answered:
    assert isinstance(resource, QueryableResource)
    return await resource.query(each)


class QueryContract:
    """A fenced resource knows what was applied; that nothing was, it says from behind its own claim alone."""

    async def test_who_has_claimed_nothing_is_told_nothing(self, nodes: Nodes) -> None:
        old, new = await nodes(), await nodes()
        assert await ask(new, attempt("a")) == Answered(Found.UNKNOWN)
        await old.claim(token(1), "n1")
        await old.execute(token(1), "n1", [attempt("a")])
        assert await ask(new, attempt("a")) == Answered(Found.UNKNOWN)

    async def test_what_was_applied_is_told_with_its_first_result(self, nodes: Nodes) -> None:
        old, new = await nodes(), await nodes()
        await old.claim(token(1), "n1")
        first, *_ = await old.execute(token(1), "n1", [attempt("a", 1, lane="k"), attempt("b", 2), attempt("c", 3)])
        assert await ask(old, attempt("a", 1, lane="k")) == Answered(Found.APPLIED, first.result)
        await new.claim(token(2), "n2")
        assert await ask(new, attempt("a", 1, lane="k", number=2)) == Answered(Found.APPLIED, first.result)
        (again,) = await new.execute(token(2), "n2", [attempt("a", 1, lane="k", number=2)])
        assert (again.replayed, again.result) == (True, first.result)

    async def test_that_nothing_was_applied_stays_true_of_every_older_leader(
        self, subject: Subject, nodes: Nodes
    ) -> None:
        old, new = await nodes(), await nodes()
        await old.claim(token(1), "n1")
        await new.claim(token(2), "n2")
        assert isinstance(new, QueryableResource)
        assert new.absence_is_final
        assert await ask(new, attempt("a", lane="k")) == NOT_APPLIED
        with pytest.raises(StaleLeader):
            await old.execute(token(1), "n1", [attempt("a", lane="k")])
        assert await ask(new, attempt("a", lane="k")) == NOT_APPLIED
        assert subject.world() == []

    async def test_who_is_no_longer_the_holder_hears_stale(self, nodes: Nodes) -> None:
        old, new = await nodes(), await nodes()
        await old.claim(token(1), "n1")
        await old.execute(token(1), "n1", [attempt("a")])
        await new.claim(token(2), "n2")
        for each in (attempt("a"), attempt("b", 2)):
            with pytest.raises(StaleLeader):
                await ask(old, each)

    async def test_what_was_refused_or_overtaken_was_not_applied(self, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.claim(token(1), "n1")
        await resource.execute(token(1), "n1", [attempt("a", 1, cents=-1), attempt("b", 3, lane="k")])
        (late,) = await resource.execute(token(1), "n1", [attempt("c", 2, lane="k")])
        assert late.status is AttemptStatus.FAILED
        assert await ask(resource, attempt("a", 1, cents=-1)) == NOT_APPLIED
        assert await ask(resource, attempt("c", 2, lane="k")) == NOT_APPLIED

    async def test_another_command_under_its_id_is_not_it(self, nodes: Nodes) -> None:
        resource = await nodes()
        await resource.claim(token(1), "n1")
        await resource.execute(token(1), "n1", [attempt("a", cents=1)])
        assert await ask(resource, attempt("a", cents=2)) == NOT_APPLIED

    async def test_asking_does_nothing_but_look(self, subject: Subject, nodes: Nodes) -> None:
        old, new = await nodes(), await nodes()
        await old.claim(token(1), "n1")
        await old.execute(token(1), "n1", [attempt("a", lane="k")])
        await new.claim(token(2), "n2")
        before = subject.ledger()
        for each in (attempt("a", lane="k"), attempt("b", 2), attempt("c", 3, effect="unheard-of")):
            await ask(new, each)
        with pytest.raises(StaleLeader):
            await ask(old, attempt("b", 2))
        assert subject.ledger() == before
        assert subject.world() == ["a"]
        assert await new.fence() == Fence(token(2), "n2")

    async def test_one_resource_of_a_store_says_nothing_of_another(self, nodes: Nodes) -> None:
        ledger, mail = await nodes("ledger"), await nodes("mail")
        await ledger.claim(token(1), "n1")
        await mail.claim(token(2), "n2")
        await mail.execute(token(2), "n2", [attempt("a")])
        assert await ask(ledger, attempt("a")) == NOT_APPLIED
        assert (await ask(mail, attempt("a"))).found is Found.APPLIED

    async def test_what_is_redriven_runs_at_its_new_place_and_nowhere_else(
        self, subject: Subject, nodes: Nodes
    ) -> None:
        resource = await nodes()
        await resource.claim(token(1), "n1")
        await resource.execute(token(1), "n1", [attempt("a", 1, lane="k", cents=-1), attempt("x", 2)])
        await resource.execute(token(1), "n1", [attempt("b", 3, lane="k")])
        (old_place,) = await resource.execute(token(1), "n1", [attempt("a", 1, lane="k", number=2)])
        assert old_place.status is AttemptStatus.FAILED
        assert "LANE_SUPERSEDED" in old_place.error
        new_place, behind = await resource.execute(
            token(1), "n1", [attempt("a", 5, lane="k", number=3), attempt("c", 6, lane="k")]
        )
        assert (new_place.status, behind.status) == (AttemptStatus.SUCCEEDED, AttemptStatus.SUCCEEDED)
        assert subject.world() == ["x", "b", "a", "c"]
