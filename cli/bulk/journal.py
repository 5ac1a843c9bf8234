"""The resume file: which commands of a bulk submission have ended, and how.

JSON lines, only ever appended; the first names the format. A half-written last line (the process
was killed) is ignored and closed off. It saves time and nothing else: without it every finished
command would answer from its stored result. So a command's line is written after its outcome is
known, without a sync of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType

from ...raft.core.errors import ConfigurationError
from ...raft.outbox.codec import Command, digest

_HEAD = {"fencepost": "bulk-journal", "version": 1}


class Journal:
    """A context manager that holds the file's lock while it is open.

    An entry is found by the operation id and the digest of the command, so that a line which has
    changed since is submitted again and its conflict is seen.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[str, str], str] = {}
        self._fd = -1

    def __enter__(self) -> Journal:
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = self._path.read_bytes()
        except OSError as error:
            self._close()
            locked = isinstance(error, BlockingIOError)
            reason = "another submission uses it" if locked else error.strerror or str(error)
            raise ConfigurationError(f"--resume-file {self._path}: {reason}; nothing was sent") from error
        try:
            self._read(data)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.fsync(self._fd)
        self._close()

    def fate(self, command: Command) -> str | None:
        """How the command ended in an earlier run, or None."""
        return self._known.get((command.operation_id, digest(command).hex()))

    def record(self, line: int, command: Command, fate: str) -> None:
        key = (command.operation_id, digest(command).hex())
        self._known[key] = fate
        self._append({"line": line, "id": key[0], "digest": key[1], "fate": fate})

    def _read(self, data: bytes) -> None:
        whole, newline, rest = data.rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        if not lines:
            if rest and not json.dumps(_HEAD).encode().startswith(rest):
                raise self._not_ours()
            os.ftruncate(self._fd, 0)
            self._append(dict(_HEAD))
            return
        try:
            if json.loads(lines[0]) != _HEAD:
                raise self._not_ours()
            for line in lines[1:]:
                if line:
                    entry = json.loads(line)
                    self._known[(entry["id"], entry["digest"])] = entry["fate"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._not_ours() from error
        if rest:
            os.ftruncate(self._fd, len(whole) + 1)

    def _not_ours(self) -> ConfigurationError:
        return ConfigurationError(
            f"--resume-file {self._path} is no resume file of this version; nothing was sent",
            next_step="give another file, or remove it: submitting everything again is safe, ids are remembered",
        )

    def _append(self, entry: dict[str, object]) -> None:
        data = json.dumps(entry).encode() + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
