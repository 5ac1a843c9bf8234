"""Checkers of recorded histories.

    judgement = check(history, Register())
    if judgement.verdict is not Verdict.OK:
        print(judgement.explanations)

``settle`` comes first where a committed log can say what became of unknown outcomes.
"""

from __future__ import annotations

from .explanation import Explanation, lines
from .fence_properties import FenceProperty, Violation, violations
from .history_file import History, parse_history, read_history
from .linearizability import STEPS_MAX, Judgement, check
from .models.append import Append
from .models.fenced import Fenced
from .models.model import Model
from .models.register import Register
from .operation import Answer, ApplyValue, CasValue, Operation, Status, describe, identity_of
from .search import Verdict
from .settling import Contradiction, Disagreement, contradictions, settle

__all__ = [
    "STEPS_MAX",
    "Answer",
    "Append",
    "ApplyValue",
    "CasValue",
    "Contradiction",
    "Disagreement",
    "Explanation",
    "FenceProperty",
    "Fenced",
    "History",
    "Judgement",
    "Model",
    "Operation",
    "Register",
    "Status",
    "Verdict",
    "Violation",
    "check",
    "contradictions",
    "describe",
    "identity_of",
    "lines",
    "parse_history",
    "read_history",
    "settle",
    "violations",
]
