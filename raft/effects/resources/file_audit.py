"""Reads the ledger of a file resource, for :func:`.audit.check_ledger`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.errors import CheckFailed, FencepostError
from ...core.token import FencingToken
from .file_calls import Calls
from .file_store import FileStore
from .ledger import Ledger, Refusal


def read_ledger(path: Path | str, resource: str) -> Ledger:
    """Everything that the folder holds about ``resource``; nothing is written. Raises :class:`CheckFailed`."""
    store = FileStore(resource, str(path), "", 0, Calls())
    try:
        ledger = store.load().ledger.read()
        refusals: list[Any] = store.refusals()
    except (OSError, FencepostError) as error:
        raise CheckFailed(f"{path} cannot be read as a ledger: {error}", next_step="check the path") from error
    return ledger._replace(
        refusals=[
            Refusal(
                place,
                resource,
                int(row[0]),
                FencingToken(int(row[1]), int(row[2])),
                row[3],
                FencingToken(int(row[4]), int(row[5])),
                row[6],
                row[7],
                row[8],
            )
            for place, row in enumerate(refusals, 1)
        ]
    )
