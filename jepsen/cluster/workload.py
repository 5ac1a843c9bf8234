"""What is submitted, and where to: commands decided by a seed, for a file, a database and an API at once."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from ...raft.outbox.codec import Command

FILE, DATABASE, API = "file", "database", "api"
RESOURCES = (FILE, DATABASE, API)
_SHARES = (2, 2, 1)
"""Of the commands: a call of the API carries one command, and a transaction carries many."""

EFFECTS = ("credit", "slow")

SLOW = 0.3
"""Of the commands: so many that a leader is nearly always in the middle of an effect when something is done to it."""

LANES = 40
"""Of each resource. A quarter of the commands has none."""

DEFINITIONS = """
[raft]
election_timeout = "500ms"
heartbeat = "50ms"

[snapshots]
# Nodes start from snapshots, and yet the whole log is there in the end to be looked at.
entries = 5000
retained = 10000000
retained_payload = "0B"

[resources.file]
kind = "sqlite"
path = "file.db"
schema = "CREATE TABLE IF NOT EXISTS entries(operation TEXT, lane TEXT, place INTEGER, payload TEXT)"
[resources.file.effects.credit]
sql = "INSERT INTO entries VALUES (:operation_id, :lane, :log_index, :payload)"
[resources.file.effects.slow]
sql = "INSERT INTO entries VALUES (:operation_id, :lane, :log_index, :payload)"
think = "25ms"

[resources.database]
kind = "postgres"
url = "{database}"
idle_timeout = "1s"
schema = '''CREATE TABLE IF NOT EXISTS entries(
    id bigserial, operation text, lane text, place bigint, payload text)'''
[resources.database.effects.credit]
sql = '''INSERT INTO entries(operation, lane, place, payload)
    VALUES (:operation_id, :lane, :log_index, :payload::text)'''
[resources.database.effects.slow]
sql = '''INSERT INTO entries(operation, lane, place, payload)
    SELECT :operation_id, :lane, :log_index, :payload::text FROM pg_sleep(0.01)'''

[resources.api]
kind = "http"
url = "{api}"
answer_timeout = "5s"
[resources.api.effects.credit]
path = "/credit?lane={{lane}}&place={{log_index}}"
query = "/operations/{{operation_id}}"
[resources.api.effects.slow]
path = "/slow?lane={{lane}}&place={{log_index}}"
query = "/operations/{{operation_id}}"
"""


def definitions(*, api: str, database: str) -> str:
    """TOML for every node's file. The tables of the applications have no unique key: nothing but the outbox keeps a
    command from standing in them twice. ``api`` and ``database`` are addresses."""
    return DEFINITIONS.format(api=api, database=database)


def commands(seed: int, count: int) -> Iterator[Command]:
    """So many commands, the same ones for the same seed."""
    chance = random.Random(f"commands {seed}")
    for number in range(count):
        (resource,) = chance.choices(RESOURCES, _SHARES)
        slow = chance.random() < SLOW
        payload = {"cents": chance.randint(1, 1000), "number": number}
        if slow and resource == API:
            payload["pause_ms"] = 20
        lane = f"lane-{chance.randrange(LANES)}" if chance.random() < 0.75 else ""
        yield Command(
            f"{resource}-{number}", resource, "slow" if slow else "credit", lane, json.dumps(payload).encode()
        )
