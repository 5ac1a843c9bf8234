"""Submitting one command: answers, errors and exit codes."""

from __future__ import annotations

import fcntl
import json
import shlex
import signal
import termios
import uuid
from pathlib import Path

import pytest

from tests.waiting import eventually

from .fake_cluster import FakeCluster, unused_address
from .running import error_of, run, run_json, start


def test_a_command_is_done_and_its_id_was_said_before(cluster: FakeCluster) -> None:
    result = run("submit", "ledger", "credit", '{"b": 1, "a": 2}', "--endpoints", cluster.endpoints, "-o", "json")
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stderr)
    body = json.loads(result.stdout)
    assert body == {
        "apiVersion": "fencepost/v1", "kind": "Submission", "id": said["id"], "resource": "ledger", "effect": "credit",
        "lane": None, "wait": "done", "state": "succeeded", "replayed": False, "index": 2, "term": 7,
        "result": {"rows": 1}, "error": None,
    }  # fmt: skip
    assert uuid.UUID(said["id"]).version == 7
    assert cluster.commands[said["id"]]["payload"] == '{"a":2,"b":1}'


def test_the_same_id_is_replayed_and_another_payload_is_a_conflict(cluster: FakeCluster) -> None:
    first = ("submit", "ledger", "credit", '{"cents": 1}', "--id", "op-1", "--endpoints", cluster.endpoints)
    assert run(*first).exit_code == 0
    code, body = run_json(*first)
    assert (code, body["replayed"]) == (0, True)
    result = run(*first[:3], '{"cents": 2}', *first[4:], "-o", "json")
    assert result.exit_code == 6
    error = error_of(result)
    assert (error["code"], error["committed"], error["outcome"]) == ("OPERATION_ID_REUSED", "no", "refused")
    assert error["next"] == "fencepost command show op-1"


def test_payload_from_file_and_stdin(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"from": "file"}')
    common = ("--endpoints", cluster.endpoints, "-q")
    assert run("submit", "ledger", "credit", f"@{tmp_path}/p.json", "--id", "f", *common).exit_code == 0
    assert run("submit", "ledger", "credit", "-", "--id", "s", *common, input='{"from": "stdin"}').exit_code == 0
    assert run("submit", "ledger", "credit", "--id", "e", *common).exit_code == 0
    payloads = {name: found["payload"] for name, found in cluster.commands.items()}
    assert payloads == {"f": '{"from":"file"}', "s": '{"from":"stdin"}', "e": "{}"}


def test_wait_committed_and_accepted(cluster: FakeCluster) -> None:
    for wait in ("committed", "accepted"):
        code, body = run_json("submit", "ledger", "credit", "--wait", wait, "--endpoints", cluster.endpoints)
        assert (code, body["wait"], body["state"]) == (0, wait, "committed")


def test_a_failed_command_says_that_it_was_committed(cluster: FakeCluster) -> None:
    cluster.failing.add("credit")
    result = run("submit", "ledger", "credit", "--id", "bad", "--endpoints", cluster.endpoints, "-o", "json")
    assert result.exit_code == 8
    assert json.loads(result.stdout)["state"] == "failed"
    error = error_of(result)
    assert (error["code"], error["committed"]) == ("COMMAND_FAILED", "yes")
    assert "UNIQUE constraint failed" in error["message"]


def test_the_command_to_type_next_can_be_typed_as_it_stands(cluster: FakeCluster) -> None:
    cluster.failing.add("credit")
    result = run("submit", "ledger", "credit", "--id", "it's; reboot", "--endpoints", cluster.endpoints, "-o", "json")
    assert shlex.split(error_of(result)["next"]) == ["fencepost", "command", "show", "it's; reboot", "--history"]


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ("{", "the payload is not JSON: Expecting property name enclosed in double quotes at column 2"),
        ('{"a": NaN}', "the payload is not JSON: NaN is not a JSON number"),
        ('{"a": 1, "a": 2}', "the payload is not JSON: key 'a' stands twice in one object"),
        ('"\\ud800"', "the payload has a lone surrogate, no valid text"),
        ("[" * 100_000, "the payload is nested too deeply"),
    ],
)
def test_malformed_json_is_refused_before_anything_is_sent(payload: str, says: str) -> None:
    result = run("submit", "ledger", "credit", payload, "--endpoints", unused_address())
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error COMMAND_INVALID: {says}; nothing was committed\n")


def test_no_leader() -> None:
    with FakeCluster(leader="") as cluster:
        result = run("submit", "ledger", "credit", "--endpoints", cluster.endpoints, "--timeout", "300ms", "-o", "json")
    assert result.exit_code == 4
    error = error_of(result)
    assert (error["code"], error["committed"], error["outcome"]) == ("NO_LEADER", "no", "retry")
    assert len(error["tried"]) == 3
    assert error["next"]


def test_one_node_reachable_and_it_does_not_lead() -> None:
    with FakeCluster(leader="", down=("n2", "n3")) as cluster:
        result = run("submit", "ledger", "credit", "--endpoints", cluster.endpoints, "--timeout", "300ms")
    assert result.exit_code == 4
    assert "error NO_LEADER: " in result.stderr
    assert "nothing was committed" in result.stderr
    assert result.stderr.count("refused") >= 2, result.stderr
    for address in cluster.addresses.values():
        assert f"\n  {address}" in result.stderr


def test_wrong_endpoint() -> None:
    address = unused_address()
    result = run("submit", "ledger", "credit", "--endpoints", address, "--timeout", "300ms")
    assert result.exit_code == 3
    assert "error NO_ENDPOINT: " in result.stderr
    assert f"  {address}  " in result.stderr


def test_another_clusters_endpoint(cluster: FakeCluster) -> None:
    result = run(
        "submit", "ledger", "credit", "--endpoints", cluster.endpoints, "--timeout", "2s", FENCEPOST_CLUSTER_ID="other"
    )
    assert result.exit_code == 3
    assert "other" in result.stderr
    assert cluster.commands == {}


def test_no_answer_is_unknown_and_names_the_follow_up(cluster: FakeCluster) -> None:
    cluster.silent.add("op-9")
    result = run("submit", "ledger", "credit", "--id", "op-9", "--endpoints", cluster.endpoints, "--timeout", "300ms")
    assert result.exit_code == 5
    assert "error OUTCOME_UNKNOWN: " in result.stderr
    assert "fencepost command show op-9" in result.stderr


def test_a_command_that_waits_says_for_what(cluster: FakeCluster) -> None:
    """A misspelt effect is committed and waits; the one who misspelt it has to hear that."""
    submit = ("submit", "ledger", "credti", "--endpoints", cluster.endpoints, "--id")
    assert run(*submit, "op-9").exit_code == 0
    cluster.silent.add("op-9")
    cluster.commands["op-9"].update(state="committed", waiting_reason="no effect 'credti'")
    result = run(*submit, "op-9", "--timeout", "300ms")
    assert result.exit_code == 5
    assert "was committed at index 2 and was not answered in time; it waits: no effect 'credti'\n" in result.stderr
    assert "whether anything was committed" not in result.stderr
    error = error_of(run(*submit, "op-9", "--timeout", "300ms", "-o", "json"))
    assert (error["code"], error["outcome"], error["committed"]) == ("OUTCOME_UNKNOWN", "unknown", "yes")


def test_an_empty_id_is_refused(cluster: FakeCluster) -> None:
    result = run("submit", "ledger", "credit", "--id", "", "--endpoints", cluster.endpoints)
    assert (result.exit_code, cluster.commands) == (2, {})
    assert "error USAGE: --id is empty; nothing was sent\n" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_waiting_says_what_is_unknown(cluster: FakeCluster, number: int, code: int) -> None:
    cluster.held["slow"] = []
    process = start("submit", "ledger", "credit", "--id", "slow", "--endpoints", cluster.endpoints)
    eventually(lambda: cluster.do(lambda: list(cluster.held["slow"])), within_s=20, what="the command arrives")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == code
    assert b"whether slow was committed is unknown; fencepost command show slow" in stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_reading_stdin(number: int, code: int) -> None:
    process = start("submit", "ledger", "credit", "-")
    assert process.stdin is not None
    process.stdin.write(b"{")
    process.stdin.flush()
    pipe = process.stdin.fileno()

    def taken() -> bool:
        return fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4) == b"\0" * 4  # no byte is left in it

    eventually(taken, within_s=20, what="the process reads its stdin")
    process.send_signal(number)
    assert process.wait(timeout=20) == code
    stdout, stderr = process.communicate(timeout=20)
    assert stdout + stderr.strip() == b""


def test_options_of_bulk_and_of_one_do_not_mix(cluster: FakeCluster) -> None:
    result = run("submit", "ledger", "credit", "@x", "--bulk", "--id", "a")
    assert (result.exit_code, "--id: only without --bulk" in result.stderr) == (2, True)
    result = run("submit", "ledger", "credit", "--id-field", "a")
    assert (result.exit_code, "--id-field: only with --bulk" in result.stderr) == (2, True)
    result = run("submit", "ledger", "credit", "{}", "--bulk")
    assert (result.exit_code, "give @FILE, or - for stdin" in result.stderr) == (2, True)
