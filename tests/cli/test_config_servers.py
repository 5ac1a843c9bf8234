"""Resources that are servers in a configuration file: what they become, what is wrong with them, and that no
secret is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost.cli.compose_resources import make_resources
from fencepost.cli.config import (
    PostgresResourceConfiguration,
    RedisResourceConfiguration,
    definitions_digest,
)
from fencepost.cli.definitions import check_definitions
from fencepost.raft.core.errors import ConfigurationError
from fencepost.raft.effects.resources.postgres import Dedupe, PostgresResource
from fencepost.raft.effects.resources.redis import RedisResource
from fencepost.raft.ports import Guarantee

from .test_config import GOOD, problems, read

POSTGRES = """\
[resources.ledger]
kind = "postgres"
url_env = "LEDGER_URL"
[resources.ledger.effects.credit]
sql = "INSERT INTO entries(account, cents) VALUES (:account, :cents)"
"""
REDIS = """\
[resources.counters]
kind = "redis"
url = "redis://127.0.0.1:6379/0"
[resources.counters.effects.count]
commands = [["HINCRBY", "account:{account}", "cents", "{cents}"]]
"""


def test_the_least_postgres_resource(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD + POSTGRES).resources["ledger"]
    assert isinstance(found, PostgresResourceConfiguration)
    assert (found.url, found.url_env, found.dedupe, found.guarantee) == (
        "",
        "LEDGER_URL",
        Dedupe.TABLE,
        Guarantee.FENCED,
    )
    assert found.effects["credit"].sql.startswith("INSERT INTO entries")


def test_the_least_redis_resource(tmp_path: Path) -> None:
    """A file cannot say how a server keeps its data: what is certain without asking is keyed."""
    found = read(tmp_path, GOOD + REDIS).resources["counters"]
    assert isinstance(found, RedisResourceConfiguration)
    assert (found.guarantee, found.forget_after_ns, found.assume_durable) == (Guarantee.KEYED, 0, False)
    assert found.effects["count"].commands == (("HINCRBY", "account:{account}", "cents", "{cents}"),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            POSTGRES.replace("url_env", "url_evn"),
            [
                "resources.ledger.url_env: missing: the environment variable that holds the address, or "
                'url = "postgresql://user@host:5432/database"',
                "resources.ledger.url_evn: unknown key; did you mean 'url_env'?",
            ],
        ),
        (
            POSTGRES.replace('url_env = "LEDGER_URL"', 'url = "postgresql://me:hunter2@db/ledger"'),
            [
                "resources.ledger.url: holds a password; put the whole address into an environment variable and name "
                "that: url_env"
            ],
        ),
        (
            POSTGRES.replace('url_env = "LEDGER_URL"', 'url = "postgrsql://me@db/ledger"'),
            ["resources.ledger.url: must begin with postgresql://; did you mean 'postgresql'?"],
        ),
        (
            POSTGRES.replace("LEDGER_URL", "LEDGER-URL"),
            ['resources.ledger.url_env: "LEDGER-URL" is not the name of an environment variable'],
        ),
        (
            POSTGRES.replace('"LEDGER_URL"', '"A"\nurl = "postgresql://db/x"'),
            ["resources.ledger.url: url and url_env are two places for one thing; remove one"],
        ),
        (
            POSTGRES.replace('"LEDGER_URL"', '"A"\ndedupe = "ordered_lane"'),
            [
                'resources.ledger.dedupe: "ordered_lane" is not one of table, ordered-lane; '
                "did you mean 'ordered-lane'?",
            ],
        ),
        (
            POSTGRES.replace('"LEDGER_URL"', '"A"\nidle_timeout = "4s"'),
            [
                "resources.ledger.lock_timeout: 4s is not longer than idle_timeout, 4s: a new leader would give up "
                "waiting before the server ends a frozen one"
            ],
        ),
        (
            POSTGRES.replace('"LEDGER_URL"', '"A"\ndedupe = "ordered-lane"\nlane_results = 9'),
            [
                "resources.ledger.lane_results: 9 is less than batch_limit, 256: what one batch did in a lane would "
                "not all be recognised after a crash"
            ],
        ),
        (
            POSTGRES.replace('"LEDGER_URL"', '"A"\nlane_results = 900'),
            ['resources.ledger.lane_results: only with dedupe = "ordered-lane"; a table keeps every result'],
        ),
        (
            POSTGRES.split("[resources.ledger.effects")[0],
            ['resources.ledger.effects: no effect; add [resources.ledger.effects.NAME] with sql = "…"'],
        ),
        (
            REDIS.replace('[["HINCRBY", "account:{account}", "cents", "{cents}"]]', '["INCR", "x"]'),
            [
                "resources.counters.effects.count.commands: ['INCR', 'x'] is not a list of commands such as "
                '[["INCRBY", "cents", "{cents}"]]'
            ],
        ),
        (
            REDIS.replace('"cents", "{cents}"', '"cents", 5'),
            ["resources.counters.effects.count.commands: 5 is not a text; write every word of a command in quotes"],
        ),
        (
            REDIS.replace('kind = "redis"', 'kind = "reddis"'),
            ["resources.counters.kind: unknown kind 'reddis'; did you mean 'redis'?"],
        ),
    ],
)
def test_each_mistake_has_its_text(tmp_path: Path, text: str, says: list[str]) -> None:
    found = sorted(line.partition(": ")[2] for line in problems(tmp_path, GOOD + text))
    assert found == sorted(says)


def test_a_password_in_a_file_is_not_repeated(tmp_path: Path) -> None:
    text = GOOD + POSTGRES.replace('url_env = "LEDGER_URL"', 'url = "postgresql://me:hunter2@db/ledger"')
    assert "hunter2" not in "".join(problems(tmp_path, text))


def test_the_address_comes_from_the_environment_and_is_not_shown(tmp_path: Path) -> None:
    configuration = read(tmp_path, GOOD + POSTGRES)
    with pytest.raises(ConfigurationError, match="LEDGER_URL is not set"):
        make_resources(configuration, {})
    with pytest.raises(ConfigurationError) as caught:
        make_resources(configuration, {"LEDGER_URL": "mysql://me:hunter2@db/ledger"})
    assert "hunter2" not in str(caught.value) + str(caught.value.as_dict())
    made = make_resources(configuration, {"LEDGER_URL": "postgresql://me:hunter2@db/ledger"})["ledger"]
    assert isinstance(made, PostgresResource)
    assert made.guarantee is Guarantee.FENCED


def test_a_redis_resource_is_keyed_until_its_server_was_asked(tmp_path: Path) -> None:
    made = make_resources(read(tmp_path, GOOD + REDIS), {})["counters"]
    assert isinstance(made, RedisResource)
    assert (made.guarantee, made.guarantee_reason) == (Guarantee.KEYED, "the server has not been asked yet")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (POSTGRES.replace("INSERT INTO", "TRUNCATE"), "sql: .*it must be one statement that starts with INSERT"),
        (POSTGRES.replace("(:account, :cents)", "($1, $2)"), "sql: .*must have names"),
        (POSTGRES.replace("INTO entries", "INTO fencepost.fence"), "sql: .*the schema of the fence"),
        (REDIS.replace("HINCRBY", "FLUSHALL"), "commands: .*FLUSHALL is none of the commands"),
        (REDIS.replace("{cents}", "{cents"), "commands: .*a brace of its own is written twice"),
        (REDIS.replace('["HINCRBY", "account:{account}", "cents", "{cents}"]', '["DEL", "a", "b"]'), "takes one key"),
    ],
)
def test_effects_are_checked_without_a_server(tmp_path: Path, text: str, says: str) -> None:
    found, _ = check_definitions(read(tmp_path, GOOD + text))
    assert len(found) == 1
    assert re.search(says, found[0]), found


def test_a_variable_that_is_not_set_here_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node may run in another environment than the check."""
    monkeypatch.delenv("LEDGER_URL", raising=False)
    found, warnings = check_definitions(read(tmp_path, GOOD + POSTGRES))
    assert found == []
    assert any("LEDGER_URL is not set" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (POSTGRES, POSTGRES.replace("LEDGER_URL", "OTHER"), True),
        (POSTGRES, POSTGRES.replace('"LEDGER_URL"', '"A"\nbatch_limit = 7'), True),
        (POSTGRES, POSTGRES.replace('"LEDGER_URL"', '"A"\ndedupe = "ordered-lane"'), False),
        (POSTGRES, POSTGRES.replace(":cents", "-:cents"), False),
        (REDIS, REDIS.replace("6379", "6380"), True),
        (REDIS, REDIS.replace('"cents"', '"pence"'), False),
    ],
)
def test_nodes_compare_what_effects_mean_and_not_where(tmp_path: Path, before: str, after: str, same: bool) -> None:
    first, second = read(tmp_path, GOOD + before), read(tmp_path, GOOD + after)
    assert (definitions_digest(first) == definitions_digest(second)) is same
