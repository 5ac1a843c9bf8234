"""Faults that a checker can have, planted one at a time: the tests must see every one of them.

What finds a fault stands beside it. Faults that let a wrong history pass matter most: a checker that says
ok to everything is never complained about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from fencepost.jepsen.checkers import Verdict, explanation, fence_properties, linearizability, search, settling, values
from fencepost.jepsen.checkers.models.append import Append
from fencepost.jepsen.checkers.models.fenced import Fenced
from fencepost.jepsen.checkers.models.register import Register

from ..core.planting import planted
from . import test_append, test_explanation, test_fenced, test_register, test_settle
from .building import judge
from .objects import KINDS
from .test_oracle import compare, near, small


def by_hand() -> None:
    """Every history of test_register, test_append and test_fenced."""
    for history in test_register.LEGAL.values():
        assert judge(Register(), *history).verdict is Verdict.OK
    for history in test_register.ILLEGAL.values():
        assert judge(Register(), *history).verdict is Verdict.ILLEGAL
    for kind in test_append.KINDS:
        for history in test_append.LEGAL.values():
            assert judge(Append(kind), *map(test_append.as_kind(kind), history)).verdict is Verdict.OK
        for history in test_append.ILLEGAL.values():
            assert judge(Append(kind), *map(test_append.as_kind(kind), history)).verdict is Verdict.ILLEGAL
    for history in test_fenced.LEGAL.values():
        assert judge(Fenced(), *history).verdict is Verdict.OK
    for _, history in test_fenced.ILLEGAL.values():
        assert judge(Fenced(), *history).verdict is Verdict.ILLEGAL


def by_definition() -> None:
    for name in KINDS:
        compare(0, 300, name, small)
        compare(0, 300, name, near)


class Fault(NamedTuple):
    name: str
    function: Callable[..., Any]
    line: str
    fault: str
    found_by: Callable[[], None]


FAULTS = (
    # -- time
    Fault(
        "real time is ignored",
        search._Search._link,
        "events.append((operation.invoke, 0, i))",
        "events.append((-inf, 0, i))",
        by_hand,
    ),
    Fault(
        "nothing is concurrent",
        search._Search._link,
        "events.append((inf if operation.return_ is None else operation.return_, 1, self._n + i))",
        "events.append((operation.invoke, 1, self._n + i))",
        by_hand,
    ),
    Fault(
        "what touches is in order",
        search._Search._link,
        "events.append((operation.invoke, 0, i))",
        "events.append((operation.invoke, 2, i))",
        by_hand,
    ),
    Fault("a process has no order of its own", search._own_order, "after[i] = 1 << before", "after[i] = 0", by_hand),
    Fault(
        "the log has no order",
        search._Search._in_log,
        "if operation.position",
        "if False and operation.position",
        by_definition,
    ),
    # -- outcomes
    Fault(
        "an unknown outcome is a success",
        search._Search.__init__,
        "[operation.status is Status.INFO for operation in operations]",
        "[False for operation in operations]",
        by_hand,
    ),
    Fault(
        "an unknown outcome is a failure",
        search._Search._counts,
        "status is not Status.FAIL and",
        "status is Status.DONE and",
        by_hand,
    ),
    Fault("a failure is a success", search._Search._counts, "status is not Status.FAIL and", "", by_hand),
    Fault(
        "a settled outcome is still unknown",
        search._Search.__init__,
        "[operation.status is Status.INFO for",
        "[operation.status is not Status.OK for",
        by_hand,
    ),
    Fault(
        "the answer of an unknown cas is believed",
        Register.step,
        "if answered and operation.out is not",
        "if operation.out is not",
        by_hand,
    ),
    # -- the search
    Fault("the memory forgets the state", search._Search._was_met, "(done, state)", "(done, None)", by_hand),
    Fault(
        "the memory takes more unknown outcomes for fewer",
        search._Search._was_met,
        "not before & ~used",
        "not used & ~before",
        by_hand,
    ),
    Fault("twins ask for anything", search._twins, "(operation.op, operation.value)", "(operation.op, None)", by_hand),
    Fault(
        "a return taken out is never put back",
        search._Search._take_back,
        "self._put_back(self._n + i)",
        "pass",
        by_hand,
    ),
    Fault(
        "what was forced is tried otherwise, what was chosen is not",
        search._Search._take_back,
        "if not forced:",
        "if forced:",
        by_hand,
    ),
    Fault(
        "the bound is a verdict",
        search._Search.run,
        "self._found(Verdict.UNKNOWN)",
        "self._found(Verdict.ILLEGAL)",
        test_explanation.test_unknown_at_the_bound_and_never_a_guess,
    ),
    Fault(
        "keys are one object",
        linearizability.check,
        "keys.setdefault(operation.key, [])",
        "keys.setdefault(history[0].key, [])",
        by_hand,
    ),
    # -- the models
    Fault("true is 1", values.frozen, "if isinstance(value, bool):", "if value is None:", by_hand),
    Fault(
        "any cas only looks",
        Register.observes,
        "return operation.status is Status.OK and operation.out is Truth.FALSE",
        "return True",
        by_hand,
    ),
    Fault("what a cas compares with is unseen", Register.narrowed, "seen |= {", "seen & {", by_hand),
    Fault("as long as what was read is longer", Append._bounded, "> len(longest)", ">= len(longest)", by_hand),
    Fault(
        "a write does not hinder narrowing",
        Append.narrowed,
        "if replaced and not _first(replaced, others):",
        "if False:",
        by_hand,
    ),
    Fault("an equal token is stale", Fenced.step, "if token < state.token:", "if token <= state.token:", by_hand),
    Fault(
        "a duplicate does not fence",
        Fenced.step,
        "FenceState(token, applied)",
        "FenceState(state.token if known else token, applied)",
        by_hand,
    ),
    Fault("two bearers of an id are alone", Fenced.narrowed, "== 1", "<= 2", by_hand),
    Fault(
        "a lower token may follow a duplicate",
        fence_properties._lower_after_higher,
        "each.answer != Answer.STALE",
        "each.answer == Answer.ACCEPTED",
        lambda: test_fenced.test_illegal(*test_fenced.ILLEGAL["a lower token after a duplicate with a higher one"]),
    ),
    Fault(
        "concurrent is after",
        fence_properties._lower_after_higher,
        "passed[returned].end < each.operation.invoke",
        "passed[returned].end < each.end",
        by_definition,
    ),
    # -- what comes before and after
    Fault(
        "what the log does not hold stays unknown",
        settling.settle,
        "committed[name] is None:",
        "False:",
        test_settle.test_a_read_of_what_was_never_committed_is_found,
    ),
    Fault(
        "the log bounds no beginning",
        settling.settle,
        "start, end = starts[at], ends[at]",
        "start, end = operation.invoke, ends[at]",
        test_settle.test_a_dirty_read_is_found,
    ),
    Fault(
        "the log bounds no end",
        settling.settle,
        "start, end = starts[at], ends[at]",
        "start, end = starts[at], None",
        test_settle.test_a_lost_write_is_found,
    ),
    Fault(
        "positions are lost",
        settling.settle,
        "history[place]._replace(position=position)",
        "history[place]",
        test_settle.test_positions_order_concurrent_operations,
    ),
    Fault(
        "an answer before the blocked one is blamed",
        explanation.explain,
        "places[returns[illegal - 1]]",
        "places[returns[legal - 1]]",
        lambda: test_explanation.test_all_before_is_legal_and_with_it_nothing_is("register"),
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_planted_fault_is_found(fault: Fault) -> None:
    with planted(fault.function, fault.line, fault.fault), pytest.raises((AssertionError, TypeError)):
        fault.found_by()


def test_without_a_fault_nothing_is_found() -> None:
    for found_by in dict.fromkeys(fault.found_by for fault in FAULTS):
        found_by()
