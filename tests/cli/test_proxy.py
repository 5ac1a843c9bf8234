"""A fence in front of an API that has none: a real proxy process between us and a real API process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fencepost.cli.proxy.settings import load_proxy
from fencepost.raft.core.errors import (
    ConfigurationError,
    ModeRefused,
    Outcome,
    ResourceUnavailable,
    StaleLeader,
    WrongCluster,
)
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.modes import FenceMode, modal, mode_json, seen_json
from fencepost.raft.effects.resources.http import HttpEffect, HttpResource
from fencepost.raft.effects.resources.http_proxied import ProxyLink
from fencepost.raft.ports import AttemptOutcome, AttemptStatus, Fence, Guarantee

from ..core.planting import planted
from ..effects.resources.subjects import attempt
from ..servers.http_api import HttpApi, http_api, http_api_server
from ..servers.program import end, free_port, reachable
from ..waiting import eventually, eventually_async
from .running import start

__all__ = ["http_api", "http_api_server"]

pytestmark = pytest.mark.servers


class Proxy:
    """One process, and requests to it."""

    def __init__(self, folder: Path, api: HttpApi) -> None:
        self.folder = folder
        self.api = api
        self.port = free_port()
        self.process: Popen[bytes] | None = None
        self.client = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=20)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def write(self, **settings: str) -> Path:
        path = self.folder / "proxy.toml"
        lines = {
            "listen": f'"127.0.0.1:{self.port}"', "upstream": f'"{self.api.url}"', "fence": '"fence.db"',
            "cluster": '"shop"', "answer_timeout": '"5s"', **settings,
        }  # fmt: skip
        path.write_text("[proxy]\n" + "\n".join(f"{key} = {value}" for key, value in lines.items()) + "\n")
        return path

    def start(self, **settings: str) -> None:
        self.process = start("proxy", "--config", str(self.write(**settings)))
        eventually(lambda: reachable(self.port), within_s=30, what="the proxy answers")

    def kill(self) -> None:
        if self.process is not None:
            end(self.process, signal.SIGKILL)
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                if stream is not None:
                    stream.close()
            self.process = None

    async def post(self, operation_id: str = "", term: int = 1, cents: int = 1, **order: Any) -> httpx.Response:
        headers = shown(term) if term else {}
        if operation_id:
            headers["Idempotency-Key"] = f'"{operation_id}"'
        cluster = order.pop("cluster", None)
        if cluster:
            headers["X-Fencepost-Cluster"] = cluster
        return await self.client.post("/credits", headers=headers, json={"cents": cents, **order})

    async def claim(self, term: int) -> httpx.Response:
        return await self.client.post("/.fencepost/claim", headers=shown(term))

    async def status(self) -> Any:
        return (await self.client.get("/.fencepost/status")).json()

    def sent(self) -> int:
        """How often anything that changes something reached the API."""
        return sum(1 for path, _ in self.api.rows("requests") if path == "/credits")

    def held(self) -> None:
        eventually(lambda: (self.api.folder / "held").exists(), within_s=10, what="the API holds a request")

    def go(self) -> None:
        (self.api.folder / "go").touch()


def shown(term: int) -> dict[str, str]:
    return {
        "X-Fencepost-Cluster": "shop",
        "X-Fencepost-Token": f"1.{term}",
        "X-Fencepost-Holder": f"n{term}",
    }


def code(response: httpx.Response) -> tuple[int, str]:
    """Of an answer of the proxy's own."""
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-fencepost-proxy"] == response.json()["code"]
    return response.status_code, response.json()["code"]


def refused(process: Popen[bytes]) -> bytes:
    """What a proxy that must not start says."""
    try:
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 2
    return said


@pytest_asyncio.fixture
async def proxy(tmp_path: Path, http_api: HttpApi) -> AsyncIterator[Proxy]:
    made = Proxy(tmp_path, http_api)
    yield made
    made.go()
    await made.client.aclose()
    made.kill()


# -- the fence ----------------------------------------------------------------------------------------


async def test_a_lower_token_is_refused_whatever_it_asks_and_also_after_a_crash(proxy: Proxy) -> None:
    proxy.start()
    first = await proxy.post("a", term=2)
    assert (first.status_code, first.json()) == (201, {"place": 1})
    assert code(await proxy.post("b", term=1)) == (412, "STALE_LEADER")
    # A stale leader that asks about what is done must hear that it is stale.
    assert code(await proxy.post("a", term=1)) == (412, "STALE_LEADER")
    assert code(await proxy.post("a", term=3, cluster="other")) == (403, "WRONG_CLUSTER")
    assert (await proxy.claim(5)).json()["previous"] == "1.2"
    assert code(await proxy.post("c", term=4)) == (412, "STALE_LEADER")
    proxy.kill()
    proxy.start()
    assert code(await proxy.post("c", term=4)) == (412, "STALE_LEADER")
    headers = {**shown(5), "X-Fencepost-Holder": "another", "Idempotency-Key": "c"}
    twin = await proxy.client.post("/credits", headers=headers, json={"cents": 1})
    assert code(twin) == (412, "DUPLICATE_GENERATION")
    assert (await proxy.post("c", term=5)).status_code == 201
    assert proxy.api.rows("effects") == ["a", "c"]
    status = await proxy.status()
    assert (status["token"], status["refused"], status["operations"]["answered"]) == ("1.5", 6, 2)


async def test_without_a_token_nothing_is_changed_and_everything_can_be_read(proxy: Proxy) -> None:
    proxy.start()
    assert code(await proxy.post("a", term=0)) == (428, "TOKEN_MISSING")
    assert code(await proxy.post("", term=1)) == (400, "COMMAND_INVALID")
    for headers in ({"X-Fencepost-Token": "1.1"}, {**shown(1), "X-Fencepost-Token": "1.-1"}):
        response = await proxy.client.post("/credits", headers={**headers, "Idempotency-Key": "a"}, json={"cents": 1})
        assert code(response) == (400, "COMMAND_INVALID")
    assert proxy.sent() == 0
    assert (await proxy.client.get("/operations/a")).status_code == 404
    assert (await proxy.client.get("/.fencepost/nothing")).status_code == 404
    assert [path for path, _ in proxy.api.rows("requests")] == ["/operations/a"]


async def test_what_a_higher_token_asks_comes_after_everything_of_lower_ones(proxy: Proxy) -> None:
    """At the API too: what a former leader has on its way is over before the new leader's claim is answered."""
    proxy.start()
    under_way = asyncio.create_task(proxy.post("old", term=1, do="hold"))
    await asyncio.to_thread(proxy.held)
    claim = asyncio.create_task(proxy.claim(2))

    async def fence_is_up() -> object:
        return (await proxy.status())["token"] == "1.2"

    await eventually_async(fence_is_up, within_s=10, what="the claim is durable")
    assert code(await proxy.post("late", term=1)) == (412, "STALE_LEADER")
    new = asyncio.create_task(proxy.post("new", term=2))

    async def new_is_marked() -> object:
        return (await proxy.status())["operations"]["marked"] == 2

    await eventually_async(new_is_marked, within_s=10, what="the new one is marked")
    assert not claim.done()
    assert proxy.sent() == 1
    proxy.go()
    assert [(await task).status_code for task in (under_way, claim, new)] == [201, 200, 201]
    assert proxy.api.rows("effects") == ["old", "new"]


# -- repeats ------------------------------------------------------------------------------------------


async def test_a_repeat_hears_the_first_answer_and_the_api_hears_nothing(proxy: Proxy) -> None:
    proxy.start()
    first, again = await proxy.post("a"), await proxy.post("a", term=2)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    proxy.kill()
    proxy.start()
    assert (await proxy.post("a", term=2)).content == first.content
    assert code(await proxy.post("a", term=2, cents=2)) == (422, "OPERATION_ID_REUSED")
    refused = await proxy.post("bad", term=2, cents=-1)
    assert refused.status_code == 400
    assert (await proxy.post("bad", term=2, cents=-1)).headers["idempotent-replayed"] == "true"
    assert proxy.sent() == 2


async def test_what_is_under_way_is_not_sent_twice(proxy: Proxy) -> None:
    proxy.start()
    under_way = asyncio.create_task(proxy.post("a", do="hold"))
    await asyncio.to_thread(proxy.held)
    assert code(await proxy.post("a", do="hold")) == (409, "BUSY")
    proxy.go()
    assert (await under_way).status_code == 201
    assert (await proxy.post("a", do="hold")).headers["idempotent-replayed"] == "true"
    assert proxy.sent() == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_an_answer_is_kept_unless_it_says_that_nothing_was_done(proxy: Proxy, status: int) -> None:
    proxy.start()
    for _ in range(2):
        assert (await proxy.post("a", do=status)).status_code == status
    assert proxy.sent() == (2 if status == 429 else 1)


# -- in doubt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [False, True])
async def test_killed_between_mark_and_answer_it_says_that_it_does_not_know(proxy: Proxy, keyed: bool) -> None:
    proxy.start(upstream_keyed=str(keyed).lower())
    cut = asyncio.create_task(proxy.post("a", do="hold"))
    await asyncio.to_thread(proxy.held)
    proxy.kill()
    with pytest.raises(httpx.HTTPError):
        await cut
    proxy.start(upstream_keyed=str(keyed).lower())
    assert (await proxy.status())["operations"] == {"marked": 0, "answered": 0, "doubt": 1}
    if not keyed:
        for _ in range(2):
            assert code(await proxy.post("a", do="hold")) == (504, "OUTCOME_UNKNOWN")
        proxy.go()
        eventually(lambda: proxy.api.rows("effects") == ["a"], within_s=10, what="the effect")
        assert code(await proxy.post("a", do="hold")) == (504, "OUTCOME_UNKNOWN")
        assert proxy.sent() == 1
        return
    # The API knows its key: it is asked again under it, and does it once.
    assert (await proxy.post("a", do="hold")).status_code == 409
    proxy.go()
    eventually(lambda: proxy.api.rows("effects") == ["a"], within_s=10, what="the effect")

    async def answered() -> object:
        return (await proxy.post("a", do="hold")).status_code == 201

    await eventually_async(answered, within_s=10, what="the first answer")
    assert proxy.api.rows("effects") == ["a"]


async def test_an_api_that_dies_after_the_effect_leaves_a_doubt_and_one_that_is_away_none(proxy: Proxy) -> None:
    proxy.start()
    assert code(await proxy.post("a", do="die-after")) == (504, "OUTCOME_UNKNOWN")
    proxy.api.stop()
    away = await proxy.post("b")
    assert code(away) == (503, "RESOURCE_UNAVAILABLE")
    assert away.headers["retry-after"] == "1"
    proxy.api.start()
    assert code(await proxy.post("a", do="die-after")) == (504, "OUTCOME_UNKNOWN")
    assert (await proxy.post("b")).status_code == 201
    assert proxy.api.rows("effects") == ["a", "b"]
    assert proxy.sent() == 2


async def test_a_doubt_stays_one_although_sending_it_again_was_not_possible(proxy: Proxy) -> None:
    proxy.start(upstream_keyed="true")
    assert code(await proxy.post("a", do="die-after")) == (504, "OUTCOME_UNKNOWN")
    proxy.api.stop()
    assert code(await proxy.post("a", do="die-after")) == (503, "RESOURCE_UNAVAILABLE")
    assert (await proxy.status())["operations"] == {"marked": 0, "answered": 0, "doubt": 1}
    proxy.kill()
    # Past the horizon the key may be forgotten: it is not sent again.
    proxy.start(upstream_keyed="true", horizon='"1us"')
    proxy.api.start()
    assert code(await proxy.post("a", do="die-after")) == (504, "OUTCOME_UNKNOWN")
    assert (proxy.sent(), proxy.api.rows("effects")) == (1, ["a"])


async def test_a_frozen_proxy_is_nobodys_successor_and_judges_anew_when_it_wakes(proxy: Proxy) -> None:
    proxy.start()
    assert (await proxy.claim(1)).status_code == 200
    process = proxy.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        second = start("proxy", "--config", str(proxy.write(listen=f'"127.0.0.1:{free_port()}"')))
        assert b"one proxy at a time" in await asyncio.to_thread(refused, second)
        # Both wait in its sockets; the claim is read first.
        claim = asyncio.create_task(proxy.claim(2))
        stale = asyncio.create_task(proxy.post("late", term=1))
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert (await claim).status_code == 200
    late = await stale
    assert late.status_code in (201, 412)  # Whichever was read first;
    assert code(await proxy.post("later", term=1)) == (412, "STALE_LEADER")  # and from here on there is no doubt.
    assert proxy.sent() == (1 if late.status_code == 201 else 0)


@pytest.mark.endure
async def test_a_proxy_that_is_stopped_lets_what_is_under_way_be_answered(proxy: Proxy) -> None:
    proxy.start()
    held = asyncio.create_task(proxy.post("a", do="hold"))
    await asyncio.to_thread(proxy.held)
    process = proxy.process
    assert process is not None
    process.send_signal(signal.SIGTERM)

    async def turned_away() -> bool:
        return (await proxy.post("b")).status_code == 503

    # Its stop is heard of by others; the one under way is not cut.
    await eventually_async(turned_away, within_s=10, what="the proxy takes no more")
    proxy.go()
    assert (await held).status_code == 201
    assert await asyncio.to_thread(process.wait, 10) == 0
    proxy.kill()
    proxy.start()
    assert (await proxy.status())["operations"]["doubt"] == 0
    again = await proxy.post("a", do="hold")
    assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")


# -- modes --------------------------------------------------------------------------------------------


async def test_observing_lets_everything_pass_and_counts_and_never_comes_back(proxy: Proxy) -> None:
    proxy.start(mode='"observe"')
    assert (await proxy.claim(2)).json()["mode"] == "observe"
    assert (await proxy.post("", term=0)).status_code == 201
    assert (await proxy.post("a", term=1)).status_code == 201
    status = await proxy.status()
    assert (status["unfenced"], status["would_reject"], status["token"]) == (1, 2, "1.2")
    assert code(await proxy.post("b", term=2, cluster="other")) == (403, "WRONG_CLUSTER")
    proxy.kill()
    proxy.start()
    assert code(await proxy.post("", term=0)) == (428, "TOKEN_MISSING")
    proxy.kill()
    back = start("proxy", "--config", str(proxy.write(mode='"observe"')))
    assert b"no way back" in await asyncio.to_thread(refused, back)
    with sqlite3.connect(proxy.folder / "fence.db") as beside, pytest.raises(sqlite3.IntegrityError):
        beside.execute("UPDATE proxy SET mode = 'observe'")
    beside.close()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "proxy.toml: proxy: missing: a table [proxy]"),
        ('[proxy]\nlisten = "127.0.0.1:1"\nupstream = "x"\nfence = "f"\ncluster = "c"', "must begin with http"),
        (
            '[proxy]\nlisten = "127.0.0.1:1"\nupstrem = "x"\nfence = "f"\ncluster = "c"',
            "did you mean 'upstream'",
        ),
    ],
)
def test_a_wrong_file_is_told_where(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "proxy.toml").write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        load_proxy(tmp_path / "proxy.toml", {})
    assert any(problem in line for line in raised.value.tried)


# -- a resource through it -----------------------------------------------------------------------------


@pytest.fixture
def resources(proxy: Proxy) -> list[HttpResource]:
    effects = {"credit": HttpEffect("/credits", query="/operations/{operation_id}"), "blind": HttpEffect("/credits")}
    return [
        HttpResource("payments", proxy.url, effects, cluster_id="shop", proxied=True, answer_ns=5_000_000_000)
        for _ in range(2)
    ]


async def one(resource: HttpResource, term: int, operation_id: str, effect: str = "credit", **order: Any) -> Any:
    made = attempt(operation_id, effect=effect)._replace(payload=json.dumps({"cents": 1, **order}).encode())
    (outcome,) = await resource.execute(FencingToken(1, term), f"n{term}", [made])
    return outcome


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_resource_through_it_is_refused_when_it_is_stale_and_says_what_it_can_promise(
    proxy: Proxy, resources: list[HttpResource], keyed: bool
) -> None:
    proxy.start(upstream_keyed=str(keyed).lower())
    old, new = resources
    for resource in resources:
        await resource.open()
    try:
        assert old.guarantee is Guarantee.KEYED
        assert await old.claim(FencingToken(1, 1), "n1") is None
        assert old.guarantee is (Guarantee.FENCED if keyed else Guarantee.KEYED)
        assert ("put in doubt" in old.guarantee_reason) is not keyed
        assert (await one(old, 1, "a")).status is AttemptStatus.SUCCEEDED
        assert await new.claim(FencingToken(1, 2), "n2") == Fence(FencingToken(1, 1), "n1")
        with pytest.raises(StaleLeader):
            await one(old, 1, "b")
        with pytest.raises(StaleLeader):
            await old.claim(FencingToken(1, 1), "n1")
        replayed = await one(new, 2, "a")
        assert (replayed.status, replayed.replayed) == (AttemptStatus.SUCCEEDED, True)
        assert proxy.api.rows("effects") == ["a"]
        # An answer that never came: with a query the API decides, without one nobody does.
        settled: AttemptOutcome = await one(new, 2, "c", do="die-after")
        proxy.api.stop()
        proxy.api.start()
        if not keyed:
            assert settled.status is AttemptStatus.DOUBT
            assert (await one(new, 2, "c", do="die-after")).status is AttemptStatus.SUCCEEDED
            blind = await one(new, 2, "d", "blind", do="die-after")
            proxy.api.stop()
            proxy.api.start()
            assert blind.status is AttemptStatus.DOUBT
            assert (await one(new, 2, "d", "blind", do="die-after")).status is AttemptStatus.DOUBT
        else:
            assert settled.status is AttemptStatus.UNKNOWN
            assert (await one(new, 2, "c", do="die-after")).status is AttemptStatus.SUCCEEDED
        assert proxy.api.rows("effects") == ["a", "c"] + ([] if keyed else ["d"])
        # That nobody listens behind the proxy is no fault of a command.
        proxy.api.stop()
        with pytest.raises(ResourceUnavailable, match="RESOURCE_UNAVAILABLE") as away:
            await one(new, 2, "e")
        assert away.value.outcome is Outcome.RETRY
        proxy.api.start()
        assert (await one(new, 2, "e")).status is AttemptStatus.SUCCEEDED
        proxy.kill()
        with pytest.raises(ResourceUnavailable):
            await new.claim(FencingToken(1, 3), "n3")
    finally:
        for resource in resources:
            await resource.close()


async def test_a_resource_tells_the_mode_of_its_proxy_and_where_it_is_changed(
    proxy: Proxy, resources: list[HttpResource]
) -> None:
    proxy.start(mode='"observe"')
    (resource, _) = resources
    plain = HttpResource("plain", proxy.api.url, {}, cluster_id="shop")
    assert modal(plain) is None
    assert modal(resource) is resource
    await resource.open()
    try:
        await proxy.post("", term=0)
        await resource.claim(FencingToken(1, 2), "n2")
        seen = resource.mode_seen
        assert seen is not None
        assert (seen.mode, seen.unfenced) == (FenceMode.OBSERVE, 1)
        assert seen_json(resource) == mode_json(seen)
        await proxy.post("low", term=1)
        report = await resource.mode()
        assert (report.unfenced, report.would_reject, report.guarded) == (1, 2, [])
        assert report.last_unfenced_ns > report.observed_ns > 0
        observe, enforce = FenceMode.OBSERVE, FenceMode.ENFORCE
        assert await resource.set_mode(FencingToken(1, 2), "n2", observe, 0) == report
        with pytest.raises(ModeRefused, match="the last write without a token was"):
            await resource.set_mode(FencingToken(1, 2), "n2", enforce, 3600 * 10**9)
        with pytest.raises(ModeRefused, match="its proxy has its mode from its own file") as refused:
            await resource.set_mode(FencingToken(1, 2), "n2", enforce, 0)
        assert 'mode = "enforce" under [proxy]' in refused.value.next_step
        with pytest.raises(StaleLeader):
            await resource.set_mode(FencingToken(1, 1), "n1", observe, 0)
        proxy.kill()
        with pytest.raises(ResourceUnavailable):
            await resource.mode()
        proxy.start(mode='"enforce"')
        assert (await resource.mode()).mode is FenceMode.ENFORCE
    finally:
        await resource.close()


@pytest.mark.endure
@pytest.mark.parametrize(
    ("function", "line", "fault"),
    [
        (HttpResource.set_mode, "self._pass_fence(token, holder)", "pass"),
        (HttpResource.set_mode, "if check_step(", "if None and check_step("),
        (ProxyLink.claim, "self.seen = _report(said)", "pass"),
        (ProxyLink.mode, 'self._client.request("GET"', 'self._client.request("POST"'),
    ],
)
async def test_a_planted_fault_in_the_mode_of_a_proxy_is_seen(
    proxy: Proxy, resources: list[HttpResource], function: Callable[..., Any], line: str, fault: str
) -> None:
    with planted(function, line, fault), pytest.raises((Exception, pytest.fail.Exception)):
        await test_a_resource_tells_the_mode_of_its_proxy_and_where_it_is_changed(proxy, resources)


async def test_a_resource_is_told_of_another_cluster_and_of_what_is_no_proxy(proxy: Proxy) -> None:
    proxy.start()
    stranger = HttpResource("payments", proxy.url, {}, cluster_id="other", proxied=True)
    direct = HttpResource("payments", proxy.api.url, {}, cluster_id="shop", proxied=True)
    for resource in (stranger, direct):
        await resource.open()
    try:
        with pytest.raises(WrongCluster):
            await stranger.claim(FencingToken(1, 1), "n1")
        with pytest.raises(ResourceUnavailable):
            await direct.claim(FencingToken(1, 1), "n1")
        with pytest.raises(ResourceUnavailable, match="is no fencepost proxy's"):
            await direct.mode()
    finally:
        for resource in (stranger, direct):
            await resource.close()
