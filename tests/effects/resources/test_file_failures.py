"""A leader over a folder of files that dies or freezes before each of its system calls, one after the other."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fencepost.raft.core.errors import Outcome, ResourceUnavailable, StaleLeader
from fencepost.raft.effects.resources.audit import check_ledger
from fencepost.raft.effects.resources.file_calls import Calls
from fencepost.raft.ports import Attempt, AttemptOutcome, AttemptStatus, Fence

from ...servers.program import folder_of
from .file_subjects import FileSubject
from .subjects import attempt, token

EFFECTS = {
    "credit": [
        ["append", "deep/ledger.lines", "{operation_id}"],
        ["write", "latest", "{operation_id}"],
        ["write", "deep/of/{operation_id}"],
    ]
}
BATCH = [attempt(name, index, lane="k") for index, name in enumerate("abc", 1)]
LATER = [*BATCH, attempt("d", 4, lane="k")]

CALLS = [name for name in vars(Calls) if not name.startswith("_")]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is such a folder: these tests sync at every step."""
    with folder_of(None) as path:
        yield path


class Died(Exception):
    pass


class Stops(Calls):
    """Calls ``hook`` before the call number ``at``, and writes down every call."""

    def __init__(self, at: int, hook: Callable[[Calls, str, tuple[Any, ...]], None]) -> None:
        self.trace: list[tuple[Any, ...]] = []

        def stopped(name: str, call: Callable[..., Any], *arguments: Any) -> Any:
            self.trace.append((name, *arguments))
            if len(self.trace) == at:
                hook(plain, name, arguments)
            return call(*arguments)

        plain = Calls()
        for name in CALLS:
            setattr(self, name, functools.partial(stopped, name, getattr(plain, name)))


def die(plain: Calls, name: str, arguments: tuple[Any, ...]) -> None:
    """What it was writing is written half."""
    if name == "write":
        path, data = arguments
        Path(path).write_bytes(data[: len(data) // 2])
    if name == "write_at":
        file, offset, data, at = arguments
        plain.write_at(file, offset, data[: len(data) // 2], at)
    raise Died


async def work(
    subject: FileSubject, term: int, batch: list[Attempt], calls: Calls | None = None
) -> list[AttemptOutcome]:
    """One leader's whole life."""
    resource = subject.node(effects=EFFECTS, calls=calls)
    await resource.open()
    try:
        await resource.claim(token(term), f"n{term}")
        return await resource.execute(token(term), f"n{term}", batch)
    finally:
        await resource.close()


def calls_of(folder: Path) -> list[tuple[Any, ...]]:
    """All that a leader asks of the system after a predecessor that has done nothing yet."""
    subject = subject_in(folder)
    calls = Stops(0, die)
    asyncio.run(work(subject, 1, BATCH, calls))
    return calls.trace


def subject_in(folder: Path) -> FileSubject:
    folder.mkdir()
    subject = FileSubject(folder)
    resource = subject.node(effects=EFFECTS)
    asyncio.run(resource.open())
    asyncio.run(resource.close())
    return subject


def look(subject: FileSubject, names: str) -> None:
    """Exactly these operations, each once and in order, and nothing left over."""
    deep = subject.folder / "deep"
    assert (deep / "ledger.lines").read_text().split() == list(names)
    assert (subject.folder / "latest").read_text() == names[-1]
    assert sorted(path.name for path in (deep / "of").iterdir()) == sorted(names)
    assert all(path.read_text() == '{"cents": 1}' for path in (deep / "of").iterdir())
    ledger = subject.ledger()
    assert check_ledger(ledger) == []
    assert [each.operation_id for each in ledger.operations] == list(names)
    base = subject.folder / ".fencepost" / "ledger"
    assert [list((base / folder).iterdir()) for folder in ("staged", "trash")] == [[], []]


def test_dead_before_every_call(tmp_path: Path) -> None:
    trace = calls_of(tmp_path / "measured")
    assert len(trace) > 30
    for at in range(1, len(trace) + 1):
        subject = subject_in(tmp_path / f"{at}")
        with pytest.raises(Died):
            asyncio.run(work(subject, 1, BATCH, Stops(at, die)))
        outcomes = asyncio.run(work(subject, 2, LATER))
        assert [outcome.status for outcome in outcomes] == [AttemptStatus.SUCCEEDED] * 4, at
        replayed = [outcome.replayed for outcome in outcomes]
        # One commit for the whole batch: all of it is known, or nothing.
        assert replayed in ([True, True, True, False], [False] * 4), at
        look(subject, "abcd")


def test_frozen_before_every_call_while_another_leads(tmp_path: Path) -> None:
    """The successor does all of its work and never waits. On waking the old one is refused, or had done it before."""
    trace = calls_of(tmp_path / "measured")
    refused, done = 0, 0
    for at in range(1, len(trace) + 1):
        subject = subject_in(tmp_path / f"{at}")

        def freeze(*_: Any, subject: FileSubject = subject) -> None:
            found = asyncio.run(work(subject, 2, LATER))
            assert [outcome.status for outcome in found] == [AttemptStatus.SUCCEEDED] * 4

        try:
            outcomes = asyncio.run(work(subject, 1, BATCH, Stops(at, freeze)))
        except StaleLeader:
            refused += 1
        else:
            assert [outcome.status for outcome in outcomes] == [AttemptStatus.SUCCEEDED] * 3
            done += 1
        (epoch,) = (subject.folder / ".fencepost" / "ledger" / "epochs").iterdir()
        assert epoch.name.endswith("~n2"), "whoever gives way leaves nothing behind"
        look_again(subject)
    assert refused > 10
    assert done > 10


def look_again(subject: FileSubject) -> None:
    """As :func:`look`, after a third leader has looked for what is left over."""
    assert asyncio.run(work(subject, 3, LATER))[0].replayed
    look(subject, "abcd")


@pytest.mark.endure
def test_dead_before_every_call_and_its_successor_too(tmp_path: Path) -> None:
    trace = calls_of(tmp_path / "measured")
    for at in range(1, len(trace) + 1):
        for then in range(1, 2 * len(trace)):
            subject = subject_in(tmp_path / f"{at}-{then}")
            with pytest.raises(Died):
                asyncio.run(work(subject, 1, BATCH, Stops(at, die)))
            try:
                asyncio.run(work(subject, 2, LATER, Stops(then, die)))
            except Died:
                asyncio.run(work(subject, 3, LATER))
                look(subject, "abcd")
            else:
                break


def test_nothing_is_put_in_place_before_it_is_committed_and_synced(tmp_path: Path) -> None:
    """What a loss of power may reorder is what was not synced: so the order of the calls is looked at."""
    trace = calls_of(tmp_path / "measured")
    names = [name for name, *_ in trace]
    commits = [at for at, (name, *rest) in enumerate(trace) if name == "rename" and rest[1].endswith("/ledger/state")]
    assert len(commits) == 2  # The claim, and the batch.
    commit = commits[-1]
    staged = [at for at, (name, *rest) in enumerate(trace) if name == "write" and "/staged/" in rest[0]]
    assert len(staged) == 4
    synced = names.index("sync_folder", max(staged))
    assert trace[synced][1].endswith("/staged")
    assert max(staged) < synced < commit
    assert names[commit - 1] == "write"
    assert (names[commit + 1], trace[commit + 1][1]) == ("sync_folder", str(Path(trace[commit][2]).parent))
    moved = [at for at, (name, *rest) in enumerate(trace) if name == "rename" and "/staged/" in rest[0]]
    extended = [at for at, name in enumerate(names) if name == "write_at"]
    assert len(moved) == 4
    assert len(extended) == 1
    assert min(*moved, *extended) > commit + 1
    assert all("sync" in names[at + 1 : at + 2] for at in [*moved, *extended])


async def test_two_leaders_that_enter_at_once(tmp_path: Path) -> None:
    """Each stops before each of its calls of a claim and lets the other claim: the higher one always stands."""
    for at in range(1, 20):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        subject = FileSubject(folder)
        first, second = subject.node(), subject.node()
        await second.open()

        def between(*_: Any, subject: FileSubject = subject) -> None:
            asyncio.run(claims(subject, 1))

        stopped = subject.node(calls=Stops(at, between))
        await stopped.open()
        await stopped.claim(token(2), "n2")
        await first.open()
        assert await first.fence() == Fence(token(2), "n2")
        with pytest.raises(StaleLeader):
            await first.execute(token(1), "n1", [attempt("a")])
        for resource in (first, second, stopped):
            await resource.close()


async def claims(subject: FileSubject, term: int) -> None:
    resource = subject.node()
    await resource.open()
    try:
        await resource.claim(token(term), f"n{term}")
    except StaleLeader:
        pass
    finally:
        await resource.close()


def test_a_second_process_under_one_token_is_turned_away(tmp_path: Path) -> None:
    found: list[BaseException] = []

    def again(*_: Any) -> None:
        try:
            asyncio.run(work(subject, 1, BATCH))
        except ResourceUnavailable as error:
            found.append(error)

    trace = calls_of(tmp_path / "measured")
    commit = max(at for at, (name, *rest) in enumerate(trace) if name == "rename" and rest[1].endswith("/state"))
    subject = subject_in(tmp_path / "again")
    asyncio.run(work(subject, 1, BATCH, Stops(commit + 1, again)))
    (error,) = found
    assert "another process" in str(error)
    assert subject.ledger().operations[-1].operation_id == "c"


async def test_a_full_disk_is_no_failure_of_a_command(tmp_path: Path) -> None:
    subject = FileSubject(tmp_path)

    class Full(Calls):
        full = True

        def write(self, path: str, data: bytes) -> None:
            if self.full and "/staged/" in path:
                raise OSError(28, "No space left on device")
            super().write(path, data)

        def write_at(self, name: str, offset: int, data: bytes, at: int) -> None:
            if self.full:
                raise OSError(28, "No space left on device")
            super().write_at(name, offset, data, at)

    calls = Full()
    resource = subject.node(calls=calls)
    await resource.open()
    await resource.claim(token(1), "n1")
    with pytest.raises(ResourceUnavailable, match="No space left") as error:
        await resource.execute(token(1), "n1", [attempt("a", 1)])
    assert error.value.outcome is Outcome.UNKNOWN
    assert subject.world() == []
    calls.full = False
    (outcome,) = await resource.execute(token(1), "n1", [attempt("a", 1)])
    assert (outcome.status, outcome.replayed, subject.world()) == (AttemptStatus.SUCCEEDED, False, ["a"])
    await resource.close()


@pytest.mark.endure
def test_two_leaders_interleaved_at_every_pair_of_calls(tmp_path: Path) -> None:
    """The old one stops before a call, the new one before one of its own; then the old one goes on to its end."""
    trace = calls_of(tmp_path / "measured")
    for at in range(1, len(trace) + 1):
        for then in range(1, 2 * len(trace)):
            subject = subject_in(tmp_path / f"{at}-{then}")
            if not interleave(subject, at, then):
                break
            look_again(subject)


def interleave(subject: FileSubject, at: int, then: int) -> bool:
    """Whether the new one came to its call number ``then``."""
    old_stopped, new_stopped, old_ended = threading.Event(), threading.Event(), threading.Event()
    came = False

    def stop_old(*_: Any) -> None:
        old_stopped.set()
        assert new_stopped.wait(60)

    def stop_new(*_: Any) -> None:
        nonlocal came
        came = True
        new_stopped.set()
        assert old_ended.wait(60)

    def lead_old() -> list[AttemptOutcome] | None:
        try:
            return asyncio.run(work(subject, 1, BATCH, Stops(at, stop_old)))
        except StaleLeader:
            return None
        finally:
            old_ended.set()

    with ThreadPoolExecutor(1) as thread:
        old = thread.submit(lead_old)
        assert old_stopped.wait(60)
        try:
            found = asyncio.run(work(subject, 2, LATER, Stops(then, stop_new)))
        finally:
            new_stopped.set()
        outcomes = old.result()
    assert [outcome.status for outcome in found] == [AttemptStatus.SUCCEEDED] * 4, (at, then)
    assert outcomes is None or {outcome.status for outcome in outcomes} == {AttemptStatus.SUCCEEDED}, (at, then)
    return came
