"""``fencepost node start`` and ``fencepost node check-config``."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from ...raft.core.errors import ConfigurationError, StorageError
from ...storage.formatting import IDENTITY
from ...storage.reader import load_identity
from ..app import FencepostCommand, current_session, end_at_last, run_async
from ..config import FileResourceConfiguration, NodeConfiguration, SqliteResourceConfiguration, definitions_digest
from ..config_file import load
from ..definitions import check_definitions
from ..output import Column
from ..settings import format_duration


@click.command(
    "start",
    cls=FencepostCommand,
    examples=(
        "fencepost node start --config n1.toml",
        "fencepost node start --config n1.toml --set raft.election_timeout=2s",
    ),
    help="Run one node until SIGINT or SIGTERM. Logs go to stderr: pretty on a terminal, JSON lines otherwise.",
)
@click.option(
    "--config",
    "path",
    required=True,
    envvar="FENCEPOST_CONFIG",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The node's TOML file.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Override one setting of the file."
)
@click.pass_context
def start(ctx: click.Context, path: Path, overrides: tuple[str, ...]) -> None:
    from ..logs import configure_logging

    render = current_session().render
    configuration = load(path, overrides=overrides)
    level = "debug" if current_session().settings.verbose else configuration.node.log_level
    configure_logging(level, colored=render.colored(sys.stderr))
    # An effect that hangs in a thread, or a disk that does, must not hold the loop's own clean-up (S45).
    ends: list[threading.Timer] = []

    async def run() -> int:
        from ..process import run_node

        code = 1
        try:
            code = await run_node(configuration)
            return code
        finally:
            ends.append(end_at_last(code))

    try:
        code = run_async(run, loop_factory=_loop_factory())
    finally:
        for end in ends:
            end.cancel()
    ctx.exit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed; only the running node uses it."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@click.command(
    "check-config",
    cls=FencepostCommand,
    examples=("fencepost node check-config n1.toml", "fencepost node check-config n1.toml -o json"),
    short_help="Check a node's configuration file.",
    help="Check a node's configuration file without starting anything: every problem with its line, and whether "
    "the SQL of each effect is understood, handlers can be imported, and the data directory is this node's.",
)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Override one setting of the file."
)
def check_config(path: Path, overrides: tuple[str, ...]) -> None:
    render = current_session().render
    configuration = load(path, overrides=overrides)
    problems, warnings = check_definitions(configuration)
    problems += run_async(lambda: _check_directory(configuration))
    if problems:
        raise ConfigurationError(
            f"{path} has {len(problems)} problem{'s' if len(problems) != 1 else ''}; nothing was started",
            tried=problems,
            next_step=f"correct it, then:  fencepost node check-config {path}",
        )
    for warning in warnings:
        render.warning(warning)
    body = _describe(configuration)
    columns = [
        Column.of("cluster"), Column.of("node"), Column("voters", _voters), Column.of("peer"), Column.of("client"),
        Column.of("data_dir"), Column.of("heartbeat"), Column.of("election_timeout"), Column.of("resources"),
        Column.of("definitions_digest"),
    ]  # fmt: skip
    if render.format == "table":
        render.line(f"{path}: ok")
    render.show("NodeConfiguration", body, columns)


def _voters(row: Mapping[str, Any]) -> str:
    return "none: it waits to be added to its cluster" if row["join"] else " ".join(row["voters"])


async def _check_directory(configuration: NodeConfiguration) -> list[str]:
    """Whether the data directory, if there is one already, belongs to this node. Touches nothing."""
    path = configuration.node.data_dir
    if not (path / IDENTITY).exists():
        return []
    try:
        identity = await load_identity(path)
    except (StorageError, OSError) as error:
        return [f"node.data_dir: {error}"]
    owner = (identity.cluster_id, identity.node_id)
    if owner == (configuration.cluster.id, configuration.node.id):
        return []
    return [
        f"node.data_dir: {path} belongs to node {identity.node_id} of cluster {identity.cluster_id}, "
        f"and this file is of node {configuration.node.id} of cluster {configuration.cluster.id}"
    ]


def _describe(configuration: NodeConfiguration) -> dict[str, Any]:
    with_path = SqliteResourceConfiguration | FileResourceConfiguration
    resources = {
        name: {
            "kind": resource.kind,
            "guarantee": resource.guarantee.value,
            "effects": sorted(resource.effects),
            **({"path": str(resource.path)} if isinstance(resource, with_path) else {}),
        }
        for name, resource in configuration.resources.items()
    }
    return {
        "cluster": configuration.cluster.id,
        "node": configuration.node.id,
        "voters": list(configuration.voters),
        "join": configuration.cluster.join,
        "peer": configuration.node.peer,
        "client": configuration.node.client,
        "data_dir": str(configuration.node.data_dir),
        "heartbeat": format_duration(configuration.raft.heartbeat_ns),
        "election_timeout": format_duration(configuration.raft.election_timeout_ns),
        "resources": resources,
        "definitions_digest": definitions_digest(configuration),
    }
