"""The properties of what is said, of authority and of the lease: each fires on a history that breaks it."""

from __future__ import annotations

import pytest

from fencepost.jepsen.invariants import DiskFate
from fencepost.jepsen.invariants.authority import Authority
from fencepost.jepsen.invariants.durable_before_said import DurableBeforeSaid
from fencepost.jepsen.invariants.lease import Lease
from fencepost.raft.core.entry import Snapshot
from fencepost.raft.core.events import Campaign, Effects
from fencepost.raft.core.messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    PreVote,
    RequestVote,
    RequestVoteResponse,
    TimeoutNow,
)

from .scene import SECOND, Scene, scene

# -- messages -------------------------------------------------------------------------------------------


def says_too_much(it: Scene, what: str) -> Message:
    end, configuration = it.ledger.last_index, it.leader.raft.configuration
    snapshot = Snapshot(5, 1, 0, configuration, 0)
    messages: dict[str, Message] = {
        "heartbeat": AppendEntries(2, end, 1, end, 0, []),
        "pre-vote": PreVote(3, end, 1, 1),
        "request": RequestVote(1, end, 1, False),
        "grant": RequestVoteResponse(1, True, ""),
        "later term": RequestVoteResponse(2, False, "stale-term"),
        "answer": AppendEntriesResponse(1, True, end + 1, 0, 0, 0),
        "installed": InstallSnapshotResponse(1, end + 1, 5, True, 0),
        "snapshot": InstallSnapshot(1, snapshot, 0, b"", 0),
    }
    return messages[what]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("heartbeat", "speaks to n9 for term 2 with HardState"),
        ("pre-vote", "speaks to n9 for term 2 with HardState"),
        ("later term", "speaks to n9 for term 2 with HardState"),
        ("request", "asks n9 for a vote in term 1"),
        ("grant", "grants n9 its vote in term 1"),
        ("answer", "acknowledges index .* to n9, leader of term 1"),
        ("installed", "acknowledges index .* to n9, leader of term 1"),
        ("snapshot", "sends n9 a snapshot of 5; its disk has None"),
    ],
)
def test_durable_before_said(what: str, says: str) -> None:
    with scene() as it, it.breaks(DurableBeforeSaid, f"{it.follower} {says}"):
        it.properties.on_sent(it.follower.name, "n9", says_too_much(it, what))


def test_durable_before_said_compares_with_the_log_of_the_leader_of_that_term() -> None:
    with scene() as it:
        end = it.ledger.last_index
        answer = AppendEntriesResponse(1, True, end, 0, 0, 0)
        it.properties.on_sent(it.follower.name, it.leader.name, answer)
        it.follower.vouched_term = 0
        it.follower.disk.entries[-1] = it.follower.disk.entries[-1]._replace(term=0)
        with it.breaks(DurableBeforeSaid, f"acknowledges index {end} .*is of term 1.*has term 0 there"):
            it.properties.on_sent(it.follower.name, it.leader.name, answer)


def test_authority() -> None:
    with scene() as it:
        name, end = it.leader.name, it.ledger.last_index
        timeout = it.world.options.election_timeout
        it.world.network.isolate(name)
        it.world.run_for(timeout // 2)
        heartbeat = AppendEntries(1, end, 1, end, it.leader.raft.now, [])
        it.properties.on_sent(name, it.follower.name, heartbeat)
        late = heartbeat._replace(sent_at=max(it.leader.contacts[node.name] for node in it.followers) + timeout)
        with it.breaks(Authority, f"{it.leader}, leader of term 1, sends AppendEntries to {it.follower.name}"):
            it.properties.on_sent(name, it.follower.name, late)
        with it.breaks(Authority, "sends InstallSnapshot"):
            snapshot = Snapshot(1, 1, 0, it.leader.raft.configuration, 0)
            it.of(Authority).said(it.leader, "n9", InstallSnapshot(1, snapshot, 0, b"", late.sent_at))


# -- the lease ------------------------------------------------------------------------------------------


def test_lease() -> None:
    with scene() as it:
        own, newer = it.of(Lease), it.ledger.leaderships[1]._replace(term=2, name=it.follower.name)
        it.world.run_for(3 * SECOND)
        with it.breaks(Lease, f"{it.follower} begins to lead term 2 while {it.leader} holds the lease of term 1"):
            own.elected(it.follower, newer)


@pytest.mark.parametrize("what", ["restart", "campaign", "transfer", "lost disk", "isolated"])
def test_lease_is_not_promised_where_somebody_forgets_his_own_promise(what: str) -> None:
    with scene() as it:
        own, newer = it.of(Lease), it.ledger.leaderships[1]._replace(term=2, name=it.follower.name)
        it.world.run_for(3 * SECOND)
        match what:
            case "restart":
                own.started(it.followers[1])
            case "campaign":
                own.special(it.follower, it.before(), Campaign(0), Effects())
            case "transfer":
                it.properties.on_sent(it.leader.name, it.follower.name, TimeoutNow(1))
            case "lost disk":
                own.disk_changed(it.follower, DiskFate.LOST)
            case "isolated":
                it.world.network.isolate(it.leader.name)
                it.world.run_for(it.world.options.election_timeout)
        own.elected(it.follower, newer)
