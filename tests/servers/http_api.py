"""An HTTP API of our own in a process of its own, on a free port, that keeps its keys in a folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from ..waiting import eventually
from .program import end, folder_of, free_port, reachable

PROGRAM = Path(__file__).with_name("http_api_program.py")


class HttpApi:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self.port), str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(lambda: reachable(self.port), within_s=30, what="the HTTP API answers")

    def stop(self) -> None:
        if self.process is not None:
            end(self.process, signal.SIGKILL)
            self.process = None

    def forget(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/forget", b"")
            connection.getresponse().read()
        finally:
            connection.close()

    def rows(self, name: str) -> list[Any]:
        """``effects``: operation ids in the order in which they were applied. ``requests``: path and headers."""
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def says(self, status: int, body: Any) -> None:
        """Whatever it is asked about an operation."""
        (self.folder / "says").write_text(json.dumps([status, body]))


@contextmanager
def make_http_api() -> Iterator[HttpApi]:
    with folder_of(None) as folder:
        api = HttpApi(folder)
        api.start()
        yield api
        api.stop()


@pytest.fixture(scope="module")
def http_api_server() -> Iterator[HttpApi]:
    with make_http_api() as api:
        yield api


@pytest.fixture
def http_api(http_api_server: HttpApi) -> HttpApi:
    """The API with nothing in it, running."""
    api = http_api_server
    for path in api.folder.iterdir():
        path.unlink()
    if api.process is None or api.process.poll() is not None:
        api.start()
    return api
