"""A Redis or Valkey server of our own, on a free port of this machine, in a folder that goes with it."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from ..waiting import eventually
from .program import end, folder_of, free_port, missing


class RedisServer:
    """Without a password, its data in a folder, every write synced unless told otherwise."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, **options: str) -> None:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self._folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            **{name.replace("_", "-"): value for name, value in options.items()},
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._program, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder
            )
        eventually(self._answers, within_s=30, what="the Redis server answers")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self._folder / "log").read_text(errors="replace")[-2000:]
        try:
            return bool(self.call("PING"))
        except Exception:
            return False

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            end(self.process, number)
            self.process = None

    def call(self, *words: Any) -> Any:
        """One command, on a connection of its own."""
        with Redis.from_url(self.url, decode_responses=True, socket_timeout=10) as server:
            return server.execute_command(*words)

    def dump(self, key: str) -> bytes:
        """What a key holds, in the server's own serialisation."""
        with Redis.from_url(self.url, socket_timeout=10) as server:
            return bytes(server.dump(key) or b"")


def redis_program() -> str:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        missing("a Redis server", "redis-server")
    return found


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One for the run; :func:`redis` gives it empty to each test."""
    with folder_of(None) as folder:
        server = RedisServer(redis_program(), folder)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def redis(redis_server: RedisServer) -> RedisServer:
    """The server with nothing in it."""
    redis_server.call("FLUSHALL")
    return redis_server
