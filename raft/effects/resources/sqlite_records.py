"""What a SQLite resource puts on record of the operations that it has applied and of the batches it has refused."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

import structlog

from ...core.token import FencingToken
from ...ports import Attempt
from .ledger import StoredFence
from .pruning import Row, Sifted, sift
from .sqlite_tables import (
    DELETE_OPERATIONS,
    FORGET_REFUSALS,
    READ_NEWEST,
    READ_OLDEST,
    WRITE_OPERATIONS,
    WRITE_REFUSAL,
)

_log = structlog.get_logger(__name__)


def write_operations(
    connection: sqlite3.Connection,
    resource: str,
    token: FencingToken,
    holder: str,
    applied: Sequence[tuple[Attempt, bytes]],
    now_ns: int,
) -> None:
    """Attempts that were applied, in order, with their results."""
    rows = [
        (
            resource,
            attempt.operation_id,
            attempt.digest,
            attempt.effect,
            attempt.lane,
            attempt.index,
            *token,
            holder,
            attempt.number,
            result,
            now_ns,
        )
        for attempt, result in applied
    ]
    done = 0
    for count, statement in WRITE_OPERATIONS:
        while len(rows) - done >= count:
            connection.execute(statement, [value for row in rows[done : done + count] for value in row])
            done += count


def delete_operations(
    connection: sqlite3.Connection, resource: str, incarnation: int, *, below: int, begin: int, limit: int
) -> Sifted:
    """Delete what the cluster has forgotten (:func:`.pruning.sift`)."""
    (newest,) = connection.execute(READ_NEWEST).fetchone()
    found = connection.execute(READ_OLDEST, (resource, incarnation, begin, limit))
    rows = [Row(accepted, bool(ours), log_index) for accepted, ours, log_index in found]
    sifted = sift(rows, below=below, newest=newest, begin=begin, limit=limit)
    if sifted.gone:
        connection.execute(DELETE_OPERATIONS, (json.dumps(sifted.gone),))
    return sifted


def write_refusal(
    connection: sqlite3.Connection,
    stored: StoredFence,
    token: FencingToken,
    holder: str,
    operations: list[str],
    reason: str,
    now_ns: int,
) -> None:
    """Never raises: a refusal stands even if it cannot be written down."""
    row = (
        stored.resource,
        now_ns,
        *token,
        holder,
        *stored.token,
        stored.holder,
        len(operations),
        json.dumps(operations),
        reason,
    )
    try:
        connection.execute(WRITE_REFUSAL, row)
        connection.execute(FORGET_REFUSALS)
    except sqlite3.Error as failure:
        _log.warning("refusal could not be recorded", resource=stored.resource, error=str(failure))
