"""Reading a node's configuration.

Precedence for the plain sections (cluster, node, raft, storage, snapshots, limits, outbox): flag
``--set section.key=value``, then environment ``FENCEPOST_SECTION_KEY``, then the file, then the default. Relative
paths in the file are relative to the file, those of flags and environment to the working folder. Everything wrong
is reported at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..raft.core.errors import ConfigurationError
from ..raft.outbox.operation_id import FUTURE_NS_MAX
from ..raft.ports import Guarantee
from .config import (
    SECTIONS,
    ClusterConfiguration,
    LimitsConfiguration,
    NodeConfiguration,
    NodeSection,
    OutboxConfiguration,
    PythonEffectConfiguration,
    PythonResourceConfiguration,
    RaftConfiguration,
    ResourceConfiguration,
    SnapshotsConfiguration,
    SqliteEffectConfiguration,
    SqliteResourceConfiguration,
    StorageConfiguration,
)
from .config_servers import read_postgres, read_redis
from .settings import (
    DURATION,
    TEXT,
    Document,
    did_you_mean,
    format_duration,
    parse_address,
    parse_name,
    setting,
    settings_of,
)
from .stores import read_file, read_http, read_s3

_MS = 1_000_000
_S = 1_000_000_000
_KINDS = ("sqlite", "postgres", "redis", "s3", "http", "file", "python")


def load(
    path: Path, *, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> NodeConfiguration:
    """Read and check a node's configuration.

    ``overrides`` are ``section.key=value`` (the flag ``--set``). Raises
    :class:`ConfigurationError`, whose ``tried`` names every problem with file, line and key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}",
            next_step="fencepost cluster init --nodes n1=127.0.0.1:7001,n2=127.0.0.1:7002,n3=127.0.0.1:7003 --out DIR",
        ) from error
    document = Document(str(path), text, path.parent)
    configuration = None
    if not document.problems:
        found = _overrides(document, overrides, os.environ if environment is None else environment)
        configuration = _read(document, found, path)
    if document.problems or configuration is None:
        number = len(document.problems)
        raise ConfigurationError(
            f"{path} has {number} problem{'s' if number != 1 else ''}; nothing was started",
            tried=[str(problem) for problem in document.problems],
            next_step=f"correct it, then:  fencepost node check-config {path}",
        )
    return configuration


def _overrides(
    document: Document, flags: Sequence[str], environment: Mapping[str, str]
) -> dict[str, dict[str, tuple[str, str]]]:
    found: dict[str, dict[str, tuple[str, str]]] = {section: {} for section in SECTIONS}
    for section, kind in SECTIONS.items():
        keys = settings_of(kind)
        prefix = f"FENCEPOST_{section.upper()}_"
        for name in sorted(environment):
            if name.startswith(prefix):
                key = name[len(prefix) :].lower()
                if key in keys:
                    found[section][key] = (f"environment {name}", environment[name])
                else:
                    document.problem([section, key], "unknown key" + did_you_mean(key, keys), f"environment {name}")
    for flag in flags:
        dotted, equals, value = flag.partition("=")
        section, _, key = dotted.partition(".")
        where = f"--set {flag}"
        if not equals or section not in SECTIONS:
            known = ", ".join(SECTIONS)
            document.problem([dotted], f"write section.key=value with a section of {known}", where)
        elif key not in settings_of(SECTIONS[section]):
            document.problem([section, key], "unknown key" + did_you_mean(key, settings_of(SECTIONS[section])), where)
        else:
            found[section][key] = (where, value)
    return found


def _read(
    document: Document, overrides: Mapping[str, Mapping[str, tuple[str, str]]], source: Path
) -> NodeConfiguration | None:
    root = document.root
    document.unknown_keys(root, [*SECTIONS, "peers", "resources"], [])
    node_table = document.table(root, ["node"])
    cluster = document.section(
        ClusterConfiguration, document.table(root, ["cluster"]), ["cluster"], overrides=overrides["cluster"]
    )
    node = document.section(NodeSection, node_table, ["node"], overrides=overrides["node"])
    raft = document.section(RaftConfiguration, document.table(root, ["raft"]), ["raft"], overrides=overrides["raft"])
    storage = document.section(
        StorageConfiguration, document.table(root, ["storage"]), ["storage"], overrides=overrides["storage"]
    )
    snapshots = document.section(
        SnapshotsConfiguration, document.table(root, ["snapshots"]), ["snapshots"], overrides=overrides["snapshots"]
    )
    limits = document.section(
        LimitsConfiguration, document.table(root, ["limits"]), ["limits"], overrides=overrides["limits"]
    )
    outbox = document.section(
        OutboxConfiguration, document.table(root, ["outbox"]), ["outbox"], overrides=overrides["outbox"]
    )
    if outbox is not None and 0 < outbox.retention_ns < 2 * FUTURE_NS_MAX:
        document.problem(
            ["outbox", "retention"],
            f"{format_duration(outbox.retention_ns)} is less than 10m: what was forgotten so soon, under an id of a "
            "clock that is ahead, would have new ids of others refused",
        )
    peers = _read_peers(document, node)
    if raft is not None:
        _check_timing(document, raft)
    resources = _read_resources(document)
    if cluster is None or node is None or raft is None or storage is None:
        return None
    if snapshots is None or limits is None or outbox is None:
        return None
    return NodeConfiguration(
        cluster=cluster,
        node=node,
        peers=peers,
        raft=raft,
        storage=storage,
        snapshots=snapshots,
        limits=limits,
        outbox=outbox,
        resources=resources,
        source=source,
    )


def _read_peers(document: Document, node: NodeSection | None) -> dict[str, str]:
    peers: dict[str, str] = {}
    used = {node.peer: "node.peer"} if node is not None else {}
    if node is not None and node.client == node.peer:
        document.problem(["node", "client"], f"the same address as node.peer, {node.peer}")
    if node is not None and node.http in (node.peer, node.client):
        where = "node.peer" if node.http == node.peer else "node.client"
        document.problem(["node", "http"], f"the same address as {where}, {node.http}")
    for name, value in document.table(document.root, ["peers"]).items():
        path = ["peers", name]
        try:
            parse_name(name)
            address = parse_address(value)
        except ValueError as error:
            document.problem(path, str(error))
            continue
        if node is not None and name == node.id:
            document.problem(path, "this is the node itself; [peers] are the others")
            continue
        if address in used:
            document.problem(path, f"the same address as {used[address]}, {address}")
        used.setdefault(address, ".".join(path))
        peers[name] = address
    return peers


def _check_timing(document: Document, raft: RaftConfiguration) -> None:
    path = ["raft", "election_timeout"]
    election, heartbeat = format_duration(raft.election_timeout_ns), format_duration(raft.heartbeat_ns)
    if raft.election_timeout_ns < 3 * raft.heartbeat_ns:
        document.problem(
            path,
            f"{election} is less than 3 heartbeats of {heartbeat}: one late heartbeat would start an election "
            f"(raft.heartbeat)",
        )
    if raft.heartbeat_ns < 5 * _MS:
        document.problem(["raft", "heartbeat"], f"{heartbeat} is less than 5ms, which one slow disk write exceeds")
    if raft.election_timeout_ns > 300 * _S:
        document.problem(path, f"{election} is more than 5m: so long nobody would lead after a crash")


# -- resources: reading -----------------------------------------------------------------------------


def _read_resources(document: Document) -> dict[str, ResourceConfiguration]:
    found: dict[str, ResourceConfiguration] = {}
    tables = document.table(document.root, ["resources"])
    for name in tables:
        path = ["resources", name]
        table = document.table(tables, path)
        try:
            parse_name(name)
        except ValueError as error:
            document.problem(path, str(error))
        resource = _read_resource(document, name, table, path)
        if resource is not None:
            if resource.backoff_ns > resource.backoff_max_ns:
                longest = format_duration(resource.backoff_max_ns)
                document.problem([*path, "backoff"], f"longer than backoff_max, {longest}")
            found[name] = resource
    return found


def _read_resource(
    document: Document, name: str, table: Mapping[str, Any], path: list[str]
) -> ResourceConfiguration | None:
    kind = table.get("kind")
    if kind == "sqlite":
        return _read_sqlite(document, name, table, path)
    if kind == "postgres":
        return read_postgres(document, name, table, path)
    if kind == "redis":
        return read_redis(document, name, table, path)
    if kind == "s3":
        return read_s3(document, name, table, path)
    if kind == "http":
        return read_http(document, name, table, path)
    if kind == "file":
        return read_file(document, name, table, path)
    if kind == "python":
        return _read_python(document, name, table, path)
    if kind is None:
        document.problem([*path, "kind"], f"missing: one of {', '.join(_KINDS)}")
    else:
        document.problem([*path, "kind"], f"unknown kind {kind!r}{did_you_mean(str(kind), _KINDS)}")
    return None


def _read_sqlite(
    document: Document, name: str, table: Mapping[str, Any], path: list[str]
) -> SqliteResourceConfiguration | None:
    effects: dict[str, SqliteEffectConfiguration] = {}
    tables = document.table(table, [*path, "effects"])
    for effect in tables:
        at = [*path, "effects", effect]
        read = document.section(SqliteEffectConfiguration, document.table(tables, at), at, name=effect)
        if read is not None:
            effects[effect] = read
    if not tables:
        document.problem([*path, "effects"], f'no effect; add [{".".join(path)}.effects.NAME] with sql = "…"')
    return document.section(
        SqliteResourceConfiguration, table, path, also=("kind", "effects"), name=name, effects=effects
    )


def _read_python(
    document: Document, name: str, table: Mapping[str, Any], path: list[str]
) -> PythonResourceConfiguration | None:
    resource = document.section(PythonResourceConfiguration, table, path, also=("kind", "effects"), name=name)
    tables = document.table(table, [*path, "effects"])
    handler = resource.handler if resource is not None else ""
    timeout_ns = resource.timeout_ns if resource is not None else 0
    if handler and not _is_handler(handler):
        document.problem([*path, "handler"], f'"{handler}" is not module:function')
    if resource is not None and resource.claim:
        if not _is_handler(resource.claim):
            document.problem([*path, "claim"], f'"{resource.claim}" is not module:function')
        if resource.guarantee is not Guarantee.FENCED:
            document.problem([*path, "claim"], f"only for fenced resources; this one is {resource.guarantee}")
    effects: dict[str, PythonEffectConfiguration] = {}
    for effect in tables:
        at = [*path, "effects", effect]
        read = document.section(_PythonEffect, document.table(tables, at), at)
        if read is None:
            continue
        own = read.handler or handler
        if not own:
            document.problem([*at, "handler"], "missing: module:function, here or for the whole resource")
        elif read.handler and not _is_handler(read.handler):
            document.problem([*at, "handler"], f'"{read.handler}" is not module:function')
        if read.query and not _is_handler(read.query):
            document.problem([*at, "query"], f'"{read.query}" is not module:function')
        effects[effect] = PythonEffectConfiguration(
            name=effect, handler=own, timeout_ns=read.timeout_ns or timeout_ns, query=read.query
        )
    if not tables and handler:
        # One function, no table: the effect is called as the function is.
        effect = handler.rpartition(":")[2]
        effects[effect] = PythonEffectConfiguration(name=effect, handler=handler, timeout_ns=timeout_ns)
    elif not tables and resource is not None:
        document.problem([*path, "handler"], 'missing: handler = "module:function", or one per effect')
    if resource is None:
        return None
    _check_opt_in(document, resource, path)
    values = {name: getattr(resource, name) for name in resource.__dataclass_fields__}
    return PythonResourceConfiguration(**{**values, "effects": effects})


def _check_opt_in(document: Document, resource: PythonResourceConfiguration, path: list[str]) -> None:
    naked = resource.guarantee is Guarantee.NAKED
    if naked and not resource.allow_duplicates:
        document.problem(
            [*path, "allow_duplicates"],
            "a naked resource checks neither token nor operation id, so a crash can leave an effect done twice or "
            "not at all; write allow_duplicates = true if that is acceptable",
        )
    if not naked and resource.allow_duplicates:
        document.problem([*path, "allow_duplicates"], f"only for naked resources; this one is {resource.guarantee}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _PythonEffect:
    handler: str = setting("handler", TEXT, "module:function", default="")
    timeout_ns: int = setting("timeout", DURATION, "how long one call may take", default=0)
    query: str = setting("query", TEXT, "module:function that says whether an operation was applied", default="")


def _is_handler(text: str) -> bool:
    module, colon, function = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *function.split(".")))
