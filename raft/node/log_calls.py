"""``log.entries``: committed entries as they stand in this node's log, a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from ..core.entry import Entry
from ..core.errors import CommandInvalid, FencepostError, NotFound
from .calls import Reply, SlowQuery
from .loop import RaftLoop
from .runner import BlockingRunner

_LOG = structlog.get_logger("fencepost.node")

PAGE_ENTRIES = 1000
PAGE_BYTES = 4 << 20

ReadEntries = Callable[[int, int, int], list[Entry]]
"""``read(start, end, bytes_max)`` of the log's files (``ports.LogStore``)."""


class LogCalls:
    """What ``fencepost log tail`` and ``log get`` ask of a node. It answers for itself, leader or not."""

    def __init__(self, loop: RaftLoop, runner: BlockingRunner, read: ReadEntries) -> None:
        self._loop = loop
        self._runner = runner
        self._read = read

    def methods(self) -> dict[str, SlowQuery]:
        return {"log.entries": self.entries}

    def entries(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``after_index``, or ``last`` (so many from the end on), and ``limit``. What was given up is left out."""
        raft = self._loop.raft
        log, committed = raft.log, raft.commit_index
        limit = _count(parameters, "limit", PAGE_ENTRIES)
        if parameters.get("last") is not None:
            after = committed - _count(parameters, "last", 0)
        else:
            after = _count(parameters, "after_index", 0)
        start = max(after + 1, log.first_index)
        end = min(committed, start + min(limit, PAGE_ENTRIES) - 1)
        answer = partial(self._answer, reply, log.first_index, committed)
        if start > end:
            answer([], None)
        elif start >= log.window_start:
            answer(_fitting(log.slice(start, end)), None)
        else:
            # What is committed may still wait to be written, with the disk holding what it takes the place of.
            work = partial(self._read, start, min(end, raft.durable_index), PAGE_BYTES)
            self._runner.run(work, self._loop.guarded(answer))

    def _answer(
        self, reply: Reply, first: int, committed: int, entries: list[Entry] | None, error: BaseException | None
    ) -> None:
        if error is None:
            reply(
                {
                    "entries": [list(entry) for entry in entries or ()],
                    "first_index": first,
                    "commit_index": committed,
                },
                None,
            )
        elif isinstance(error, NotFound):
            reply(None, NotFound(error.message, next_step="it was given up meanwhile; ask again"))
        elif isinstance(error, FencepostError):
            reply(None, error)
        else:
            _LOG.error("log could not be read", exc_info=error)
            reply(None, FencepostError(f"the log could not be read: {type(error).__name__}: {error}"))


def _fitting(entries: list[Entry]) -> list[Entry]:
    size = 0
    for place, entry in enumerate(entries):
        size += len(entry.data)
        if size > PAGE_BYTES and place:
            return entries[:place]
    return entries


def _count(parameters: dict[str, Any], name: str, default: int) -> int:
    value = parameters.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise CommandInvalid(f"{name} of {value!r} is no count")
    return value
