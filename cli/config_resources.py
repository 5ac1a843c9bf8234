"""The configuration of resources: one frozen dataclass a kind, and one for its effects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..raft.effects.policy import OnDead
from ..raft.effects.resources.postgres_tables import Dedupe
from ..raft.effects.resources.python import HORIZON_NS
from ..raft.ports import Guarantee
from .settings import BOOL, DURATION, PATH, PAUSE, SQL, TEXT, Kind, choice, count, setting, show

_MS = 1_000_000
_S = 1_000_000_000


def _parse_variable(value: Any, _folder: Path) -> str:
    if not isinstance(value, str) or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) is None:
        raise ValueError(f"{show(value)} is not the name of an environment variable")
    return value


def _parse_commands(value: Any, _folder: Path) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not value or not all(isinstance(words, list) and words for words in value):
        raise ValueError(f'{show(value)} is not a list of commands such as [["INCRBY", "cents", "{{cents}}"]]')
    for words in value:
        for word in words:
            if not isinstance(word, str):
                raise ValueError(f"{show(word)} is not a text; write every word of a command in quotes")
    return tuple(tuple(words) for words in value)


VARIABLE = Kind("environment variable", _parse_variable)
COMMANDS = Kind("list of commands", _parse_commands, text=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteEffectConfiguration:
    name: str
    sql: str = setting("sql", SQL, "one statement; :names are fields of the payload")
    think_ns: int = setting("think", PAUSE, "declared pause before the write, for demonstrations", default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonEffectConfiguration:
    name: str
    handler: str
    """``module:function``."""
    timeout_ns: int
    query: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSettings:
    """What every kind of resource has. Retries back off with full jitter from ``backoff`` to
    ``backoff_max``; after ``max_attempts`` failed attempts a command is dead."""

    name: str
    required: bool = setting(
        "required", BOOL, "whether the node is ready only once this resource is active", default=True
    )
    activation_timeout_ns: int = setting(
        "activation_timeout",
        DURATION,
        "how long a required resource may stay away before leadership is handed on",
        default=30 * _S,
    )
    max_attempts: int = setting(
        "max_attempts", count(1, 1_000_000), "failed attempts after which a command is dead", default=10
    )
    backoff_ns: int = setting("backoff", DURATION, "pause before the second attempt, at most", default=100 * _MS)
    backoff_max_ns: int = setting("backoff_max", DURATION, "the longest pause between attempts", default=30 * _S)
    on_dead_name: str = setting(
        "on_dead",
        choice(*(each.value for each in OnDead)),
        "whether a lane goes on behind a dead letter, or stands until that is redriven or discarded",
        default=OnDead.CONTINUE.value,
    )
    dispatch_horizon_ns: int = setting(
        "dispatch_horizon",
        PAUSE,
        "so long a command that may have been applied is repeated, and after that is in doubt; 0s for ever",
        default=0,
    )
    slow_start: int = setting(
        "slow_start",
        count(1, 10_000),
        "commands in a batch after an activation; doubled as they succeed",
        default=16,
    )
    calls_at_once: int = setting(
        "calls_at_once", count(0, 10_000), "calls at once, at most; 0 for as many as the kind takes", default=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteResourceConfiguration(ResourceSettings):
    """A SQLite database that holds fence, dedupe and effect in one transaction: ``fenced``."""

    path: Path = setting("path", PATH, "the database file; every node must be able to open it")  # noqa: RUF009 - a field specifier
    schema: str = setting("schema", SQL, "SQL run when the file is opened; must be harmless to repeat", default="")
    batch_limit: int = setting("batch_limit", count(1, 10_000), "commands in one transaction, at most", default=512)
    effects: Mapping[str, SqliteEffectConfiguration] = field(default_factory=dict)

    kind = "sqlite"
    guarantee = Guarantee.FENCED


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresEffectConfiguration:
    name: str
    sql: str = setting("sql", SQL, "one statement; :names are fields of the payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresResourceConfiguration(ResourceSettings):
    """A PostgreSQL database that holds fence, dedupe and effect in one transaction: ``fenced``."""

    url: str = setting("url", TEXT, "postgresql://user@host:port/database, without a password", default="")
    url_env: str = setting(
        "url_env", VARIABLE, "the environment variable that holds the url, where it has a password", default=""
    )
    schema: str = setting(
        "schema", SQL, "SQL run in one transaction at every connection; must be harmless to repeat", default=""
    )
    dedupe_name: str = setting(
        "dedupe",
        choice(*(design.value for design in Dedupe)),
        "how a repeat is recognised: by a row an operation (table), or by a row a lane and its latest results",
        default=Dedupe.TABLE.value,
    )
    lane_results: int = setting(
        "lane_results", count(1, 100_000), "results that each lane keeps, with ordered-lane", default=256
    )
    batch_limit: int = setting("batch_limit", count(1, 10_000), "commands in one transaction, at most", default=256)
    connect_timeout_ns: int = setting("connect_timeout", DURATION, "how long connecting may take", default=3 * _S)
    statement_timeout_ns: int = setting("statement_timeout", DURATION, "how long a statement may take", default=10 * _S)
    lock_timeout_ns: int = setting("lock_timeout", DURATION, "how long one wait for a lock may take", default=4 * _S)
    idle_timeout_ns: int = setting(
        "idle_timeout",
        DURATION,
        "how long a transaction may stand still before the server ends it: so long a frozen leader is in the way",
        default=2 * _S,
    )
    effects: Mapping[str, PostgresEffectConfiguration] = field(default_factory=dict)

    kind = "postgres"
    guarantee = Guarantee.FENCED

    @property
    def dedupe(self) -> Dedupe:
        return Dedupe(self.dedupe_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisEffectConfiguration:
    name: str
    commands: tuple[tuple[str, ...], ...] = setting(
        "commands", COMMANDS, "commands of one key each, done together; {names} are fields of the payload"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisResourceConfiguration(ResourceSettings):
    """A Redis or Valkey server that runs fence, dedupe and effect as one script: ``fenced`` where it syncs every
    write, ``keyed`` where it does not. The server is asked; a check of the file says ``keyed``."""

    url: str = setting("url", TEXT, "redis://user@host:port/database, without a password", default="")
    url_env: str = setting(
        "url_env", VARIABLE, "the environment variable that holds the url, where it has a password", default=""
    )
    batch_limit: int = setting("batch_limit", count(1, 10_000), "commands in one script, at most", default=128)
    forget_after_ns: int = setting(
        "forget_after",
        PAUSE,
        "how long an operation is recognised; 0s for ever. Anything else makes the resource keyed",
        default=0,
    )
    assume_durable: bool = setting(
        "assume_durable",
        BOOL,
        "take it that the server syncs every write, where it does not let itself be asked (CONFIG GET)",
        default=False,
    )
    connect_timeout_ns: int = setting("connect_timeout", DURATION, "how long connecting may take", default=3 * _S)
    answer_timeout_ns: int = setting("answer_timeout", DURATION, "how long one answer may take", default=5 * _S)
    effects: Mapping[str, RedisEffectConfiguration] = field(default_factory=dict)

    kind = "redis"
    guarantee = Guarantee.KEYED


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonResourceConfiguration(ResourceSettings):
    """Functions of yours, with the guarantee that you declare for them."""

    guarantee_name: str = setting(
        "guarantee", choice("fenced", "keyed", "naked"), "what the other side enforces: fenced, keyed or naked"
    )
    handler: str = setting("handler", TEXT, "module:function for effects that name none", default="")
    allow_duplicates: bool = setting("allow_duplicates", BOOL, "the opt-in that a naked resource needs", default=False)
    timeout_ns: int = setting("timeout", DURATION, "how long one call may take", default=30 * _S)
    horizon_ns: int = setting(
        "horizon",
        PAUSE,
        "for keyed: so long after the first attempt a command is attempted again; 0s for ever",
        default=HORIZON_NS,
    )
    concurrency: int = setting("concurrency", count(1, 10_000), "calls at once", default=16)
    claim: str = setting(
        "claim", TEXT, "for fenced: module:function that tells the other side of a new leader's token", default=""
    )
    effects: Mapping[str, PythonEffectConfiguration] = field(default_factory=dict)

    kind = "python"

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.guarantee_name)


ResourceConfiguration = (
    SqliteResourceConfiguration
    | PostgresResourceConfiguration
    | RedisResourceConfiguration
    | PythonResourceConfiguration
)
