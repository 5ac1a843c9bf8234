"""``fencepost cluster init``: one TOML file per node, and a client file that finds them."""

from __future__ import annotations

import json
import shlex
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ...raft.core.errors import ConfigurationError
from ..app import FencepostCommand, UsageProblem, current_session
from ..output import Column
from ..settings import parse_address, parse_name

CLIENT_PORT_OFFSET = 100
ANYWHERE = ("0.0.0.0", "[::]")
"""Hosts to listen on, and none to connect to."""

_RESOURCE_EXAMPLE = """
# A resource is what commands act on. Every node needs the same definitions.
#
# [resources.ledger]
# kind = "sqlite"                  # fenced: the database refuses a former leader's late write
# path = "ledger.db"
# schema = "CREATE TABLE IF NOT EXISTS entries(account TEXT NOT NULL, cents INTEGER NOT NULL)"
# [resources.ledger.effects.credit]
# sql = "INSERT INTO entries(account, cents) VALUES (:account, :cents)"
"""


@click.command(
    cls=FencepostCommand,
    examples=(
        "fencepost cluster init --nodes n1=127.0.0.1:7001,n2=127.0.0.1:7002,n3=127.0.0.1:7003 --out cluster",
        "fencepost cluster init --nodes n1=127.0.0.1:7001 --out single --resources resources.toml",
    ),
    short_help="Write the configuration files of a cluster.",
    help="Write one configuration file per node, and a client file, into a folder. The address of a node is the "
    f"one its peers use; clients use the port {CLIENT_PORT_OFFSET} above it. Nothing is overwritten.",
)
@click.option("--nodes", required=True, metavar="ID=HOST:PORT,…", help="The nodes and their peer addresses.")
@click.option("--out", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder to write to.")
@click.option("--cluster-id", metavar="ID", help="Default: a random one.")
@click.option(
    "--resources",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="TOML with [resources.…] tables to put into every node's file. Relative paths in it count from DIR.",
)
def init(nodes: str, out: Path, cluster_id: str | None, resources: Path | None) -> None:
    render = current_session().render
    addresses = parse_nodes(nodes)
    try:
        cluster = parse_name(cluster_id) if cluster_id is not None else f"c-{uuid.uuid4().hex[:12]}"
    except ValueError as error:
        raise UsageProblem(f"--cluster-id: {error}; nothing was written") from error
    definitions = _RESOURCE_EXAMPLE if resources is None else "\n" + _read_resources(resources)
    files = write_cluster(out, addresses, cluster_id=cluster, definitions=definitions)
    starts = [f"fencepost node start --config {shlex.quote(str(out / f'{node}.toml'))}" for node in addresses]
    body: dict[str, Any] = {
        "cluster_id": cluster,
        "files": [str(path) for path in files],
        "next": starts,
    }
    if render.format != "table":
        render.show("ClusterInit", body, [Column.of(key) for key in body])
        return
    render.line(f"cluster {cluster}: wrote {', '.join(str(path) for path in files)}")
    render.line("Start each node in a shell of its own:")
    for line in starts:
        render.line(f"  {line}")
    render.line("Then:" if out == Path() else f"Then, in {out}:")
    render.line("  fencepost status")


def write_cluster(out: Path, addresses: dict[str, str], *, cluster_id: str, definitions: str) -> list[Path]:
    """Write one file per node and the client file; ``addresses`` are peer addresses by node id.

    ``definitions`` is TOML that every node's file ends with. Raises ConfigurationError if a file is there already.
    """
    files = {out / f"{node}.toml": _node_file(cluster_id, node, addresses, definitions) for node in addresses}
    files[out / "fencepost.toml"] = _client_file(cluster_id, addresses)
    write_new(out, files)
    return list(files)


def parse_nodes(text: str) -> dict[str, str]:
    """``{id: peer address}`` in the order given. Raises UsageProblem that lists every problem."""
    found: dict[str, str] = {}
    problems: list[str] = []
    used: dict[str, str] = {}
    for part in text.split(","):
        node, equals, address = part.strip().partition("=")
        try:
            if not equals:
                raise ValueError("write ID=HOST:PORT")
            parse_name(node)
            if node in found or node == "fencepost":
                raise ValueError("the id is taken" if node in found else "the id would name the client file")
            if address.rpartition(":")[0] in ANYWHERE:
                raise ValueError("the other nodes cannot dial that; give the address at which they reach this one")
            for each in (parse_address(address), client_address(address)):
                if each in used:
                    raise ValueError(f"{each} is already an address of {used[each]}")
                used[each] = node
            found[node] = address
        except ValueError as error:
            problems.append(f"{part.strip() or '(empty)'}: {error}")
    if problems:
        raise UsageProblem("--nodes is wrong; nothing was written", tried=problems)
    return found


def client_address(peer: str) -> str:
    """Where clients reach the node whose peers reach it at ``peer``. Raises ValueError."""
    host, _, port = peer.rpartition(":")
    return parse_address(f"{host}:{int(port) + CLIENT_PORT_OFFSET}")


def _read_resources(path: Path) -> str:
    """The text of the file, which becomes the end of each node's file. Raises UsageProblem."""
    try:
        text = path.read_text(encoding="utf-8")
        others = [key for key in tomllib.loads(text) if key != "resources"]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageProblem(f"--resources: cannot read {path}: {reason}; nothing was written") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(f"--resources: {path} is not TOML: {error}; nothing was written") from error
    if others:
        # Whatever else it holds would stand in a node's file a second time, or in a section it does not belong to.
        names = ", ".join(f"{key!r}" for key in others)
        raise UsageProblem(f"--resources: {path} holds {names} beside 'resources'; nothing was written")
    return text


def _text(value: str) -> str:
    """A TOML basic string: JSON's escapes are a subset of TOML's."""
    return json.dumps(value)


def _key(name: str) -> str:
    return _text(name) if "." in name else name


def _node_file(cluster: str, node: str, addresses: dict[str, str], definitions: str) -> str:
    return node_tables(cluster, node, addresses[node], client_address(addresses[node]), addresses) + definitions


def node_tables(
    cluster: str,
    node: str,
    peer: str,
    client: str,
    addresses: Mapping[str, str],
    *,
    join: bool = False,
    incarnation: int = 1,
) -> str:
    """The tables of a node's file that are its own; ``addresses`` are peer addresses by node id."""
    peers = "".join(f"{_key(each)} = {_text(at)}\n" for each, at in addresses.items() if each != node)
    waits = "join = true    # begin without members, and wait to be added\n" if join else ""
    if incarnation > 1:
        waits += f"incarnation = {incarnation}    # how often the cluster was restored or recovered, and one\n"
    return (
        f"[cluster]\nid = {_text(cluster)}\n{waits}\n"
        f"[node]\nid = {_text(node)}\ndata_dir = {_text(node)}\n"
        f"peer = {_text(peer)}\nclient = {_text(client)}\n\n"
        f"[peers]\n{peers}"
    )


def _client_file(cluster: str, addresses: dict[str, str]) -> str:
    endpoints = ", ".join(_text(client_address(address)) for address in addresses.values())
    return (
        "# Read by fencepost commands run in this folder; elsewhere: --context, or FENCEPOST_CONTEXT.\n"
        f"[client]\nendpoints = [{endpoints}]\ncluster_id = {_text(cluster)}\n"
    )


def write_new(out: Path, files: dict[Path, str]) -> None:
    """Write files into folder ``out``, which is made. Raises ConfigurationError if one of them is there already."""
    taken = [str(path) for path in files if path.exists()]
    if taken:
        raise ConfigurationError(
            f"{', '.join(taken)} exist{'s' if len(taken) == 1 else ''}; nothing was written",
            next_step="give another --out, or remove what is there",
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigurationError(f"cannot write {error.filename or out}: {error.strerror or error}") from error
