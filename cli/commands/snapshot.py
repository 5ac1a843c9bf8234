"""``fencepost snapshot save|inspect|restore``: the state of a cluster in a file, and a cluster from it."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...raft.core.configuration import decode_configuration
from ...raft.core.entry import Snapshot
from ...raft.core.errors import Busy, NoEndpoint, NoLeader
from ...storage.backup_files import (
    BackupDraft,
    BackupFile,
    BackupLabel,
    backup_contents,
    read_backup,
    refuse_existing,
)
from ...storage.disk import RealDisk
from ...storage.restoring import restore_directory, restored_configuration
from ..app import FencepostCommand, Session, UsageProblem, current_session, run_async
from ..logs import configure_logging
from ..offline import committed_state, counts_of, label_json, members_text, read_contents
from ..output import Column
from .cluster import parse_nodes

if TYPE_CHECKING:
    from ...transport.client import Client

SAVE_TIMEOUT_S = 30.0
"""How long one question may take; a large snapshot is many of them."""
TRIES = 3
"""A part that did not arrive is asked for again, and so is a node that is busy."""
PAUSE_S = 1.0


# -- save -------------------------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=(
        "fencepost snapshot save monday.snapshot",
        "fencepost snapshot save tuesday.snapshot --data-dir n1",
    ),
    short_help="Save the state of the cluster in a file.",
    help="Save the state of the cluster after one index in a file: consistent, while the cluster goes on. The leader "
    "gives it, after a majority has confirmed that it still leads, so everything that was answered before is in it; "
    "--from asks another node, which has it confirmed by the leader. With --data-dir it is read from the directory of "
    "a node, without asking anybody, and holds what that node knew to be committed. FILE gets its name when all of it "
    "is on disk. The databases of resources are not in it: back them up as well, afterwards.",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--from", "source", metavar="HOST:PORT", help="The client address of the node to ask.")
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Read this data directory; nothing in it changes.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def save(file: Path, source: str | None, data_dir: Path | None, force: bool) -> None:
    if source and data_dir:
        raise UsageProblem("--from and --data-dir are two ways; nothing was written")
    file = file.absolute()
    refuse_existing(RealDisk(), file, overwrite=force)
    if data_dir is None:
        run_async(lambda: _save_online(current_session(), file, source, force))
    else:
        _save_offline(current_session(), file, data_dir, force)


def _save_offline(session: Session, file: Path, data_dir: Path, force: bool) -> None:
    identity, state = committed_state(data_dir)
    label = BackupLabel(
        identity.cluster_id, identity.incarnation, identity.node_id, _program(), time.time_ns(), state.label
    )
    draft = BackupDraft(RealDisk(), file, label, overwrite=force)
    try:
        for chunk in state.contents:
            draft.append(chunk)
        made = draft.publish()
    except BaseException:
        draft.discard()
        raise
    if state.last_index > made.label.snapshot.last_index:
        session.render.warning(
            f"the log of {data_dir} goes on to index {state.last_index}; what is behind index "
            f"{made.label.snapshot.last_index} was not known to be committed there, and is not in the file"
        )
    _show_saved(session, made)


async def _save_online(session: Session, file: Path, source: str | None, force: bool) -> None:
    async with session.client(timeout_s=SAVE_TIMEOUT_S) as client:
        endpoint = source or await _leader(client)
        begun = await _begin(client, endpoint)
        snapshot = Snapshot(
            begun["last_index"],
            begun["last_term"],
            begun["last_time_ns"],
            decode_configuration(begun["configuration"]),
            begun["configuration_index"],
        )
        label = BackupLabel(
            begun["cluster_id"], begun["incarnation"], begun["node_id"], _program(), time.time_ns(), snapshot
        )
        draft = BackupDraft(RealDisk(), file, label, overwrite=force)
        try:
            await _draw(client, endpoint, begun["session"], draft)
            made = draft.publish()
        except BaseException:
            draft.discard()
            raise
    _show_saved(session, made)


async def _leader(client: Client) -> str:
    """Where clients reach the leader: an endpoint that leads, or the address that it is known by."""
    await client.call("status", {}, leader=True)
    answers = await client.call_all("status", {}, timeout_s=2.0)
    leading = {
        address: body for address, body in answers.items() if isinstance(body, dict) and body["role"] == "leader"
    }
    if leading:
        return max(leading, key=lambda address: int(leading[address]["term"]))
    for body in answers.values():
        if isinstance(body, dict) and body["leader_client_address"]:
            return str(body["leader_client_address"])
    raise NoLeader("no leader to save from; nothing was written", next_step="fencepost status")


async def _begin(client: Client, endpoint: str) -> dict[str, Any]:
    for _ in range(TRIES - 1):
        try:
            return dict(await client.call("snapshot.begin", {}, endpoint=endpoint))
        except Busy:
            await asyncio.sleep(PAUSE_S)
    return dict(await client.call("snapshot.begin", {}, endpoint=endpoint))


async def _draw(client: Client, endpoint: str, session: str, draft: BackupDraft) -> None:
    sequence = 0
    while True:
        part = await _part(client, endpoint, {"session": session, "sequence": sequence})
        draft.append(part["data"])
        if part["last"]:
            await client.call("snapshot.end", {"session": session}, endpoint=endpoint)
            return
        sequence += 1


async def _part(client: Client, endpoint: str, parameters: dict[str, Any]) -> Mapping[str, Any]:
    for _ in range(TRIES - 1):
        try:
            return dict(await client.call("snapshot.next", parameters, endpoint=endpoint))
        except NoEndpoint:
            continue
    return dict(await client.call("snapshot.next", parameters, endpoint=endpoint))


def _program() -> str:
    return metadata.version("fencepost")


def _show_saved(session: Session, made: BackupFile) -> None:
    session.render.show("SnapshotSave", backup_json(made), _columns(session))


def backup_json(file: BackupFile) -> dict[str, Any]:
    label = file.label
    return {
        "file": str(file.path),
        "cluster_id": label.cluster_id,
        "incarnation": label.incarnation,
        "node": label.node_id,
        "program": label.program,
        "saved_ns": label.saved_ns,
        **label_json(label.snapshot),
    }


def _columns(session: Session) -> list[Column]:
    return [
        Column.of("file"),
        Column("cluster", lambda row: row["cluster_id"]),
        Column.of("incarnation"),
        Column("from", lambda row: row["node"]),
        Column.of("index"),
        Column.of("term"),
        Column("time", lambda row: session.render.time(row["time_ns"])),
        Column("saved", lambda row: session.render.time(row["saved_ns"])),
        Column("program", lambda row: f"fencepost {row['program']}"),
        Column("members", lambda row: members_text(row["configuration"])),
        Column("bytes", lambda row: f"{row['size_bytes']:,}"),
        Column.of("checksum"),
    ]


# -- inspect ----------------------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=("fencepost snapshot inspect backup.snapshot", "fencepost snapshot inspect backup.snapshot -o json"),
    short_help="Check a saved snapshot, and show what is in it.",
    help="Read all of a saved snapshot, check it, and show what is in it: whose it is and of when, the members, and "
    "how many commands of each resource are in which state. A damaged file ends with exit code 8.",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def inspect(file: Path) -> None:
    session = current_session()
    found = read_backup(RealDisk(), file.absolute())
    machine = read_contents(backup_contents(RealDisk(), found), found.label.snapshot.last_index)
    commands = counts_of(machine)
    body = {**backup_json(found), "verified": True, "commands": commands}
    columns = [
        *_columns(session),
        Column("verified", lambda row: row["verified"]),
        *(Column(f"commands of {name}", _counts(name)) for name in commands),
    ]
    session.render.show("SnapshotInspect", body, columns, footer=() if commands else ["no commands are in it"])


def _counts(resource: str) -> Any:
    return lambda row: ", ".join(f"{number:,} {state}" for state, number in row["commands"][resource].items())


# -- restore ----------------------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=(
        "fencepost snapshot restore backup.snapshot restored-n1 --node n1",
        "fencepost snapshot restore backup.snapshot new-n1 --node n1 --nodes n1=127.0.0.1:7001,n2=127.0.0.1:7002",
    ),
    short_help="Make a new data directory from a saved snapshot.",
    help="Make the data directory of one node from a saved snapshot. Do it for every node of the restored cluster, "
    "from the same file and with the same --nodes. The cluster begins a new incarnation, one above that of the file: "
    "whatever is left of the old one is refused by the nodes and at the resources. DIR has to be empty or missing.",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--node", required=True, metavar="ID", help="The node whose directory this is.")
@click.option(
    "--nodes", metavar="ID=HOST:PORT,…", help="The voters of the restored cluster. Default: the members of the file."
)
@click.option(
    "--incarnation",
    type=click.IntRange(min=2),
    metavar="N",
    help="Higher than any that the cluster has had. Needed where the same file, or one as old, was restored before.",
)
def restore(file: Path, directory: Path, node: str, nodes: str | None, incarnation: int | None) -> None:
    session = current_session()
    configure_logging("warning", colored=session.render.colored(sys.stderr))
    found = read_backup(RealDisk(), file.absolute())
    members = None if nodes is None else parse_nodes(nodes)
    configuration = restored_configuration(found.label.snapshot.configuration, members)
    made = restore_directory(
        directory,
        found,
        node_id=node,
        configuration=configuration,
        incarnation=found.label.incarnation + 1 if incarnation is None else incarnation,
        read_state=lambda contents: read_contents(contents, found.label.snapshot.last_index),
    )
    others = [other for other in configuration.members if other != node]
    again = _again(file, nodes, incarnation)
    commands = [f"{again.format(folder=shlex.quote(f'DIR-of-{other}'), node=other)}" for other in others]
    commands.append("fencepost node start --config FILE")
    body = {
        "directory": str(made.path),
        "cluster_id": made.identity.cluster_id,
        "node": node,
        "incarnation": made.identity.incarnation,
        "instance_id": made.identity.instance_id,
        **label_json(made.snapshot),
        "next": commands,
    }
    columns = [
        Column.of("directory"),
        Column("cluster", lambda row: row["cluster_id"]),
        Column.of("node"),
        Column.of("incarnation"),
        Column.of("index"),
        Column.of("term"),
        Column("members", lambda row: members_text(row["configuration"])),
    ]
    footer = []
    if others:
        footer += ["Make the others from the same file:", *(f"  {line}" for line in commands[:-1])]
    footer += [f"Let data_dir in the file of {node} be {directory}, then start it:", f"  {commands[-1]}"]
    session.render.show("SnapshotRestore", body, columns, footer=footer)


def _again(file: Path, nodes: str | None, incarnation: int | None) -> str:
    """The command for another node, with places for its folder and its id."""
    words = f"fencepost snapshot restore {shlex.quote(str(file))} {{folder}} --node {{node}}"
    if nodes is not None:
        words += f" --nodes {shlex.quote(nodes)}"
    return words if incarnation is None else f"{words} --incarnation {incarnation}"
