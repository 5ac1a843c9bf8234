"""Log lines that strangers can cause: at most one a while for each kind, with a count of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog


class RateLimitedLog:
    """``warning`` logs an event at most once every ``interval_s``; the next line says how many it kept back.

    A thousand idle or garbage connections must leave one line, not a full disk (scenario S37).
    """

    def __init__(self, now_s: Callable[[], float], *, interval_s: float = 10.0, log: Any = None) -> None:
        self._now_s = now_s
        self._interval_s = interval_s
        self._log = log if log is not None else structlog.get_logger("fencepost.transport")
        self._last_s: dict[str, float] = {}
        self._kept_back: dict[str, int] = {}

    def warning(self, event: str, **fields: object) -> None:
        now_s = self._now_s()
        last_s = self._last_s.get(event)
        if last_s is not None and now_s - last_s < self._interval_s:
            self._kept_back[event] = self._kept_back.get(event, 0) + 1
            return
        self._last_s[event] = now_s
        self._log.warning(event, kept_back=self._kept_back.pop(event, 0), **fields)
