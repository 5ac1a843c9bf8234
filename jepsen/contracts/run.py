"""Runs the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...raft.core.errors import ConfigurationError
from ...raft.ports import Guarantee
from .cells import CELLS, Cell
from .report import STRONGEST_FIRST, CellReport, Report, Verdict
from .stage import ALL, Broken, Findings, Setting
from .world import NotShown, World


def effect_contract(
    make: Callable[[], World],
    guarantee: Guarantee | str,
    *,
    queryable: bool = False,
    ordered: bool = False,
    only: Iterable[str] | None = None,
    steps_max: int = 40,
    bound_s: float = 10.0,
    patience_s: float = 0.1,
) -> Report:
    """Run the fault matrix against a handler or a resource, and say which of its promises hold.

    ``make`` gives a fresh :class:`World` for each cell: the class itself will often do. ``guarantee`` is the declared
    one, ``"fenced"``, ``"keyed"`` or ``"naked"``. ``queryable``: it can be asked what became of an operation;
    ``ordered``: it keeps lanes in order by itself. ``only`` names cells, and where it ends in ``@7`` that step alone;
    ``steps_max`` is at how many of its steps a node is stopped (0: all). No call takes longer than ``bound_s``; who has
    to wait for a frozen node does so for ``patience_s`` or ten times what an attempt takes; then that node goes on.

    It blocks, runs nodes on threads of their own, and raises nothing about what it finds: :meth:`Report.check` does.
    Raises :class:`ConfigurationError` for a guarantee or a cell that there is not.
    """
    declared = _guarantee(guarantee)
    chosen = _chosen(only)
    setting = Setting(make, declared, steps_max, bound_s, patience_s)
    subject, limits = _look(setting)
    call = f"effect_contract({subject}, {declared.value!r}"
    call += ", queryable=True" * queryable + ", ordered=True" * ordered
    reports = []
    for cell, step in chosen:
        promised = {each for each in cell.promised_by if _asked(cell, limits, queryable, ordered)}
        placed = Setting(make, declared, steps_max, bound_s, patience_s, step)
        reports.append(_report(cell, declared, promised, _why_not(cell, limits, declared), placed, call))
    return Report(subject, declared, tuple(reports), 0 if only is None else len(CELLS))


def _guarantee(name: Guarantee | str) -> Guarantee:
    try:
        return Guarantee(name)
    except ValueError:
        raise ConfigurationError(f"no guarantee {name!r}", next_step="fenced, keyed or naked") from None


def _chosen(only: Iterable[str] | None) -> list[tuple[Cell, int]]:
    if only is None:
        return [(cell, 0) for cell in CELLS]
    by_name = {cell.name: cell for cell in CELLS}
    chosen = []
    for name in [only] if isinstance(only, str) else only:
        plain, at, step = name.partition("@")
        if plain not in by_name or (at and not (step.isdigit() and by_name[plain].steps)):
            raise ConfigurationError(f"no cell {name!r}", next_step=f"one of {', '.join(by_name)}")
        chosen.append((by_name[plain], int(step or 0)))
    return chosen


class _Limits(NamedTuple):
    """What the subject is, as far as it bounds what it can promise."""

    is_handler: bool
    hears_claims: bool

    def reason(self, cell: Cell) -> str:
        """Why it cannot promise a cell; empty if it can."""
        if self.is_handler and cell.beyond_a_handler:
            return cell.beyond_a_handler
        return "" if self.hears_claims else cell.of_a_claim


def _look(setting: Setting) -> tuple[str, _Limits]:
    """What the subject is called, and what bounds it."""
    with setting.stage() as stage:
        name = getattr(setting.make, "__name__", "")
        node = stage.node()
        limits = _Limits(node.is_handler, node.hears_claims)
        return (type(stage.world).__name__ if name in ("", "<lambda>") else name), limits


def _asked(cell: Cell, limits: _Limits, queryable: bool, ordered: bool) -> bool:
    if cell.of_a_query and not queryable:
        return False
    if cell.of_lanes and not ordered:
        return False
    return not limits.reason(cell)


def _why_not(cell: Cell, limits: _Limits, declared: Guarantee) -> str:
    if limits.reason(cell):
        return limits.reason(cell)
    if declared not in cell.promised_by:
        return f"by {declared}"
    return "no query is declared" if cell.of_a_query else "no order of lanes is declared"


def _report(
    cell: Cell, declared: Guarantee, promised: set[Guarantee], why_not: str, setting: Setting, call: str
) -> CellReport:
    if not promised:
        nobody = tuple((each, Verdict.NOT_PROMISED) for each in STRONGEST_FIRST)
        return CellReport(cell.name, cell.title, Verdict.NOT_PROMISED, note=why_not, verdicts=nobody)
    findings = Findings()
    shown = True
    try:
        cell.play(setting, findings)
    except NotShown as error:
        shown, findings.note = False, f"{error}"
    except Broken as error:
        findings.wrong.append((ALL, f"{error}"))
    verdicts = tuple((each, _verdict(each, promised, findings, shown)) for each in STRONGEST_FIRST)
    verdict = dict(verdicts)[declared]
    seen = tuple(text for guarantees, text in findings.wrong if declared in guarantees)
    if verdict is not Verdict.VIOLATED:
        note = why_not if verdict is Verdict.NOT_PROMISED else findings.note
        return CellReport(cell.name, cell.title, verdict, note=note, verdicts=verdicts)
    place = seen[0].partition(" ")[0] if seen[0].startswith("@") else ""
    return CellReport(
        cell.name,
        cell.title,
        verdict,
        seen=seen,
        reproduce=f'{call}, only=["{cell.name}{place}"])',
        rather=next((each for each, found in verdicts if found not in (Verdict.VIOLATED, Verdict.NOT_SHOWN)), None),
        note=findings.note,
        verdicts=verdicts,
    )


def _verdict(guarantee: Guarantee, promised: set[Guarantee], findings: Findings, shown: bool) -> Verdict:
    if guarantee not in promised:
        return Verdict.NOT_PROMISED
    if any(guarantee in guarantees for guarantees, _ in findings.wrong):
        return Verdict.VIOLATED
    return Verdict.HELD if shown else Verdict.NOT_SHOWN
