"""The configuration of one node: one tree of frozen dataclasses.

Each field knows its key, unit, default and help; :mod:`.config_file` reads them from flags, the
environment and TOML. Durations are nanoseconds and sizes bytes, as their names say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..raft.node.command_log import Lines
from ..raft.outbox.codec import canonical_json
from .config_resources import PostgresEffectConfiguration as PostgresEffectConfiguration
from .config_resources import PostgresResourceConfiguration as PostgresResourceConfiguration
from .config_resources import PythonEffectConfiguration as PythonEffectConfiguration
from .config_resources import PythonResourceConfiguration as PythonResourceConfiguration
from .config_resources import RedisEffectConfiguration as RedisEffectConfiguration
from .config_resources import RedisResourceConfiguration as RedisResourceConfiguration
from .config_resources import ResourceConfiguration as _ResourceConfiguration
from .config_resources import ResourceSettings as ResourceSettings
from .config_resources import SqliteEffectConfiguration as SqliteEffectConfiguration
from .config_resources import SqliteResourceConfiguration as SqliteResourceConfiguration
from .config_stores import FileEffectConfiguration as FileEffectConfiguration
from .config_stores import FileResourceConfiguration as FileResourceConfiguration
from .config_stores import HttpEffectConfiguration as HttpEffectConfiguration
from .config_stores import HttpResourceConfiguration as HttpResourceConfiguration
from .config_stores import S3EffectConfiguration as S3EffectConfiguration
from .config_stores import S3ResourceConfiguration as S3ResourceConfiguration
from .config_stores import StoreConfiguration as StoreConfiguration
from .settings import ADDRESS, BOOL, DURATION, NAME, PATH, PAUSE, choice, count, setting, size

_MS = 1_000_000
_S = 1_000_000_000

ResourceConfiguration = _ResourceConfiguration | StoreConfiguration


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfiguration:
    id: str = setting("id", NAME, "the cluster's id, the same on every node; `fencepost cluster init` makes one")
    join: bool = setting(
        "join",
        BOOL,
        "for a new node of a cluster that is there already: begin without members, and wait to be added. "
        "Matters only while the data directory is empty",
        default=False,
    )
    incarnation: int = setting(
        "incarnation",
        count(1, 2**63 - 1),
        "the cluster's incarnation, which a restore or a forced recovery raises; `fencepost member config` writes it. "
        "Matters only while the data directory is empty",
        default=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSection:
    id: str = setting("id", NAME, "this node's id, unique in the cluster")
    data_dir: Path = setting("data_dir", PATH, "the folder of this node's log")  # noqa: RUF009 - a field specifier
    peer: str = setting("peer", ADDRESS, "host:port on which the other nodes reach this one")
    client: str = setting("client", ADDRESS, "host:port on which clients reach this node")
    http: str = setting(
        "http", ADDRESS, "host:port for /livez, /readyz, /leader and /metrics; nothing is served without it", default=""
    )
    log_level: str = setting(
        "log_level", choice("debug", "info", "warning", "error"), "what is logged to stderr", default="info"
    )
    log_commands: str = setting(
        "log_commands",
        choice(*(lines.value for lines in Lines)),
        "which ended commands get a line in the log of the node that leads; some: all that did not go well, and up to "
        "a hundred of the others a second",
        default=Lines.SOME.value,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfiguration:
    heartbeat_ns: int = setting("heartbeat", DURATION, "how often a leader renews its followers", default=100 * _MS)
    election_timeout_ns: int = setting(
        "election_timeout",
        DURATION,
        "how long without a leader before an election; drawn from 1 to 2 times this",
        default=1 * _S,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfiguration:
    segment_bytes: int = setting(
        "segment", size(1 << 16, 1 << 32), "size at which a log file is closed and the next begun", default=64 << 20
    )
    window: int = setting(
        "window",
        count(0, 1_000_000_000),
        "the newest so many entries are kept in memory, older ones are read back from the disk; 0 for all",
        default=50_000,
    )
    window_payload_bytes: int = setting(
        "window_payload",
        size(0, 1 << 40),
        'of these only the newest that together carry so much; "0B" for no bound',
        default=64 << 20,
    )
    low_bytes: int = setting(
        "low_space",
        size(0, 1 << 50),
        'with less than this free on its disk a node warns, in its log and in `status`; "0B" for never',
        default=512 << 20,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsConfiguration:
    entries: int = setting(
        "entries",
        count(0, 1_000_000_000),
        "a snapshot is taken, and the log before it given up, after so many entries; 0 for never by count",
        default=100_000,
    )
    payload_bytes: int = setting(
        "payload",
        size(0, 1 << 40),
        'the same by the size of what the entries carry; "0B" for never by size',
        default=64 << 20,
    )
    retained: int = setting(
        "retained",
        count(0, 1_000_000_000),
        "entries kept in front of a snapshot, so that a node that was away for a moment needs no snapshot",
        default=10_000,
    )
    retained_payload_bytes: int = setting(
        "retained_payload",
        size(0, 1 << 40),
        'of these only the newest that together carry so much; "0B" for all of them',
        default=64 << 20,
    )
    kept: int = setting(
        "kept",
        count(2, 1000),
        "the newest so many stay on disk; two are needed, as one may be on its way to another node",
        default=2,
    )
    chunk_bytes: int = setting(
        "chunk", size(1 << 10, 4 << 20), "a snapshot is sent to another node in parts of this size", default=256 << 10
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfiguration:
    client_connections: int = setting(
        "client_connections", count(1, 100_000), "client connections at once", default=1024
    )
    client_buffer_bytes: int = setting(
        "client_buffer",
        size(1 << 16, 1 << 30),
        "answers kept for a client that does not read, then it is closed",
        default=16 << 20,
    )


RETENTION_NS = 30 * 86_400 * 1_000_000_000
RETENTION_COUNT = 1_000_000
"""Why there is a bound: docs/decisions/retention.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxConfiguration:
    """What the cluster remembers. It is in the log: the leader's file counts, and a change of it is an entry."""

    retention_ns: int = setting(
        "retention",
        PAUSE,
        "so long after its end a command is remembered, with its result: 10m at least, or 0s for ever",
        default=RETENTION_NS,
    )
    retention_count: int = setting(
        "retention_count",
        count(0, 1_000_000_000),
        "so many commands that have ended are remembered, at the most, once they are ten minutes old; 0 for any number",
        default=RETENTION_COUNT,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfiguration:
    """Everything one node needs. ``peers`` are the other nodes, by id."""

    cluster: ClusterConfiguration
    node: NodeSection
    peers: Mapping[str, str]
    raft: RaftConfiguration = field(default_factory=RaftConfiguration)
    storage: StorageConfiguration = field(default_factory=StorageConfiguration)
    snapshots: SnapshotsConfiguration = field(default_factory=SnapshotsConfiguration)
    limits: LimitsConfiguration = field(default_factory=LimitsConfiguration)
    outbox: OutboxConfiguration = field(default_factory=OutboxConfiguration)
    resources: Mapping[str, ResourceConfiguration] = field(default_factory=dict)
    source: Path = Path()
    """The file it was read from."""

    @property
    def voters(self) -> tuple[str, ...]:
        """The voters a new data directory begins with: none where the cluster is there already (S56)."""
        if self.cluster.join:
            return ()
        return tuple(sorted((self.node.id, *self.peers)))


SECTIONS: dict[str, type] = {
    "cluster": ClusterConfiguration,
    "node": NodeSection,
    "raft": RaftConfiguration,
    "storage": StorageConfiguration,
    "snapshots": SnapshotsConfiguration,
    "limits": LimitsConfiguration,
    "outbox": OutboxConfiguration,
}
"""The plain sections: the ones that flags and the environment can override key by key."""


# -- what nodes compare -----------------------------------------------------------------------------


def definitions_digest(configuration: NodeConfiguration, more: Mapping[str, Any] | None = None) -> str:
    """A digest of what commands mean here: resources, effects, guarantees, retry policies.

    Nodes of one cluster should agree on it. Paths and local tuning (batch sizes, concurrency,
    handler timeouts) may differ per machine and are left out. ``more`` are an embedder's, by resource.
    """
    described = {name: _describe(resource) for name, resource in configuration.resources.items()}
    described.update(more or {})
    return hashlib.blake2b(canonical_json(described), digest_size=8).hexdigest()


def _describe(resource: ResourceConfiguration) -> dict[str, Any]:
    effects: dict[str, Any]
    more: dict[str, Any] = {}
    if isinstance(resource, SqliteResourceConfiguration):
        effects = {name: {"sql": effect.sql, "think_ns": effect.think_ns} for name, effect in resource.effects.items()}
    elif isinstance(resource, PostgresResourceConfiguration):
        effects = {name: {"sql": effect.sql} for name, effect in resource.effects.items()}
        more = {"dedupe": resource.dedupe.value}
    elif isinstance(resource, RedisResourceConfiguration):
        effects = {name: {"commands": effect.commands} for name, effect in resource.effects.items()}
        more = {"forget_after_ns": resource.forget_after_ns, "assume_durable": resource.assume_durable}
    elif isinstance(resource, HttpResourceConfiguration):
        effects = {
            name: {"method": each.method, "path": each.path, "body": each.body, "query": each.query}
            for name, each in resource.effects.items()
        }
        more = {"key": [resource.key_header, resource.key_quotes], "horizon_ns": resource.horizon_ns}
        more |= {"proxied": True} if resource.proxied else {}
    elif isinstance(resource, StoreConfiguration):
        effects = {name: {"steps": effect.steps} for name, effect in resource.effects.items()}
        more = {"kept": resource.kept}
    else:
        effects = {
            name: {"handler": effect.handler, "query": effect.query} for name, effect in resource.effects.items()
        }
        more = {"horizon_ns": resource.horizon_ns}
    with_schema = SqliteResourceConfiguration | PostgresResourceConfiguration
    return {
        "kind": resource.kind,
        "guarantee": resource.guarantee.value,
        "required": resource.required,
        "max_attempts": resource.max_attempts,
        "backoff_ns": resource.backoff_ns,
        "backoff_max_ns": resource.backoff_max_ns,
        "on_dead": resource.on_dead_name,
        "dispatch_horizon_ns": resource.dispatch_horizon_ns,
        "schema": resource.schema if isinstance(resource, with_schema) else "",
        "effects": effects,
        **more,
    }
