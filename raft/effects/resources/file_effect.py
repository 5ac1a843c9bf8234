"""The effects of a file resource: which files a command writes or extends, with what, and where it must not."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import ConfigurationError
from ...ports import Attempt
from .file_calls import Calls
from .payload_template import NotBindable, Template, Values

STATE_FOLDER = ".fencepost"
PART_BYTES_MAX = 200
PATH_BYTES_MAX = 1000

OPERATIONS = ("write", "append")


@dataclass(frozen=True, slots=True)
class FileEffect:
    """One effect: steps done together, each ``("write" | "append", path, content)``. Path and content may hold
    names of the payload in braces; without content it is the payload.

    ``write`` makes or replaces a whole file. ``append`` adds one line to a file that nobody else writes.
    """

    steps: Sequence[Sequence[str]]


class Step:
    """One step. Raises :class:`ConfigurationError` if it can never work."""

    def __init__(self, resource: str, effect: str, words: Sequence[str]) -> None:
        shown = " ".join(words)
        try:
            if len(words) not in (2, 3) or words[0] not in OPERATIONS:
                raise ValueError(f"it is not one of {', '.join(OPERATIONS)} with a path and a content: {shown!r}")
            self.appends = words[0] == "append"
            self._path = Template(words[1])
            self._content = Template(words[2] if len(words) == 3 else "{payload}")
            if words[1].startswith("/") or ".." in words[1].split("/"):
                raise ValueError(f"{words[1]!r} leads out of the folder")
        except ValueError as error:
            raise ConfigurationError(
                f"resource {resource!r}, effect {effect!r}: the steps are not usable: {error}",
                next_step=f"correct steps under [resources.{resource}.effects.{effect}]",
            ) from error

    def bind(self, values: Values) -> tuple[str, bytes]:
        """Path and content. Raises :class:`NotBindable`."""
        path = checked_path(self._path.fill(values))
        content = self._content.bytes(values)
        if self.appends:
            if b"\n" in content:
                raise NotBindable("what is appended is one line, and this has several")
            content += b"\n"
        return path, content


def checked_path(path: str) -> str:
    """``path`` if it stays inside the folder by its own words. Raises :class:`NotBindable`."""
    parts = path.split("/")
    if not all(parts) or "." in parts or ".." in parts or "\0" in path or STATE_FOLDER in parts:
        raise NotBindable(f"{path!r} is no path inside the folder")
    if len(path.encode()) > PATH_BYTES_MAX or any(len(part.encode()) > PART_BYTES_MAX for part in parts):
        raise NotBindable(f"{path[:60]!r}… is too long: {PART_BYTES_MAX} bytes a name, {PATH_BYTES_MAX} in all")
    return path


def open_parent(calls: Calls, root: str, path: str, *, create: bool) -> tuple[int, str] | None:
    """A descriptor of the folder that ``path`` is in, and its last name; None where the folder is not there yet.

    Goes down name by name and follows no link, so nothing outside of ``root`` is ever opened. Raises OSError.
    """
    *folders, name = path.split("/")
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            try:
                below = calls.open_folder(folder, descriptor)
            except FileNotFoundError:
                if not create:
                    os.close(descriptor)
                    return None
                make_folder(calls, folder, descriptor)
                below = calls.open_folder(folder, descriptor)
            os.close(descriptor)
            descriptor = below
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, name


def make_folder(calls: Calls, folder: str, at: int) -> None:
    try:
        calls.mkdir(folder, at)
    except FileExistsError:
        return  # Another process was quicker; it may not have synced it.
    finally:
        calls.sync(at)


class Waits(Exception):
    """Not now, and through no fault of this command."""


@dataclass(slots=True)
class Plan:
    """What one batch will do to the files: nothing is touched before it is committed."""

    calls: Calls
    root: str
    device: int
    lines: dict[str, int]
    """The files that are appended to, and how long each is with what is planned."""
    writes: dict[str, bytes] = field(default_factory=dict)
    appends: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """By path: the offset, and what goes there."""
    folders: set[str] = field(default_factory=set)

    def add(self, steps: Sequence[Step], attempt: Attempt) -> list[dict[str, Any]]:
        """Plan all steps of one attempt, or none. Returns a result a step.

        Raises :class:`NotBindable` or :class:`Waits`.
        """
        values = Values(attempt)
        ahead = Plan(self.calls, self.root, self.device, dict(self.lines), dict(self.writes), dict(self.appends))
        ahead.folders = set(self.folders)
        results = [ahead._add(step.appends, *step.bind(values)) for step in steps]
        self.lines, self.writes, self.appends, self.folders = ahead.lines, ahead.writes, ahead.appends, ahead.folders
        return results

    def _add(self, appends: bool, path: str, content: bytes) -> dict[str, Any]:
        parts = path.split("/")
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if path in self.folders or any(folder in self.writes or folder in self.appends for folder in above):
            raise NotBindable(f"{path!r} is a file for one command of the batch and a folder for another")
        size = self._look(path)
        if not appends:
            if path in self.lines:
                raise NotBindable(f"{path!r} is appended to, and cannot be replaced as a whole")
            self.writes[path] = content
            self.folders |= above
            return {"path": path, "bytes": len(content)}
        if path in self.writes or (path not in self.lines and size is not None):
            raise NotBindable(f"{path!r} is there and was not made by appending to it")
        offset, before = self.appends.get(path, (self.lines.get(path, 0), b""))
        if (size or 0) != offset:
            raise Waits(f"{path!r} holds {size or 0} bytes and should hold {offset}: somebody else writes to it")
        self.appends[path] = (offset, before + content)
        self.lines[path] = offset + len(before) + len(content)
        self.folders |= above
        return {"path": path, "offset": offset + len(before)}

    def _look(self, path: str) -> int | None:
        """The size of the file as it is; None if there is none. Raises :class:`NotBindable` where no file can be."""
        try:
            found = open_parent(self.calls, self.root, path, create=False)
            if found is None:
                return None
            descriptor, name = found
            try:
                if os.fstat(descriptor).st_dev != self.device:
                    raise NotBindable(f"{path!r} is on another file system")
                there = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG):
                raise
            raise NotBindable(f"{path!r} cannot be a file here: {error.strerror}") from error
        if not stat.S_ISREG(there.st_mode):
            raise NotBindable(f"{path!r} is a folder, a link or a device")
        return there.st_size
