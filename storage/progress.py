"""Telling whoever waits for a long recovery how far it has come."""

from __future__ import annotations

import os
import time
from pathlib import Path

import structlog

_log = structlog.get_logger("fencepost.storage")

PROGRESS_EVERY_S = 2.0
"""A recovery that takes longer says so often how far it is."""


class Progress:
    """Of the recovery of the log in ``directory``, which has so many segments."""

    def __init__(self, directory: Path, segments: int) -> None:
        self._directory = directory
        self._segments = segments
        self._read = 0
        self._told_at = time.monotonic()

    def segment_read(self) -> None:
        self._read += 1

    def at(self, part: float, index: int) -> None:
        """``part`` of the segment, from 0 to 1, is done, and the log is read up to ``index``."""
        now = time.monotonic()
        if now - self._told_at >= PROGRESS_EVERY_S:
            self._told_at = now
            percent = int(100 * (self._read + part) / self._segments)
            _log.info("log_recovering", path=os.fspath(self._directory), percent=percent, last_index=index)
