"""``status``, ``wait`` and ``resource fences``."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from fencepost.cli.commands.membership import member_lines
from fencepost.cli.commands.status import show, summarise
from fencepost.cli.output import Renderer
from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.errors import NoEndpoint
from tests.waiting import eventually

from .fake_cluster import CLUSTER, FakeCluster, unused_address
from .running import error_of, run, run_json, start


def test_the_table_and_the_json(cluster: FakeCluster) -> None:
    result = run("status", "--endpoints", cluster.endpoints)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split()[:5] == ["ENDPOINT", "NODE", "ROLE", "TERM", "LEADER"]
    assert [line.split()[1:5] for line in lines[1:4]] == [
        ["n1", "follower", "7", "n2"], ["n2", "leader", "7", "n2"], ["n3", "follower", "7", "n2"],
    ]  # fmt: skip
    assert "ledger:ACTIVE" in lines[2]
    assert lines[4] == "leader n2 in term 7, confirmed; named by 3 of 3 voters"
    assert lines[5] == "last election: n2 in term 7: elect 0.250 s"
    code, body = run_json("status", "--endpoints", cluster.endpoints)
    assert (code, body["apiVersion"], body["kind"]) == (0, "fencepost/v1", "Status")
    assert body["leader"]["confirmed"] is True
    assert [row["node"] for row in body["nodes"]] == ["n1", "n2", "n3"]
    assert body["warnings"] == []


def test_tsv_and_jsonl_have_a_row_a_node(cluster: FakeCluster) -> None:
    tsv = run("status", "--endpoints", cluster.endpoints, "-o", "tsv").stdout.splitlines()
    assert [line.split("\t")[1] for line in tsv] == ["node", "n1", "n2", "n3"]
    rows = [
        json.loads(line) for line in run("-o", "jsonl", "status", "--endpoints", cluster.endpoints).stdout.splitlines()
    ]
    assert [(row["apiVersion"], row["node"]) for row in rows] == [("fencepost/v1", node) for node in ("n1", "n2", "n3")]


def test_no_leader_is_4_and_no_endpoint_is_3() -> None:
    with FakeCluster(leader="", down=("n3",)) as cluster:
        result = run("status", "--endpoints", cluster.endpoints, "-o", "json")
        assert result.exit_code == 4
        assert json.loads(result.stdout)["leader"] is None
        tried = error_of(result)["tried"]
        assert tried[0] == f"{cluster.addresses['n1']}  up, follower in term 7"
        assert "refused" in tried[2]
    result = run("status", "--endpoints", unused_address())
    assert (result.exit_code, "error NO_ENDPOINT: no node could be reached" in result.stderr) == (3, True)
    assert "unreachable" in result.stdout


def test_differing_definitions_are_a_warning(cluster: FakeCluster) -> None:
    cluster.nodes["n3"].digest = "d2"
    result = run("status", "--endpoints", cluster.endpoints)
    assert result.exit_code == 0
    assert "warning: the nodes' resource and effect definitions differ: n1, n2 d1; n3 d2\n" in result.stderr
    for output in ("table", "json"):
        quiet = run("status", "--endpoints", cluster.endpoints, "-q", "-o", output)
        assert "definitions differ" in quiet.stderr, "a warning is no notice"


def node(name: str, role: str, term: int, leader: str, **more: Any) -> dict[str, Any]:
    return {
        "node_id": name, "cluster_id": CLUSTER, "role": role, "term": term, "leader": leader, "commit_index": 1,
        "applied_index": 1, "voters": ["n1", "n2", "n3"], "resources": {}, "definitions_digest": "d",
        "leader_client_address": f"{leader}:1", **more,
    }  # fmt: skip


def test_commands_for_a_resource_that_is_not_defined_are_counted_and_named() -> None:
    resources = {"ledger": {"activation": "ACTIVE", "pending": 2, "last_error": ""}}
    body = summarise({"a:1": node("n1", "leader", 3, "n1", resources=resources, undefined={"legder": 1})})
    row = body["nodes"][0]
    assert (row["pending"], row["error"]) == (3, "legder: not defined here, and 1 waiting for it")


def test_what_is_confirmed() -> None:
    def leader(**answers: Any) -> tuple[Any, ...] | None:
        found = summarise({f"{name}:1": answer for name, answer in answers.items()})["leader"]
        return found and (found["node"], found["term"], found["confirmed"], found["gone"])

    away = NoEndpoint("connection refused")
    leads = node("n1", "leader", 5, "n1")
    assert leader(n1=leads, n2=node("n2", "follower", 5, "n1")) == ("n1", 5, True, False)
    # Alone it is believed only when it heard a quorum within its lease.
    assert leader(n1=leads, n2=away) == ("n1", 5, False, False)
    assert leader(n1={**leads, "confirmed": True}, n2=away) == ("n1", 5, True, False)
    # Followers may go on naming a leader that has died.
    assert leader(n1=away, n2=node("n2", "follower", 5, "n1"), n3=node("n3", "follower", 5, "n1")) == (
        "n1", 5, False, True,
    )  # fmt: skip
    # A frozen leader that wakes still believes in itself; the others have moved on.
    assert leader(n1=leads, n2=node("n2", "leader", 6, "n2"), n3=node("n3", "follower", 6, "n2")) == (
        "n2", 6, True, False,
    )  # fmt: skip
    assert leader(n1=leads, n2=node("n2", "candidate", 6, "")) == ("n1", 5, False, False)
    assert leader(n2=node("n2", "candidate", 6, "")) is None


def test_while_a_change_of_members_is_under_way_both_majorities_have_to_name_the_leader() -> None:
    joint = {"voters": ["n1", "n4", "n5"], "outgoing": ["n1", "n2", "n3"], "joint": True}

    def confirmed(*names: str) -> bool:
        leads = {"n1:1": node("n1", "leader", 5, "n1", **joint)}
        found = summarise(leads | {f"{name}:1": node(name, "follower", 5, "n1", **joint) for name in names})
        return bool(found["leader"]["confirmed"])

    assert not confirmed("n4", "n5")
    assert not confirmed("n2", "n3")
    assert confirmed("n2", "n4")
    body = summarise({"n1:1": node("n1", "leader", 5, "n1", **joint)})
    assert body["members"]["joint"] is True
    assert member_lines(body["members"]) == ["a change of members is under way: from n1 n2 n3 to n1 n4 n5"]


def test_what_a_node_is_beside_its_role() -> None:
    more = {"voters": ["n1", "n2"], "learners": ["n4"]}
    body = summarise(
        {
            "n1:1": node("n1", "leader", 5, "n1", **more),
            "n2:1": node("n2", "follower", 5, "n1", **more),
            "n3:1": node("n3", "follower", 4, ""),  # Removed, and does not know it.
            "n4:1": node("n4", "follower", 5, "n1", **more),
            "n5:1": node("n5", "follower", 0, "", voters=[]),
        }
    )
    parts = {row["node"]: row["part"] for row in body["nodes"]}
    assert parts == {"n1": None, "n2": None, "n3": "no member", "n4": "learner", "n5": "waiting"}
    assert body["members"] == {"voters": ["n1", "n2"], "outgoing": [], "learners": ["n4"], "joint": False}
    assert member_lines(body["members"]) == ["learners, which decide nothing: n4"]
    # A node that waits alone is none that has been removed.
    assert summarise({"n5:1": node("n5", "follower", 0, "", voters=[])})["nodes"][0]["part"] == "waiting"


def test_who_is_sent_a_snapshot_and_who_was_not_asked(cluster: FakeCluster) -> None:
    cluster.snapshot_index = 1200
    snapshot = {"last_index": 1200, "size_bytes": 4_000_000, "received_bytes": 1_000_000}
    cluster.members.configuration = Configuration(("n1", "n2", "n3"), learners=("n4",))
    cluster.links = {
        "n1": {"client_address": cluster.addresses["n1"], "snapshot": None},
        "n4": {"client_address": "127.0.0.1:1", "snapshot": snapshot},
    }
    result = run("status", "--endpoints", cluster.endpoints)
    lines = result.stdout.splitlines()
    assert [line.split()[7] for line in lines[:4]] == ["SNAPSHOT", "1200", "1200", "1200"]
    assert lines[2].endswith("n4 is being sent a snapshot of 4,000,000 bytes: 25%")
    assert lines[5] == "learners, which decide nothing: n4"
    assert "n4 is a member, and its address 127.0.0.1:1 is none of the endpoints" in result.stderr
    _, body = run_json("status", "--endpoints", cluster.endpoints)
    assert body["nodes"][0]["snapshot_index"] == 1200
    assert body["nodes"][1]["peers"]["n4"]["snapshot"] == snapshot
    # Whoever was asked and did not answer is listed anyway.
    away = f"{cluster.endpoints},127.0.0.1:1"
    assert "none of the endpoints" not in run("status", "--endpoints", away).stderr


def test_a_node_that_found_another_state_elsewhere_says_so() -> None:
    digest = {"index": 3000, "digests": {"2": "01ab"}, "agreed_index": 2000, "differences": 0}
    quiet, loud = node("n1", "leader", 7, "n1"), node("n2", "follower", 7, "n1")
    rows = summarise(
        {"n1:1": {**quiet, "state_digest": digest}, "n2:1": {**loud, "state_digest": {**digest, "differences": 2}}}
    )["nodes"]
    assert rows[0]["error"] is None
    assert "STATE_DIVERGED" in rows[1]["error"]
    assert rows[1]["state_digest"]["differences"] == 2


def outbox(**more: int) -> dict[str, int]:
    return {"operations": 0, "forgotten": 0, "retention_ns": 0, "retention_count": 0} | more


def test_what_is_remembered_is_that_of_whoever_has_applied_most() -> None:
    behind = node("n1", "leader", 7, "n1", outbox=outbox(operations=1))
    ahead = node("n2", "follower", 7, "n1", outbox=outbox(operations=1234, forgotten=5), applied_index=9)
    body = summarise({"n1:1": behind, "n2:1": ahead})
    assert body["outbox"]["operations"] == 1234
    assert body["nodes"][0]["outbox"]["operations"] == 1
    assert summarise({"n1:1": node("n1", "leader", 7, "n1")})["outbox"] is None


@pytest.mark.parametrize(
    ("retention", "said"),
    [
        ({}, "for ever"),
        ({"retention_ns": 30 * 86_400_000_000_000}, "30d"),
        ({"retention_ns": 90_000_000_000, "retention_count": 1_000_000}, "90s or 1,000,000 that have ended"),
    ],
)
def test_what_is_remembered_stands_in_a_line(
    retention: dict[str, int], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = outbox(operations=1234, forgotten=5, **retention)
    show(Renderer(), summarise({"n1:1": node("n1", "leader", 7, "n1", outbox=found)}))
    assert f"commands: 1,234 remembered, 5 forgotten; retention {said}" in capsys.readouterr().out.splitlines()


def test_nodes_that_want_to_remember_for_different_times_are_a_warning() -> None:
    def wants(name: str, window_ns: int, ended_max: int) -> dict[str, Any]:
        return node(name, "follower", 7, "n1", retention_wanted={"window_ns": window_ns, "ended_max": ended_max})

    alike = {"n1:1": wants("n1", 60_000_000_000, 5), "n2:1": wants("n2", 60_000_000_000, 5)}
    assert summarise(alike)["warnings"] == []
    body = summarise({**alike, "n3:1": wants("n3", 0, 0)})
    assert body["warnings"] == [
        "the nodes' [outbox] retention differs, and the leader's counts: n1, n2 1m or 5 that have ended; n3 for ever"
    ]


def test_nodes_that_wait_for_different_times_are_a_warning_s49() -> None:
    def waits(name: str, election_timeout_ms: int) -> dict[str, Any]:
        timing = {"heartbeat_ns": 100_000_000, "election_timeout_ns": election_timeout_ms * 1_000_000}
        return node(name, "follower", 7, "n1", timing=timing)

    assert summarise({"n1:1": waits("n1", 1000), "n2:1": waits("n2", 1000)})["warnings"] == []
    body = summarise({"n1:1": waits("n1", 1000), "n2:1": waits("n2", 500)})
    assert body["warnings"] == [
        "the nodes' [raft] times differ, and a leader may trust itself for longer than others wait: "
        "n1 1s with heartbeats of 100ms; n2 500ms with heartbeats of 100ms"
    ]


def test_an_unconfirmed_leader_is_labelled() -> None:
    with FakeCluster(down=("n1", "n3")) as cluster:
        result = run("status", "--endpoints", cluster.endpoints)
    assert result.exit_code == 0
    assert "leader n2 in term 7, UNCONFIRMED: named by 1 of 3 voters" in result.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_watch_goes_on_until_a_signal(cluster: FakeCluster, number: int, code: int) -> None:
    process = start("status", "--watch", "--interval", "10ms", "--endpoints", cluster.endpoints, "-o", "jsonl")
    assert process.stdout is not None
    seen = [json.loads(process.stdout.readline())["node"] for _ in range(7)]
    assert seen == ["n1", "n2", "n3"] * 2 + ["n1"]
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == code


def test_watch_ends_quietly_when_its_reader_has_gone(cluster: FakeCluster) -> None:
    process = start("status", "--watch", "--interval", "10ms", "--endpoints", cluster.endpoints, "-o", "tsv")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert process.wait(timeout=20) == 0
    assert process.communicate(timeout=20)[1] == b""


def test_wait_for_leader_ready_and_applied(cluster: FakeCluster) -> None:
    code, body = run_json("wait", "--for", "leader", "--endpoints", cluster.endpoints)
    assert (code, body["found"]) == (0, "leader n2 in term 7, confirmed")
    code, body = run_json("wait", "--for", "ready", "--endpoints", cluster.endpoints)
    assert (code, body["found"]) == (0, "leader n2 in term 7; ledger:ACTIVE")
    code, body = run_json("wait", "--for", "applied=1", "--endpoints", cluster.endpoints)
    assert (code, body["found"]) == (0, "applied n1:1, n2:1, n3:1")
    result = run("wait", "--for", "applied=2", "--endpoints", cluster.endpoints, "--timeout", "300ms")
    assert result.exit_code == 8
    assert "applied=2 did not hold in time; applied n1:1, n2:1, n3:1" in result.stderr


def test_wait_for_applied_does_not_wait_for_whoever_was_removed(cluster: FakeCluster) -> None:
    cluster.do(lambda: setattr(cluster, "index", 9))
    cluster.members.configuration = Configuration(("n1", "n2"), learners=("n3",))
    cluster.lagging["n3"] = 3
    wait = ("wait", "--for", "applied=9", "--endpoints", cluster.endpoints, "--timeout", "300ms")
    result = run(*wait)
    assert (result.exit_code, "applied n1:9, n2:9, n3:3" in result.stderr) == (8, True), "a learner counts"
    cluster.members.configuration = Configuration(("n1", "n2"), retired=("n3",))
    assert run_json(*wait)[1]["found"] == "applied n1:9, n2:9"


def test_wait_says_what_keeps_a_resource_from_being_active(cluster: FakeCluster) -> None:
    cluster.trouble = "no module named mail"
    wait = ("wait", "--for", "ready", "--endpoints", cluster.endpoints)
    _, body = run_json(*wait)
    assert body["found"] == "leader n2 in term 7; ledger:ACTIVE", "trouble that is over is no reason"
    cluster.activation = "FENCING"
    result = run(*wait, "--timeout", "300ms")
    assert result.exit_code == 8
    assert "leader n2 in term 7; ledger:FENCING (no module named mail)" in result.stderr


def test_wait_sees_readiness_come(cluster: FakeCluster) -> None:
    cluster.activation = "FENCING"
    process = start("wait", "--for", "ready", "--endpoints", cluster.endpoints, "-o", "json")
    eventually(lambda: cluster.do(lambda: cluster.asked("n2", "status") >= 2), within_s=20, what="it is polling")
    assert process.poll() is None
    cluster.activation = "ACTIVE"
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_frozen_node_does_not_eat_the_time(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.cli.commands.wait.QUESTION_TIMEOUT_S", 0.2)
    cluster.frozen.add("n3")
    code, body = run_json("wait", "--for", "ready", "--endpoints", cluster.endpoints, "--timeout", "60s")
    assert (code, body["found"]) == (0, "leader n2 in term 7; ledger:ACTIVE")
    result = run("status", "--endpoints", cluster.endpoints, "--timeout", "200ms")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[3].endswith("no answer within 0.2 s")


def test_wait_for_a_command(cluster: FakeCluster) -> None:
    wait = ("--endpoints", cluster.endpoints, "--timeout", "300ms")
    assert run("wait", "--for", "command=a:b:done", *wait).exit_code == 8
    run("submit", "ledger", "credit", "--id", "a:b", "--endpoints", cluster.endpoints)
    assert run("wait", "--for", "command=a:b:done", *wait).exit_code == 0
    assert run("wait", "--for", "command=a:b:succeeded", *wait).exit_code == 0
    result = run("wait", "--for", "command=a:b:dead", "--endpoints", cluster.endpoints, "--timeout", "60s")
    assert result.exit_code == 8
    assert "command=a:b:dead can no longer hold; command a:b is succeeded" in result.stderr


def test_wait_for_a_state_that_is_none() -> None:
    result = run("wait", "--for", "command=a:succeded", "--endpoints", unused_address())
    assert result.exit_code == 2
    assert "no state 'succeded'; did you mean 'succeeded'?" in result.stderr


def test_wait_without_a_leader_or_endpoint() -> None:
    with FakeCluster(leader="") as cluster:
        assert run("wait", "--for", "leader", "--endpoints", cluster.endpoints, "--timeout", "300ms").exit_code == 4
    assert run("wait", "--for", "ready", "--endpoints", unused_address(), "--timeout", "300ms").exit_code == 3


@pytest.mark.parametrize("text", ["lead", "applied=x", "applied=", "command=x", "command=:done", "command", "ready=1"])
def test_wait_for_something_else_is_usage(text: str) -> None:
    result = run("wait", "--for", text)
    assert (result.exit_code, "write leader, ready, applied=N or command=ID:done" in result.stderr) == (2, True)


def test_resource_fences(cluster: FakeCluster) -> None:
    result = run("resource", "fences", "--endpoints", cluster.endpoints)
    assert result.stdout.splitlines()[1].split() == ["ledger", "sqlite", "fenced", "1.7", "n2/i/1", "ACTIVE", "-"]
    _, body = run_json("resource", "fences", "--endpoints", cluster.endpoints)
    assert body["items"][0]["token"] == {"incarnation": "1", "term": "7"}
