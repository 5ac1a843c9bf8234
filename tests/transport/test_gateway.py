"""What supervisors, load balancers and scrapers hear from a node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.transport.gateway import Check, Gateway, Standing
from fencepost.transport.http_server import HttpRequest


class View:
    def __init__(self) -> None:
        self.at = Standing("n1", 12, 3, "n1", "127.0.0.1:7101", True)
        self.found = {"leader": Check(True, "leads"), "resource.ledger": Check(True, "active")}

    def standing(self) -> Standing:
        return self.at

    def checks(self) -> dict[str, Check]:
        return self.found


class Asked:
    def __init__(self) -> None:
        self.view = View()
        self.gateway = Gateway(self.view, lambda: (b"fencepost_term 3\n", "text/plain"))

    async def __call__(self, path: str, method: str = "GET") -> tuple[int, Any, dict[str, str]]:
        answer = await self.gateway(HttpRequest(method, path, path, [], b""))
        body = json.loads(answer.body) if answer.content_type.endswith("json") else answer.body
        return answer.status, body, dict(answer.headers)


@pytest.fixture
def ask() -> Asked:
    return Asked()


async def test_every_answer_bears_index_term_and_leader(ask: Asked) -> None:
    for path in ("/livez", "/readyz", "/leader", "/metrics", "/nothing"):
        headers = (await ask(path))[2]
        assert headers["X-Fencepost-Index"] == "12"
        assert (headers["X-Fencepost-Term"], headers["X-Fencepost-Leader"]) == ("3", "n1")


async def test_liveness_does_not_ask_for_a_leader_and_readiness_does(ask: Asked) -> None:
    ask.view.at = Standing("n1", 12, 3, "", "", False)
    ask.view.found["leader"] = Check(False, "knows no leader")
    assert (await ask("/livez"))[0] == 200
    status, body, _ = await ask("/readyz")
    assert (status, body["code"], body["ready"]) == (503, "CHECK_FAILED", False)
    assert body["checks"]["leader"] == {"ok": False, "detail": "knows no leader"}
    assert (await ask("/readyz/leader"))[0] == 503
    assert (await ask("/readyz/resource.ledger"))[0] == 200
    assert (await ask("/readyz/nothing"))[0] == 404
    assert (await ask("/leader"))[:2][1]["code"] == "NO_LEADER"


async def test_only_a_leader_with_its_lease_is_one_for_a_load_balancer(ask: Asked) -> None:
    assert (await ask("/leader"))[:2] == (200, {"leader": "n1", "term": 3, "address": "127.0.0.1:7101"})
    ask.view.at = ask.view.at._replace(leads=False)
    assert (await ask("/leader"))[:2][0] == 503
    ask.view.at = Standing("n1", 12, 3, "n2", "127.0.0.1:7102", False)
    status, body, _ = await ask("/leader")
    assert (status, body["code"], body["leader"], body["address"]) == (503, "NOT_LEADER", "n2", "127.0.0.1:7102")


async def test_nothing_can_be_changed_here(ask: Asked) -> None:
    status, body, headers = await ask("/metrics", "POST")
    assert (status, body["code"], headers["Allow"]) == (405, "USAGE", "GET, HEAD")
    assert (await ask("/metrics"))[1] == b"fencepost_term 3\n"
