"""Reads the ledger of PostgreSQL resources, for :func:`.audit.check_ledger`."""

from __future__ import annotations

import json
from typing import Any

from ...core.errors import CheckFailed
from ...core.token import FencingToken
from .ledger import AcceptedOperation, ClaimRecord, Ledger, Refusal, StoredFence


async def read_ledger(url: str) -> Ledger:
    """Everything that the database's ``fencepost`` schema holds, read in one snapshot; nothing is written.

    Of an ``ordered-lane`` resource that is what each lane has kept. Raises :class:`CheckFailed` if there is no
    ledger to read.
    """
    import asyncpg

    try:
        connection = await asyncpg.connect(url, timeout=10, command_timeout=60)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return Ledger(
                    fences=await _fences(connection),
                    claims=await _claims(connection),
                    operations=await _operations(connection),
                    refusals=await _refusals(connection),
                )
        finally:
            await connection.close()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
        raise CheckFailed(
            f"the database cannot be read as a ledger: {error}", next_step="check the address and the rights"
        ) from error


async def _fences(connection: Any) -> list[StoredFence]:
    rows = await connection.fetch(
        "SELECT resource, cluster, incarnation, term, holder FROM fencepost.fence ORDER BY resource"
    )
    return [StoredFence(row[0], row[1], FencingToken(row[2], row[3]), row[4]) for row in rows]


async def _claims(connection: Any) -> list[ClaimRecord]:
    rows = await connection.fetch(
        """SELECT sequence, resource, incarnation, term, holder, accepted_before, claimed_ns
           FROM fencepost.claims ORDER BY sequence"""
    )
    return [ClaimRecord(row[0], row[1], FencingToken(row[2], row[3]), row[4], row[5], row[6]) for row in rows]


async def _operations(connection: Any) -> list[AcceptedOperation]:
    rows = await connection.fetch(
        """SELECT accepted, resource, operation_id, effect, lane, log_index, incarnation, term, holder, attempt,
                  digest, result, applied_ns
           FROM fencepost.operations ORDER BY accepted"""
    )
    return [
        AcceptedOperation(row[0], row[1], row[2], row[3], row[4], row[5], FencingToken(row[6], row[7]), *tuple(row)[8:])
        for row in rows
    ]


async def _refusals(connection: Any) -> list[Refusal]:
    rows = await connection.fetch(
        """SELECT sequence, resource, refused_ns, incarnation, term, holder, stored_incarnation, stored_term,
                  stored_holder, operations, reason
           FROM fencepost.refusals ORDER BY sequence"""
    )
    return [
        Refusal(
            row[0],
            row[1],
            row[2],
            FencingToken(row[3], row[4]),
            row[5],
            FencingToken(row[6], row[7]),
            row[8],
            json.loads(row[9]),
            row[10],
        )
        for row in rows
    ]
