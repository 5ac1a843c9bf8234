"""What a proxy passes on and what it answers, in this process: headers, paths, lengths, and a fence file that fails."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fencepost.cli.proxy.forwarding import FencedProxy
from fencepost.cli.proxy.marks import Bearer, Marks, Stored
from fencepost.raft.core.errors import ConfigurationError
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.modes import FenceMode
from fencepost.raft.effects.resources.http_client import HttpClient
from fencepost.transport.http_server import HttpServer, _Connection

from ..core.planting import planted
from ..servers.http_api import HttpApi, http_api, http_api_server

__all__ = ["http_api", "http_api_server"]

pytestmark = pytest.mark.servers

SHOWN = {"X-Fencepost-Cluster": "shop", "X-Fencepost-Token": "1.1", "X-Fencepost-Holder": "n1"}


def marks_in(folder: Path) -> Marks:
    mode = FenceMode.ENFORCE
    return Marks(folder / "fence.db", resource="api", cluster="shop", upstream="u", mode=mode, now_ns=1)


class Between:
    """A proxy, and a client of it."""

    def __init__(self, folder: Path, api: HttpApi) -> None:
        self.marks = marks_in(folder)
        self.upstream = HttpClient(
            "api", "http", api.url, connect_ns=3 * 10**9, answer_ns=5 * 10**9, connections=4, body_bytes_max=1 << 20
        )
        self.upstream.open()
        self.proxy = FencedProxy(
            self.marks,
            self.upstream,
            upstream=f"{api.url}/",
            upstream_keyed=False,
            horizon_ns=0,
            answer_bytes_max=1 << 20,
        )
        self.server = HttpServer("127.0.0.1:0", self.proxy, body_bytes_max=1 << 20)
        self.api = api
        self.client = httpx.AsyncClient(trust_env=False, timeout=5)

    async def ask(self, operation_id: str, order: Any, headers: Any = (), path: str = "/credits") -> httpx.Response:
        given = [*SHOWN.items(), ("Idempotency-Key", operation_id), *headers]
        return await self.client.post(f"http://{self.server.address}{path}", headers=given, json=order)

    def heard(self) -> dict[str, str]:
        """The headers of the last request that reached the API."""
        return {name.lower(): value for name, value in self.api.rows("requests")[-1][1].items()}

    async def close(self) -> None:
        await self.client.aclose()
        await self.server.close()
        await self.proxy.close()


@pytest_asyncio.fixture
async def between(tmp_path: Path, http_api: HttpApi) -> AsyncIterator[Between]:
    made = Between(tmp_path, http_api)
    await made.server.start()
    yield made
    await made.close()


async def test_headers_pass_byte_by_byte_in_both_directions(between: Between) -> None:
    """Bytes that are no ASCII must neither leave an operation in doubt that never was sent, nor an answer unheard."""
    euro = "€".encode()
    answer = {"do": 400, "cents": 1, "headers": {"X-Name": euro.decode("latin-1"), "Content-Encoding": "gzip"}}
    given = {**SHOWN, "Idempotency-Key": "a"}
    headers = [(name.encode(), value.encode()) for name, value in given.items()] + [(b"X-Name", b"\xe9t\xe9")]
    asked = httpx.Request("POST", f"http://{between.server.address}/credits", json=answer, headers=headers)
    # Not decoded here either: it says gzip and is none.
    for replayed in (False, True):
        response = await between.client.send(asked, stream=True)
        body = b"".join([part async for part in response.aiter_raw()])
        assert (response.status_code, body) == (400, b'{"error": "as told"}')
        raw = {name.lower(): value for name, value in response.headers.raw}
        assert (raw[b"x-name"], raw[b"content-encoding"]) == (euro, b"gzip")
        assert (b"idempotent-replayed" in raw) is replayed
    assert between.heard()["x-name"] == "été"


async def test_what_is_named_in_connection_stays_behind_except_what_makes_the_request(between: Between) -> None:
    named = [("Connection", "X-Hop, keep-alive"), ("Connection", "X-Other, Idempotency-Key, X-Fencepost-Token")]
    others = [("X-Hop", "1"), ("X-Other", "2"), ("X-End", "3"), ("Keep-Alive", "timeout=5"), ("TE", "trailers")]
    assert (await between.ask("a", {"cents": 1}, [*named, *others])).status_code == 201
    heard = between.heard()
    assert heard.keys().isdisjoint({"x-hop", "x-other", "keep-alive", "te"})
    assert (heard["x-end"], heard["idempotency-key"], heard["x-fencepost-token"]) == ("3", "a", "1.1")


@pytest.mark.parametrize("path", ["/v1/%2e%2e/admin", "/v1/%2E/"])
async def test_no_path_leads_out_of_the_one_that_others_are_added_to(between: Between, path: str) -> None:
    asked = httpx.Request("POST", f"http://{between.server.address}/", headers={**SHOWN, "Idempotency-Key": "a"})
    asked.url = asked.url.copy_with(raw_path=path.encode())
    response = await between.client.send(asked)
    assert (response.status_code, response.headers["x-fencepost-proxy"]) == (400, "COMMAND_INVALID")
    assert between.api.rows("requests") == []


async def test_an_answer_to_head_claims_no_length_that_nobody_knows(between: Between) -> None:
    response = await between.client.head(f"http://{between.server.address}/operations/a")
    assert "content-length" not in response.headers


async def test_a_fence_file_that_fails_is_told_by_the_proxy_and_nothing_is_sent(between: Between) -> None:
    between.marks._connection.execute("DROP TABLE proxy_operations")
    response = await between.ask("a", {"cents": 1})
    assert (response.status_code, response.headers["x-fencepost-proxy"]) == (503, "RESOURCE_UNAVAILABLE")
    assert between.api.rows("requests") == []


async def test_a_stale_leader_is_refused_even_where_that_cannot_be_counted(between: Between) -> None:
    claim = {**SHOWN, "X-Fencepost-Token": "1.2"}
    address = f"http://{between.server.address}/.fencepost/claim"
    assert (await between.client.post(address, headers=claim)).status_code == 200
    between.marks._connection.execute("DROP TABLE proxy")
    response = await between.ask("a", {"cents": 1})
    assert (response.status_code, response.headers["x-fencepost-proxy"]) == (412, "STALE_LEADER")


@pytest.mark.parametrize("place", ["nowhere", "folder"])
def test_a_fence_that_cannot_be_opened_is_a_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder" / "fence.db").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"fence\.db cannot be"):
        marks_in(tmp_path / place)


def test_to_tell_the_status_no_answer_is_read(tmp_path: Path) -> None:
    """Anybody may ask for it, and all requests wait for the thread that reads it."""
    steps: list[int] = []

    def told(marks: Marks) -> Any:
        count = [0]

        def step() -> int:
            count[0] += 1
            return 0

        marks._connection.set_progress_handler(step, 10)
        status = marks.together([marks.status])[0][0]
        marks._connection.set_progress_handler(None, 0)
        steps.append(count[0])
        return status["operations"]

    bearer = Bearer("shop", FencingToken(1, 1), "n1")
    marks = marks_in(tmp_path)

    def work(name: str) -> None:
        marks.mark(bearer, name, b"d", 1, again_ns=0)
        if name not in ("op3", "op5"):
            marks.answered(name, Stored(200, [], b"body"), 2)

    works = [partial(work, f"op{number}") for number in range(1000)]
    marks.together(works[:10])
    assert told(marks) == {"marked": 2, "answered": 8, "doubt": 0}
    marks.together(works[10:])
    assert told(marks) == {"marked": 2, "answered": 998, "doubt": 0}
    assert steps[1] <= steps[0] + 2
    # Those of a file that is older are counted once.
    marks._connection.execute("DROP TABLE proxy_answers")
    marks.close()
    marks = marks_in(tmp_path)
    assert told(marks) == {"marked": 0, "answered": 998, "doubt": 2}
    marks.close()
    with sqlite3.connect(tmp_path / "fence.db") as beside:
        assert beside.execute("SELECT answered FROM proxy_answers").fetchall() == [(998,)]
    beside.close()


# -- faults ----------------------------------------------------------------------------------------------


async def dots(between: Between) -> None:
    await test_no_path_leads_out_of_the_one_that_others_are_added_to(between, "/v1/%2e%2e/admin")


@pytest.mark.endure
@pytest.mark.parametrize(
    ("function", "line", "fault", "test"),
    [
        (HttpClient.request, 'value.encode("latin-1")', "value", test_headers_pass_byte_by_byte_in_both_directions),
        (FencedProxy._stored, "value.encode(encoding).decode(\"latin-1\")", "value",
         test_headers_pass_byte_by_byte_in_both_directions),
        (FencedProxy._stored, "dropped = _DROPPED_FROM_ANSWERS | named",
         "dropped = _DROPPED_FROM_ANSWERS | named | {'content-encoding'}",
         test_headers_pass_byte_by_byte_in_both_directions),
        (FencedProxy._send, '",".join(lines)', "lines[0]",
         test_what_is_named_in_connection_stays_behind_except_what_makes_the_request),
        (FencedProxy._send, " - _KEPT", "",
         test_what_is_named_in_connection_stays_behind_except_what_makes_the_request),
        (FencedProxy._send, ' or name.startswith("x-fencepost-")', "",
         test_what_is_named_in_connection_stays_behind_except_what_makes_the_request),
        (FencedProxy.__call__, 'if not {".", ".."}', 'if 0 and not {".", ".."}', dots),
        (FencedProxy.__call__, "except sqlite3.Error as error:", "except ZeroDivisionError as error:",
         test_a_fence_file_that_fails_is_told_by_the_proxy_and_nothing_is_sent),
        (FencedProxy.__call__, "contextlib.suppress(sqlite3.Error)", "contextlib.suppress(ZeroDivisionError)",
         test_a_stale_leader_is_refused_even_where_that_cannot_be_counted),
        (_Connection._write, "elif body or answer.body:", "else:",
         test_an_answer_to_head_claims_no_length_that_nobody_knows),
    ],
)  # fmt: skip
async def test_a_planted_fault_is_seen(
    between: Between, function: Callable[..., Any], line: str, fault: str, test: Callable[[Between], Awaitable[None]]
) -> None:
    with planted(function, line, fault), pytest.raises((Exception, pytest.fail.Exception)):
        await test(between)


@pytest.mark.endure
@pytest.mark.parametrize(
    ("function", "line", "fault"),
    [
        (Marks.status, "WHERE state <> 'answered' ", ""),
        (Marks.answered, "SET answered = answered + 1", "SET answered = 0"),
    ],
)
def test_a_planted_fault_in_the_counts_is_seen(
    tmp_path: Path, function: Callable[..., Any], line: str, fault: str
) -> None:
    with planted(function, line, fault), pytest.raises((Exception, pytest.fail.Exception)):
        test_to_tell_the_status_no_answer_is_read(tmp_path)
