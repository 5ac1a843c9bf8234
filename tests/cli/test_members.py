"""``member list|add|promote|remove`` and ``cluster transfer-leader|step-down``."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from typing import Any

import pytest

from fencepost.cli.commands.member import consequences
from fencepost.raft.core.configuration import Configuration
from fencepost.raft.node.members import configuration_json

from .fake_cluster import FakeCluster, unused_address
from .running import PROGRAM, environment, error_of, run, run_json


def at(cluster: FakeCluster, *arguments: str) -> tuple[str, ...]:
    return (*arguments, "--endpoints", cluster.endpoints)


# -- list -------------------------------------------------------------------------------------------


def test_list_says_who_is_there_and_how_far(cluster: FakeCluster) -> None:
    run(*at(cluster, "member", "add", "n4", "127.0.0.1:7004", "--learner"))
    cluster.members.silent.add("n4")
    result = run(*at(cluster, "member", "list"))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "NODE  PART     LEADER  ADDRESS         CONNECTED  MATCH  BEHIND  LAST HEARD",
        "n1    voter    -       127.0.0.1:7001  yes        12     0       0.1 s ago",
        "n2    voter    yes     127.0.0.1:7002  -          12     -       -",
        "n3    voter    -       127.0.0.1:7003  yes        12     0       0.1 s ago",
        "n4    learner  -       127.0.0.1:7004  no         0      12      never",
        "3 voters, a majority is 2: 1 may be lost",
    ]
    _, body = run_json(*at(cluster, "member", "list"))
    assert (body["apiVersion"], body["kind"]) == ("fencepost/v1", "MemberList")
    assert [row["node"] for row in body["items"]] == ["n1", "n2", "n3", "n4"]
    assert body["configuration"]["learners"] == ["n4"]
    rows = [json.loads(line) for line in run(*at(cluster, "member", "list", "-o", "jsonl")).stdout.splitlines()]
    assert [(row["kind"], row["node"]) for row in rows] == [("Member", f"n{number}") for number in range(1, 5)]
    assert run(*at(cluster, "member", "list", "-o", "tsv")).stdout.splitlines()[4].split("\t")[:3] == [
        "n4", "learner", "",
    ]  # fmt: skip


def test_without_a_leader_the_list_has_to_be_asked_for_by_name() -> None:
    with FakeCluster(leader="") as cluster:
        result = run(*at(cluster, "member", "list", "--timeout", "300ms"))
        assert (result.exit_code, "fencepost member list --stale" in result.stderr) == (4, True)
        stale = run(*at(cluster, "member", "list", "--stale"))
        assert stale.exit_code == 0
        assert stale.stdout.splitlines()[-1] == "not confirmed; at most 0.2 s old"
    assert run("member", "list", "--endpoints", unused_address()).exit_code == 3


def test_a_joint_configuration_and_former_members_are_said(cluster: FakeCluster) -> None:
    cluster.members.configuration = Configuration(("n1", "n4"), ("n1", "n2", "n3"), retired=("n0",))
    lines = run(*at(cluster, "member", "list")).stdout.splitlines()
    assert lines[-2:] == ["a change is under way: from n1 n2 n3 to n1 n4", "removed for good: n0"]


# -- add and promote --------------------------------------------------------------------------------


def test_add_makes_a_learner_first_and_then_a_voter(cluster: FakeCluster) -> None:
    result = run(*at(cluster, "member", "add", "n4", "127.0.0.1:7004"))
    assert result.exit_code == 0, result.stderr
    assert "n4 is a learner, at index 13; a voter once it has caught up" in result.stderr
    assert result.stdout.splitlines() == [
        "node      n4",
        "part      voter",
        "index     13",
        "term      7",
        "voters    n1 n2 n3 n4",
        "4 voters, a majority is 3: 1 may be lost",
    ]
    (_, added), (_, promoted) = cluster.members.asked
    assert (added["address"], added["learner"]) == ("127.0.0.1:7004", True)
    assert promoted["node"] == "n4"
    assert 50 < added["timeout_s"] < 60, "the node answers before the client gives up"


def test_a_node_that_does_not_start_stays_a_learner_and_that_is_said_s28(cluster: FakeCluster) -> None:
    cluster.members.silent.add("n4")
    result = run(*at(cluster, "member", "add", "n4", "127.0.0.1:7004"))
    assert result.exit_code == 4
    assert "error NOT_CAUGHT_UP: n4 is a learner and no voter yet: n4 is behind by 12, last seen never" in result.stderr
    assert "fencepost member promote n4" in result.stderr
    assert "nothing was committed" not in result.stderr
    assert cluster.members.configuration.learners == ("n4",)
    result = run(*at(cluster, "member", "promote", "n4", "-o", "json"))
    error = error_of(result)
    assert (error["code"], error["outcome"], error["committed"]) == ("NOT_CAUGHT_UP", "retry", "no")
    cluster.members.silent.clear()
    code, body = run_json(*at(cluster, "member", "promote", "n4"))
    assert (code, body["action"], body["part"], body["configuration"]["voters"][-1]) == (0, "promote", "voter", "n4")


def test_what_was_half_done_is_committed_in_json(cluster: FakeCluster) -> None:
    cluster.members.silent.add("n4")
    error = error_of(run(*at(cluster, "member", "add", "n4", "127.0.0.1:7004", "-o", "json")))
    assert (error["code"], error["committed"], error["exit_code"]) == ("NOT_CAUGHT_UP", "yes", 4)


@pytest.mark.parametrize("verb", ["add", "promote", "remove"])
def test_a_dry_run_changes_nothing(cluster: FakeCluster, verb: str) -> None:
    if verb == "promote":
        run(*at(cluster, "member", "add", "n4", "127.0.0.1:7004", "--learner"))
    before = cluster.members.configuration
    words = {"add": ("n4", "127.0.0.1:7004"), "promote": ("n4",), "remove": ("n1",)}[verb]
    code, body = run_json(*at(cluster, "member", verb, *words, "--dry-run"))
    assert (code, body["dry_run"], body["index"]) == (0, True, None)
    expected = ["n2", "n3"] if verb == "remove" else ["n1", "n2", "n3", "n4"]
    assert body["configuration"]["voters"] == expected
    assert cluster.members.configuration == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("n 4", "h:1"), '"n 4" is not a name'),
        (("n4", "h"), '"h" is not an address'),
        (("n4", "0.0.0.0:7004"), "the other nodes cannot dial that"),
    ],
)
def test_what_cannot_be_a_member_is_usage(cluster: FakeCluster, words: tuple[str, str], says: str) -> None:
    result = run(*at(cluster, "member", "add", *words))
    assert (result.exit_code, says in result.stderr, "nothing was sent" in result.stderr) == (2, True, True)
    assert cluster.members.asked == []


def test_a_change_that_leads_nowhere_is_a_conflict(cluster: FakeCluster) -> None:
    run(*at(cluster, "member", "remove", "n1", "--yes"))
    result = run(*at(cluster, "member", "add", "n1", "127.0.0.1:7001"))
    assert result.exit_code == 6
    assert "error CHANGE_REFUSED: n1 was removed, and ids are not used again" in result.stderr
    assert "give it a new id" in result.stderr
    assert run(*at(cluster, "member", "remove", "n1", "--yes")).exit_code == 6
    assert run(*at(cluster, "member", "promote", "n9")).exit_code == 6


# -- remove -----------------------------------------------------------------------------------------


def test_remove_has_to_be_confirmed(cluster: FakeCluster) -> None:
    before = cluster.members.configuration
    result = run(*at(cluster, "member", "remove", "n1"))
    assert result.exit_code == 2
    assert "removing n1 has to be confirmed; nothing was changed" in result.stderr
    assert "fencepost member remove n1 --yes" in result.stderr
    assert cluster.members.configuration == before


@pytest.mark.parametrize(("typed", "code", "left"), [("y", 0, 2), ("n", 130, 3)])
def test_at_a_terminal_it_asks(cluster: FakeCluster, typed: str, code: int, left: int) -> None:
    ours, theirs = pty.openpty()
    command = [*PROGRAM, *at(cluster, "member", "remove", "n1")]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    )
    os.write(ours, f"{typed}\n".encode())
    _, said = process.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code, said
    assert "warning: n1 is removed for good" in said
    assert "Remove n1? [y/N]:" in said
    assert len(cluster.members.configuration.voters) == left


def test_a_leader_hands_over_before_it_goes(cluster: FakeCluster) -> None:
    result = run(*at(cluster, "member", "remove", "n2", "--yes"))
    assert result.exit_code == 0, result.stderr
    assert cluster.members.transfers == ["n1"]
    assert "warning: n2 leads, and hands leadership over first" in result.stderr
    assert "n1 leads now, in term 8" in result.stderr
    assert result.stdout.splitlines()[-2:] == [
        "2 voters, a majority is 2: none may be lost", "stop the process of n2: it takes part no more",
    ]  # fmt: skip
    assert cluster.members.configuration.retired == ("n2",)


def test_a_leader_that_cannot_hand_over_is_not_removed(cluster: FakeCluster) -> None:
    cluster.members.stuck = True
    result = run(*at(cluster, "member", "remove", "n2", "--yes"))
    assert (result.exit_code, "error TRANSFER_REFUSED" in result.stderr) == (4, True)
    assert "n2" in cluster.members.configuration.voters


def member(node: str, part: str = "voter", leader: bool = False, heard: float | None = 0.1) -> dict[str, Any]:
    connected = None if leader else heard is not None
    return {"node": node, "part": part, "leader": leader, "connected": connected, "last_contact_s": heard}


def said_of(node: str, *members: dict[str, Any], quiet: str = "") -> str:
    for row in members:
        if row["node"] == quiet:
            row.update(connected=False, last_contact_s=None)
    voters = tuple(row["node"] for row in members if row["part"] == "voter" and row["node"] != node)
    return "; ".join(consequences(members, configuration_json(Configuration(voters)), node))


def test_what_a_removal_would_cost_is_said() -> None:
    three = [member("n1", leader=True), member("n2"), member("n3")]
    assert "no failure can be survived then: 2 of 2 voters are needed" in said_of("n3", *three)
    assert "NOTHING COULD BE COMMITTED: of the voters left, n1, n3, a majority of 2 is needed, and n3 does not" in (
        said_of("n2", *three, quiet="n3")
    )
    # The one that is away is the one to remove: two that answer are a majority of two.
    assert "NOTHING" not in said_of("n3", *three, quiet="n3")
    # It is connected and has said nothing for a while: frozen.
    frozen = [member("n1", leader=True), member("n2", heard=60.0), member("n3")]
    assert "n2 does not answer" in said_of("n3", *frozen)
    four = [*[member(f"n{number}") for number in (2, 3, 4)], member("n1", leader=True)]
    assert said_of("n4", *four) == "n4 is removed for good: no node is ever called n4 again"
    # A learner is in no majority.
    assert said_of("n4", *three, member("n4", "learner", heard=None)).count(";") == 0


# -- handing leadership over ------------------------------------------------------------------------


def test_transfer_leader(cluster: FakeCluster) -> None:
    code, body = run_json(*at(cluster, "cluster", "transfer-leader", "n3"))
    assert (code, body["kind"], body["leader"], body["previous_leader"]) == (0, "LeadershipChange", "n3", "n2")
    assert (body["term"], body["drained"]) == (8, True)
    assert run(*at(cluster, "cluster", "transfer-leader")).stdout.splitlines()[:3] == [
        "leader   n1", "term     9", "before   n3",
    ]  # fmt: skip
    # It leads already: nothing to do, and no error in a script.
    assert run(*at(cluster, "cluster", "transfer-leader", "n1")).exit_code == 0
    assert cluster.members.transfers == ["n3", "n1"]


def test_a_transfer_that_does_not_succeed_says_that_the_leader_goes_on(cluster: FakeCluster) -> None:
    cluster.members.stuck = True
    result = run(*at(cluster, "cluster", "transfer-leader", "n1"))
    assert result.exit_code == 4
    assert "error TRANSFER_REFUSED: n1 did not take over in time; this node leads on" in result.stderr
    assert "committed" not in result.stderr


def test_step_down(cluster: FakeCluster) -> None:
    code, body = run_json(*at(cluster, "cluster", "step-down"))
    assert (code, body["leader"], body["previous_leader"], body["drained"]) == (0, "n3", "n2", None)


def test_without_a_leader_nothing_is_changed() -> None:
    with FakeCluster(leader="") as cluster:
        for words in (
            ("member", "add", "n4", "h:1"), ("member", "promote", "n1"), ("member", "remove", "n1", "--yes"),
            ("cluster", "transfer-leader"), ("cluster", "step-down"),
        ):  # fmt: skip
            result = run(*at(cluster, *words, "--timeout", "300ms"))
            assert (result.exit_code, "error NO_LEADER" in result.stderr) == (4, True), result.stderr
        assert cluster.members.asked == []
