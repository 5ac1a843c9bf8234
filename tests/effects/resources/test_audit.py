"""The audit finds what it is there for: in ledgers of faulty resources, and in each rule by itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from fencepost.raft.core.errors import CheckFailed
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.audit import check_ledger, read_ledger
from fencepost.raft.effects.resources.ledger import AcceptedOperation, ClaimRecord, Ledger, StoredFence
from fencepost.raft.effects.resources.outcomes import Known
from fencepost.raft.effects.resources.sqlite import SqliteEffect, SqliteResource
from fencepost.raft.effects.resources.sqlite_tables import WRITE_CLAIM, WRITE_FENCE
from fencepost.raft.ports import Attempt

from .subjects import CREDIT, SCHEMA, attempt, token


class WithoutFence(SqliteResource):
    """Planted fault: remembers the highest token, and does not compare."""

    def _pass_fence(
        self, connection: sqlite3.Connection, stored: StoredFence | None, token: FencingToken, holder: str
    ) -> None:
        if stored is None or token > stored.token:
            connection.execute(WRITE_FENCE, (self.name, self._cluster_id, *token, holder))
            connection.execute(WRITE_CLAIM, (self.name, *token, holder, self._time_ns()))


class WithoutDedupe(SqliteResource):
    """Planted fault: finds nothing that was applied before."""

    def _known(self, connection: sqlite3.Connection, attempts: Sequence[Attempt]) -> dict[str, Known]:
        connection.execute("DROP INDEX IF EXISTS fencepost_operations_by_id")
        return {}


async def opened(kind: type[SqliteResource], path: Path) -> SqliteResource:
    resource = kind("ledger", path, {"credit": SqliteEffect(CREDIT)}, cluster_id="cluster", schema=SCHEMA)
    await resource.open()
    return resource


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


async def test_a_resource_without_faults_passes(path: Path) -> None:
    resource = await opened(SqliteResource, path)
    await resource.claim(token(1), "n1")
    await resource.execute(token(1), "n1", [attempt("a", 1, lane="k"), attempt("b", 2, lane="k")])
    await resource.claim(token(2), "n2")
    await resource.execute(token(2), "n2", [attempt("b", 2, lane="k"), attempt("c", 3, lane="k")])
    await resource.close()
    ledger = read_ledger(path)
    assert check_ledger(ledger) == []
    assert [each.operation_id for each in ledger.operations] == ["a", "b", "c"]
    assert [claim.accepted_before for claim in ledger.claims] == [0, 2]


async def test_a_late_write_past_a_missing_fence_is_found(path: Path) -> None:
    resource = await opened(WithoutFence, path)
    await resource.claim(token(1), "n1")
    await resource.claim(token(2), "n2")
    await resource.execute(token(1), "n1", [attempt("late", 1)])
    await resource.close()
    (violation,) = check_ledger(read_ledger(path))
    assert "'late' was accepted under token 1.1 of n1 after token 1.2" in violation


async def test_a_late_write_after_newer_writes_is_found(path: Path) -> None:
    resource = await opened(WithoutFence, path)
    await resource.execute(token(2), "n2", [attempt("a", 1)])
    await resource.execute(token(1), "n1", [attempt("late", 2)])
    await resource.execute(token(2), "n2", [attempt("b", 3)])
    await resource.close()
    assert len(check_ledger(read_ledger(path))) == 1


async def test_a_second_effect_past_a_missing_dedupe_is_found(path: Path) -> None:
    resource = await opened(WithoutDedupe, path)
    await resource.execute(token(1), "n1", [attempt("a", 1)])
    await resource.execute(token(2), "n2", [attempt("a", 1)])
    await resource.close()
    (violation,) = check_ledger(read_ledger(path))
    assert "'a' was accepted twice" in violation


async def test_the_index_alone_keeps_an_operation_from_being_accepted_twice(path: Path) -> None:
    """The second line of defence, with the first one taken away."""

    class WithoutLookUp(SqliteResource):
        def _known(self, connection: sqlite3.Connection, attempts: Sequence[Attempt]) -> dict[str, Known]:
            return {}

    resource = await opened(WithoutLookUp, path)
    await resource.execute(token(1), "n1", [attempt("a", 1)])
    with pytest.raises(Exception, match="UNIQUE"):
        await resource.execute(token(1), "n1", [attempt("b", 2), attempt("a", 1)])
    await resource.close()
    assert [each.operation_id for each in read_ledger(path).operations] == ["a"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchall() == [(1,)]


# -- rule by rule, on values ------------------------------------------------------------------------------


def claim(sequence: int, term: int, *, holder: str = "", accepted_before: int = 0) -> ClaimRecord:
    return ClaimRecord(sequence, "ledger", token(term), holder or f"n{term}", accepted_before, 0)


def operation(
    accepted: int, term: int, *, operation_id: str = "", holder: str = "", lane: str = "", index: int = 0
) -> AcceptedOperation:
    return AcceptedOperation(
        accepted, "ledger", operation_id or f"a{accepted}", "credit", lane, index or accepted, token(term),
        holder or f"n{term}", 1, b"", b"", 0,
    )  # fmt: skip


def ledger(claims: list[ClaimRecord], operations: list[AcceptedOperation]) -> Ledger:
    highest = max(claims, key=lambda each: each.token)
    return Ledger([StoredFence("ledger", "cluster", highest.token, highest.holder)], claims, operations, [])


@pytest.mark.parametrize(
    ("claims", "operations", "found"),
    [
        ([claim(1, 1)], [operation(1, 1), operation(2, 1)], None),
        ([claim(1, 1), claim(2, 2, accepted_before=1)], [operation(1, 1), operation(2, 2)], None),
        ([claim(1, 1), claim(2, 2, accepted_before=1)], [operation(1, 1), operation(2, 1)], "after token 1.2"),
        ([claim(1, 1)], [operation(1, 3)], "the fence stood at 1.1"),
        ([claim(1, 1, accepted_before=1)], [operation(1, 1)], "before any claim"),
        ([claim(1, 2), claim(2, 1)], [], "the fence went from 1.2 to 1.1"),
        ([claim(1, 1)], [operation(1, 1), operation(2, 1, holder="n9")], "was used by n1 and n9"),
        ([claim(1, 1)], [operation(1, 1), operation(2, 1, operation_id="a1")], "accepted twice"),
        ([claim(1, 1)], [operation(1, 1, lane="k", index=5), operation(2, 1, lane="k", index=4)], "took index 4"),
        ([claim(1, 1)], [operation(1, 1, lane="k", index=5), operation(2, 1, lane="j", index=4)], None),
    ],
)
def test_rules(claims: list[ClaimRecord], operations: list[AcceptedOperation], found: str | None) -> None:
    violations = check_ledger(ledger(claims, operations))
    if found is None:
        assert violations == []
    else:
        assert len(violations) == 1
        assert found in violations[0]


def test_a_fence_that_was_lowered_by_hand_is_found() -> None:
    lowered = ledger([claim(1, 5)], [])._replace(fences=[StoredFence("ledger", "cluster", token(3), "n3")])
    (violation,) = check_ledger(lowered)
    assert "stands at 1.3 of n3" in violation


@pytest.mark.parametrize("content", [None, b"", b"no database at all, and long enough to be looked at" * 20])
def test_what_is_no_ledger_is_not_without_fault(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckFailed):
        read_ledger(path)
