"""The command ``fencepost``. Each command's module is imported only when it is asked for."""

from __future__ import annotations

import sys
import threading
from typing import NoReturn

import click

from .app import FencepostGroup, RootGroup, end_at_last

HELP = """A replicated outbox, fenced at the resource: committed commands are executed by the active
leader, and the late write of a former one is refused where it would land.

Exit codes: 0 ok; 1 bug; 2 usage; 3 no endpoint reachable; 4 no leader or no quorum, nothing committed;
5 outcome unknown; 6 conflict; 7 not found; 8 check failed; 9 auth or TLS; 130, 143 signals.

Settings come from the flag, else the environment (FENCEPOST_ENDPOINTS, …), else the context, else
the client file, else the default."""


@click.group(
    cls=RootGroup,
    help=HELP,
    examples=("fencepost status", 'fencepost submit ledger credit \'{"account": "a", "cents": 5}\''),
    lazy={
        "demo": ".demo.command:demo",
        "cluster": ".main:cluster",
        "node": ".main:node",
        "member": ".main:member",
        "status": ".commands.status:status",
        "submit": ".commands.submit:submit",
        "command": ".main:command",
        "resource": ".main:resource",
        "log": ".main:log",
        "snapshot": ".main:snapshot",
        "proxy": ".commands.proxy:proxy",
        "wait": ".commands.wait:wait",
        "check": ".main:check",
        "jepsen": ".main:jepsen",
        "debug": ".main:debug",
        "explain": ".commands.explain:explain",
        "completion": ".commands.completion:completion",
    },
)
@click.version_option(None, "--version", package_name="fencepost", prog_name="fencepost")
def fencepost() -> None:
    pass


@click.group(
    cls=FencepostGroup,
    help="Make a cluster, hand it over, or recover it.",
    examples=(
        "fencepost cluster init --nodes n1=127.0.0.1:7001,n2=127.0.0.1:7002,n3=127.0.0.1:7003 --out cluster",
        "fencepost cluster transfer-leader n2",
    ),
    lazy={
        "init": ".commands.cluster:init",
        "transfer-leader": ".commands.handover:transfer_leader",
        "step-down": ".commands.handover:step_down",
        "events": ".commands.events:events",
        "recover": ".commands.recover:recover",
    },
)
def cluster() -> None:
    pass


@click.group(
    cls=FencepostGroup,
    help="Look at the members of the cluster, and change them.",
    examples=("fencepost member list", "fencepost member add n4 127.0.0.1:7004"),
    lazy={
        "list": ".commands.member:list_members",
        "config": ".commands.member_file:config",
        "add": ".commands.member:add",
        "promote": ".commands.member:promote",
        "remove": ".commands.member:remove",
    },
)
def member() -> None:
    pass


@click.group(
    cls=FencepostGroup,
    help="Run one node, or check its configuration.",
    examples=("fencepost node check-config n1.toml", "fencepost node start --config n1.toml"),
    lazy={"start": ".commands.node:start", "check-config": ".commands.node:check_config"},
)
def node() -> None:
    pass


@click.group(
    cls=FencepostGroup,
    help="Look at commands and their outcomes, and decide about them.",
    examples=("fencepost command list", "fencepost command show order-1001 --history"),
    lazy={
        "list": ".commands.command:list_commands",
        "show": ".commands.command:show",
        "watch": ".commands.command:watch",
        "cancel": ".commands.wishes:cancel",
        "redrive": ".commands.wishes:redrive",
        "resolve": ".commands.wishes:resolve",
        "discard": ".commands.wishes:discard",
    },
)
def command() -> None:
    pass


@click.group(
    cls=FencepostGroup,
    help="Look at the protected resources.",
    examples=("fencepost resource list", "fencepost resource mode ledger"),
    lazy={
        "list": ".commands.resource:list_resources",
        "fences": ".commands.resource:fences",
        "claim": ".commands.resource:claim",
        "mode": ".commands.mode:mode",
    },
)
def resource() -> None:
    pass


@click.group(
    cls=FencepostGroup,
    help="Ask the cluster a question with a yes or a no: exit code 0 or 8.",
    examples=("fencepost check ready", "fencepost check quorum-critical n3"),
    lazy={
        "live": ".commands.check:live",
        "ready": ".commands.check:ready",
        "lag": ".commands.check:lag",
        "fences": ".commands.check:fences",
        "quorum-critical": ".commands.check:quorum_critical",
    },
)
def check() -> None:
    pass


@click.group(
    cls=FencepostGroup,
    help="Look at the log, on disk or at a node.",
    examples=("fencepost log tail", "fencepost log verify n1"),
    lazy={
        "tail": ".commands.log:tail",
        "get": ".commands.log:get",
        "verify": ".commands.log:verify",
    },
)
def log() -> None:
    pass


@click.group(
    cls=FencepostGroup,
    help="Save the state of the cluster, and begin again from it.",
    examples=("fencepost snapshot save monday.snapshot", "fencepost snapshot inspect backup.snapshot"),
    lazy={
        "save": ".commands.snapshot:save",
        "inspect": ".commands.snapshot:inspect",
        "restore": ".commands.snapshot:restore",
    },
)
def snapshot() -> None:
    pass


@click.group(
    cls=FencepostGroup,
    help="Look for what must not happen.",
    examples=("fencepost jepsen check history.jsonl", "fencepost jepsen run --seeds 1..2"),
    lazy={
        "check": ".commands.jepsen:check",
        "run": ".commands.jepsen_runs:run",
        "replay": ".commands.jepsen_runs:replay",
    },
)
def jepsen() -> None:
    pass


@click.group(
    cls=FencepostGroup,
    help="Try the storage, and judge what a crash left of it.",
    examples=(
        "fencepost debug storage-workload life --seed 7",
        "fencepost debug storage-recover cut-off --acks cut-off.acks",
    ),
    lazy={
        "storage-workload": ".commands.debug:storage_workload",
        "storage-recover": ".commands.debug:storage_recover",
    },
)
def debug() -> None:
    pass


def main() -> NoReturn:
    """The console script. Ends the process with an exit code that ``fencepost --help`` lists."""
    code: object = 1
    try:
        fencepost.main(prog_name="fencepost")
        code = 0
    except SystemExit as end:
        code = end.code
    if threading.active_count() > 1:
        end_at_last(code if isinstance(code, int) else int(code is not None))
    sys.exit(code)
