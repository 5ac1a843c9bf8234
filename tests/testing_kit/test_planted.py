"""Handlers that are wrong in one way each: the kit finds them, and names the cell that it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fencepost import EffectContext
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.ledger import StoredFence
from fencepost.raft.effects.resources.memory import FakeResource, MemoryStore
from fencepost.raft.effects.resources.python import PythonEffect
from fencepost.raft.ports import Attempt, Fence, Guarantee
from fencepost.testing import Report, World, effect_contract

from . import handlers
from .handlers import KnownToTheNodeAlone, Ledger, LedgerWorld

Written = Callable[[Ledger, EffectContext, Any], Any]


def report_on(handler: Written, guarantee: str, **options: Any) -> Report:
    return effect_contract(lambda: LedgerWorld(handler), guarantee, **options)


def violated(report: Report) -> set[str]:
    return {cell.cell for cell in report.violated}


RIGHT = [
    (handlers.fenced, "fenced", False),
    (handlers.fenced_and_ordered, "fenced", True),
    (handlers.keyed, "keyed", False),
    (handlers.naked, "naked", False),
]


@pytest.mark.endure
@pytest.mark.parametrize(("handler", "guarantee", "ordered"), RIGHT)
def test_a_right_one_is_shown_to_be_what_it_is(handler: Written, guarantee: str, ordered: bool) -> None:
    report = report_on(handler, guarantee, ordered=ordered)
    report.check(complete=True)
    assert report.shown == report.standing == guarantee


def test_a_right_one_is_shown_at_a_few_of_its_steps() -> None:
    report = report_on(handlers.fenced, "fenced", steps_max=2)
    report.check(complete=True)
    assert report.shown == "fenced"


@pytest.mark.endure
def test_a_handler_is_shown_to_be_more_than_it_says() -> None:
    assert report_on(handlers.fenced, "keyed").shown == "fenced"


WRONG = [
    (handlers.check_then_act, "fenced", "naked", {"frozen", "frozen-then-newer", "hung-attempt"}),
    (handlers.without_digest, "fenced", "naked", {"other-payload"}),
    (handlers.fence_that_does_not_rise, "fenced", "keyed", {"stale-after-newer", "stale-asks", "incarnation"}),
    (handlers.fence_of_terms_alone, "fenced", "keyed", {"incarnation"}),
    (
        handlers.fence_for_greater_tokens_alone,
        "fenced",
        None,
        {"one-effect", "same-id-twice", "two-attempts", "other-payload", "frozen", "hung-attempt"},
    ),
    (handlers.repeat_before_fence, "fenced", "keyed", {"stale-asks"}),
    (handlers.stale_as_failure, "fenced", "keyed", {"stale-after-newer", "stale-asks", "incarnation"}),
    (handlers.another_result, "fenced", "keyed", {"two-leaders", "lost-outcome"}),
    (handlers.written_down_before, "fenced", "naked", {"lost-answer", "crash-before", "frozen-then-newer"}),
    (handlers.written_down_after, "fenced", "naked", {"lost-answer", "crash-after", "frozen", "hung-attempt"}),
    (handlers.lost_as_refused, "keyed", None, {"lost-answer"}),
    (handlers.twice, "naked", None, {"one-effect", "lost-answer"}),
    (handlers.refused_too_late, "naked", None, {"refused"}),
    (
        handlers.keyed,
        "fenced",
        "keyed",
        {"stale-after-newer", "stale-asks", "incarnation", "frozen-then-newer"},
    ),
]


@pytest.mark.endure
@pytest.mark.parametrize(("handler", "declared", "shown", "cells"), WRONG)
def test_each_wrong_one_is_found_by_its_cells_and_no_others(
    handler: Written, declared: str, shown: str | None, cells: set[str]
) -> None:
    report = report_on(handler, declared)
    assert violated(report) == cells
    assert report.shown == shown


@pytest.mark.parametrize(
    ("handler", "declared", "cell"),
    [
        (handlers.check_then_act, "fenced", "frozen"),
        (handlers.check_then_act, "fenced", "frozen-then-newer"),
        (handlers.check_then_act, "keyed", "hung-attempt"),
        (handlers.without_digest, "keyed", "other-payload"),
        (handlers.fence_that_does_not_rise, "fenced", "stale-after-newer"),
        (handlers.fence_of_terms_alone, "fenced", "incarnation"),
        (handlers.repeat_before_fence, "fenced", "stale-asks"),
        (handlers.twice, "naked", "one-effect"),
        (handlers.refused_too_late, "naked", "refused"),
    ],
)
def test_a_wrong_one_is_found_by_its_cell(handler: Written, declared: str, cell: str) -> None:
    (found,) = report_on(handler, declared, only=[cell]).violated
    assert found.cell == cell
    assert f'only=["{cell}' in found.reproduce


def test_what_a_node_knows_for_itself_alone_is_found() -> None:
    report = effect_contract(KnownToTheNodeAlone, "fenced", only=["same-id-twice", "two-leaders", "lost-outcome"])
    assert violated(report) == {"two-leaders", "lost-outcome"}


@pytest.mark.parametrize(("cell", "ordered"), [("out-of-order", True), ("hung-in-lane", True), ("out-of-order", False)])
def test_a_lane_is_kept_only_where_that_is_declared(cell: str, ordered: bool) -> None:
    report = report_on(handlers.fenced, "fenced", ordered=ordered, only=[cell], steps_max=2)
    assert violated(report) == ({cell} if ordered else set())


# -- queries -------------------------------------------------------------------------------------------


class Asked(LedgerWorld):
    """A naked effect whose query looks at ``where``."""

    def __init__(self, where: str) -> None:
        super().__init__(self.intended)
        self.where = where
        self.intents: list[str] = []

    def intended(self, ledger: Ledger, context: EffectContext, payload: Any) -> int:
        self.intents.append(context.operation_id)
        return ledger.add(context, payload)

    def node(self) -> PythonEffect:
        return PythonEffect(super().node(), query=self.asked)

    def asked(self, context: EffectContext, payload: Any) -> Any:
        places = {"effects": self.ledger.effects, "intents": self.intents, "nowhere": []}[self.where]
        return context.operation_id in places


@pytest.mark.parametrize(
    ("where", "cells"),
    [("effects", set()), ("intents", {"query", "query-after-crash"}), ("nowhere", {"query", "query-after-crash"})],
)
def test_a_query_that_does_not_look_at_the_effects_is_found(where: str, cells: set[str]) -> None:
    asking = ["query", "query-after-crash"]
    assert violated(effect_contract(lambda: Asked(where), "naked", queryable=True, only=asking)) == cells
    assert violated(effect_contract(lambda: Asked(where), "naked", only=asking)) == set()


# -- resources -----------------------------------------------------------------------------------------


class Forgetful(FakeResource):
    """Its claim is not kept."""

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        return await self.fence()


class Holderless(FakeResource):
    """All holders are one to it."""

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        return await super().claim(token, "")

    async def execute(self, token: FencingToken, holder: str, attempts: Any) -> Any:
        return await super().execute(token, "", attempts)


class StoreWorld(World):
    effect = "credit"

    def __init__(self, kind: type[FakeResource], cluster_id: str = "another") -> None:
        self.kind = kind
        self.other = cluster_id
        self.store = MemoryStore()

    def _of(self, cluster_id: str) -> FakeResource:
        return self.kind(effects={"credit": self._credit}, store=self.store, cluster_id=cluster_id)

    def _credit(self, attempt: Attempt) -> bytes:
        return json.dumps({"place": len(self.store.effects) + 1}).encode()

    def node(self) -> FakeResource:
        return self._of("cluster")

    def foreign(self) -> FakeResource:
        return self._of(self.other)

    def effects(self) -> list[str]:
        return [operation_id for _, operation_id in self.store.effects]

    def save(self) -> StoredFence:
        return self.store.fences["ledger"]

    def restore(self, copy: StoredFence) -> None:
        self.store.fences["ledger"] = copy
        self.store.effects[1:] = []


FENCES = ["claim-then-stale", "equal-token", "wrong-cluster"]


@pytest.mark.parametrize(
    ("make", "cells"),
    [
        (lambda: StoreWorld(FakeResource), set()),
        (lambda: StoreWorld(Forgetful), {"claim-then-stale", "equal-token", "wrong-cluster"}),
        (lambda: StoreWorld(Holderless), {"equal-token"}),
        (lambda: StoreWorld(FakeResource, "cluster"), {"wrong-cluster"}),
    ],
)
def test_a_resource_that_is_wrong_about_its_fence_is_found(make: Callable[[], World], cells: set[str]) -> None:
    assert violated(effect_contract(make, Guarantee.FENCED, only=FENCES)) == cells


def test_a_resource_that_goes_on_with_an_old_copy_is_found() -> None:
    report = effect_contract(lambda: StoreWorld(FakeResource), "fenced", only=["old-copy"])
    assert violated(report) == {"old-copy"}
    assert "without claiming it again" in report.cells[0].seen[0]
