"""An S3 server of our own, on a free port of this machine, whose objects go with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from ..waiting import eventually
from .program import end, free_port, reachable

PROGRAM = Path(__file__).with_name("s3_program.py")


class S3Server:
    """One bucket, ``bucket``. It checks no signature."""

    def __init__(self) -> None:
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {**os.environ, "MOTO_S3_CUSTOM_ENDPOINTS": self.endpoint}
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        eventually(self._answers, within_s=60, what="the S3 server answers")
        self.call("PUT", "/bucket")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the S3 server ended"
        return reachable(self.port)

    def stop(self) -> None:
        if self.process is not None:
            end(self.process, signal.SIGKILL)
            self.process = None

    def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            # Objects are private: somebody has to ask, though nobody looks at the signature.
            scope = "key/20260101/us-east-1/s3/aws4_request"
            named = {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextmanager
def make_s3_server() -> Iterator[S3Server]:
    server = S3Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One for the run; :func:`s3` gives it empty to each test."""
    with make_s3_server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server) -> S3Server:
    """The server with an empty bucket."""
    s3_server.call("POST", "/moto-api/reset")
    s3_server.call("PUT", "/bucket")
    return s3_server
