"""``fencepost member config``: the file that a new node of a running cluster is started with."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ...raft.core.errors import ConfigurationError
from ..app import FencepostCommand, Session, UsageProblem, current_session, run_async
from ..config import FileResourceConfiguration, NodeConfiguration, SqliteResourceConfiguration
from ..config_file import load
from ..output import Column
from ..settings import parse_address
from .cluster import CLIENT_PORT_OFFSET, client_address, node_tables, write_new
from .member import check_new_node, members_of

OWN_TABLES = frozenset({"cluster", "node", "peers"})
"""What differs from node to node; the rest is taken over as it stands, comments included."""

_HEADER = re.compile(r"\s*\[\[?\s*(?P<first>[A-Za-z0-9_-]+|\"[^\"]*\")[^\n]*")


@click.command(
    cls=FencepostCommand,
    examples=(
        "fencepost member config n4 127.0.0.1:7004 --like n1.toml --out n4.toml",
        "fencepost member config n5 127.0.0.1:7005 --like n1.toml --client 127.0.0.1:8105 --out n5.toml",
    ),
    short_help="Write the configuration file of a new node.",
    help="Write the file that a new node of this cluster is started with. Resources, timeouts and limits are those "
    "of FILE, another node's file; cluster and peers are asked from the cluster. The node waits until it is added: "
    "`fencepost member add`. Nothing is overwritten.",
)
@click.argument("node")
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--like", required=True, metavar="FILE", type=click.Path(path_type=Path), help="The file of a node that is there."
)
@click.option("--out", required=True, metavar="FILE", type=click.Path(path_type=Path), help="The file to write.")
@click.option(
    "--client", metavar="HOST:PORT", help=f"Where clients reach it. Default: the port {CLIENT_PORT_OFFSET} above."
)
def config(node: str, address: str, like: Path, out: Path, client: str | None) -> None:
    check_new_node(node, address)
    try:
        clients = client_address(address) if client is None else parse_address(client)
    except ValueError as error:
        raise UsageProblem(f"--client: {error}; nothing was written") from error
    example = load(like, environment={})
    run_async(lambda: _config(current_session(), node, address, clients, example, out))


async def _config(
    session: Session, node: str, address: str, clients: str, example: NodeConfiguration, out: Path
) -> None:
    async with session.client(timeout_s=10.0) as client:
        listed = await members_of(client)
    members, incarnation = listed["members"], int(listed.get("incarnation") or 1)
    known = {example.node.id: example.node.peer, **example.peers}
    peers = {row["node"]: row["address"] or known.get(row["node"], "") for row in members}
    if node in peers:
        raise UsageProblem(f"{node} is a member already; nothing was written", next_step="fencepost member list")
    for taken in (address, clients):
        owner = next((each for each, at in peers.items() if at == taken), "")
        if owner:
            raise UsageProblem(f"{taken} is the address of {owner}; nothing was written")
    if address == clients:
        raise UsageProblem(f"{address} cannot be for peers and for clients; nothing was written")
    reached = {each: at for each, at in peers.items() if at}
    own = node_tables(example.cluster.id, node, address, clients, reached, join=True, incarnation=incarnation)
    text = own + shared_tables(example.source)
    write_new(out.parent, {out: text})
    for warning in _moved(example, out):
        session.render.warning(warning)
    start = f"fencepost node start --config {shlex.quote(str(out))}"
    body = {"node": node, "file": str(out), "next": [start, f"fencepost member add {node} {address}"]}
    if session.render.format != "table":
        session.render.show("MemberConfig", body, [Column.of(key) for key in body])
        return
    session.render.line(f"wrote {out}. Start the node, then add it:")
    for line in body["next"]:
        session.render.line(f"  {line}")


def shared_tables(path: Path) -> str:
    """The text of a node's file without what is that node's own. Raises ConfigurationError if it cannot be told
    apart: the file is read as TOML before and after, and the rest must be the same."""
    text = path.read_text(encoding="utf-8")
    kept: list[str] = []
    own = True  # Keys before the first table could only be dotted ones of these.
    waiting: list[str] = []
    """Comments and blank lines belong to the table that follows them."""
    for line in text.splitlines(keepends=True):
        header = _HEADER.fullmatch(line.rstrip("\n"))
        if header is not None:
            own = header["first"].strip('"') in OWN_TABLES
        elif not line.strip() or line.lstrip().startswith("#"):
            waiting.append(line)
            continue
        if not own:
            kept += [*waiting, line]
        waiting = []
    rest = "".join([*kept, *waiting])
    wanted = {key: value for key, value in tomllib.loads(text).items() if key not in OWN_TABLES}
    if not _reads_as(rest, wanted):
        raise ConfigurationError(
            f"{path}: cannot tell the tables of this node from the others; nothing was written",
            next_step="give [cluster], [node] and [peers] headers of their own, on lines of their own",
        )
    return "\n" + rest.lstrip("\n") if rest.strip() else ""


def _reads_as(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _moved(example: NodeConfiguration, out: Path) -> list[str]:
    """Relative paths count from the file they stand in: say where that makes a difference."""
    found = []
    for name, resource in load(out, environment={}).resources.items():
        before = example.resources[name]
        if (
            isinstance(resource, SqliteResourceConfiguration | FileResourceConfiguration)
            and isinstance(before, SqliteResourceConfiguration | FileResourceConfiguration)
            and os.path.abspath(resource.path) != os.path.abspath(before.path)
        ):
            found.append(f"resource {name} of the new node is at {resource.path}, that of the others at {before.path}")
    return found
