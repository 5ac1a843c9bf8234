"""The invariants themselves: each one fails on a state or a step that breaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.jepsen.cores.parts import Violation
from fencepost.jepsen.cores.world import World
from fencepost.raft.core.events import Durable, Effects, Persist, Role, Send, Tick
from fencepost.raft.core.invariants import Summary, check, check_step, summarize
from fencepost.raft.core.messages import AppendEntriesResponse, Message, PreVote, RequestVote, RequestVoteResponse
from fencepost.raft.core.options import SECOND
from fencepost.raft.core.step import Raft

from .lone import Lone, entries, entry


def leading() -> Raft:
    """A leader of term 3 with five entries, the first two committed."""
    lone = Lone(term=2, log=entries(1, 2), commit_index=2)
    lone.become_leader()
    lone.propose(b"x", b"y")
    lone.settle()
    lone.acknowledge("n2", 3)
    assert (lone.raft.commit_index, lone.raft.log.last_index) == (3, 5)
    return lone.raft


def breaking(raft: Raft, what: str) -> None:
    match what:
        case "commit past the end":
            raft.commit_index = 6
        case "durable past the end":
            raft.durable_index = 6
        case "applied what is not committed":
            raft.apply_reported = 4
        case "log above the term":
            raft.current_term = 2
        case "an entry nobody writes":
            raft.log.append([entry(6, 3)])
        case "leader without its vote":
            raft.voted_for = "n2"
        case "match past next":
            raft.progress["n2"].match_index = 9
        case "window too large":
            raft.progress["n2"].in_flight.extend((index, 0) for index in range(4, 99))
        case "bytes miscounted":
            raft.uncommitted_bytes += 1
        case "progress of a follower":
            raft.role = Role.FOLLOWER
        case "hard state of a write never made":
            raft.hard_state_sequence = 99


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("commit past the end", "commit index 6 is past"),
        ("durable past the end", "durable index 6 is past"),
        ("applied what is not committed", "applied to 4"),
        ("log above the term", "above the current term"),
        ("an entry nobody writes", "writes cover the log to 5 of 6"),
        ("leader without its vote", "voted for 'n2'"),
        ("match past next", "n2 matches to 9"),
        ("window too large", "in flight to n2"),
        ("bytes miscounted", "miscounted"),
        ("progress of a follower", "keeps what only a leader has"),
        ("hard state of a write never made", "never made|not durable"),
    ],
)
def test_state(what: str, says: str) -> None:
    raft = leading()
    check(raft)
    breaking(raft, what)
    with pytest.raises(AssertionError, match=says):
        check(raft)


def spoken(message: Message, after: int = 0) -> Effects:
    return Effects(sends=[Send("n2", message, after)])


@pytest.mark.parametrize(
    ("before", "effects", "says"),
    [
        (lambda s: s._replace(current_term=4), Effects(), "term went back from 4 to 3"),
        (lambda s: s._replace(voted_for="n3"), Effects(), "vote for n3 changed"),
        (lambda s: s._replace(voted_for=""), Effects(), "saved as"),
        (lambda s: s._replace(commit_index=4), Effects(), "commit index went back|is gone"),
        (lambda s: s._replace(commit_index=2, commit_term=1), Effects(), "committed entry 2 of term 1 is gone"),
        (lambda s: s._replace(commit_index=0, commit_term=0), Effects(), None),
        (lambda s: s._replace(last_term=2), Effects(), "only appends"),
        (lambda s: s._replace(role=Role.FOLLOWER, last_index=4), Effects(), "became leader|without a write"),
        (lambda s: s._replace(durable_index=4), Effects(), "without a completed write"),
        (lambda s: s, Effects(apply_to=4), "apply to 4"),
        (lambda s: s, Effects(apply_to=3), "apply to 3 after 3"),
        (lambda s: s, Effects(persist=[Persist(9, None, 3, [], 3)]), "truncation at 3|follows write"),
        (lambda s: s, Effects(persist=[Persist(9, None, 0, [entry(9, 3)], 3)]), "where 6 belongs|follows write"),
        (lambda s: s, spoken(RequestVote(3, 5, 3, False)), "a leader asked for votes"),
        (lambda s: s, spoken(PreVote(3, 5, 3, 1)), "speaks for term 3"),
        (lambda s: s, spoken(RequestVoteResponse(3, True, "")), "a vote that is 'n1'"),
        (lambda s: s, spoken(AppendEntriesResponse(3, True, 6, 0, 0, 0)), "acknowledges 6, durable to 5"),
        (lambda s: s, spoken(AppendEntriesResponse(3, True, 5, 0, 0, 0), 99), "no pending write"),
        (lambda s: s._replace(failed=True), spoken(AppendEntriesResponse(3, True, 5, 0, 0, 0)), "had failed"),
    ],
)
def test_step(before: Callable[[Summary], Summary], effects: Effects, says: str | None) -> None:
    raft = leading()
    check_step(summarize(raft), raft, Tick(0), Effects())
    if says is None:
        check_step(before(summarize(raft)), raft, Tick(0), effects)
        return
    with pytest.raises(AssertionError, match=says):
        check_step(before(summarize(raft)), raft, Tick(0), effects)


def test_leader_may_not_commit_what_too_few_hold_or_what_is_not_of_its_term() -> None:
    raft = leading()
    before = summarize(raft)
    raft.commit_index = 4
    with pytest.raises(AssertionError, match="copies on \\['n1'\\] only"):
        check_step(before, raft, Durable(0, 1), Effects())
    raft.commit_index = 2
    with pytest.raises(AssertionError, match="of another term"):
        check_step(before._replace(commit_index=1, commit_term=1), raft, Durable(0, 1), Effects())


def test_a_violation_tells_the_seed_and_the_events() -> None:
    world = World(seed=42)
    world.elect()
    with pytest.raises(Violation, match=r"seed 42, [\d.]+ ms, step \d+: not within 1000 ms: never") as caught:
        world.run_until(lambda: False, within=SECOND, what="never")
    assert "AppendEntries(" in str(caught.value)


def test_a_storm_of_messages_is_a_violation() -> None:
    world = World(seed=1)
    world.steps_max = 10
    with pytest.raises(Violation, match="more steps than a sound world takes"):
        world.elect()


def test_leader_that_is_deposed_by_a_message_commits_as_the_follower_that_it_is_then() -> None:
    lone = Lone(term=1, log=entries(1, 1))
    lone.become_leader()
    assert lone.append(5, (2, 1), [entry(3, 5)], commit=2) == []
    assert (lone.raft.role, lone.raft.commit_index) == (Role.FOLLOWER, 2)
