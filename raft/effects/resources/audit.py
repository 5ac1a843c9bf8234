"""Reads a ledger and says what in it must not be. Knows nothing of the code that wrote it."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from ...core.errors import CheckFailed
from ...core.token import FencingToken
from .ledger import AcceptedOperation, ClaimRecord, Ledger, Refusal, StoredFence


def read_ledger(path: Path | str) -> Ledger:
    """Everything a SQLite ledger holds, read in one snapshot; nothing is written.

    Raises :class:`CheckFailed` if there is no ledger to read.
    """
    uri = f"file:{quote(str(Path(path).absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            return Ledger(
                fences=_fences(connection),
                claims=_claims(connection),
                operations=_operations(connection),
                refusals=_refusals(connection),
            )
    except sqlite3.Error as error:
        raise CheckFailed(f"{path} cannot be read as a ledger: {error}", next_step="check the path") from error


def _fences(connection: sqlite3.Connection) -> list[StoredFence]:
    rows = connection.execute(
        "SELECT resource, cluster, incarnation, term, holder FROM fencepost_fence ORDER BY resource"
    )
    return [
        StoredFence(resource, cluster, FencingToken(incarnation, term), holder)
        for resource, cluster, incarnation, term, holder in rows
    ]


def _claims(connection: sqlite3.Connection) -> list[ClaimRecord]:
    rows = connection.execute(
        """SELECT sequence, resource, incarnation, term, holder, accepted_before, claimed_ns
           FROM fencepost_claims ORDER BY sequence"""
    )
    return [
        ClaimRecord(sequence, resource, FencingToken(incarnation, term), holder, accepted_before, claimed_ns)
        for sequence, resource, incarnation, term, holder, accepted_before, claimed_ns in rows
    ]


def _operations(connection: sqlite3.Connection) -> list[AcceptedOperation]:
    rows = connection.execute(
        """SELECT accepted, resource, operation_id, effect, lane, log_index, incarnation, term, holder, attempt,
                  digest, result, applied_ns
           FROM fencepost_operations ORDER BY accepted"""
    )
    return [
        AcceptedOperation(row[0], row[1], row[2], row[3], row[4], row[5], FencingToken(row[6], row[7]), *row[8:])
        for row in rows
    ]


def _refusals(connection: sqlite3.Connection) -> list[Refusal]:
    rows = connection.execute(
        """SELECT sequence, resource, refused_ns, incarnation, term, holder, stored_incarnation, stored_term,
                  stored_holder, operations, reason
           FROM fencepost_refusals ORDER BY sequence"""
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


def check_ledger(ledger: Ledger) -> list[str]:
    """What violates the promise of a fenced resource, one sentence each; empty if nothing does.

    - Once a token was accepted, no lower one is (concepts: The fencing token).
    - No two holders share a token.
    - An operation id is accepted once (concepts: Operation ids).
    - The operations of a lane are accepted in log order (S52).
    """
    return [
        *_single_acceptance(ledger.operations),
        *_rising_claims(ledger),
        *_rising_tokens(ledger),
        *_single_holders(ledger),
        *_lane_order(ledger.operations),
    ]


def _single_acceptance(operations: list[AcceptedOperation]) -> Iterator[str]:
    first: dict[tuple[str, str], AcceptedOperation] = {}
    for operation in operations:
        before = first.setdefault((operation.resource, operation.operation_id), operation)
        if before is not operation:
            yield (
                f"{operation.resource}: operation {operation.operation_id!r} was accepted twice, under token "
                f"{before.token} of {before.holder} and again under {operation.token} of {operation.holder}"
            )


def _rising_claims(ledger: Ledger) -> Iterator[str]:
    highest: dict[str, ClaimRecord] = {}
    for claim in ledger.claims:
        before = highest.get(claim.resource)
        if before is not None and claim.token <= before.token:
            yield f"{claim.resource}: the fence went from {before.token} to {claim.token} of {claim.holder}"
            continue
        highest[claim.resource] = claim
    for fence in ledger.fences:
        last = highest.get(fence.resource)
        if last is None or (last.token, last.holder) != (fence.token, fence.holder):
            risen = "never rose" if last is None else f"rose to {last.token} of {last.holder}"
            yield f"{fence.resource}: the fence stands at {fence.token} of {fence.holder}, and by the record it {risen}"


def _rising_tokens(ledger: Ledger) -> Iterator[str]:
    """Claims count from the moment they were made, not from the first write after them."""
    claims = sorted(ledger.claims, key=lambda claim: (claim.accepted_before, claim.sequence))
    position = 0
    highest: dict[str, FencingToken] = {}
    for operation in ledger.operations:
        while position < len(claims) and claims[position].accepted_before < operation.accepted:
            claim = claims[position]
            highest[claim.resource] = max(claim.token, highest.get(claim.resource, claim.token))
            position += 1
        before = highest.get(operation.resource)
        if before is None:
            yield f"{operation.resource}: operation {operation.operation_id!r} was accepted before any claim"
        elif operation.token < before:
            yield (
                f"{operation.resource}: operation {operation.operation_id!r} was accepted under token "
                f"{operation.token} of {operation.holder} after token {before}"
            )
        elif operation.token > before:
            yield (
                f"{operation.resource}: operation {operation.operation_id!r} was accepted under token "
                f"{operation.token}, and the fence stood at {before}"
            )
        highest[operation.resource] = max(operation.token, before or operation.token)


def _single_holders(ledger: Ledger) -> Iterator[str]:
    holders: defaultdict[tuple[str, FencingToken], set[str]] = defaultdict(set)
    for claim in ledger.claims:
        holders[claim.resource, claim.token].add(claim.holder)
    for operation in ledger.operations:
        holders[operation.resource, operation.token].add(operation.holder)
    for (resource, token), names in holders.items():
        if len(names) > 1:
            yield f"{resource}: token {token} was used by {' and '.join(sorted(names))}"


def _lane_order(operations: list[AcceptedOperation]) -> Iterator[str]:
    last: dict[tuple[str, str], AcceptedOperation] = {}
    for operation in operations:
        if not operation.lane:
            continue
        before = last.get((operation.resource, operation.lane))
        # An index is comparable only within one incarnation: a restored cluster counts anew.
        place = (operation.token.incarnation, operation.log_index)
        if before is not None and place <= (before.token.incarnation, before.log_index):
            yield (
                f"{operation.resource}: lane {operation.lane!r} took index {operation.log_index} "
                f"({operation.operation_id!r}) after {before.log_index} ({before.operation_id!r})"
            )
        last[operation.resource, operation.lane] = operation
