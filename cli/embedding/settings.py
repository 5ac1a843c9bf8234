"""What an embedded node is told in Python, and its configuration made of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...raft.core.errors import ConfigurationError
from ...raft.node.command_log import Lines
from ..config import (
    RETENTION_COUNT,
    RETENTION_NS,
    ClusterConfiguration,
    LimitsConfiguration,
    NodeConfiguration,
    NodeSection,
    OutboxConfiguration,
    RaftConfiguration,
    SnapshotsConfiguration,
    StorageConfiguration,
)
from ..config_file import load
from ..settings import parse_address, parse_name

_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """One node of a cluster. Addresses are ``host:port``, times seconds; what is left out is as in a file."""

    cluster_id: str
    """The same on every node, and of no other cluster."""
    node_id: str
    data_dir: Path | str
    """The folder of this node's log. One node's alone."""
    peer: str
    """Where the other nodes reach this one."""
    client: str
    """Where clients and the other nodes' proposals reach it."""
    http: str = ""
    """Where `/livez`, `/readyz`, `/leader` and `/metrics` are served; nowhere if empty."""
    peers: Mapping[str, str] = field(default_factory=dict)
    """``peer`` of every other node, by node id."""
    join: bool = False
    """A new node of a cluster that is there already: it waits to be added (``fencepost member add``)."""
    heartbeat_s: float = 0.1
    election_timeout_s: float = 1.0
    snapshot_entries: int = 100_000
    """A snapshot is taken, and the log before it given up, after so many entries; 0 for never."""
    retained_entries: int = 10_000
    """Entries kept in front of a snapshot."""
    segment_bytes: int = 64 << 20
    """Size at which a log file is closed and the next begun."""
    retention_s: float = RETENTION_NS / _S
    """So long after its end a command of an outbox is remembered; 0 for ever. The leader's setting counts."""
    retention_count: int = RETENTION_COUNT
    """So many that have ended are remembered once they are ten minutes old; 0 for any number."""


def configuration_of(settings: NodeSettings | Path | str) -> NodeConfiguration:
    """The configuration that ``settings`` mean, or that the file named by it holds (with the environment's
    ``FENCEPOST_*``, as for ``fencepost node start``). Raises :class:`ConfigurationError`."""
    if not isinstance(settings, NodeSettings):
        return load(Path(settings))
    try:
        _check(settings)
    except ValueError as error:
        raise ConfigurationError(str(error), next_step="correct the NodeSettings") from error
    return NodeConfiguration(
        cluster=ClusterConfiguration(id=settings.cluster_id, join=settings.join),
        node=NodeSection(
            id=settings.node_id,
            data_dir=Path(settings.data_dir),
            peer=settings.peer,
            client=settings.client,
            http=settings.http,
            # The log of an embedding program is its own.
            log_commands=Lines.NONE.value,
        ),
        peers=dict(sorted(settings.peers.items())),
        raft=RaftConfiguration(
            heartbeat_ns=int(settings.heartbeat_s * _S), election_timeout_ns=int(settings.election_timeout_s * _S)
        ),
        storage=StorageConfiguration(segment_bytes=settings.segment_bytes),
        snapshots=SnapshotsConfiguration(entries=settings.snapshot_entries, retained=settings.retained_entries),
        limits=LimitsConfiguration(),
        outbox=OutboxConfiguration(
            retention_ns=int(settings.retention_s * _S), retention_count=settings.retention_count
        ),
    )


def _check(settings: NodeSettings) -> None:
    for name in (settings.cluster_id, settings.node_id, *settings.peers):
        parse_name(name)
    http = (settings.http,) if settings.http else ()
    for address in (settings.peer, settings.client, *http, *settings.peers.values()):
        parse_address(address)
    if settings.retention_s < 0 or settings.retention_count < 0:
        raise ValueError("what is remembered is no less than nothing: retention_s and retention_count are 0 or more")
    if settings.node_id in settings.peers:
        raise ValueError(f"peers names {settings.node_id!r}, which is this node; it names the others")
