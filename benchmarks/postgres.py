"""A PostgreSQL server of our own for a benchmark, with the settings that a server comes with: every commit synced."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

START_TIMEOUT_S = 30.0


def _programs() -> Path | None:
    """The folder with the newest initdb and postgres; Debian does not put them on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def missing() -> list[str]:
    """What has to be installed before PostgreSQL can be measured: one command a line."""
    lacking = [] if _programs() else ["apt-get install --no-install-recommends postgresql"]
    return lacking if find_spec("asyncpg") else [*lacking, "pip install 'fencepost[postgres]'"]


def _command(words: list[str]) -> list[str]:
    """As another user where this one is root, whom the server refuses."""
    if os.geteuid():
        return words
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *words]


class Server(NamedTuple):
    url: str
    pid: int


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """Start a server whose data are under ``folder``, on the disk where the nodes have theirs."""
    programs = _programs()
    if programs is None:
        raise RuntimeError("; ".join(missing()))
    folder.mkdir()
    if not os.geteuid():
        shutil.chown(folder, "postgres", "postgres")
        folder.parent.chmod(0o711)  # The server may pass through, and see nothing on its way.
    data, log = folder / "data", folder / "postgres.log"
    make = [str(programs / "initdb"), "-D", str(data), "-U", "owner", "--auth=trust", "--encoding=UTF8", "--locale=C"]
    subprocess.run(_command(make), check=True, capture_output=True, cwd="/")
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    settings = (f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=")
    start = [str(programs / "postgres"), "-D", str(data), *(word for each in settings for word in ("-c", each))]
    with log.open("wb") as output:
        process = subprocess.Popen(_command(start), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/")
    try:
        _wait(programs, port, process, log)
        yield Server(f"postgresql://owner@127.0.0.1:{port}/postgres", process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(programs: Path, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while subprocess.run([str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL does not answer:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)  # Another process gives no event that could be awaited.
