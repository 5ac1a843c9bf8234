"""What every server of the tests needs: its program found, a free port, a folder, a user that it accepts."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest


def missing(program: str, package: str) -> NoReturn:
    """A failure on a machine of the project's own, a skip on a reader's; both say how to get it."""
    sentence = f"{program} is not installed; on Debian:  apt-get install --no-install-recommends {package}"
    if os.environ.get("CI") == "true":
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


def reachable(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def folder_of(user: str | None) -> Iterator[Path]:
    """A folder that belongs to ``user``, outside of pytest's, which nobody else may enter."""
    # In memory where there is such a folder: the servers sync at every commit, as they are to, and it costs nothing.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="fencepost-server-", dir=memory))
    try:
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(path, entry.pw_uid, entry.pw_gid)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def as_user(user: str | None, command: Sequence[str]) -> list[str]:
    """The command as another user: some servers refuse to be run by root."""
    if user is None:
        return list(command)
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *command]


def end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """End this one process, whatever state it is in."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
