"""``fencepost cluster recover --unsafe``: one node goes on alone when a majority is gone for good."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ...raft.core.configuration import Configuration
from ...raft.node.members import configuration_json
from ...storage.forcing import Prospect, force_recovery, look, recovered_configuration
from ..app import FencepostCommand, Session, UsageProblem, current_session
from ..logs import configure_logging
from ..offline import members_text
from ..output import Column
from .cluster import parse_nodes


@click.command(
    cls=FencepostCommand,
    examples=(
        "fencepost cluster recover --unsafe --data-dir n1 --dry-run",
        "fencepost cluster recover --unsafe --data-dir n1 --yes",
    ),
    short_help="Go on with one node when a majority is lost for good.",
    help="Let one node go on alone, when so many data directories are gone for good that there is no majority any "
    "more. Its log becomes the truth, and may lack commands that were acknowledged; waiting for a lost node loses "
    "nothing. The node has to be stopped. The cluster begins a new incarnation: whatever is left of the old one is "
    "refused by this node and at the resources, and comes back with empty directories. Choose the node with the "
    "highest last term and, among those, the longest log: --dry-run shows both. Asks for the cluster's id first. "
    "If it is cut short, run it again.",
)
@click.option("--unsafe", is_flag=True, help="Has to be given: acknowledged commands may be lost.")
@click.option(
    "--data-dir", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Of the node that goes on."
)
@click.option(
    "--nodes",
    metavar="ID=HOST:PORT,…",
    help="Nodes that get the log from this one, as learners, once they start with empty directories; and the address "
    "of this one. Default: this node alone.",
)
@click.option(
    "--incarnation",
    type=click.IntRange(min=2),
    metavar="N",
    help="Higher than any that the cluster has had. Needed where another node was recovered, or a backup restored, "
    "and given up again.",
)
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def recover(unsafe: bool, data_dir: Path, nodes: str | None, incarnation: int | None, dry_run: bool, yes: bool) -> None:
    session = current_session()
    configure_logging("warning", colored=session.render.colored(sys.stderr))
    again = f"fencepost cluster recover --unsafe --data-dir {shlex.quote(str(data_dir))}"
    if not unsafe:
        raise UsageProblem(
            "acknowledged commands may be lost by this, so --unsafe has to be given; nothing was changed",
            next_step=f"{again} --dry-run",
        )
    members = {} if nodes is None else parse_nodes(nodes)
    prospect = look(data_dir, incarnation=incarnation or 0)
    configuration = _configuration(prospect, members)
    warnings = consequences(prospect)
    if dry_run:
        _show(session, data_dir, prospect, configuration, warnings, dry_run=True)
        return
    for warning in warnings:
        session.render.warning(warning)
    if not yes:
        _ask(prospect.identity.cluster_id, again)
    done = force_recovery(
        data_dir,
        lambda found: _configuration(found, members),
        now_ns=time.time_ns(),
        incarnation=incarnation or 0,
    )
    _show(session, data_dir, done, configuration, warnings, dry_run=False)


def _configuration(prospect: Prospect, members: Mapping[str, str]) -> Configuration:
    return recovered_configuration(prospect.identity.node_id, members, prospect.configuration.retired)


def consequences(prospect: Prospect) -> list[str]:
    """What an operator should know before it is done, a sentence each."""
    node, before = prospect.identity.node_id, prospect.configuration
    if prospect.resumed:
        return [f"a recovery of {node} was cut short; this one completes it"]
    others = [member for member in before.members if member != node]
    found = []
    if before.voters == (node,) and not before.outgoing:
        found.append(f"{node} is the only voter and needs nobody else: starting it is enough")
    elif not before.is_voter(node):
        found.append(f"{node} was no voter: prefer a node that was one, if any is left")
    lost = f"everything behind index {prospect.last_index} is lost, acknowledged commands among it"
    found.append(f"what only {', '.join(others)} had, {lost}" if others else lost)
    if prospect.last_index > prospect.commit_index:
        first, last = prospect.commit_index + 1, prospect.last_index
        which = f"entry {last} was" if first == last else f"entries {first} to {last} were"
        found.append(
            f"{which} not known to be committed on {node} and will be: others "
            "may have committed other entries in their place, which are lost, and somebody may have been told that "
            "what is there was not executed"
        )
    old = prospect.identity.incarnation
    found.append(
        f"incarnation {prospect.incarnation} begins: nodes of incarnation {old} are refused for good; "
        "stop them, move their data directories away, and add them again with empty ones"
    )
    return found


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _ask(cluster_id: str, again: str) -> None:
    if not _is_terminal():
        raise UsageProblem("this has to be confirmed; nothing was changed", next_step=f"{again} --yes")
    typed = click.prompt(f"Type the cluster's id, {cluster_id}, to go on", err=True, default="", show_default=False)
    if typed.strip() != cluster_id:
        raise UsageProblem("that is not the cluster's id; nothing was changed", next_step=again)


def _show(
    session: Session,
    data_dir: Path,
    prospect: Prospect,
    configuration: Configuration,
    warnings: list[str],
    *,
    dry_run: bool,
) -> None:
    body = {
        "directory": str(data_dir),
        "cluster_id": prospect.identity.cluster_id,
        "node": prospect.identity.node_id,
        "dry_run": dry_run,
        "previous_incarnation": prospect.identity.incarnation,
        "incarnation": prospect.incarnation,
        "resumed": prospect.resumed,
        "term": prospect.hard_state.term,
        "commit_index": prospect.commit_index,
        "last_index": prospect.last_index,
        "last_term": prospect.last_term,
        "previous_configuration": configuration_json(prospect.configuration),
        "configuration": configuration_json(configuration),
        "warnings": warnings,
    }
    columns = [
        Column.of("directory"),
        Column("cluster", lambda row: row["cluster_id"]),
        Column.of("node"),
        Column("dry run", lambda row: row["dry_run"] or None),
        Column("incarnation", _incarnation),
        Column("last term", lambda row: row["last_term"]),
        Column("last index", lambda row: row["last_index"]),
        Column("committed", lambda row: f"up to {row['commit_index']}, as far as it knew"),
        Column("members before", lambda row: members_text(row["previous_configuration"])),
        Column("members", lambda row: members_text(row["configuration"])),
    ]
    footer = list(warnings) if dry_run else _next(prospect.identity.node_id, configuration)
    session.render.show("ClusterRecover", body, columns, footer=footer)


def _incarnation(row: Mapping[str, Any]) -> str:
    before = row["previous_incarnation"]
    return f"{row['incarnation']}" + (f", before {before}" if before < row["incarnation"] else "")


def _next(node: str, configuration: Configuration) -> list[str]:
    lines = [
        f"Start {node}, and nothing else of the old cluster:",
        "  fencepost node start --config FILE",
        "Then add the others, each with an empty data directory and a file of its own:",
        f"  fencepost member config ID HOST:PORT --like {node}.toml --out ID.toml",
    ]
    lines += [f"  fencepost member promote {learner}" for learner in configuration.learners]
    return lines if configuration.learners else [*lines, "  fencepost member add ID HOST:PORT"]
