"""Rules that hold for every test."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

ROOT = Path(__file__).resolve().parent.parent

KEPT_VARIABLES = frozenset({"FENCEPOST_CONFORMANCE", "FENCEPOST_HISTORIES", "FENCEPOST_DATA", "FENCEPOST_CRASHSTATES"})
"""Where material lies that a test may read. Every other FENCEPOST_* variable configures the program."""


class _Complaints(logging.Handler):
    """Collects what asyncio can only log: exceptions nobody retrieved, tasks destroyed while pending."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            line += f": {record.exc_info[1]!r}"
        self.lines.append(line)


_COMPLAINTS = _Complaints()


def pytest_configure() -> None:
    # `python -m pytest` puts the current folder on the path; a bare `import raft` would work there.
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != ROOT]
    # uvloop and asyncio both report through this logger.
    logging.getLogger("asyncio").addHandler(_COMPLAINTS)
    for name in [name for name in os.environ if name.startswith("FENCEPOST_") and name not in KEPT_VARIABLES]:
        del os.environ[name]


@pytest.fixture(autouse=True)
def asyncio_complaints() -> Iterator[list[str]]:
    """Fail a test after which asyncio complained (scenario S41). A test that means to provoke a
    complaint takes this list and clears it."""
    yield _COMPLAINTS.lines
    found = _COMPLAINTS.lines[:]
    _COMPLAINTS.lines.clear()
    assert not found, "asyncio complained: " + "; ".join(found)


@pytest.fixture(autouse=True)
def logging_of_no_other_test() -> Iterator[None]:
    """`node start` sets up logging for the whole process, and its loggers are then kept at first use: in
    a test, whoever logs next would keep them, and tests that read log lines would see none."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True, scope="module")
def collect_garbage_after_module() -> Iterator[None]:
    """An unretrieved exception is only noticed when its task is collected: do so close to the cause."""
    yield
    gc.collect()
    found = _COMPLAINTS.lines[:]
    _COMPLAINTS.lines.clear()
    assert not found, "asyncio complained after the last test of this file: " + "; ".join(found)


def _folder(variable: str) -> Path:
    value = os.environ.get(variable, "")
    if not value:
        pytest.skip(f"{variable} is not set: it names a folder of material that is not part of the repository")
    path = Path(value)
    assert path.is_dir(), f"{variable} names {path}, which is no folder"
    return path


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real input (webhooks.jsonl), from FENCEPOST_DATA."""
    return _folder("FENCEPOST_DATA")


@pytest.fixture(scope="session")
def conformance_folder() -> Path:
    """The folder of fencing tables and transcripts, from FENCEPOST_CONFORMANCE."""
    return _folder("FENCEPOST_CONFORMANCE")


@pytest.fixture(scope="session")
def histories_folder() -> Path:
    """The folder of recorded histories with known verdicts, from FENCEPOST_HISTORIES."""
    return _folder("FENCEPOST_HISTORIES")
