"""The state file of a file resource: its ledger, what it still has to do, and how it is written."""

from __future__ import annotations

from typing import Any

import msgspec

from ...core.errors import ConfigurationError
from .bounded_ledger import BoundedLedger

FORMAT = 1


class Move(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that lies ready under ``staged`` and belongs at ``path``."""

    path: str
    staged: str


class Extension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What belongs at ``offset`` of the file at ``path``."""

    path: str
    offset: int
    data: bytes


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    revision: str
    """Never the same twice."""
    ledger: Any
    lines: dict[str, int]
    moves: list[Move] = []
    extensions: list[Extension] = []


class State:
    def __init__(self, resource: str, kept: int, data: bytes | None) -> None:
        """``data`` as :meth:`encode` gave it; None where there is no state yet. Raises :class:`ConfigurationError`."""
        try:
            stored = None if data is None else msgspec.json.decode(data, type=_Stored)
            if stored is not None and stored.format != FORMAT:
                raise ValueError(f"its format is {stored.format}, and this version writes {FORMAT}")
            self.ledger = BoundedLedger(resource, kept, None if stored is None else stored.ledger)
        except ValueError as error:  # msgspec's errors are ValueErrors too.
            raise ConfigurationError(
                f"resource {resource!r}: its state file cannot be read: {error}",
                next_step="restore it from a backup of the whole folder; without it the fence is lost",
            ) from error
        self.revision = "" if stored is None else stored.revision
        self.lines = {} if stored is None else stored.lines
        self.moves = [] if stored is None else stored.moves
        self.extensions = [] if stored is None else stored.extensions

    def encode(self, revision: str) -> bytes:
        self.revision = revision
        ledger = self.ledger.to_builtins()
        return msgspec.json.encode(_Stored(FORMAT, revision, ledger, self.lines, self.moves, self.extensions)) + b"\n"
