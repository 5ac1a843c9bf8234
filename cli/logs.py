"""Logging of a running node: stderr, pretty on a terminal, JSON lines otherwise."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _without_empty(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """For people: `leader=` with nothing behind it says nothing. Programs get every field."""
    return {key: value for key, value in event.items() if value != ""}


def configure_logging(level: str, *, colored: bool) -> None:
    """Set structlog up for this process. ``level`` is debug, info, warning or error."""
    terminal = sys.stderr.isatty()
    final: Any = structlog.dev.ConsoleRenderer(colors=colored) if terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([_without_empty] if terminal else [structlog.processors.format_exc_info]),
            final,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
