"""Python functions that can be asked, and how long one may be attempted again under its key."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fencepost.raft.core.errors import ConfigurationError
from fencepost.raft.effects.handlers import EffectContext
from fencepost.raft.effects.resources.python import HORIZON_NS, PythonEffect, PythonResource
from fencepost.raft.ports import Answered, AttemptOutcome, AttemptStatus, Found, Guarantee

from .subjects import attempt_of, token

SUCCEEDED, UNKNOWN, DOUBT = AttemptStatus.SUCCEEDED, AttemptStatus.UNKNOWN, AttemptStatus.DOUBT


class Mail:
    """The far side, and what was asked of it."""

    def __init__(self, *, says: Any = None, fails: bool = False) -> None:
        self.says = says
        self.fails = fails
        self.sent = 0
        self.asked: list[str] = []

    async def send(self, context: EffectContext, payload: Any) -> Any:
        self.sent += 1
        if self.fails:
            raise ConnectionResetError("in the middle")
        return {"sent": self.sent}

    def query(self, context: EffectContext, payload: Any) -> Any:
        self.asked.append(context.operation_id)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


async def run(
    mail: Mail, guarantee: Guarantee, *, age_ns: int = 0, asking: bool = True, horizon_ns: int = HORIZON_NS
) -> AttemptOutcome:
    resource = PythonResource(
        "mail",
        {"send": PythonEffect(mail.send, query=mail.query if asking else "")},
        guarantee=guarantee,
        allow_duplicates=guarantee is Guarantee.NAKED,
        horizon_ns=horizon_ns,
    )
    await resource.open()
    try:
        each = attempt_of({}, "a", 1, effect="send", number=2)._replace(age_ns=age_ns)
        (outcome,) = await resource.execute(token(1), "n1", [each])
        return outcome
    finally:
        await resource.close()


@pytest.mark.parametrize(
    ("guarantee", "age_ns", "horizon_ns", "expected"),
    [
        (Guarantee.KEYED, HORIZON_NS, HORIZON_NS, SUCCEEDED),
        (Guarantee.KEYED, HORIZON_NS + 1, HORIZON_NS, DOUBT),
        (Guarantee.KEYED, 100 * HORIZON_NS, 0, SUCCEEDED),
        (Guarantee.FENCED, 100 * HORIZON_NS, HORIZON_NS, SUCCEEDED),
        (Guarantee.NAKED, 100 * HORIZON_NS, HORIZON_NS, SUCCEEDED),
    ],
)
async def test_past_the_horizon_a_keyed_one_is_not_attempted_again(
    guarantee: Guarantee, age_ns: int, horizon_ns: int, expected: AttemptStatus
) -> None:
    mail = Mail()
    outcome = await run(mail, guarantee, age_ns=age_ns, asking=False, horizon_ns=horizon_ns)
    assert (outcome.status, mail.sent) == (expected, int(expected is SUCCEEDED))


@pytest.mark.parametrize(
    ("says", "expected", "result", "sent"),
    [
        ({"id": 7}, SUCCEEDED, {"id": 7}, 0),
        (True, SUCCEEDED, True, 0),
        (0, SUCCEEDED, 0, 0),
        (False, SUCCEEDED, {"sent": 1}, 1),
        (None, DOUBT, None, 0),
        (OSError("away"), DOUBT, None, 0),
    ],
)
async def test_past_the_horizon_one_that_can_be_asked_is_asked(
    says: Any, expected: AttemptStatus, result: Any, sent: int
) -> None:
    mail = Mail(says=says)
    outcome = await run(mail, Guarantee.KEYED, age_ns=HORIZON_NS + 1)
    assert (outcome.status, mail.sent, mail.asked) == (expected, sent, ["a"])
    assert outcome.replayed is (expected is SUCCEEDED and not sent)
    assert json.loads(outcome.result or b"null") == result


@pytest.mark.parametrize(
    ("says", "expected"), [({"id": 7}, SUCCEEDED), (False, UNKNOWN), (None, UNKNOWN), (OSError("away"), UNKNOWN)]
)
async def test_a_naked_one_without_answer_is_asked_and_only_yes_is_believed(says: Any, expected: AttemptStatus) -> None:
    """No is not: what was sent may still arrive, and nothing there would recognise the repeat."""
    mail = Mail(says=says, fails=True)
    outcome = await run(mail, Guarantee.NAKED)
    assert (outcome.status, mail.sent, mail.asked) == (expected, 1, ["a"])


async def test_nobody_is_asked_where_the_far_side_recognises_a_repeat() -> None:
    for guarantee in (Guarantee.KEYED, Guarantee.FENCED):
        mail = Mail(says=True, fails=True)
        assert (await run(mail, guarantee)).status is UNKNOWN
        assert mail.asked == []


async def test_a_query_that_hangs_is_given_up() -> None:
    async def hangs(context: EffectContext, payload: Any) -> Any:
        await asyncio.Event().wait()

    mail = Mail(fails=True)
    effect = PythonEffect(mail.send, timeout_ns=50_000_000, query=hangs)
    resource = PythonResource("mail", {"send": effect}, guarantee=Guarantee.NAKED, allow_duplicates=True)
    await resource.open()
    (outcome,) = await resource.execute(token(1), "n1", [attempt_of({}, "a", 1, effect="send")])
    assert outcome.status is UNKNOWN
    await resource.close()


async def test_a_query_that_is_not_there_is_found_at_open() -> None:
    effect = PythonEffect("json:dumps", query="json:missing")
    resource = PythonResource("mail", {"send": effect}, guarantee=Guarantee.KEYED)
    with pytest.raises(ConfigurationError, match="json has no function missing"):
        await resource.open()
    await resource.close()


@pytest.mark.parametrize(
    ("says", "answer"),
    [
        ({"id": 7}, Answered(Found.APPLIED, b'{"id":7}')),
        (True, Answered(Found.APPLIED, b"true")),
        (False, Answered(Found.NOT_APPLIED)),
        (None, Answered(Found.UNKNOWN)),
        (OSError("away"), Answered(Found.UNKNOWN)),
    ],
)
async def test_a_later_leader_may_ask(says: Any, answer: Answered) -> None:
    mail = Mail(says=says)
    effect = PythonEffect(mail.send, query=mail.query)
    resource = PythonResource("mail", {"send": effect}, guarantee=Guarantee.NAKED, allow_duplicates=True)
    await resource.open()
    await resource.claim(token(2), "n2")
    assert await resource.query(attempt_of({}, "a", 1, effect="send")) == answer
    assert await resource.query(attempt_of({}, "a", 1, effect="unheard-of")) == Answered(Found.UNKNOWN)
    assert not resource.absence_is_final, "no claim has reached the other side"
    assert (mail.sent, mail.asked) == (0, ["a"])
    await resource.close()
