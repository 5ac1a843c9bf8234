"""A PostgreSQL server of our own, on a free port of this machine, in a folder that goes with it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from ..waiting import eventually
from .program import as_user, end, folder_of, free_port, missing


def postgres_programs() -> Path | None:
    """The folder with the newest initdb and postgres; Debian does not put them on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


class PostgresServer:
    """Superuser ``owner``, database ``postgres``, trust from this machine."""

    def __init__(self, programs: Path, folder: Path, user: str | None) -> None:
        self._programs = programs
        self._folder = folder / "data"
        self._user = user
        self._options: dict[str, str] = {}
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        subprocess.run(
            as_user(
                user,
                [
                    str(programs / "initdb"),
                    *("-D", str(self._folder), "-U", "owner", "--auth=trust", "--encoding=UTF8", "--locale=C"),
                    *("--no-sync", "--no-instructions"),
                ],
            ),
            check=True,
            capture_output=True,
        )

    @property
    def url(self) -> str:
        return f"postgresql://owner@127.0.0.1:{self.port}/postgres"

    def start(self, **options: str) -> None:
        """Start with these settings besides the fixed ones, and wait until it answers."""
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "30",
            "shared_buffers": "16MB",
            "autovacuum": "off",
            **options,
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._folder.parent / "log").open("ab") as log:
            self.process = subprocess.Popen(
                as_user(self._user, [str(self._programs / "postgres"), "-D", str(self._folder), *words]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._answers, within_s=30, what="the PostgreSQL server answers")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self._folder.parent / "log").read_text(errors="replace")[-2000:]
        try:
            return bool(self.query("SELECT true"))
        except (OSError, asyncpg.PostgresError):
            return False

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: sessions are ended, the data is whole. SIGQUIT: as after a crash."""
        if self.process is not None:
            end(self.process, number)
            self.process = None

    @contextmanager
    def as_standby(self) -> Iterator[None]:
        """Started anew as one that follows a primary, which it never hears from."""
        mark = self._folder / "standby.signal"
        self.stop()
        mark.touch()
        self.start(hot_standby="on")
        yield
        self.stop()
        mark.unlink()
        self.start()

    def query(self, sql: str, *parameters: Any) -> list[Any]:
        """Rows, read at once on a connection and a loop of its own, so that a test on a loop may ask too."""
        rows: list[Any] = run_aside(_query(self.url, sql, parameters))
        return rows


async def _query(url: str, sql: str, parameters: tuple[Any, ...]) -> list[Any]:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        if not parameters and ";" in sql:
            await connection.execute(sql)  # Several statements in one text, and then no rows.
            return []
        return list(await connection.fetch(sql, *parameters))
    finally:
        await connection.close()


def run_aside(work: Any) -> Any:
    """Run a coroutine to its end on another thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@contextmanager
def make_postgres_server() -> Iterator[PostgresServer]:
    """A new server, not started yet, that is gone afterwards."""
    programs = postgres_programs()
    if programs is None or not (programs / "postgres").exists():
        missing("a PostgreSQL server", "postgresql")
    user = "postgres" if os.geteuid() == 0 else None
    with folder_of(user) as folder:
        server = PostgresServer(programs, folder, user)
        yield server
        server.stop(signal.SIGQUIT)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One for the run; :func:`postgres` gives it empty to each test."""
    with make_postgres_server() as server:
        server.start()
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> PostgresServer:
    """The server with an empty database."""
    postgres_server.query("DROP SCHEMA IF EXISTS fencepost CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public;")
    return postgres_server
