"""JSON lines as commands: which field is the id, the lane, the payload."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import IO, Any

from ...raft.core.errors import CommandInvalid, FencepostError
from ...raft.outbox.codec import Command, check_command
from ..payload import canonical, parse_json

_READ_AHEAD = 1024
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the input that is a command."""

    line: int
    command: Command


@dataclass(frozen=True, slots=True)
class Refusal:
    """One line of the input that is none. Nothing is sent for it."""

    line: int
    operation_id: str
    error: FencepostError


@dataclass(frozen=True, slots=True)
class Fields:
    """Where to look in a line. Paths are dotted; a number is a place in a list."""

    operation_id: str
    lane: str = ""
    payload: str = ""
    """Empty: the whole line is the payload."""
    lane_required: bool = False


def parse_row(line: int, raw: bytes, resource: str, effect: str, fields: Fields) -> Row | Refusal:
    """One line as a command of ``resource`` and ``effect``, or why not."""
    operation_id = ""
    try:
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CommandInvalid(f"not UTF-8: byte {error.start}") from error
        value = parse_json(text.lstrip("\ufeff").strip())
        operation_id = _name(value, fields.operation_id, "id")
        lane = _lane(value, fields)
        payload = value if not fields.payload else find(value, fields.payload)
        if payload is _MISSING:
            raise CommandInvalid(f"the line has no {fields.payload!r}, where --payload-field looks for the payload")
        command = Command(operation_id, resource, effect, lane, canonical(payload))
        check_command(command)
    except CommandInvalid as error:
        return Refusal(line, operation_id, error)
    return Row(line, command)


def find(value: Any, path: str) -> Any:
    """What stands at a dotted path, or a marker that equals nothing else."""
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _MISSING
    return value


def _name(value: Any, path: str, what: str) -> str:
    found = find(value, path)
    if found is _MISSING or found is None or found == "":
        raise CommandInvalid(f"the line has no {path!r}, where --{what}-field looks for the {what}")
    if isinstance(found, bool) or not isinstance(found, (str, int)):
        raise CommandInvalid(f"the {what} at {path} is {type(found).__name__}, not a text")
    return str(found)


def _lane(value: Any, fields: Fields) -> str:
    if not fields.lane:
        return ""
    found = find(value, fields.lane)
    if found is _MISSING or found is None or found == "":
        if fields.lane_required:
            raise CommandInvalid(f"the line has no {fields.lane!r}, where --lane-field looks for the lane")
        return ""
    return _name(value, fields.lane, "lane")


async def lines_of(stream: IO[bytes]) -> AsyncGenerator[tuple[int, bytes], None]:
    """Lines with their numbers, empty ones left out.

    A daemon thread reads, because a pipe may be silent for ever and must hold up neither the loop
    nor the end of the program. It reads ahead by a bounded number of lines. Raises OSError.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[int, bytes] | OSError | None] = asyncio.Queue()
    room = threading.Semaphore(_READ_AHEAD)

    def hand_over(item: tuple[int, bytes] | OSError | None) -> bool:
        try:
            loop.call_soon_threadsafe(queue.put_nowait, item)
        except RuntimeError:  # the loop has ended: nobody listens
            return False
        return True

    def read() -> None:
        try:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    room.acquire()
                    if not hand_over((number, line)):
                        return
        except OSError as error:
            hand_over(error)
        except ValueError:  # closed under us, when the run was stopped
            return
        hand_over(None)

    threading.Thread(target=read, name="bulk-input", daemon=True).start()
    while (item := await queue.get()) is not None:
        if isinstance(item, OSError):
            raise item
        room.release()
        yield item
