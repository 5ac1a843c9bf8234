"""Attempts of one effect in one exchange with the server: they must not differ from attempts that go alone."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from fencepost.raft.effects.resources.named_parameters import number_parameters
from fencepost.raft.effects.resources.postgres_batch import Batch
from fencepost.raft.effects.resources.postgres_effect import Statement
from fencepost.raft.effects.resources.postgres_run import (
    QUICK_S,
    RUN_BYTES_MAX,
    RUN_LENGTH_FIRST,
    RUN_LENGTH_MAX,
    Runs,
    size_of,
)
from fencepost.raft.ports import Attempt, AttemptOutcome, AttemptStatus

from ...servers.postgres import PostgresServer, postgres, postgres_server
from .server_subjects import PostgresSubject
from .subjects import attempt_of, token

__all__ = ["postgres", "postgres_server"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS things (operation text NOT NULL, account text NOT NULL, cents bigint NOT NULL CHECK (cents >= 0),
    "returning" text);
CREATE TABLE IF NOT EXISTS balances (account text PRIMARY KEY, cents bigint NOT NULL);
CREATE TABLE IF NOT EXISTS ruled (account text);
CREATE OR REPLACE FUNCTION passes_some() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF NEW.cents % 2 = 0 THEN RETURN NULL; END IF; RETURN NEW; END $$;
CREATE TABLE IF NOT EXISTS choosy (cents bigint);
CREATE OR REPLACE TRIGGER passes BEFORE INSERT ON choosy FOR EACH ROW EXECUTE FUNCTION passes_some();
CREATE TABLE IF NOT EXISTS moved (account text);
CREATE OR REPLACE RULE instead AS ON INSERT TO moved DO INSTEAD INSERT INTO things VALUES ('rule', NEW.account, 2);
CREATE OR REPLACE RULE also AS ON INSERT TO ruled DO ALSO INSERT INTO things VALUES ('rule', NEW.account, 1);
"""  # noqa: E501
TOGETHER = {
    "row": "INSERT INTO things VALUES (:operation_id, :account, :cents)",
    "comment": "INSERT INTO things VALUES (:operation_id, :account, :cents) -- RETURNING nothing",
    "several": "INSERT INTO things SELECT :operation_id, :account, each FROM generate_series(1, :cents) AS each",
    "some": "INSERT INTO choosy VALUES (:cents)",
    "once": "INSERT INTO balances VALUES (:account, :cents) ON CONFLICT DO NOTHING",
    "add": "INSERT INTO balances AS b VALUES (:account, :cents) ON CONFLICT (account) "
    "DO UPDATE SET cents = b.cents + excluded.cents RETURNING b.cents, b.account AS cents_of /* of whom */",
    "also": "INSERT INTO ruled VALUES (:account)",
    "all": "UPDATE things SET cents = cents + :cents WHERE account = :account",
    "each": "UPDATE things SET cents = cents + :cents WHERE account = :account RETURNING cents, operation",
    "gone": "DELETE FROM things WHERE cents < :cents RETURNING *;",
    "numbered": "INSERT INTO things VALUES (:operation_id, :account, :cents) RETURNING 7 AS fencepost_attempt",
}
"""Each is sent in runs."""
ALONE = {
    "instead": "INSERT INTO moved VALUES (:account)",
    "ended": "INSERT INTO choosy VALUES (:cents); -- and that is all",
    "quoted": 'INSERT INTO things (operation, account, cents, "returning") VALUES (:operation_id, :account, :cents, 1)',
    "select": "SELECT count(*) AS things, :cents::bigint AS cents FROM things",
    "with": "WITH given AS (SELECT :cents::bigint AS cents) INSERT INTO choosy SELECT cents FROM given RETURNING cents",
    "merge": "MERGE INTO balances AS b USING (SELECT :account AS account) AS a ON a.account = b.account "
    "WHEN MATCHED THEN UPDATE SET cents = b.cents + :cents",
}
"""Each is sent by itself: its rows cannot be told apart."""
TABLES = "things", "balances", "choosy", "ruled"


async def outcomes_of(
    server: PostgresServer, attempts: list[Attempt], *, at_once: int
) -> tuple[list[AttemptOutcome], dict[str, list[str]]]:
    """Outcomes and what is in the tables afterwards, on an empty database."""
    server.query("DROP SCHEMA IF EXISTS fencepost CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public;")
    resource = PostgresSubject(server).node(effects={**TOGETHER, **ALONE}, schema=SCHEMA)
    await resource.open()
    outcomes = []
    for first in range(0, len(attempts), at_once):
        outcomes += await resource.execute(token(1), "n1", attempts[first : first + at_once])
    assert {effect for effect, each in resource._statements.items() if each.runs.length_max == 1} == (
        set(ALONE) if at_once > 1 else {"select", "with", "merge"}
    )
    await resource.close()
    return outcomes, {
        table: sorted(repr(tuple(row)) for row in server.query(f"SELECT * FROM {table}")) for table in TABLES
    }


@pytest.mark.servers
async def test_every_kind_of_statement_has_the_results_that_it_has_alone(postgres: PostgresServer) -> None:
    """Rows of one attempt among those of many: none, one, several, returned by the statement or only counted."""
    attempts: list[Attempt] = []
    for effect in (*TOGETHER, *ALONE, *ALONE, *TOGETHER):
        for number in (1, 2, 3, 2):
            index = len(attempts) + 1
            payload = {"account": f"a{number}", "cents": number}
            attempts.append(attempt_of(payload, f"op{index}", index, effect=effect))
    # What cannot be told apart is found out by trying, once each, and the batch is run again for that.
    together = await outcomes_of(postgres, attempts, at_once=8)
    alone = await outcomes_of(postgres, attempts, at_once=1)
    assert together == alone
    outcomes = together[0]
    assert {outcome.status for outcome in outcomes} == {AttemptStatus.SUCCEEDED}
    seen = {each.effect: json.loads(outcome.result) for each, outcome in zip(attempts[:44], outcomes[:44], strict=True)}
    assert seen["several"] == {"rows": 2}
    assert (seen["some"], seen["once"]) == ({"rows": 0}, {"rows": 0})
    assert seen["add"] == {"cents": 6, "cents_of": "a2"}
    assert len(seen["each"]) == 10  # All of a2 so far: 2 of row, comment and also, 4 of several.
    assert seen["numbered"] == {"fencepost_attempt": 7}


@pytest.mark.servers
async def test_one_that_fails_in_a_run_fails_alone(postgres: PostgresServer) -> None:
    resource = PostgresSubject(postgres).node(effects=TOGETHER, schema=SCHEMA)
    await resource.open()
    attempts = [
        attempt_of({"account": "a", "cents": 5 - index}, f"op{index}", index, effect="row", lane=f"lane{index % 2}")
        for index in range(1, 8)
    ]
    outcomes = await resource.execute(token(1), "n1", attempts)
    await resource.close()
    # Numbers 6 and 7 bring less than nothing, each first in its lane.
    assert [outcome.status for outcome in outcomes] == [AttemptStatus.SUCCEEDED] * 5 + [AttemptStatus.FAILED] * 2
    rows = [tuple(row) for row in postgres.query("SELECT operation FROM things")]
    assert rows == [(f"op{index}",) for index in range(1, 6)]


def random_attempts(chance: random.Random) -> list[Attempt]:
    """Some break a constraint, do not fit, name what is not there, come twice, or too late in their lane."""
    attempts: list[Attempt] = []
    for index in range(1, 31):
        if attempts and chance.random() < 0.1:
            attempts.append(chance.choice(attempts))
            continue
        effect = chance.choice((*["row"] * 20, "each", "several", "missing", "none"))
        cents = chance.choice(("no number", -1, -1, *[1] * chance.choice((10, 30))))
        place = index - chance.choice((*[0] * 9, 5))
        lane = chance.choice(("", "a", "a", "b"))
        attempts.append(
            attempt_of({"account": "a", "cents": cents}, f"op{len(attempts)}", place, lane=lane, effect=effect)
        )
    return attempts


@pytest.mark.servers
async def test_s52_whatever_fails_in_a_batch_it_ends_as_if_each_had_gone_alone(postgres: PostgresServer) -> None:
    effects = {**TOGETHER, "missing": "INSERT INTO not_there VALUES (:cents)"}
    together, alone = (
        PostgresSubject(postgres).node(name, effects=effects, schema=SCHEMA) for name in ("ledger", "mail")
    )
    seen: set[AttemptStatus] = set()
    for each in (together, alone):
        await each.open()
        await each.claim(token(1), "n1")
    for seed in range(12):
        attempts = random_attempts(random.Random(seed))
        worlds = []
        outcomes = []
        for resource in (together, alone):
            postgres.query("TRUNCATE things, fencepost.operations, fencepost.lanes;")
            if resource is together:
                outcomes.append(await resource.execute(token(1), "n1", attempts))
            else:
                batch = Batch(attempts, resource._statements, careful=True, alone=True)
                outcomes.append(await resource._transact(token(1), "n1", batch))
            worlds.append(postgres.query("SELECT operation, cents FROM things ORDER BY 1, 2"))
            worlds.append(postgres.query("SELECT operation_id, result FROM fencepost.operations ORDER BY accepted"))
            worlds.append(postgres.query("SELECT lane, log_index FROM fencepost.lanes ORDER BY lane"))
        assert outcomes[0] == outcomes[1]
        assert worlds[:3] == worlds[3:]
        for lane in ("a", "b"):
            found = [each.status for each, of in zip(outcomes[0], attempts, strict=True) if of.lane == lane]
            first = next((at for at, status in enumerate(found) if status is not AttemptStatus.SUCCEEDED), len(found))
            assert set(found[first + 1 :]) <= {AttemptStatus.NOT_ATTEMPTED}
        seen.update(outcome.status for outcome in outcomes[0])
    assert seen == {AttemptStatus.SUCCEEDED, AttemptStatus.FAILED, AttemptStatus.NOT_ATTEMPTED}
    for each in (together, alone):
        await each.close()


class Prepared:
    """Takes the time it is told, or never answers."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.takes_s = 0.0
        self.sent: list[list[int]] = []

    async def prepare(self, sql: str) -> Prepared:
        return self

    def get_attributes(self) -> list[Any]:
        return []

    def get_parameters(self) -> list[asyncpg.Type]:
        return [asyncpg.Type(25, "text", "scalar", "pg_catalog")]

    async def fetch(self, value: str) -> list[Any]:
        self.sent.append([len(value)])
        return []

    def get_statusmsg(self) -> str:
        return "INSERT 0 1"

    async def fetchmany(self, values: list[Sequence[Any]]) -> list[Any]:
        self.sent.append([len(each[0]) for each in values])
        self.now_s += self.takes_s
        if self.takes_s > 10:
            raise TimeoutError
        return []


async def test_a_run_is_as_long_as_it_is_quick() -> None:
    """One wait is bounded for the whole of it: a slow statement must not be taken for a server that is gone."""
    server = Prepared()
    runs = Runs(number_parameters("DELETE FROM things WHERE account = :account"), lambda: server.now_s)
    await runs.prepare(server, 1)

    async def length_after(takes_s: float, count: int = 0) -> int:
        server.takes_s = takes_s
        await runs.send([("",)] * (count or runs.length_max))
        return runs.length_max

    assert runs.length_max == RUN_LENGTH_FIRST
    assert await length_after(QUICK_S / 2, count=3) == RUN_LENGTH_FIRST  # A short one proves nothing.
    assert await length_after(QUICK_S / 2) == 2 * RUN_LENGTH_FIRST
    assert await length_after(QUICK_S * 2) == RUN_LENGTH_FIRST
    for _ in range(9):
        await length_after(0.0)
    assert runs.length_max == RUN_LENGTH_MAX
    with pytest.raises(TimeoutError):
        await length_after(11)
    assert runs.length_max == 1
    assert await length_after(QUICK_S * 2) == 1
    assert await length_after(QUICK_S / 2) == 2


async def test_an_exchange_is_small_enough_for_one_piece() -> None:
    """Between two pieces a holder could freeze, where no bound of the server's ends it."""
    server = Prepared()
    batch = Batch(
        [attempt_of({"account": "x" * size}, f"op{size}") for size in (*range(3000, 3009), 40_000, 5, 6)],
        {"credit": Statement("ledger", "credit", "INSERT INTO things VALUES (:account)")},
        careful=False,
    )
    await batch.run(server, 1, token(1), {}, {})
    assert [len(each) for each in server.sent] == [5, 4, 1, 2]
    assert all(sum(each) <= RUN_BYTES_MAX or len(each) == 1 for each in server.sent)
    assert [size for each in server.sent for size in each] == [*range(3000, 3009), 40_000, 5, 6]


@pytest.mark.parametrize("value", ["x" * 5000, "ä" * 2500, b"x" * 5000])
def test_values_are_taken_for_at_least_what_they_are(value: Any) -> None:
    """What goes in one exchange must fit into one piece."""
    assert 5000 <= size_of([value]) <= RUN_BYTES_MAX
