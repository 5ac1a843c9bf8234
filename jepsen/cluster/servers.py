"""The servers behind the resources: a PostgreSQL server and the keyed API, each a process of this run alone."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ...cli.local_cluster import until
from ...raft.core.errors import ConfigurationError

STARTS_WITHIN_S = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


class Server:
    """A process that listens on a port of this machine. An async context manager: it is gone afterwards."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    async def start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - starts, and is not waited for
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0, env=_environment()
            )
        await until(self._answers, within_s=STARTS_WITHIN_S, what=f"a start of {self.name}")

    async def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise ConfigurationError(f"{self.name} ended at its start; {self.folder / self.name}.log says why")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    def end(self) -> None:
        """As a crash of it: whatever it was doing."""
        if self.process is not None:
            self._signal_end(self.process)
            self.process.wait()
            self.process = None

    def _signal_end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()


class ApiServer(Server):
    """The keyed API (``keyed_api``)."""

    name = "api"

    @property
    def log_path(self) -> Path:
        return self.folder / "calls.jsonl"

    def command(self) -> Sequence[str]:
        module = "fencepost.jepsen.cluster.keyed_api"
        return [sys.executable, "-P", "-m", module, str(self.port), str(self.log_path), str(os.getpid())]


class PostgresServer(Server):
    """Superuser ``owner``, database ``postgres``, trust from this machine. Its data syncs as it should."""

    name = "postgres"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._programs = _programs()
        # PostgreSQL refuses to be run by root.
        self._user = "postgres" if os.geteuid() == 0 else None
        self._data = folder / "postgres" / "data"
        self._data.parent.mkdir(parents=True)
        if self._user is not None:
            os.chown(self._data.parent, pwd.getpwnam(self._user).pw_uid, -1)
        made = subprocess.run(
            self._as_user(
                [
                    *(str(self._programs / "initdb"), "-D", str(self._data), "-U", "owner", "--auth=trust"),
                    *("--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"),
                ]
            ),
            capture_output=True,
            cwd="/",
        )
        if made.returncode:
            raise ConfigurationError(f"initdb failed: {made.stderr.decode(errors='replace').strip()}")

    @property
    def url(self) -> str:
        return f"postgresql://owner@127.0.0.1:{self.port}/postgres"

    def command(self) -> Sequence[str]:
        settings = {"port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return self._as_user([str(self._programs / "postgres"), "-D", str(self._data), *words])

    async def _answers(self) -> bool:
        if not await super()._answers():
            return False
        import asyncpg

        try:
            connection = await asyncpg.connect(self.url, timeout=10)
        except (OSError, asyncpg.PostgresError):
            return False
        await connection.close()
        return True

    def _as_user(self, command: list[str]) -> list[str]:
        """With the user that it accepts; and it ends with this process, whatever ends that."""
        user = [] if self._user is None else [f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups"]
        return ["setpriv", *user, "--pdeathsig", "QUIT", "--", *command]

    def _signal_end(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGQUIT)  # To the postmaster alone: it takes its children along, and no data.


def _programs() -> Path:
    """The folder with the newest initdb and postgres. Debian does not put them on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    program = found[-1] if found else None if on_path is None else Path(on_path).resolve()
    if program is None or not program.with_name("postgres").exists():
        raise ConfigurationError(
            "no PostgreSQL server was found", next_step="apt-get install --no-install-recommends postgresql"
        )
    return program.parent


def _environment() -> dict[str, str]:
    """The source that this process runs, whatever folder it was started in."""
    front_door = sys.modules[__name__.partition(".")[0]].__file__
    assert front_door is not None
    return {**os.environ, "PYTHONPATH": str(Path(front_door).absolute().parents[1])}
