"""The frame of the command: help, settings, errors, output, start-up."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

import fencepost.cli.process
import fencepost.cli.proxy.serving
from fencepost.cli.app import FencepostCommand, FencepostGroup
from fencepost.cli.config import NodeConfiguration
from fencepost.cli.explanations import EXPLANATIONS
from fencepost.cli.main import fencepost as root
from fencepost.cli.proxy.settings import ProxySettings
from fencepost.jepsen.crashes.real import live_on
from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.errors import FencepostError

from .directories import make_backup, make_directory
from .fake_cluster import CLUSTER, FakeCluster, unused_address
from .running import PROGRAM, environment, error_of, run, run_json, start
from .test_config import GOOD, LEDGER


def every_command() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group but the demo, which is tested where it lives."""

    def walk(path: tuple[str, ...], found: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        yield path, found
        if isinstance(found, FencepostGroup):
            context = click.Context(found)
            for name in found.list_commands(context):
                inner = found.get_command(context, name)
                assert inner is not None
                if name != "demo":
                    yield from walk((*path, name), inner)

    return walk((), root)


COMMANDS = [pytest.param(path, id=" ".join(path) or "fencepost") for path, _ in every_command()]
SPECIFIED = {
    "cluster init", "cluster transfer-leader", "cluster step-down", "node start", "node check-config", "member list",
    "member config", "member add", "member promote", "member remove", "status", "submit", "command list",
    "command show", "command watch", "command cancel", "command redrive", "command resolve", "command discard",
    "resource list", "resource fences", "resource claim", "resource mode", "proxy", "wait",
    "check live", "check ready", "check lag", "check fences", "check quorum-critical", "cluster events",
    "jepsen check", "jepsen replay", "jepsen run",
    "cluster recover", "log tail", "log get", "log verify", "snapshot save", "snapshot inspect", "snapshot restore",
    "debug storage-workload", "debug storage-recover",
    "explain", "completion",
}  # fmt: skip


def test_the_commands_of_this_version_are_there() -> None:
    assert {" ".join(path) for path, found in every_command() if not isinstance(found, FencepostGroup)} == SPECIFIED


def examples_of(path: tuple[str, ...]) -> list[str]:
    result = run(*path, "--help")
    assert result.exit_code == 0
    head, _, rest = result.stdout.partition("\n\n")
    title, *examples = head.splitlines()
    assert title == "Examples:"
    assert rest.startswith("Usage: fencepost")
    return [example.strip() for example in examples]


@pytest.fixture
def scratch(tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the examples find what they name."""
    endpoints = json.dumps(cluster.endpoints.split(","))
    (tmp_path / "fencepost.toml").write_text(f'[client]\nendpoints = {endpoints}\ncluster_id = "{CLUSTER}"\n')
    (tmp_path / "n1.toml").write_text(GOOD + LEDGER)
    with (tmp_path / "cut-off.acks").open("w") as acks:
        live_on(tmp_path / "cut-off", 7, 5, lambda line: print(line, file=acks), threaded=False)
    (tmp_path / "resources.toml").write_text(LEDGER)
    (tmp_path / "proxy.toml").write_text(
        '[proxy]\nlisten = "127.0.0.1:7301"\nupstream = "http://127.0.0.1:9"\nfence = "f.db"\ncluster = "shop"\n'
    )
    delivery = {"delivery": "d-1", "payload": {"repository": {"full_name": "a/b"}}}
    (tmp_path / "webhooks.jsonl").write_text(json.dumps(delivery) + "\n")
    read = {"process": 1, "op": "read", "key": "a", "out": None, "invoke": 1, "return": 2}
    make_backup(tmp_path / "backup.snapshot", make_directory(tmp_path / "n1"))
    for history in ("history.jsonl", "ledger.jsonl"):
        (tmp_path / history).write_text(json.dumps(read) + "\n")
    monkeypatch.chdir(tmp_path)
    payload = '{"account": "alice", "cents": 250}'
    assert run("submit", "ledger", "credit", payload, "--id", "order-1001", "--lane", "alice").exit_code == 0
    return tmp_path


@pytest.mark.parametrize("path", COMMANDS)
def test_help_opens_with_two_examples_that_work(
    path: tuple[str, ...], scratch: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == ("member", "promote"):
        cluster.members.configuration = Configuration(("n1", "n2", "n3"), learners=("n4",))
    started: list[NodeConfiguration | ProxySettings] = []

    async def run_node(configuration: NodeConfiguration) -> int:
        started.append(configuration)
        return 0

    async def run_proxy(settings: ProxySettings, environment: Mapping[str, str]) -> int:
        started.append(settings)
        return 0

    monkeypatch.setattr(fencepost.cli.process, "run_node", run_node)
    monkeypatch.setattr(fencepost.cli.proxy.serving, "run_proxy", run_proxy)
    examples = examples_of(path)
    assert len(examples) == 2
    for example in examples:
        program, *arguments = shlex.split(example)
        assert program == "fencepost"
        assert tuple(arguments[: len(path)]) == path
        result = run(*arguments)
        assert result.exit_code == 0, f"{example}\n{result.stdout}{result.stderr}"
        assert result.stdout or started


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_takes_the_global_options_and_documents_its_own(path: tuple[str, ...]) -> None:
    found = dict(every_command())[path]
    assert isinstance(found, FencepostCommand | FencepostGroup)
    names = {name for param in found.params for name in param.opts}
    assert {"--endpoints", "--context", "--timeout", "--output", "-o", "--time", "--color", "-q", "-v"} <= names
    assert found.help
    for param in found.params:
        if isinstance(param, click.Option):
            assert param.help, param.name


@pytest.mark.parametrize("path", COMMANDS)
def test_a_group_without_a_command_shows_its_help(path: tuple[str, ...]) -> None:
    found = dict(every_command())[path]
    if not isinstance(found, FencepostGroup):
        return
    result = run(*path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Examples:\n")
    for line in result.stderr.partition("Commands:\n")[2].partition("\n\n")[0].splitlines():
        assert not line.endswith("..."), f"{line}: give it a short_help that fits"


# -- errors -----------------------------------------------------------------------------------------


def test_usage_errors() -> None:
    for arguments, says in (
        (("stauts",), "error USAGE: no command 'stauts'; did you mean 'status'?; nothing was sent"),
        (("command", "lst"), "error USAGE: no command 'lst'; did you mean 'list'?; nothing was sent"),
        (("status", "--wach"), "error USAGE: No such option"),
        (("submit", "ledger"), "error USAGE: Missing argument 'EFFECT'; nothing was sent"),
        (("status", "-o", "yaml"), "error CONFIG_INVALID: settings are wrong; nothing was sent"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith(says), result.stderr
        assert result.stdout == ""


@pytest.mark.parametrize("flags", [("-o", "json"), ("-ojson",), ("--output=json",), ("--output", "jsonl")])
def test_errors_are_json_where_json_was_asked_for(flags: tuple[str, ...]) -> None:
    for arguments in ((*flags, "stauts"), ("explain", "NOPE", *flags), ("status", "--endpoints", "x", *flags)):
        result = run(*arguments)
        document = json.loads(result.stderr)
        assert (document["apiVersion"], document["kind"]) == ("fencepost/v1", "Error")
        assert document["error"]["exit_code"] == result.exit_code
        assert set(document["error"]) == {"code", "message", "outcome", "tried", "next", "committed", "exit_code"}
    assert run("stauts", FENCEPOST_OUTPUT="json").stderr.startswith("{")


def test_the_error_is_printed_as_documented() -> None:
    address = unused_address()
    result = run("submit", "ledger", "credit", "--endpoints", address, "--timeout", "200ms", "-q")
    first, tried, following = result.stderr.splitlines()
    assert re.fullmatch(r"error NO_ENDPOINT: .*nothing was committed; safe to retry", first)
    assert tried.startswith(f"  {address}  connection refused")
    assert following == "  1 of 1 endpoints do not answer. Start one:  fencepost node start --config FILE"


def test_an_endpoint_that_was_not_typed_says_where_it_came_from() -> None:
    result = run("status", "--timeout", "200ms", FENCEPOST_ENDPOINTS=unused_address())
    assert "\n  (endpoints from environment FENCEPOST_ENDPOINTS; --endpoints names others)\n" in result.stderr


def test_a_missing_majority_names_the_node_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeCluster(leader="", down=("n2", "n3")) as cluster:
        (tmp_path / "n2.toml").write_text(GOOD.replace("127.0.0.1:7101", cluster.addresses["n2"]))
        for command in (("submit", "ledger", "credit"), ("status",)):
            result = run(*command, "--endpoints", cluster.endpoints, "--timeout", "300ms")
            assert result.exit_code == 4
            assert result.stderr.splitlines()[-1] == (
                "  2 of 3 endpoints do not answer and a majority needs 2. "
                "Start one:  fencepost node start --config n2.toml"
            )
    # With a majority up the cause is another.
    with FakeCluster(leader="", down=("n2",)) as cluster:
        result = run("submit", "ledger", "credit", "--endpoints", cluster.endpoints, "--timeout", "300ms")
        assert "Start one" not in result.stderr


def test_colour_only_where_it_is_wanted() -> None:
    assert "\x1b[" not in run("explain", "NOPE").stderr
    assert run("explain", "NOPE", "--color", "always").stderr.startswith("\x1b[1;31merror NOT_FOUND\x1b[0m: ")
    assert run("explain", "--color", "always").stdout.startswith("\x1b[1mCODE")
    assert "\x1b[" not in run("explain").stdout


def test_a_bug_is_1_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("fencepost.cli.commands.explain.describe", broken)
    result = run("explain", "BUSY", "-o", "json")
    assert result.exit_code == 1
    error = error_of(result)
    assert (error["code"], error["message"], error["committed"]) == ("INTERNAL", "ZeroDivisionError: oops", "unknown")
    assert "Traceback" in run("explain", "BUSY", "-v").stderr


# -- explain, completion, start-up ------------------------------------------------------------------


def every_error() -> Iterator[type[FencepostError]]:
    """Every error class of the package, those of the parts included."""
    for module in ("raft.effects.handlers", "transport.client", "transport.peers", "storage.log_store"):
        __import__(f"fencepost.{module}")
    stack: list[type[FencepostError]] = [FencepostError]
    while stack:
        kind = stack.pop()
        yield kind
        stack += [each for each in kind.__subclasses__() if each.__module__.startswith("fencepost.")]


def test_every_error_code_is_explained() -> None:
    codes = {kind.code for kind in every_error()}
    assert codes == set(EXPLANATIONS)
    for code in codes:
        exit_code, body = run_json("explain", code)
        assert exit_code == 0
        assert len(body["text"].split()) > 12
        kind = next(kind for kind in every_error() if kind.code == code)
        assert (body["outcome"], body["exit_code"]) == (kind.outcome.value, kind.exit_code)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    result = run("completion", shell)
    assert (result.exit_code, "_FENCEPOST_COMPLETE" in result.stdout) == (0, True)
    assert run("completion", "tcsh").exit_code == 2


def test_completion_completes() -> None:
    variables = {"_FENCEPOST_COMPLETE": "bash_complete", "COMP_WORDS": "fencepost command ", "COMP_CWORD": "2"}
    found = subprocess.run(PROGRAM, env=environment(**variables), capture_output=True, check=True, timeout=30)
    words = ("list", "show", "watch", "cancel", "redrive", "resolve", "discard")
    assert sorted(found.stdout.decode().split()) == sorted(f"plain,{word}" for word in words)


def test_a_command_loads_only_what_it_needs() -> None:
    script = (
        "import sys; from fencepost.cli.main import fencepost; "
        "fencepost.main(['completion', 'fish'], standalone_mode=False); "
        "heavy = ('rich', 'uvloop', 'fencepost.transport', 'fencepost.storage'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, check=True, timeout=30, text=True
    )
    assert found.stdout.splitlines()[-1] == "[]"


def test_the_proof_is_loaded_by_its_command_alone() -> None:
    """It stands above the command line, and a node carries nothing of it."""
    script = (
        "import sys; from fencepost.cli.main import fencepost; "
        "[fencepost.main([*words.split(), '--help'], standalone_mode=False) for words in sys.argv[1:]]; "
        "print([name for name in sys.modules if name.startswith('fencepost.jepsen')])"
    )
    words = [" ".join(path) for path, _ in every_command()]
    assert "jepsen check" in words
    found = subprocess.run(
        [sys.executable, "-c", script, *words],
        env=environment(),
        capture_output=True,
        check=True,
        timeout=30,
        text=True,
    )
    assert found.stdout.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    process = start("explain", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=20)[1] == b""
    assert process.returncode == 0


def test_no_command_shows_the_help() -> None:
    result: Any = run()
    assert "Commands:" in result.stdout + result.stderr
