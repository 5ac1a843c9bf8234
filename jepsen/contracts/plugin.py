"""The pytest plugin: a fixture ``effect_contract``, and a marker of that name for one test a cell.

pytest loads it in every run where fencepost is installed, so nothing of fencepost is imported before a test
asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .report import CellReport, Report

_NAME = "effect_contract"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_NAME}(make, guarantee, **options): a test that takes contract_cell runs once for each cell of the matrix",
    )


@pytest.fixture
def effect_contract(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """``fencepost.testing.effect_contract``, which fails the test where the declared guarantee is violated; with
    ``complete=True`` also where a cell was not shown. The terminal's summary has a line for each report."""

    def run_and_check(make: Any, guarantee: Any, *, complete: bool = False, **options: Any) -> Report:
        from .run import effect_contract as run

        report = run(make, guarantee, **options)
        request.node.user_properties.append((_NAME, report.summary()))
        try:
            report.check(complete=complete)
        except AssertionError as error:
            pytest.fail(str(error), pytrace=False)
        return report

    return run_and_check


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "contract_cell" not in metafunc.fixturenames:
        return
    if metafunc.definition.get_closest_marker(_NAME) is None:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid} takes contract_cell and has no @pytest.mark.{_NAME}(make, guarantee)"
        )
    from .cells import CELLS

    metafunc.parametrize("contract_cell", [cell.name for cell in CELLS], indirect=True)


@pytest.fixture
def contract_cell(request: pytest.FixtureRequest) -> CellReport:
    """One cell of the matrix that the test's marker asks for, as it was found to hold. Fails where it is violated;
    skips, with the reason, where it is not shown or not promised."""
    from .report import Verdict
    from .run import effect_contract as run

    marker = request.node.get_closest_marker(_NAME)
    report = run(*marker.args, **marker.kwargs, only=[request.param])
    (cell,) = report.cells
    if cell.verdict is Verdict.VIOLATED:
        pytest.fail("\n".join([f"{report.subject}: {report.declared} was declared", *cell.lines()]), pytrace=False)
    if cell.verdict is not Verdict.HELD:
        # Not promised, or not to be shown with this world: neither is a pass.
        pytest.skip(f"{cell.verdict}: {cell.note}")
    return cell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = list(_summaries(terminalreporter.stats))
    if lines:
        terminalreporter.section("effect contracts")
        for line in lines:
            terminalreporter.write_line(line)


def _summaries(stats: dict[str, list[Any]]) -> Iterator[str]:
    # They come with the tests' reports, so that runs that are spread over processes tell of them too.
    for report in (each for kind in ("passed", "failed") for each in stats.get(kind, [])):
        if getattr(report, "when", "") == "call":
            yield from (f"{text}" for name, text in report.user_properties if name == _NAME)
