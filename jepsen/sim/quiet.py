"""Logging in a simulation: warnings become lines of the trace, everything below costs next to nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

Line = Callable[[str, MutableMapping[str, Any]], None]


@contextmanager
def logging_to(line: Line) -> Iterator[None]:
    """Within it, ``line(level, event)`` gets what is logged as a warning or worse, and nothing is printed.

    Loggers are not cached, so that this ends with it.
    """

    def take(_: Any, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        line(level, event)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[take],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
