"""``fencepost check``: each question with a yes and with a no, and what it says then."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.raft.core.configuration import Configuration

from .fake_cluster import TOKEN, FakeCluster, unused_address
from .running import error_of, run, run_json


def rows(cluster: FakeCluster, *words: str) -> tuple[int, dict[str, tuple[bool, str]]]:
    """The exit code, and what was found by name."""
    code, body = run_json("check", *words, "--endpoints", cluster.endpoints, "--timeout", "2s")
    assert body["kind"] == "Check"
    assert body["ok"] == (code == 0)
    return code, {row["name"]: (row["ok"], row["found"]) for row in body["items"]}


def test_live_asks_for_processes_and_for_nothing_else(cluster: FakeCluster) -> None:
    code, found = rows(cluster, "live")
    assert (code, len(found)) == (0, 3)
    with FakeCluster(leader="", down=("n3",)) as other:
        code, found = rows(other, "live")
        assert code == 8
        assert [ok for ok, _ in found.values()] == [True, True, False]
        up = run("check", "live", "--endpoints", other.addresses["n1"])
        assert (up.exit_code, "n1, follower in term 7" in up.stdout) == (0, True), "it needs no leader"
    assert run("check", "live", "--endpoints", unused_address()).exit_code == 3


def test_ready_needs_a_confirmed_leader_and_what_it_requires(cluster: FakeCluster) -> None:
    code, found = rows(cluster, "ready")
    assert code == 0
    assert found == {"leader": (True, "n2 in term 7, confirmed"), "resource ledger": (True, "ACTIVE")}
    cluster.activation, cluster.trouble = "FENCING", "database is locked"
    code, found = rows(cluster, "ready")
    assert (code, found["resource ledger"]) == (8, (False, "FENCING: database is locked"))
    result = run("check", "ready", "--endpoints", cluster.endpoints, "-o", "json")
    assert error_of(result)["code"] == "CHECK_FAILED"
    assert error_of(result)["message"] == "not ready: resource ledger"
    cluster.required = False
    assert rows(cluster, "ready") == (
        0,
        {**found, "resource ledger": (True, "FENCING: database is locked (not required)")},
    )
    with FakeCluster(leader="") as other:
        assert run("check", "ready", "--endpoints", other.endpoints).exit_code == 4
    with FakeCluster(down=("n1", "n3")) as other:
        code, found = rows(other, "ready")
        assert (code, found["leader"]) == (8, (False, "n2 in term 7, unconfirmed"))


def test_lag_is_of_every_member_as_its_leader_knows_it(cluster: FakeCluster) -> None:
    code, found = rows(cluster, "lag", "--entries", "0")
    assert (code, found["n2"], found["n1"]) == (
        0, (True, "leads; lacks 0 entries"), (True, "heard 0.1 s ago; lacks 0 entries"),
    )  # fmt: skip
    cluster.members.silent.add("n3")
    code, found = rows(cluster, "lag")
    assert (code, found["n3"]) == (8, (False, "never heard of; lacks 12 entries"))
    cluster.members.silent.clear()
    cluster.members.behind["n1"] = 7
    assert rows(cluster, "lag", "--entries", "7")[0] == 0
    code, found = rows(cluster, "lag", "--entries", "6")
    assert (code, found["n1"]) == (8, (False, "heard 0.1 s ago; lacks 7 entries"))


def test_whether_a_node_can_be_spared(cluster: FakeCluster) -> None:
    code, found = rows(cluster, "quorum-critical", "n3")
    assert (code, found) == (0, {"voters": (True, "2 of 3 without it, 2 needed")})
    code, found = rows(cluster, "quorum-critical", "n2")
    assert (code, found["leader"][0]) == (0, True), "leading is no reason, and is said"
    cluster.members.silent.add("n1")
    code, found = rows(cluster, "quorum-critical", "n3")
    assert (code, found["voters"]) == (8, (False, "1 of 3 without it, 2 needed"))
    # What is away already is not needed.
    assert rows(cluster, "quorum-critical", "n1")[0] == 0
    result = run("check", "quorum-critical", "n9", "--endpoints", cluster.endpoints)
    assert (result.exit_code, "n9 is no member" in result.stderr) == (7, True)


def test_while_members_change_a_node_may_be_needed_by_the_old_ones_alone(cluster: FakeCluster) -> None:
    cluster.members.configuration = Configuration(("n2", "n4", "n5"), outgoing=("n1", "n2", "n3"))
    cluster.members.silent.add("n1")
    code, found = rows(cluster, "quorum-critical", "n3")
    assert code == 8
    assert found["voters"] == (True, "3 of 3 without it, 2 needed; n3 has no vote there")
    assert found["outgoing"] == (False, "1 of 3 without it, 2 needed")


@pytest.mark.parametrize(
    ("fence", "found"),
    [
        ({}, (True, "1.7, held by n2/i/1")),
        ({"token": {"incarnation": "1", "term": "6"}}, (False, "stands at 1.6, and the leader acts under 1.7")),
        ({"token": {"incarnation": "2", "term": "1"}}, (False, "stands at 2.1, and the leader acts under 1.7")),
        ({"token": None, "holder": ""}, (False, "never claimed")),
        ({"token": None, "holder": "", "error": "disk gone"}, (False, "disk gone")),
        ({"token": TOKEN, "error": "disk gone"}, (False, "disk gone")),
    ],
)
def test_fences_stand_at_the_leaders_token(
    cluster: FakeCluster, fence: dict[str, Any], found: tuple[bool, str]
) -> None:
    cluster.fence = fence
    assert rows(cluster, "fences") == (0 if found[0] else 8, {"ledger": found})
