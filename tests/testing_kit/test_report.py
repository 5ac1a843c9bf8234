"""What a report says, and what it does not: a cell whose means are missing is never held."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fencepost import ConfigurationError, EffectContext
from fencepost.raft.ports import Guarantee
from fencepost.testing import CellReport, ContractViolated, Report, Verdict, World, effect_contract

from . import handlers
from .handlers import LedgerWorld


class Opaque(World):
    """Its handler is one call of something that has no lines of its own, and it has no means besides."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def node(self) -> Any:
        return compiled(
            "def handler(context, payload):\n"
            "    if context.operation_id not in done: done.append(context.operation_id)\n"
            "    return done.index(context.operation_id)",
            done=self.done,
        )

    def effects(self) -> list[str]:
        return list(self.done)


def compiled(source: str, **names: Any) -> Any:
    """Stands for a function that is not Python: lines without a file are no steps."""
    exec(compile(source, "<compiled>", "exec"), names)
    return names["handler"]


NEEDY = {"refused", "lost-answer", "crash-before", "crash-after", "frozen", "hung-attempt"}


def test_a_cell_whose_means_are_missing_is_not_shown() -> None:
    report = effect_contract(Opaque, "keyed", only=sorted(NEEDY))
    assert {cell.cell for cell in report.not_shown} == NEEDY
    assert all(cell.note for cell in report.not_shown)
    assert report.shown is None
    report.check()
    with pytest.raises(ContractViolated, match="not shown"):
        report.check(complete=True)


class WithMeans(Opaque):
    """The means of its own: whoever is let in next stands, or is ended."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def node(self) -> Any:
        return compiled(
            "def handler(context, payload):\n"
            "    world.before()\n"
            "    result = inner(context, payload)\n"
            "    world.after()\n"
            "    return result",
            world=self,
            inner=super().node(),
        )

    @contextmanager
    def crash_before(self) -> Iterator[None]:
        self.before = _end
        yield
        self.before = lambda: None

    @contextmanager
    def crash_after(self) -> Iterator[None]:
        self.after = _end
        yield
        self.after = lambda: None

    @contextmanager
    def frozen(self) -> Iterator[Callable[[], None]]:
        stands, go = threading.Event(), threading.Event()

        def stand() -> None:
            self.before = lambda: None
            stands.set()
            go.wait()

        self.before = stand
        yield lambda: _wait(stands)
        go.set()


def _end() -> None:
    raise ConnectionError


def _wait(event: threading.Event) -> None:
    assert event.wait(10)


def test_a_world_may_bring_its_own_crashes_and_freezes() -> None:
    report = effect_contract(WithMeans, "keyed", only=["crash-before", "crash-after", "frozen", "hung-attempt"])
    assert {cell.verdict for cell in report.cells} == {Verdict.HELD}


def test_the_violated_cell_says_what_was_seen_and_how_to_see_it_again() -> None:
    def ledger_world() -> LedgerWorld:
        return LedgerWorld(handlers.fence_that_does_not_rise)

    report = effect_contract(ledger_world, "fenced", only=["one-effect", "stale-after-newer"])
    good, bad = report.cells
    assert (good.verdict, good.seen, good.reproduce) == (Verdict.HELD, (), "")
    assert bad.verdict is Verdict.VIOLATED
    assert bad.seen[0] == "token 1.1 after 1.2 heard done, and must hear STALE_LEADER"
    assert bad.reproduce == "effect_contract(ledger_world, 'fenced', only=[\"stale-after-newer\"])"
    assert bad.rather == "keyed"
    assert report.cell("stale-after-newer") is bad
    with pytest.raises(ContractViolated, match="this would be: keyed"):
        report.check()


def test_the_step_is_named_and_can_be_run_alone() -> None:
    report = effect_contract(lambda: LedgerWorld(handlers.without_a_lock), "fenced", only=["frozen"], steps_max=12)
    (cell,) = report.violated
    step = cell.seen[0].partition(" ")[0]
    assert f'only=["frozen{step}"]' in cell.reproduce
    assert "handlers.py:" in cell.seen[0]
    alone = effect_contract(lambda: LedgerWorld(handlers.without_a_lock), "fenced", only=[f"frozen{step}"])
    assert [text for text in cell.seen if text.startswith(f"{step} ")] == list(alone.cells[0].seen)


def test_where_nothing_works_every_cell_says_so() -> None:
    class Broken(Opaque):
        def node(self) -> Any:
            return _raise

    report = effect_contract(Broken, "naked", only=["one-effect"])
    assert report.shown is None
    assert "a under token 1.1 did not succeed where nothing was wrong" in report.cells[0].seen[0]


def _raise(context: EffectContext, payload: Any) -> None:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("guarantee", "only"),
    [("safe", None), ("fenced", ["nothing"]), ("fenced", ["one-effect@1"]), ("fenced", ["frozen@"])],
)
def test_what_there_is_not_is_refused(guarantee: str, only: list[str] | None) -> None:
    with pytest.raises(ConfigurationError):
        effect_contract(Opaque, guarantee, only=only)


def test_the_strongest_guarantee_is_shown_only_if_all_of_it_was() -> None:
    def cell(name: str, **by: Verdict) -> CellReport:
        verdicts = tuple((each, by[each.value]) for each in Guarantee)
        return CellReport(name, f"the {name} cell", by["fenced"], verdicts=verdicts)

    held = cell("first", fenced=Verdict.HELD, keyed=Verdict.HELD, naked=Verdict.HELD)
    missing = cell("second", fenced=Verdict.NOT_SHOWN, keyed=Verdict.NOT_PROMISED, naked=Verdict.NOT_PROMISED)
    report = Report("Subject", Guarantee.FENCED, (held, missing))
    assert (report.shown, report.standing) == ("keyed", "fenced")
    assert report.summary() == (
        "Subject: fenced declared, keyed shown; 1 held, 0 violated, 1 not shown, 0 not promised"
    )
    assert str(report).endswith("nothing speaks against fenced, but this was not shown: the second cell")


def test_nothing_is_left_behind() -> None:
    tracing = (threading.gettrace(), sys.gettrace())
    effect_contract(
        lambda: LedgerWorld(handlers.check_then_act), "fenced", only=["frozen", "crash-before"], steps_max=3
    )
    assert (threading.gettrace(), sys.gettrace()) == tracing
    assert [each.name for each in threading.enumerate() if each.name.startswith("contract-")] == []
