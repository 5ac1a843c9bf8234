"""Whether a history is linearizable: key by key, since a history is if and only if each object's part is
(Herlihy and Wing, "Linearizability", 1990, theorem 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...raft.core.errors import HistoryInvalid
from .explanation import Explanation, explain
from .models.model import Model
from .operation import Operation, describe
from .search import Verdict, search
from .validation import problems
from .values import freeze

STEPS_MAX = 5_000_000
"""How often an operation is tried in a state, at one key, before the verdict is unknown."""


class Judgement(NamedTuple):
    """What is known of a history, and why."""

    verdict: Verdict
    """ILLEGAL if any key is; else UNKNOWN if any key is; else OK."""
    orders: Mapping[int | str, tuple[int, ...]]
    """For each key that is ok: an order that explains it, by places in the history. Unknown outcomes
    that need not have happened are left out of it, and so are failed operations."""
    explanations: tuple[Explanation, ...]
    """One for each key that is not ok."""
    steps: int
    """The work done in all."""


def check(history: Sequence[Operation], model: Model, *, steps_max: int = STEPS_MAX) -> Judgement:
    """Judge ``history``, in any order, as one of objects like ``model``.

    ``steps_max`` bounds the work at each key. An UNKNOWN verdict is never a guess in either direction.
    Raises :class:`HistoryInvalid` for a history that cannot have been.
    """
    for problem in problems(history, model):
        raise HistoryInvalid(f"operation {problem.place}, {describe(history[problem.place])}: {problem.text}")
    keys: dict[int | str, list[int]] = {}
    for place, operation in enumerate(history):
        keys.setdefault(operation.key, []).append(place)
    orders: dict[int | str, tuple[int, ...]] = {}
    explanations: list[Explanation] = []
    steps = 0
    for key, places in keys.items():
        operations = [freeze(history[place]) for place in places]
        found = search(operations, model, steps_max)
        steps += found.steps
        if found.verdict is Verdict.OK:
            orders[key] = tuple(places[i] for i in found.order)
            continue
        remarks = tuple(model.remarks([history[place] for place in places]))
        if found.verdict is Verdict.ILLEGAL:
            shown = explain(places, operations, model, steps_max)
        else:
            shown = (), model.shown(model.initial), None
        verdict = Verdict.ILLEGAL if remarks else found.verdict
        explanations.append(Explanation(key, verdict, *shown, remarks, found.steps))
    verdicts = {explanation.verdict for explanation in explanations}
    worst = next((verdict for verdict in (Verdict.ILLEGAL, Verdict.UNKNOWN) if verdict in verdicts), Verdict.OK)
    return Judgement(worst, orders, tuple(explanations), steps)
