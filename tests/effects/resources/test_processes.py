"""Leaders as processes: killed inside a transaction, frozen before one, two at once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fencepost.raft.core.errors import Outcome, ResourceUnavailable
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.audit import check_ledger, read_ledger
from fencepost.raft.effects.resources.sqlite import SqliteEffect, SqliteResource
from fencepost.raft.ports import AttemptStatus, Fence

from .child import SCHEMA, SQL, attempt_at

SOURCES = Path(__file__).resolve().parents[3] / "src"
CHILD = Path(__file__).with_name("child.py")


class Leader:
    def __init__(self, path: Path, term: int, mode: str, first: int = 1, last: int = 10) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), str(path), str(term), f"n{term}", mode, str(first), str(last)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )

    def hears(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def rest(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.read().split("\n")

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Leaders:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[Leader] = []

    def start(self, term: int, mode: str = "plain", first: int = 1, last: int = 10) -> Leader:
        leader = Leader(self.path, term, mode, first, last)
        self.all.append(leader)
        return leader


@pytest.fixture
def leaders(tmp_path: Path) -> Iterator[Leaders]:
    leaders = Leaders(tmp_path / "ledger.db")
    yield leaders
    for leader in leaders.all:
        leader.close()


def world(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [operation for (operation,) in connection.execute("SELECT operation FROM entries ORDER BY place")]


def accepted(path: Path) -> list[str]:
    """What the ledger says, after it was found to be without fault and to agree with the effects."""
    ledger = read_ledger(path)
    assert check_ledger(ledger) == []
    operations = [each.operation_id for each in ledger.operations]
    assert world(path) == operations
    return operations


def here(path: Path) -> SqliteResource:
    return SqliteResource(
        "ledger", path, {"run": SqliteEffect(SQL)}, cluster_id="cluster", schema=SCHEMA, busy_timeout_ms=50
    )


async def test_killed_before_commit_nothing_is_there(leaders: Leaders) -> None:
    """S48, S50: fence, dedupe and effect are one. Killed in between, none of them happened."""
    leader = leaders.start(7, "between")
    assert [leader.hears(), leader.hears()] == ["claimed", "between"]
    leader.kill()
    assert accepted(leaders.path) == []
    successor = here(leaders.path)
    await successor.open()
    assert await successor.claim(FencingToken(1, 8), "n8") == Fence(FencingToken(1, 7), "n7")
    outcomes = await successor.execute(FencingToken(1, 8), "n8", [attempt_at(index) for index in range(1, 11)])
    await successor.close()
    assert {(outcome.status, outcome.replayed) for outcome in outcomes} == {(AttemptStatus.SUCCEEDED, False)}
    assert accepted(leaders.path) == [f"a{index}" for index in range(1, 11)]


async def test_killed_after_commit_everything_is_there(leaders: Leaders) -> None:
    """The effect took place and nobody was told: the successor gets the first result."""
    leader = leaders.start(7, "between", last=20)
    assert [leader.hears(), leader.hears()] == ["claimed", "between"]
    leader.go_on()
    assert leader.hears().startswith("a1=SUCCEEDED")
    assert leader.hears() == "between"
    leader.kill()
    assert accepted(leaders.path) == [f"a{index}" for index in range(1, 11)]
    successor = here(leaders.path)
    await successor.open()
    outcomes = await successor.execute(FencingToken(1, 8), "n8", [attempt_at(index) for index in range(1, 21)])
    await successor.close()
    assert [outcome.replayed for outcome in outcomes] == [True] * 10 + [False] * 10
    assert accepted(leaders.path) == [f"a{index}" for index in range(1, 21)]


async def test_a_holder_frozen_inside_its_transaction_is_reported_and_harmless(leaders: Leaders) -> None:
    """SQLite's own limit: the write lock of a frozen process is nobody else's until it is gone."""
    frozen = leaders.start(1, "between")
    assert [frozen.hears(), frozen.hears()] == ["claimed", "between"]
    frozen.signal(signal.SIGSTOP)
    successor = here(leaders.path)
    with pytest.raises(ResourceUnavailable) as caught:
        await successor.open()
    assert caught.value.outcome is Outcome.RETRY
    frozen.kill()
    await successor.open()
    await successor.claim(FencingToken(1, 2), "n2")
    await successor.close()
    assert accepted(leaders.path) == []


async def test_a_leader_frozen_in_its_effect_is_refused_by_the_ledger(leaders: Leaders) -> None:
    """S47, with a real SIGSTOP."""
    old = leaders.start(1, "think")
    assert [old.hears(), old.hears()] == ["claimed", "thinking"]
    old.signal(signal.SIGSTOP)
    new = here(leaders.path)
    await new.open()
    assert await new.claim(FencingToken(1, 2), "n2") == Fence(FencingToken(1, 1), "n1")
    old.signal(signal.SIGCONT)
    old.go_on()
    assert old.hears() == "STALE_LEADER"
    await new.execute(FencingToken(1, 2), "n2", [attempt_at(index) for index in range(1, 11)])
    await new.close()
    assert accepted(leaders.path) == [f"a{index}" for index in range(1, 11)]
    (refusal,) = read_ledger(leaders.path).refusals
    assert (refusal.token, refusal.stored) == (FencingToken(1, 1), FencingToken(1, 2))
    assert refusal.operations == [f"a{index}" for index in range(1, 11)]


async def test_a_leader_that_commits_first_is_recognised(leaders: Leaders) -> None:
    """The other order: the old leader's effect was in time, and the new one repeats none of it."""
    old = leaders.start(1, "think")
    assert [old.hears(), old.hears()] == ["claimed", "thinking"]
    old.go_on()
    assert old.hears().startswith("a1=SUCCEEDED")
    new = leaders.start(2)
    assert new.rest()[0] == "claimed"
    assert accepted(leaders.path) == [f"a{index}" for index in range(1, 11)]
    assert {each.token.term for each in read_ledger(leaders.path).operations} == {1}


@pytest.mark.parametrize("seed", range(3))
def test_old_and_new_leader_hammer_one_file(leaders: Leaders, seed: int) -> None:
    """S48: the same 300 operations from two processes, the newer one joining at some point."""
    old = leaders.start(1, last=300)
    for _ in range(random.Random(seed).randrange(1, 25)):
        old.hears()
    new = leaders.start(2, last=300)
    told = [*new.rest(), *old.rest()]
    assert "end" in told
    assert accepted(leaders.path) == [f"a{index}" for index in range(1, 301)]
    assert read_ledger(leaders.path).fences[0].token == FencingToken(1, 2)


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment(leaders: Leaders, seed: int) -> None:
    """Leader after leader, each killed after a few answers: what was answered is there, nothing twice."""
    chance = random.Random(seed)
    answered: set[str] = set()
    for term in range(1, 5):
        leader = leaders.start(term, last=400)
        for _ in range(chance.randrange(0, 30)):
            answered.update(each.removesuffix("=SUCCEEDED") for each in leader.hears().split() if "=" in each)
        leader.kill()
        if leaders.path.exists() and answered:
            assert answered <= set(accepted(leaders.path))
    last = leaders.start(9, last=400)
    assert "end" in last.rest()
    assert accepted(leaders.path) == [f"a{index}" for index in range(1, 401)]


def test_no_room_for_the_commit_leaves_whole_batches_and_no_others(leaders: Leaders) -> None:
    """The disk fills up at COMMIT, where SQLite writes: what was not answered may be asked again."""
    told = leaders.start(1, "limited", last=200).rest()
    answered = " ".join(told[: told.index("full, unknown")]).count("SUCCEEDED")
    assert 0 < answered < 200, "the limit must strike half-way"
    assert "end" in told
    assert accepted(leaders.path) == [f"a{index}" for index in range(1, 201)]
