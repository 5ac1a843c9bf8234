"""A fenced resource, by hand; and the properties that need no search."""

from __future__ import annotations

import pytest

from fencepost.jepsen.checkers import Fenced, FenceProperty, Operation, Verdict, check, violations
from fencepost.raft.core.token import FencingToken

from .building import apply, done, fail, info, judge
from .test_oracle import small

LEGAL = {
    "nothing happened": (),
    "any token is good at first": (apply(1, 0, "a", "accepted", 1, 2),),
    "equal tokens pass": (apply(1, 5, "a", "accepted", 1, 2), apply(1, 5, "b", "accepted", 3, 4)),
    "a new leader fences the old": (
        *(apply(1, 5, "a", "accepted", 1, 2), apply(2, 6, "b", "accepted", 3, 4), apply(1, 5, "c", "stale", 5, 6)),
    ),
    "the old one may be first while both are under way": (
        *(apply(2, 6, "b", "accepted", 1, 9), apply(1, 5, "a", "accepted", 2, 3)),
    ),
    "or late": (apply(2, 6, "b", "accepted", 1, 9), apply(1, 5, "a", "stale", 2, 3)),
    "known under another token": (apply(1, 5, "a", "accepted", 1, 2), apply(2, 6, "a", "duplicate", 3, 4)),
    "a duplicate fences as well": (
        *(apply(1, 5, "a", "accepted", 1, 2), apply(2, 6, "a", "duplicate", 3, 4), apply(1, 5, "b", "stale", 5, 6)),
    ),
    "stale is said before duplicate": (
        *(apply(1, 5, "a", "accepted", 1, 2), apply(2, 6, "b", "accepted", 3, 4), apply(1, 5, "a", "stale", 5, 6)),
    ),
    "what was called stale may be accepted under a higher token": (
        *(apply(2, 6, "b", "accepted", 1, 2), apply(1, 5, "a", "stale", 3, 4), apply(2, 6, "a", "accepted", 5, 6)),
    ),
    "an unknown one has fenced": (info(apply(2, 7, "b", None, 1, None)), apply(1, 6, "a", "stale", 3, 4)),
    "an unknown one has not": (info(apply(2, 7, "b", None, 1, None)), apply(1, 6, "a", "accepted", 3, 4)),
    "an unknown one has applied": (info(apply(1, 5, "a", None, 1, None)), apply(2, 5, "a", "duplicate", 3, 4)),
    "an unknown one was stale itself": (
        *(
            apply(2, 6, "b", "accepted", 1, 2),
            info(apply(1, 5, "a", None, 3, None)),
            apply(2, 6, "a", "accepted", 5, 6),
        ),
    ),
    "resources are independent": (apply(1, 6, "a", "accepted", 1, 2, "x"), apply(1, 5, "a", "accepted", 3, 4, "y")),
    "incarnations come before terms": (
        *(apply(1, FencingToken(1, 9), "a", "accepted", 1, 2), apply(2, FencingToken(2, 3), "b", "accepted", 3, 4)),
        apply(1, FencingToken(1, 9), "c", "stale", 5, 6),
    ),
}

ILLEGAL: dict[str, tuple[set[FenceProperty], tuple[Operation, ...]]] = {
    "a lower token after a higher one": (
        {FenceProperty.LOWER_AFTER_HIGHER},
        (apply(2, 6, "b", "accepted", 1, 2), apply(1, 5, "a", "accepted", 3, 4)),
    ),
    "a lower token after a duplicate with a higher one": (
        {FenceProperty.LOWER_AFTER_HIGHER},
        (
            *(apply(1, 5, "a", "accepted", 1, 2), apply(2, 6, "a", "duplicate", 3, 4)),
            apply(1, 5, "c", "accepted", 5, 6),
        ),
    ),
    "a duplicate told to a stale leader": (
        {FenceProperty.LOWER_AFTER_HIGHER},
        (
            *(apply(1, 5, "a", "accepted", 1, 2), apply(2, 6, "b", "accepted", 3, 4)),
            apply(1, 5, "a", "duplicate", 5, 6),
        ),
    ),
    "accepted twice": (
        {FenceProperty.ACCEPTED_TWICE},
        (apply(1, 5, "a", "accepted", 1, 2), apply(2, 6, "a", "accepted", 3, 4)),
    ),
    "accepted twice at once": (
        {FenceProperty.ACCEPTED_TWICE},
        (apply(1, 5, "a", "accepted", 1, 9), apply(2, 5, "a", "accepted", 1, 9)),
    ),
    "accepted after it was called a duplicate": (
        {FenceProperty.ACCEPTED_AFTER_DUPLICATE},
        (
            *(info(apply(3, 5, "a", None, 1, None)), apply(1, 5, "a", "duplicate", 2, 3)),
            apply(2, 6, "a", "accepted", 4, 5),
        ),
    ),
    "a duplicate of nothing": ({FenceProperty.DUPLICATE_OF_NOTHING}, (apply(1, 5, "a", "duplicate", 1, 2),)),
    "a duplicate of what failed": (
        {FenceProperty.DUPLICATE_OF_NOTHING},
        (fail(apply(1, 5, "a", None, 1, 2)), apply(1, 5, "a", "duplicate", 3, 4)),
    ),
    "a duplicate of what is yet to come": (
        {FenceProperty.DUPLICATE_OF_NOTHING, FenceProperty.ACCEPTED_AFTER_DUPLICATE},
        (apply(1, 5, "a", "duplicate", 1, 2), apply(1, 5, "a", "accepted", 3, 4)),
    ),
    "stale for nothing": (
        {FenceProperty.STALE_FOR_NOTHING},
        (apply(1, 5, "a", "accepted", 1, 2), apply(1, 5, "b", "stale", 3, 4)),
    ),
    "stale because of a stale one": (
        {FenceProperty.STALE_FOR_NOTHING},
        (apply(1, 5, "b", "stale", 1, 9), apply(2, 6, "c", "stale", 1, 9)),
    ),
    "stale because of what comes later": (
        {FenceProperty.STALE_FOR_NOTHING},
        (apply(1, 5, "b", "stale", 1, 2), apply(2, 6, "c", "accepted", 3, 4)),
    ),
    # Weaker than the search: nothing is wrong with any two of these alone.
    "an unknown one that fenced and cannot have": (
        set(),
        (
            *(info(apply(3, 7, "c", None, 1, None)), apply(1, 6, "a", "stale", 2, 3)),
            apply(2, 6, "b", "accepted", 4, 5),
        ),
    ),
    "a settled one that was not remembered": (
        set(),
        (done(apply(1, 5, "a", None, 1, 2)), apply(2, 5, "a", "accepted", 3, 4)),
    ),
}


@pytest.mark.parametrize("history", LEGAL.values(), ids=LEGAL)
def test_legal(history: tuple[Operation, ...]) -> None:
    assert judge(Fenced(), *history).verdict is Verdict.OK
    assert violations(history) == []


@pytest.mark.parametrize(("broken", "history"), ILLEGAL.values(), ids=ILLEGAL)
def test_illegal(broken: set[FenceProperty], history: tuple[Operation, ...]) -> None:
    judgement = judge(Fenced(), *history)
    assert judgement.verdict is Verdict.ILLEGAL
    found = violations(history)
    assert {violation.broken for violation in found} == broken
    assert judgement.explanations[0].remarks == tuple(map(str, found))


def test_a_violation_names_both_operations() -> None:
    history = ILLEGAL["a lower token after a higher one"][1]
    (violation,) = violations(history)
    assert (violation.operation, violation.other) == (history[1], history[0])
    assert str(violation) == (
        'a lower token was accepted after a higher one: process 1 apply(token 5, "a") = "accepted" [3, 4]; '
        'before: process 2 apply(token 6, "b") = "accepted" [1, 2]'
    )


@pytest.mark.parametrize("broken", FenceProperty)
def test_chance_breaks_every_property(broken: FenceProperty) -> None:
    """That a legal history breaks none is seen in test_oracle; here, that wrong ones do."""
    assert any(broken in {violation.broken for violation in violations(small(seed, "fenced"))} for seed in range(200))


def test_a_history_too_long_to_search_is_illegal_by_its_properties() -> None:
    history = [apply(i, 5, f"c{i}", "accepted", 1, 1000) for i in range(40)]
    history += [apply(50, 6, "d", "accepted", 1001, 1002), apply(51, 5, "e", "accepted", 1003, 1004)]
    judgement = check(history, Fenced(), steps_max=10)
    assert (judgement.verdict, judgement.explanations[0].blocked) == (Verdict.ILLEGAL, None)
    assert len(judgement.explanations[0].remarks) == 1
