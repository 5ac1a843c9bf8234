"""``fencepost cluster events``: what is in the log and what nodes remember, as one story."""

from __future__ import annotations

import json
import signal
from typing import Any

from fencepost.cli.commands.events import merged
from fencepost.raft.core.errors import NoEndpoint

from ..waiting import eventually
from .fake_cluster import START_NS, FakeCluster, unused_address
from .running import run, run_json, start


def happened(number: int, event: str, node: str = "n1", **more: Any) -> dict[str, Any]:
    row = {"number": number, "time_ns": START_NS + number, "event": event, "node": node, "term": 7, "resource": None}
    return {**row, **more}


def test_events_of_the_log_and_of_every_node_in_the_order_of_their_times(cluster: FakeCluster) -> None:
    cluster.happened["n1"] = [
        happened(2, "stopped-leading", reason="quorum lost"),
        happened(3, "follows", leader="n2"),
        happened(4, "stale-refused", resource="ledger", times=2),
    ]
    cluster.happened["n2"] = [happened(5, "members", "n2", voters=["n1", "n2"], outgoing=[], learners=["n4"])]
    code, body = run_json("cluster", "events", "--endpoints", cluster.endpoints)
    assert code == 0
    said = [(row["event"], row["node"], row["resource"], row["detail"]) for row in body["items"]]
    assert said == [
        ("elected", "n2", None, "elect 0.250 s"),
        ("activated", "n2", "ledger", "token 1.7, 3 taken over, 1 in doubt"),
        ("stopped-leading", "n1", None, "quorum lost"),
        ("follows", "n1", None, "n2"),
        ("stale-refused", "n1", "ledger", "its token was refused 2 times"),
        ("members", "n2", None, "voters n1 n2; learners n4"),
    ]
    assert body["items"][0]["stages"] == [{"stage": "elect", "seconds": 0.25}]
    _, body = run_json("cluster", "events", "--last", "2", "--endpoints", cluster.endpoints)
    assert [row["event"] for row in body["items"]] == ["stale-refused", "members"]
    table = run("cluster", "events", "--endpoints", cluster.endpoints).stdout.splitlines()
    assert table[0].split() == ["TIME", "EVENT", "NODE", "TERM", "INDEX", "RESOURCE", "DETAIL"]
    assert len(table) == 7


def test_who_does_not_answer_is_named() -> None:
    with FakeCluster(down=("n3",)) as cluster:
        result = run("cluster", "events", "--endpoints", cluster.endpoints)
        assert result.exit_code == 0
        assert f"warning: {cluster.addresses['n3']} does not answer; what happened there is missing" in result.stderr
    assert run("cluster", "events", "--endpoints", unused_address()).exit_code == 3


def test_an_election_counts_once_with_the_stages_that_came_last() -> None:
    def election(index: int, term: str, *stages: str) -> dict[str, Any]:
        seconds = [{"stage": stage, "seconds": 1.0} for stage in stages]
        return {"index": index, "time_ns": index, "node": "n1", "token": {"incarnation": "1", "term": term},
                "stages": seconds}  # fmt: skip

    behind = {"elections": [election(3, "2", "elect")]}
    ahead = {"elections": [election(5, "2", "elect", "first-effect"), election(9, "4", "elect")]}
    found = merged({"a": behind, "b": ahead, "c": NoEndpoint("connection refused")})
    assert [(row["term"], row["index"], row["detail"]) for row in found.values()] == [
        (2, 5, "elect 1.000 s, first-effect 1.000 s"),
        (4, 9, "elect 1.000 s"),
    ]
    # With a stage more it is another row: whoever follows is shown it.
    assert set(found) & set(merged({"a": behind})) == set()


def test_whoever_follows_is_shown_each_event_once(cluster: FakeCluster) -> None:
    arguments = ("--interval", "10ms", "--endpoints", cluster.endpoints, "-o", "jsonl")
    process = start("cluster", "events", "--follow", "--last", "1", *arguments)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "activated"
    asked = cluster.do(lambda: cluster.asked("n1", "events"))
    cluster.happened["n1"] = [happened(7, "leads", reason="elected")]
    first = json.loads(process.stdout.readline())
    assert (first["kind"], first["event"], first["detail"]) == ("ClusterEvent", "leads", "elected")
    eventually(lambda: cluster.do(lambda: cluster.asked("n1", "events")) > asked + 3, within_s=20, what="it goes on")
    cluster.happened["n1"].append(happened(8, "hands-over", target="n3"))
    assert json.loads(process.stdout.readline())["event"] == "hands-over"
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=20)
    assert (process.returncode, rest) == (130, b"")
