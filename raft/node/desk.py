"""Where the calls of clients are answered: questions at once, confirmed ones and slow ones later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from ..core.errors import CommandInvalid, FencepostError, NotFound
from ..ports import Connection
from .calls import Query, SlowQuery
from .reads import Consistency, LocalReads, consistency_of

_LOG = structlog.get_logger("fencepost.node")

CONFIRMED = frozenset({"command.get", "command.list", "member.list"})
"""Methods that are linearizable unless a client asks for something else. The others tell what this node
happens to know, and say so."""


class CallDesk:
    """Every answer of a question is labelled with ``read``: how it was confirmed, and how old it may be."""

    def __init__(self, reads: LocalReads, queries: Mapping[str, Query], slow_queries: Mapping[str, SlowQuery]) -> None:
        self.queries = dict(queries)
        self.slow_queries = dict(slow_queries)
        self._reads = reads

    def call(self, connection: Connection, request_id: int, method: str, parameters: dict[str, Any]) -> None:
        def reply(body: Any, error: BaseException | None) -> None:
            if error is None:
                connection.reply(request_id, body)
            else:
                connection.reply_error(request_id, _as_answer(method, error))

        try:
            slow = self.slow_queries.get(method)
            if slow is not None:
                slow(parameters, reply)
            else:
                self._ask(method, parameters, reply)
        except Exception as error:
            reply(None, error)

    def _ask(self, method: str, parameters: dict[str, Any], reply: Any) -> None:
        query = self.queries.get(method)
        if query is None:
            raise NotFound(f"no method {method!r} in this version")
        default = Consistency.LINEARIZABLE if method in CONFIRMED else Consistency.STALE
        consistency = consistency_of(parameters.get("consistency"), default)
        asked = {**parameters, "consistency": consistency.value}

        def answer() -> Any:
            body = query(asked)
            if isinstance(body, dict):
                body = {**body, "read": self._reads.label(consistency)}
            return body

        self._reads.read(answer, reply, consistency)


def _as_answer(method: str, error: BaseException) -> FencepostError:
    """A question changes nothing: a bug in one ends neither node nor connection."""
    if isinstance(error, FencepostError):
        return error
    if isinstance(error, (TypeError, ValueError, OverflowError)):  # Parameters come from outside.
        return CommandInvalid(f"parameters of {method}: {error}")
    _LOG.error("query raised", method=method, exc_info=error)
    return FencepostError(f"{method} raised {type(error).__name__}: {error}")
