"""What an HTTP API may answer or fail to, and what becomes of the attempt."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from fencepost.raft.core.errors import (
    ConfigurationError,
    DuplicateGeneration,
    Outcome,
    ResourceUnavailable,
    StaleLeader,
)
from fencepost.raft.effects.resources.http import HttpEffect, HttpResource
from fencepost.raft.effects.resources.http_answer import retry_after_ns
from fencepost.raft.ports import Answered, AttemptOutcome, AttemptStatus, Fence, Found

from ...servers.cutting import way_to
from ...servers.http_api import HttpApi, http_api, http_api_server
from ...waiting import eventually_async
from .subjects import attempt_of, token

__all__ = ["http_api", "http_api_server"]

pytestmark = pytest.mark.servers

SUCCEEDED, FAILED, RETRY = AttemptStatus.SUCCEEDED, AttemptStatus.FAILED, AttemptStatus.RETRY
NOT_ATTEMPTED, UNKNOWN, DOUBT = AttemptStatus.NOT_ATTEMPTED, AttemptStatus.UNKNOWN, AttemptStatus.DOUBT
SECOND = 1_000_000_000
HOUR = 3600 * SECOND

CREDIT = HttpEffect("/credits")
ASKING = HttpEffect("/credits", query="/operations/{operation_id}")

Open = Callable[..., Any]


@pytest_asyncio.fixture
async def open_http(http_api: HttpApi) -> AsyncIterator[Open]:
    opened: list[HttpResource] = []

    async def make(effect: HttpEffect = CREDIT, **options: Any) -> HttpResource:
        options.setdefault("url", http_api.url)
        resource = HttpResource("api", effects={"credit": effect}, cluster_id="cluster", **options)
        opened.append(resource)
        await resource.open()
        return resource

    yield make
    for resource in opened:
        await resource.close()


async def run(
    resource: HttpResource, payload: Any = None, name: str = "a", *, age_ns: int = 0, term: int = 1
) -> AttemptOutcome:
    each = attempt_of({"cents": 1} if payload is None else payload, name, 1, number=2 if age_ns else 1)
    (outcome,) = await resource.execute(token(term), f"n{term}", [each._replace(age_ns=age_ns)])
    return outcome


# -- what is sent -----------------------------------------------------------------------------------------


async def test_what_a_request_carries(http_api: HttpApi, open_http: Open) -> None:
    resource = await open_http(authorization="Bearer s3cret")
    outcome = await run(resource, name='or"der\\1')
    assert json.loads(outcome.result) == {"status": 201, "body": {"place": 1}}
    ((path, headers),) = http_api.rows("requests")
    assert path == "/credits"
    assert headers["Idempotency-Key"] == '"or\\"der\\\\1"'
    assert headers["X-Fencepost-Token"] == "1.1"
    assert headers["X-Fencepost-Cluster"] == "cluster"
    assert headers["X-Fencepost-Holder"] == "n1"
    assert headers["Authorization"] == "Bearer s3cret"
    assert headers["Content-Type"] == "application/json"
    assert http_api.rows("effects") == ['or"der\\1']


async def test_values_are_encoded_into_a_path_and_lead_nowhere_else(http_api: HttpApi, open_http: Open) -> None:
    resource = await open_http(HttpEffect("/a/{name}/b?x={name}", body="{{{name}}}"))
    await run(resource, {"name": "../ü?&#%2e", "cents": 1})
    ((path, _),) = http_api.rows("requests")
    assert path == "/a/..%2F%C3%BC%3F%26%23%252e/b?x=..%2F%C3%BC%3F%26%23%252e"
    for name in ("..", ".", ""):
        assert (await run(resource, {"name": name})).status is FAILED
    assert len(http_api.rows("requests")) == 1


@pytest.mark.parametrize("name", ["ü", "a\nb", " a", "x" * 256])
async def test_an_id_that_no_header_can_carry(http_api: HttpApi, open_http: Open, name: str) -> None:
    outcome = await run(await open_http(), name=name)
    assert outcome.status is FAILED
    assert "cannot be sent as a key" in outcome.error
    assert http_api.rows("requests") == []


async def test_a_key_without_quotes_under_another_name(http_api: HttpApi, open_http: Open) -> None:
    await run(await open_http(key_quotes=False, key_header="X-Request-Id"))
    assert http_api.rows("requests")[0][1]["X-Request-Id"] == "a"


async def test_the_authorization_is_never_said(open_http: Open, http_api: HttpApi) -> None:
    resource = await open_http(authorization="Bearer s3cret", url="http://127.0.0.1:1")
    with pytest.raises(ResourceUnavailable) as away:
        await run(resource)
    assert "s3cret" not in str(away.value.as_dict())
    assert "s3cret" not in (await run(await open_http(authorization="Bearer s3cret"), {"do": 401})).error
    with pytest.raises(ConfigurationError) as error:
        await open_http(authorization="s3cret\nX-Other: 1")
    assert "s3cret" not in str(error.value.as_dict())


# -- what is answered ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "headers", "expected", "pause_s"),
    [
        (400, {}, FAILED, 0),
        (403, {}, FAILED, 0),
        (404, {}, FAILED, 0),
        (422, {}, FAILED, 0),
        (401, {}, NOT_ATTEMPTED, 0),
        (408, {}, RETRY, 0),
        (425, {}, RETRY, 0),
        (429, {"Retry-After": "7"}, RETRY, 7),
        (429, {"Retry-After": "99999999"}, RETRY, 3600),
        (409, {"Retry-After": "2"}, UNKNOWN, 2),
        (301, {"Location": "/elsewhere"}, UNKNOWN, 0),
        (307, {"Location": "/credits"}, UNKNOWN, 0),
        (500, {}, UNKNOWN, 0),
        (503, {"Retry-After": "5"}, UNKNOWN, 5),
    ],
)
async def test_what_a_status_means(
    http_api: HttpApi, open_http: Open, status: int, headers: dict[str, str], expected: AttemptStatus, pause_s: int
) -> None:
    outcome = await run(await open_http(), {"do": status, "headers": headers, "cents": 1})
    assert (outcome.status, outcome.pause_ns) == (expected, pause_s * SECOND)
    assert str(status) in outcome.error
    assert len(http_api.rows("requests")) == 1, "redirects are not followed, and nothing is sent twice"


def test_a_date_may_be_asked_for() -> None:
    now_ns = 784111777 * SECOND  # Sun, 06 Nov 1994 08:49:37 GMT
    assert retry_after_ns({"Retry-After": "Sun, 06 Nov 1994 08:49:47 GMT"}, now_ns) == 10 * SECOND
    for value in ("Sun, 06 Nov 1994 08:49:17 GMT", "soon", "-5", ""):
        assert retry_after_ns({"Retry-After": value}, now_ns) == 0


async def test_an_answer_that_is_too_long_is_cut_and_the_effect_is_done(http_api: HttpApi, open_http: Open) -> None:
    outcome = await run(await open_http(answer_bytes_max=1000), {"do": "drip", "cents": 1})
    assert outcome.status is SUCCEEDED
    assert json.loads(outcome.result) == {"status": 200, "body": None, "cut": True}
    assert http_api.rows("effects") == ["a"]


async def test_one_that_is_under_way_is_no_failure(http_api: HttpApi, open_http: Open) -> None:
    first, second = await open_http(), await open_http()
    order = {"do": "hold", "cents": 1}
    under_way = asyncio.create_task(run(first, order))

    async def held() -> bool:
        return (http_api.folder / "held").exists()

    await eventually_async(held, within_s=30, what="the API holds the request")
    busy = await run(second, order)
    assert (busy.status, busy.pause_ns) == (UNKNOWN, 2 * SECOND)
    assert "under way" in busy.error
    (http_api.folder / "go").touch()
    assert (await under_way).status is SUCCEEDED
    after = await run(second, order)
    assert (after.status, after.replayed) == (SUCCEEDED, True)
    assert http_api.rows("effects") == ["a"]


# -- an error that is kept ------------------------------------------------------------------------------------


@pytest.mark.parametrize("do", ["stored-500", "lost-500"])
async def test_an_error_that_the_api_keeps_ends_in_doubt(http_api: HttpApi, open_http: Open, do: str) -> None:
    resource = await open_http()
    first = await run(resource, {"do": do, "cents": 1})
    again = await run(resource, {"do": do, "cents": 1}, age_ns=SECOND)
    assert (first.status, again.status) == (UNKNOWN, DOUBT)
    assert "keeps this answer" in again.error


@pytest.mark.parametrize(("do", "expected"), [("stored-500", FAILED), ("lost-500", SUCCEEDED)])
async def test_an_api_that_can_be_asked_settles_it(
    http_api: HttpApi, open_http: Open, do: str, expected: AttemptStatus
) -> None:
    resource = await open_http(ASKING)
    await run(resource, {"do": do, "cents": 1})
    again = await run(resource, {"do": do, "cents": 1}, age_ns=SECOND)
    # Either is what became of the first attempt, and so of the operation.
    assert (again.status, again.replayed) == (expected, True)


async def test_equal_errors_in_a_row_are_one_that_is_kept(open_http: Open) -> None:
    resource = await open_http(stored_errors=3)
    found = [(await run(resource, {"do": 500, "cents": 1})).status for _ in range(3)]
    assert found == [UNKNOWN, UNKNOWN, DOUBT]
    # What a gateway says for a server that is away is not kept anywhere.
    assert {(await run(resource, {"do": 503, "cents": 1}, "b")).status for _ in range(6)} == {UNKNOWN}


# -- no answer ------------------------------------------------------------------------------------------------


async def test_a_server_that_is_away_was_not_attempted(open_http: Open) -> None:
    """It is the endpoint that is away: nothing more is started there before it was claimed again (S53)."""
    with pytest.raises(ResourceUnavailable, match="cannot be reached") as away:
        await run(await open_http(url="http://127.0.0.1:1"))
    assert away.value.outcome is Outcome.RETRY


@pytest.mark.parametrize("do", ["die-before", "die-after"])
async def test_a_server_that_is_killed_under_a_request(http_api: HttpApi, open_http: Open, do: str) -> None:
    resource = await open_http()
    lost = await run(resource, {"do": do, "cents": 1})
    assert lost.status is UNKNOWN
    assert http_api.process is not None
    http_api.process.wait()
    with pytest.raises(ResourceUnavailable):
        await run(resource, {"do": do, "cents": 1}, "b")
    http_api.start()
    if do == "die-before":
        assert http_api.rows("effects") == []
        return
    again = await run(resource, {"do": do, "cents": 1}, age_ns=SECOND)
    assert (again.status, again.replayed) == (SUCCEEDED, True)
    assert http_api.rows("effects") == ["a"]


@pytest.mark.parametrize("delivered", [True, False])
async def test_a_way_that_is_cut_under_a_request(http_api: HttpApi, open_http: Open, delivered: bool) -> None:
    async with way_to(http_api.port) as way:
        resource = await open_http(url=f"http://127.0.0.1:{way.port}")
        way.cut_at(b"POST", delivered=delivered)
        assert (await run(resource)).status is UNKNOWN
        assert http_api.rows("effects") == ["a"] * delivered
        again = await run(resource, age_ns=SECOND)
        assert (again.status, again.replayed) == (SUCCEEDED, delivered)
        assert http_api.rows("effects") == ["a"]
        await resource.close()


async def test_a_frozen_server_is_given_up_and_its_late_effect_recognised(http_api: HttpApi, open_http: Open) -> None:
    resource = await open_http(answer_ns=SECOND // 5)
    await run(resource, name="first")  # So that there is a connection, and the request goes out.
    assert http_api.process is not None
    http_api.process.send_signal(signal.SIGSTOP)
    try:
        outcome = await run(resource)
        assert outcome.status is UNKNOWN
    finally:
        http_api.process.send_signal(signal.SIGCONT)
    patient = await open_http()

    async def succeeded() -> bool:
        return (await run(patient, age_ns=SECOND)).status is SUCCEEDED

    await eventually_async(succeeded, within_s=30, what="it is applied")
    assert http_api.rows("effects") == ["first", "a"]


# -- the horizon ----------------------------------------------------------------------------------------------


async def test_past_the_horizon_nothing_is_sent_again(http_api: HttpApi, open_http: Open) -> None:
    """The API has forgotten the key by then: a repeat would be a second effect."""
    resource = await open_http()
    assert (await run(resource)).status is SUCCEEDED
    http_api.forget()
    assert (await run(resource, age_ns=23 * HOUR + 1)).status is DOUBT
    assert http_api.rows("effects") == ["a"]
    assert (await run(resource, age_ns=23 * HOUR)).status is SUCCEEDED
    assert http_api.rows("effects") == ["a", "a"], "inside the horizon it is the API that has to recognise it"


async def test_past_the_horizon_an_api_that_can_be_asked_is_asked(http_api: HttpApi, open_http: Open) -> None:
    resource = await open_http(ASKING)
    await run(resource)
    http_api.forget()
    known = await run(resource, age_ns=24 * HOUR)
    assert (known.status, known.replayed) == (SUCCEEDED, True)
    assert http_api.rows("effects") == ["a"]
    never = await run(resource, name="b", age_ns=24 * HOUR)
    assert (never.status, never.replayed) == (SUCCEEDED, False)
    assert http_api.rows("effects") == ["a", "b"]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"applied": True}, SUCCEEDED),
        (200, {"any": "thing"}, SUCCEEDED),
        (200, {"applied": None}, DOUBT),
        (403, {}, DOUBT),
        (500, {}, NOT_ATTEMPTED),
        (429, {}, NOT_ATTEMPTED),
    ],
)
async def test_what_it_may_say(
    http_api: HttpApi, open_http: Open, status: int, body: Any, expected: AttemptStatus
) -> None:
    http_api.says(status, body)
    outcome = await run(await open_http(ASKING), age_ns=24 * HOUR)
    assert outcome.status is expected
    assert http_api.rows("effects") == []


async def test_a_later_leader_may_ask_about_what_was_left_in_doubt(http_api: HttpApi, open_http: Open) -> None:
    resource = await open_http(ASKING)
    await run(resource)
    answer = await resource.query(attempt_of({}, "a"))
    assert (answer.found, json.loads(answer.result)) == (Found.APPLIED, {"status": 200, "body": {"applied": True}})
    assert await resource.query(attempt_of({}, "b")) == Answered(Found.NOT_APPLIED)
    assert not resource.absence_is_final, "it may still be on its way to the API"
    http_api.says(500, {})
    assert await resource.query(attempt_of({}, "a")) == Answered(Found.UNKNOWN)
    assert await (await open_http(CREDIT)).query(attempt_of({}, "a")) == Answered(Found.UNKNOWN)


# -- the token in this process ----------------------------------------------------------------------------------


async def test_a_lower_token_of_this_process_is_refused_before_anything_is_sent(
    http_api: HttpApi, open_http: Open
) -> None:
    resource = await open_http()
    assert await resource.claim(token(5), "n5") is None
    assert await resource.claim(token(6), "n6") == Fence(token(5), "n5")
    with pytest.raises(StaleLeader):
        await run(resource, term=5)
    with pytest.raises(DuplicateGeneration):
        await resource.claim(token(6), "n7")
    assert await resource.fence() == Fence(token(6), "n6")
    assert http_api.rows("requests") == []


@pytest.mark.parametrize(
    "effect",
    [
        HttpEffect("credits"),
        HttpEffect("/a b"),
        HttpEffect("/{a b}"),
        HttpEffect("/a", method="GET"),
        HttpEffect("/a", query="a"),
        HttpEffect("/a", body="{"),
    ],
)
def test_an_effect_that_can_never_work(effect: HttpEffect) -> None:
    with pytest.raises(ConfigurationError, match="effect 'credit'"):
        HttpResource("api", "http://127.0.0.1", {"credit": effect}, cluster_id="cluster")
