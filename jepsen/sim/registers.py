"""The embedder's state machine in a simulation: named registers and lists, for histories that can be judged.

An entry is a JSON array: ``["write", key, value]``, ``["cas", key, from, to]`` or ``["append", key, value]``.
What it returns is JSON: null, or for a cas whether it held. Every key is a register or a list, by what is
done to it; reading one that nobody touched gives null. Anything else that a plain proposal holds is only
counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from ...raft.core.entry import Entry
from ...raft.core.errors import StorageCorrupt


class Registers:
    """``ports.Machine``, and the question ``registers.read``."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.entries = 0

    def apply(self, entry: Entry) -> bytes:
        self.entries += 1
        try:
            asked = json.loads(entry.data)
        except ValueError:
            return b""
        match asked:
            case ["write", str(key), value]:
                self.values[key] = value
            case ["cas", str(key), expected, value]:
                if self.values.get(key) != expected:
                    return b"false"
                self.values[key] = value
                return b"true"
            case ["append", str(key), value]:
                # A new list each time: what a snapshot has captured does not change under it.
                self.values[key] = [*(self.values.get(key) or []), value]
        return b"null"

    def read(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """``key``: its value."""
        return {"value": self.values.get(parameters["key"])}

    def state_digest(self) -> bytes:
        state = json.dumps([self.entries, sorted(self.values.items())])
        return b"\x01" + hashlib.blake2b(state.encode(), digest_size=8).digest()

    def snapshot(self) -> Iterable[bytes]:
        values, entries = dict(self.values), self.entries

        def chunks() -> Iterable[bytes]:
            yield b"%d\n" % entries
            for key, value in values.items():
                yield json.dumps([key, value]).encode() + b"\n"

        return chunks()

    @staticmethod
    def prepare(chunks: Iterable[bytes]) -> tuple[int, dict[str, Any]]:
        """Raises :class:`StorageCorrupt`."""
        lines = b"".join(chunks).splitlines()
        try:
            return int(lines[0]), dict(json.loads(line) for line in lines[1:])
        except (ValueError, IndexError, TypeError) as error:
            raise StorageCorrupt(f"registers cannot be read: {error}") from error

    def adopt(self, prepared: tuple[int, dict[str, Any]]) -> None:
        self.entries, self.values = prepared

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.adopt(self.prepare(chunks))


def write(key: str, value: Any) -> bytes:
    """The entry of a write."""
    return json.dumps(["write", key, value]).encode()


def cas(key: str, expected: Any, value: Any) -> bytes:
    """The entry that writes ``value`` if ``expected`` stands there."""
    return json.dumps(["cas", key, expected, value]).encode()


def append(key: str, value: Any) -> bytes:
    """The entry that puts ``value`` at the end of the list."""
    return json.dumps(["append", key, value]).encode()
