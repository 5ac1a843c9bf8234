"""What asks and what forgets is proved by faults that are planted in it, and found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.raft.effects.resources import asking, pruning
from fencepost.raft.effects.resources.file import FileResource
from fencepost.raft.ports import Resource

from ...core.planting import planted
from .file_subjects import FileSubject
from .query_contract import QueryContract
from .subjects import SqliteSubject
from .test_places import KEPT, forgets
from .test_pruning import check_fence_and_incarnation, check_forgetting


@asynccontextmanager
async def opened(subject: Any) -> AsyncIterator[Callable[..., Awaitable[Resource]]]:
    made: list[Resource] = []

    async def make(name: str = "ledger", cluster_id: str = "cluster") -> Resource:
        resource: Resource = subject.node(name, cluster_id)
        await resource.open()
        made.append(resource)
        return resource

    try:
        yield make
    finally:
        for resource in made:
            await resource.close()


async def asked_by_a_stale_leader(folder: Path) -> None:
    async with opened(SqliteSubject(folder)) as nodes:
        await QueryContract().test_who_is_no_longer_the_holder_hears_stale(nodes)


async def asked_without_a_claim(folder: Path) -> None:
    async with opened(SqliteSubject(folder)) as nodes:
        await QueryContract().test_who_has_claimed_nothing_is_told_nothing(nodes)


async def asked_about_another_command(folder: Path) -> None:
    async with opened(SqliteSubject(folder)) as nodes:
        await QueryContract().test_another_command_under_its_id_is_not_it(nodes)


async def asked_about_what_is_forgotten(folder: Path) -> None:
    subject = FileSubject(folder)
    await forgets(subject, subject.node(kept=KEPT, batch_limit=KEPT))


async def pruned(folder: Path) -> None:
    await check_forgetting(SqliteSubject(folder))


async def pruned_after_a_restore(folder: Path) -> None:
    await check_fence_and_incarnation(SqliteSubject(folder))


FAULTS: list[tuple[Callable[[Path], Awaitable[None]], Any, str, str]] = [
    (asked_by_a_stale_leader, asking.still_holds, "check_fence(resource, stored, cluster, claimed, holder)", "pass"),
    (
        asked_about_another_command,
        asking.answer,
        "if known is not None and known.digest == attempt.digest:",
        "if known:",
    ),
    (asked_about_what_is_forgotten, asking.answer, "and attempt.index > forgotten[1]", ""),
    (asked_about_what_is_forgotten, asking.answer, "claimed.incarnation == FIRST_INCARNATION and ", ""),
    (asked_about_what_is_forgotten, FileResource._query, "still_holds(", "not still_holds("),
    (pruned, pruning.sift, "row.index < below", "row.index <= below"),
    (pruned, pruning.sift, " and row.accepted < newest", ""),
    (pruned, pruning.sift, "end = stays - 1 if stays else", "end ="),
    (pruned, pruning.sift, "if row.ours and row.index", "if row.index"),
    (pruned_after_a_restore, pruning.sift, "if row.ours and row.index", "if row.index"),
]


@pytest.mark.endure
@pytest.mark.parametrize("check", sorted({fault[0] for fault in FAULTS} | {asked_without_a_claim}, key=str))
async def test_without_a_fault_nothing_is_found(check: Callable[[Path], Awaitable[None]], tmp_path: Path) -> None:
    await check(tmp_path)


@pytest.mark.parametrize(("check", "function", "line", "fault"), FAULTS)
async def test_each_fault_is_found(
    check: Callable[[Path], Awaitable[None]], function: Any, line: str, fault: str, tmp_path: Path
) -> None:
    with planted(function, line, fault), pytest.raises((AssertionError, pytest.fail.Exception)):
        await check(tmp_path)
