"""``command cancel|redrive|resolve|discard``, ``resource list|claim``, and times of ``submit``."""

from __future__ import annotations

import time

import pytest

from fencepost.cli.payload import parse_time

from .fake_cluster import FakeCluster
from .running import error_of, run, run_json

S = 1_000_000_000


def test_a_cancel_says_whether_it_is_certain(cluster: FakeCluster) -> None:
    code, body = run_json("command", "cancel", "a", "--note", "ordered twice", "--endpoints", cluster.endpoints)
    assert (code, body["did"], body["definite"], body["state"]) == (0, "cancelled", True, "cancelled")
    assert (cluster.wishes[0]["id"], cluster.wishes[0]["note"]) == ("a", "ordered twice")
    cluster.under_way.add("b")
    result = run("command", "cancel", "b", "--endpoints", cluster.endpoints)
    assert result.exit_code == 0
    assert "requested" in result.stdout
    assert "may have been applied; fencepost command show b --history" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "did", "asked"),
    [
        (("redrive", "a"), "redriven", {"not_applied": False}),
        (("redrive", "a", "--not-applied"), "redriven", {"not_applied": True}),
        (("discard", "a", "--note", "by hand"), "discarded", {"note": "by hand"}),
        (("resolve", "a", "--as", "failed", "--note", "looked"), "resolved", {"as": "failed", "note": "looked"}),
        (
            ("resolve", "a", "--as", "done", "--note", "looked", "--result", '{"b": 1, "a": 2}'),
            "resolved",
            {"as": "done", "result": '{"a":2,"b":1}'},
        ),
    ],
)
def test_a_decision_is_the_leaders_to_carry_out(
    cluster: FakeCluster, arguments: tuple[str, ...], did: str, asked: dict[str, object]
) -> None:
    code, body = run_json("command", *arguments, "--endpoints", cluster.endpoints)
    assert (code, body["did"]) == (0, did)
    assert asked.items() <= cluster.wishes[0].items()


@pytest.mark.parametrize("word", ["cancel", "redrive", "discard"])
def test_what_is_in_another_state_is_6_and_nothing_was_changed(cluster: FakeCluster, word: str) -> None:
    cluster.final.add("a")
    result = run("command", word, "a", "--endpoints", cluster.endpoints, "-o", "json")
    assert (result.exit_code, error_of(result)["code"], error_of(result)["outcome"]) == (6, "WRONG_STATE", "refused")


@pytest.mark.parametrize(
    "arguments", [("--as", "done"), ("--note", "x"), ("--as", "perhaps", "--note", "x")], ids=["note", "as", "word"]
)
def test_a_resolution_needs_a_word_and_a_note(cluster: FakeCluster, arguments: tuple[str, ...]) -> None:
    assert run("command", "resolve", "a", *arguments, "--endpoints", cluster.endpoints).exit_code == 2
    assert not cluster.wishes


def test_resources_are_listed_and_claimed(cluster: FakeCluster) -> None:
    code, body = run_json("resource", "list", "--endpoints", cluster.endpoints)
    assert (code, body["kind"], body["items"][0]["name"]) == (0, "ResourceList", "ledger")
    code, body = run_json("resource", "claim", "ledger", "--endpoints", cluster.endpoints)
    assert (code, body["resource"], body["token"]["term"]) == (0, "ledger", "7")
    assert run("resource", "claim", "nothing", "--endpoints", cluster.endpoints).exit_code == 7


def test_a_submission_takes_its_times_along(cluster: FakeCluster) -> None:
    before_ns = time.time_ns()
    arguments = ("--not-before", "+10m", "--deadline", "2099-01-01T00:00Z", "--endpoints", cluster.endpoints)
    assert run("submit", "ledger", "credit", "--id", "a", *arguments).exit_code == 0
    not_before_ns, deadline_ns = cluster.times["a"]
    assert before_ns + 600 * S <= not_before_ns <= time.time_ns() + 600 * S
    assert deadline_ns == parse_time("2099-01-01T00:00:00+00:00", 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--not-before", "tomorrow"),
        ("--deadline", "2027-01-31T08:00"),
        ("--deadline", "+5"),
        ("--not-before", "+2h", "--deadline", "+1h"),
        ("--bulk", "-", "--deadline", "+1h"),
    ],
)
def test_a_time_that_is_none_is_2_and_nothing_was_sent(cluster: FakeCluster, arguments: tuple[str, ...]) -> None:
    result = run("submit", "ledger", "credit", *arguments, "--endpoints", cluster.endpoints)
    assert result.exit_code == 2
    assert not cluster.received


def test_a_moment_is_exact() -> None:
    assert parse_time("1970-01-01T00:00:01.5Z", 0) == 1_500_000_000
    assert parse_time("+250ms", 7) == 250_000_007
