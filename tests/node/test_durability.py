"""Nothing leaves a node before the write it depends on is durable (S05, S13).

The core says which write a message waits for; that the node's loop does wait is shown here, on every
message of every node, against what that node's disk would give back after a crash.
"""

from __future__ import annotations

from fencepost.raft.core.messages import (
    AppendEntriesResponse,
    Message,
    PreVote,
    RequestVote,
    RequestVoteResponse,
)
from fencepost.raft.ports import AnswerStatus, Wait

from .world import World


class Witness:
    """Stands in for the network: looks at the sender's disk before it carries a message."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._carry = world.carry
        self.seen: dict[type[Message], int] = {}
        world.carry = self.carry  # type: ignore[method-assign]

    def carry(self, source: str, to: str, message: Message) -> None:
        disk = self._world.disks[source]
        saved = disk.hard_state
        term = message.term - 1 if isinstance(message, PreVote) else message.term
        assert term <= saved.term, f"{source} speaks of term {term}, its disk knows {saved}: {message}"
        if isinstance(message, RequestVote) and message.term == saved.term:
            assert saved.voted_for == source, f"{source} campaigns, its disk says {saved}"
        if isinstance(message, RequestVoteResponse) and message.granted and message.term == saved.term:
            assert saved.voted_for == to, f"{source} votes for {to}, its disk says {saved}"
        if isinstance(message, AppendEntriesResponse) and message.success and message.term == saved.term:
            assert message.match_index <= disk.last_index, (
                f"{source} acknowledges {message.match_index}, its disk ends at {disk.last_index}"
            )
        self.seen[type(message)] = self.seen.get(type(message), 0) + 1
        self._carry(source, to, message)


def test_s05_s13_every_message_is_covered_by_its_senders_disk() -> None:
    with World(seed=31) as world:
        witness = Witness(world)
        for round_number in range(4):
            leader = world.active_leader()
            world.done(leader, *[f"{round_number}-{number}" for number in range(20)])
            world.crash(leader.name)
            world.active_leader(other_than=leader.name)
            world.start(leader.name)
        world.settle()
        world.check_equal()
        assert set(witness.seen) >= {PreVote, RequestVote, RequestVoteResponse, AppendEntriesResponse}


def test_s13_a_follower_whose_disk_hangs_acknowledges_nothing_until_it_goes_on() -> None:
    """With the third node away, what the leader may call committed hangs on this one disk."""
    with World(seed=32) as world:
        Witness(world)
        leader = world.active_leader()
        world.settle()
        slow, away = (node for node in world.up() if node is not leader)
        world.isolate(away.name)
        slow.log_store.stick()
        (request,) = world.submit(leader, "a", wait=Wait.COMMITTED)
        world.advance(0.1)
        assert request not in world.connection.answers
        slow.log_store.unstick()
        assert world.answer(request).status == AnswerStatus.DONE
