"""What an HTTP answer is, and the form of every error: problem+json (RFC 9457) with the codes of the error tree."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ..raft.core.errors import FencepostError

JSON = "application/json"
PROBLEM = "application/problem+json"


class HttpAnswer(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


def json_answer(body: Any, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status, msgspec.json.encode(body) + b"\n")


def problem(status: int, code: str, detail: str, **more: Any) -> HttpAnswer:
    """An error with a stable ``code``; ``more`` are further members of the object."""
    body = {"type": f"urn:fencepost:error:{code}", "title": code, "status": status, "detail": detail, "code": code}
    return HttpAnswer(status, msgspec.json.encode({**body, **more}) + b"\n", PROBLEM)


def problem_of(error: FencepostError, status: int, **more: Any) -> HttpAnswer:
    """The same object that the command line prints, as an answer with ``status``."""
    told = error.as_dict()
    return problem(status, error.code, error.message, outcome=told["outcome"], next=told["next"], **more)
