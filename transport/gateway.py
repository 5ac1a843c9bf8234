"""What a node answers over HTTP: whether it lives, whether it is ready, whether it leads, and its metrics.

For supervisors, load balancers and scrapers. Nothing here asks another node, so nothing here can hang on one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from .http_problem import HttpAnswer, json_answer, problem
from .http_server import HttpRequest


class Check(NamedTuple):
    """One condition of readiness, by name in :meth:`NodeView.checks`."""

    ok: bool
    detail: str


class Standing(NamedTuple):
    """Where a node stands: what every answer says in its headers."""

    node: str
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    """The last index applied."""
    term: int
    leader: str
    """The leader's id as far as this node knows; empty for none."""
    leader_address: str
    """Where clients reach it; empty if not known."""
    leads: bool
    """This node leads, and a quorum has followed it within its lease."""


class NodeView(Protocol):
    def standing(self) -> Standing: ...

    def checks(self) -> Mapping[str, Check]: ...


class Gateway:
    """The handler of a :class:`~.http_server.HttpServer`. ``metrics()`` is the text of a scrape and its type."""

    def __init__(self, view: NodeView, metrics: Callable[[], tuple[bytes, str]]) -> None:
        self._view = view
        self._metrics = metrics

    async def __call__(self, request: HttpRequest) -> HttpAnswer:
        standing = self._view.standing()
        if request.method not in ("GET", "HEAD"):
            answer = problem(405, "USAGE", f"{request.method} is not answered here")
            answer = answer._replace(headers=(("Allow", "GET, HEAD"),))
        else:
            answer = self._route(request.path, standing)
        said = (
            ("X-Fencepost-Node", standing.node),
            ("X-Fencepost-Index", str(standing.index)),
            ("X-Fencepost-Term", str(standing.term)),
            ("X-Fencepost-Leader", standing.leader),
            ("Cache-Control", "no-store"),
        )
        return answer._replace(headers=answer.headers + said)

    def _route(self, path: str, standing: Standing) -> HttpAnswer:
        if path == "/livez":
            # That this was answered is the answer: the loop turns. It asks for no quorum, because a node that is
            # restarted for want of one helps nobody to get one.
            return json_answer({"live": True, "node": standing.node})
        if path == "/leader":
            return _leader(standing)
        if path == "/readyz":
            return self._ready("")
        if path.startswith("/readyz/"):
            return self._ready(path.removeprefix("/readyz/"))
        if path == "/metrics":
            text, content_type = self._metrics()
            return HttpAnswer(200, text, content_type)
        return problem(404, "NOT_FOUND", "here are /livez, /readyz, /readyz/CHECK, /leader and /metrics")

    def _ready(self, name: str) -> HttpAnswer:
        checks = self._view.checks()
        if name:
            if name not in checks:
                return problem(404, "NOT_FOUND", f"no check {name!r}; there are {', '.join(checks)}")
            checks = {name: checks[name]}
        told = {each: {"ok": check.ok, "detail": check.detail} for each, check in checks.items()}
        failed = [f"{each}: {check.detail}" for each, check in checks.items() if not check.ok]
        if failed:
            return problem(503, "CHECK_FAILED", "; ".join(failed), ready=False, checks=told)
        return json_answer({"ready": True, "checks": told})


def _leader(standing: Standing) -> HttpAnswer:
    if standing.leads:
        return json_answer({"leader": standing.leader, "term": standing.term, "address": standing.leader_address})
    if not standing.leader or standing.leader == standing.node:
        return problem(503, "NO_LEADER", "this node knows of no leader that a quorum follows", term=standing.term)
    return problem(
        503,
        "NOT_LEADER",
        f"{standing.leader} leads",
        leader=standing.leader,
        term=standing.term,
        address=standing.leader_address,
    )
