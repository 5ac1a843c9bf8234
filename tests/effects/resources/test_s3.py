"""An S3 server that is cut off, frozen, emptied or no S3 server, and what a resource makes of it."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as TheirCredentials

from fencepost.raft.core.errors import ConfigurationError, Outcome, ResourceUnavailable
from fencepost.raft.effects.resources.audit import check_ledger
from fencepost.raft.effects.resources.s3 import Credentials, S3Effect, S3Place, S3Resource
from fencepost.raft.effects.resources.s3_signature import signed
from fencepost.raft.ports import AttemptStatus

from ...servers.cutting import way_to
from ...servers.s3 import S3Server, s3, s3_server
from .s3_subjects import CREDENTIALS, S3Subject
from .subjects import attempt, attempt_of, token

__all__ = ["s3", "s3_server"]

pytestmark = pytest.mark.servers

SECOND = 1_000_000_000


@pytest.mark.parametrize("delivered", [True, False])
async def test_a_lost_answer_is_looked_up_and_nothing_is_done_twice(s3: S3Server, delivered: bool) -> None:
    subject = S3Subject(s3)
    async with way_to(s3.port) as way:
        resource = subject.node(endpoint=f"http://127.0.0.1:{way.port}")
        await resource.open()
        await resource.claim(token(1), "n1")
        way.cut_at(b"PUT /bucket", delivered=delivered)
        (outcome,) = await resource.execute(token(1), "n1", [attempt("a", 1)])
        assert way.cuts == 1
        assert (outcome.status, outcome.replayed) == (AttemptStatus.SUCCEEDED, False)
        assert subject.world() == ["a"]
        await resource.close()
    assert check_ledger(subject.ledger()) == []


async def test_a_frozen_server_is_waited_for_no_longer_than_the_bound(s3: S3Server) -> None:
    subject = S3Subject(s3)
    resource = subject.node(connect_ns=SECOND // 10, answer_ns=SECOND // 10)
    patient = subject.node(answer_ns=60 * SECOND, connect_ns=60 * SECOND)
    await patient.open()
    await patient.claim(token(1), "n1")
    resource._client.open()
    assert s3.process is not None
    s3.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(ResourceUnavailable) as error:
            await resource.execute(token(1), "n1", [attempt("a", 1)])
        assert error.value.outcome in (Outcome.RETRY, Outcome.UNKNOWN)
    finally:
        s3.process.send_signal(signal.SIGCONT)
    (outcome,) = await patient.execute(token(1), "n1", [attempt("a", 1)])
    assert outcome.status is AttemptStatus.SUCCEEDED
    assert subject.world() == ["a"]
    await resource.close()
    await patient.close()


async def test_an_object_that_is_gone_has_to_be_claimed_again(s3: S3Server) -> None:
    subject = S3Subject(s3)
    resource = subject.node()
    await resource.open()
    await resource.claim(token(2), "n1")
    s3.call("DELETE", "/bucket/fencepost/ledger.json")
    with pytest.raises(ResourceUnavailable, match="put back to an earlier state"):
        await resource.execute(token(2), "n1", [attempt("a")])
    assert await resource.claim(token(2), "n1") is None
    (outcome,) = await resource.execute(token(2), "n1", [attempt("a")])
    assert outcome.status is AttemptStatus.SUCCEEDED
    await resource.close()


@pytest.mark.parametrize("body", [b"hello", b"{}", b'{"format":2,"revision":1,"writer":"","ledger":null,"values":{}}'])
async def test_an_object_of_somebody_else_is_not_touched(s3: S3Server, body: bytes) -> None:
    subject = S3Subject(s3)
    s3.call("PUT", "/bucket/fencepost/ledger.json", body)
    resource = subject.node()
    await resource.open()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        await resource.claim(token(1), "n1")
    assert s3.call("GET", "/bucket/fencepost/ledger.json") == (200, body)
    await resource.close()


async def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    place = S3Place("nowhere", "key", "us-east-1", s3.endpoint)
    resource = S3Resource("ledger", place, CREDENTIALS, {"credit": S3Effect([["delete", "a"]])}, cluster_id="cluster")
    with pytest.raises(ResourceUnavailable, match="404 NoSuchBucket") as error:
        await resource.open()
    assert "secret" not in str(error.value.as_dict())
    await resource.close()


async def test_a_full_object_takes_what_makes_it_smaller(s3: S3Server) -> None:
    effects = {"put": [["set", "{name}", "{text}"]], "drop": [["delete", "{name}"]]}
    resource = S3Subject(s3).node(effects=effects, object_bytes_max=20_000)
    await resource.open()
    big = {"name": "big", "text": "x" * 15_000}
    first, second = await resource.execute(
        token(1),
        "n1",
        [attempt_of(big, "a", 1, effect="put"), attempt_of({**big, "name": "more"}, "b", 2, effect="put")],
    )
    assert (first.status, second.status) == (AttemptStatus.SUCCEEDED, AttemptStatus.NOT_ATTEMPTED)
    assert "object_max" in second.error
    await resource.execute(token(1), "n1", [attempt_of({"name": "big"}, "c", 3, effect="drop")])
    (again,) = await resource.execute(token(1), "n1", [attempt_of({**big, "name": "more"}, "b", 2, effect="put")])
    assert again.status is AttemptStatus.SUCCEEDED
    await resource.close()


async def test_what_the_steps_do(s3: S3Server) -> None:
    subject = S3Subject(s3)
    effects = {
        "pay": [
            ["add", "balance:{account}", "{cents}"],
            ["at-least", "balance:{account}", "-100"],
            ["append", "entries", "{payload}"],
            ["set", "last {account}", "{account}: {cents}"],
            ["delete", "missing"],
        ],
    }
    resource = subject.node(effects=effects)
    await resource.open()
    payments = [{"account": "ä", "cents": 5}, {"account": "ä", "cents": -105}, {"account": "ä", "cents": -106}]
    found = await resource.execute(
        token(1), "n1", [attempt_of(each, f"a{place}", place, effect="pay") for place, each in enumerate(payments, 1)]
    )
    assert [outcome.status for outcome in found] == [
        AttemptStatus.SUCCEEDED,
        AttemptStatus.SUCCEEDED,
        AttemptStatus.FAILED,
    ]
    assert json.loads(found[1].result) == {"results": [-100, -100, 2, None, False]}
    assert subject.values() == {"balance:ä": -100, "entries": payments[:2], "last ä": "ä: -105"}
    await resource.close()


# -- what is no S3 server ----------------------------------------------------------------------------------


@contextmanager
def careless_server(answers: dict[str, int]) -> Iterator[str]:
    """Answers PUT by the condition that it has, 200 where nothing is said."""

    class Careless(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            condition = "If-Match" if self.headers["If-Match"] else "If-None-Match"
            self.send_response(answers.get(condition, 200))
            self.send_header("ETag", '"0"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Careless)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("answers", "condition"),
    [({}, "If-None-Match"), ({"If-None-Match": 412}, "If-Match"), ({"If-None-Match": 501}, "If-None-Match")],
)
async def test_a_store_that_ignores_conditions_is_found_out(answers: dict[str, int], condition: str) -> None:
    with careless_server(answers) as endpoint:
        place = S3Place("bucket", "key", "us-east-1", endpoint)
        resource = S3Resource("ledger", place, CREDENTIALS, {}, cluster_id="cluster")
        with pytest.raises(ConfigurationError, match=f"does not keep to {condition} "):
            await resource.open()
        await resource.close()


async def test_a_server_that_is_away_is_no_lost_answer() -> None:
    place = S3Place("bucket", "key", "us-east-1", "http://127.0.0.1:1")
    resource = S3Resource("ledger", place, CREDENTIALS, {}, cluster_id="cluster")
    with pytest.raises(ResourceUnavailable, match="cannot be reached") as error:
        await resource.open()
    assert error.value.outcome is Outcome.RETRY
    await resource.close()


# -- the signature ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["", "a session/token+"])
@pytest.mark.parametrize("key", ["fencepost/ledger.json", "a b/ü~+.json"])
@pytest.mark.parametrize(("method", "body"), [("GET", b""), ("PUT", b'{"a":1}')])
def test_the_signature_is_the_one_that_amazon_makes(
    monkeypatch: pytest.MonkeyPatch, method: str, body: bytes, key: str, session: str
) -> None:
    now = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    place = S3Place("bucket", key, "eu-central-1")
    host = "bucket.s3.eu-central-1.amazonaws.com"
    assert place.url.startswith(f"https://{host}/")
    headers = {"If-Match": '"0123"', "Content-Type": "application/json"}
    ours = signed(
        method,
        host,
        place.url.removeprefix(f"https://{host}"),
        headers,
        body,
        region="eu-central-1",
        credentials=Credentials("AKID", "secret", session),
        now_ns=int(now.timestamp()) * SECOND,
    )
    theirs = AWSRequest(method, place.url, dict(headers), body)
    theirs.context["payload_signing_enabled"] = True
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: now.replace(tzinfo=None), raising=False)
    monkeypatch.setattr("botocore.compat.get_current_datetime", lambda: now.replace(tzinfo=None), raising=False)
    S3SigV4Auth(TheirCredentials("AKID", "secret", session or None), "s3", "eu-central-1").add_auth(theirs)
    assert ours["X-Amz-Date"] == theirs.headers["X-Amz-Date"] == "20260304T050607Z"
    assert ours["Authorization"] == theirs.headers["Authorization"]
    assert "secret" not in repr(Credentials("AKID", "secret", "secret"))


@pytest.mark.parametrize(
    ("place", "url"),
    [
        (S3Place("b", "k/a", "eu-west-1"), "https://b.s3.eu-west-1.amazonaws.com/k/a"),
        (S3Place("b.c", "k", "eu-west-1"), "https://s3.eu-west-1.amazonaws.com/b.c/k"),
        (S3Place("b", "k", "auto", "https://x.r2.example/"), "https://x.r2.example/b/k"),
    ],
)
def test_where_an_object_is(place: S3Place, url: str) -> None:
    assert place.url == url


@pytest.mark.parametrize("steps", [[["set", "a"]], [["increase", "a", "1"]], [[]], [["delete", "{a"]]])
def test_steps_that_can_never_work(steps: list[list[str]]) -> None:
    with pytest.raises(ConfigurationError, match=r"effect 'put': the steps are not usable"):
        S3Resource("s", S3Place("b", "k", "r"), CREDENTIALS, {"put": S3Effect(steps)}, cluster_id="cluster")
