"""The network: what each fault of a link does to messages and to connections, and who hears of it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from fencepost.jepsen.sim.bytestream import ByteStream, damaged
from fencepost.jepsen.sim.settings import NetworkSettings
from fencepost.jepsen.sim.violation import Violation
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.entry import Entry
from fencepost.raft.core.errors import FrameInvalid
from fencepost.raft.core.messages import AppendEntries, AppendEntriesResponse, Message, PreVote
from fencepost.raft.core.options import Options
from fencepost.transport.codec import encode_message

from .watching import MILLISECOND, SECOND, Watcher, begun

CALM = NetworkSettings(tail=0.0, encoded=0.0)


def others(world: World, name: str) -> list[str]:
    return [other for other in world.names if other != name]


def test_messages_take_their_time_and_keep_their_order_on_a_link() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM) as world:
        leader = world.elect().name
        follower = others(world, leader)[0]
        watcher.clear()
        world.run_for(2 * SECOND)
        sent = [message for source, to, message in watcher.sent if (source, to) == (leader, follower)]
        assert len(sent) >= 18
        assert watcher.between(leader, follower) in (sent, sent[:-1])


def test_without_order_messages_overtake_one_another() -> None:
    watcher = Watcher()
    wild = NetworkSettings(tail=0.3, tail_ns=200 * MILLISECOND, tail_max_ns=SECOND, ordered=False)
    with begun(observers=[watcher]) as world:
        leader = world.elect().name
        follower = others(world, leader)[0]
        world.network.set(wild)
        watcher.clear()
        world.run_for(5 * SECOND)
        came = [m.sent_at for m in watcher.between(leader, follower) if isinstance(m, AppendEntries)]
        assert came != sorted(came)
        world.network.set(wild._replace(ordered=True))
        world.run_for(2 * SECOND)
        # Another may have been elected meanwhile.
        leader = world.elect().name
        follower = others(world, leader)[0]
        watcher.clear()
        world.run_for(5 * SECOND)
        came = [m.sent_at for m in watcher.between(leader, follower) if isinstance(m, AppendEntries)]
        assert len(came) > 10
        assert came == sorted(came)


def test_a_cut_is_of_one_direction_loses_what_is_on_its_way_and_is_found_out_by_pings() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM) as world:
        leader = world.elect().name
        follower = others(world, leader)[0]
        world.network.cut(leader, follower)
        watcher.clear()
        world.run_for(1900 * MILLISECOND)
        assert watcher.between(leader, follower) == []
        assert watcher.between(follower, leader), "the other direction works"
        assert watcher.unreachable == []
        world.run_for(700 * MILLISECOND)
        assert (leader, follower) in watcher.unreachable
        assert (follower, leader) in watcher.unreachable, "its pongs do not arrive"
        assert not world.network.link(leader, follower).up
        world.network.mend(leader, follower)
        world.run_for(2500 * MILLISECOND)
        assert world.network.link(leader, follower).up
        assert watcher.between(leader, follower) or watcher.between(follower, leader)


def test_a_half_open_link_delivers_nothing_and_tells_nobody() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM, options=Options(check_quorum=False)) as world:
        leader = world.elect().name
        follower = others(world, leader)[0]
        term = world.node(leader).raft.current_term
        world.network.half_open(leader, follower)
        watcher.clear()
        world.run_for(10 * SECOND)
        assert [m for m in watcher.between(leader, follower) if isinstance(m, AppendEntries) and m.term == term] == []
        assert watcher.unreachable == []
        assert world.network.link(leader, follower).up
        world.network.mend(leader, follower)
        watcher.clear()
        world.run_for(5 * SECOND)
        pairs = {(source, to) for source, to, _ in watcher.delivered}
        assert (leader, follower) in pairs or (follower, leader) in pairs


def test_a_broken_link_loses_what_is_on_it_tells_its_sender_at_once_and_is_dialled_again() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM) as world:
        leader = world.elect()
        follower = others(world, leader.name)[0]
        watcher.clear()
        world.run_until(lambda: (leader.name, follower) in [each[:2] for each in watcher.sent])
        world.network.break_link(leader.name, follower)
        world.run_for(1)
        assert watcher.unreachable == [(leader.name, follower)]
        assert not world.network.link(leader.name, follower).up
        world.run_for(10 * MILLISECOND)
        assert watcher.between(leader.name, follower) == [], "what was on its way is lost"
        world.run_for(SECOND)
        assert world.network.link(leader.name, follower).up
        assert watcher.between(leader.name, follower)


def test_a_partition_lets_groups_talk_among_themselves_and_a_bridge_with_both() -> None:
    watcher = Watcher()
    with begun(nodes=5, observers=[watcher], network=CALM) as world:
        world.network.partition(["n1", "n2", "n3"], ["n3", "n4", "n5"])
        world.run_for(50 * MILLISECOND)
        watcher.clear()
        world.run_for(20 * SECOND)
        pairs = Counter((source, to) for source, to, _ in watcher.delivered)
        assert all(not pairs[one, other] for one in ("n1", "n2") for other in ("n4", "n5"))
        assert sum(pairs["n3", other] + pairs[other, "n3"] for other in ("n1", "n2"))
        assert sum(pairs["n3", other] + pairs[other, "n3"] for other in ("n4", "n5"))
        world.network.heal()
        world.run_for(5 * SECOND)
        assert all(link.up for link in world.network.links.values())


def test_a_partition_holds_before_anybody_has_started_and_for_new_nodes_by_name() -> None:
    with World(3, 3) as world:
        world.network.partition(["n1"], ["n2", "n3"])
        world.start_all()
        assert world.elect().name in ("n2", "n3")
        world.run_for(10 * SECOND)
        assert world.node("n1").raft.leader == ""


def test_a_node_that_comes_back_is_dialled_at_once_by_those_who_hear_from_it() -> None:
    with begun(network=CALM) as world:
        name = others(world, world.elect().name)[0]
        world.kill(name)
        world.run_for(20 * SECOND)  # By now the others wait a second between two tries.
        world.start(name)
        world.run_until(lambda: world.hosts[name].node is not None)
        world.run_for(10 * MILLISECOND)
        assert all(link.up for link in world.network.links.values())


def test_lost_and_doubled_messages_are_as_many_as_asked_for() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM._replace(loss=0.2)) as world:
        watcher.clear()
        world.run_for(30 * SECOND)
        assert len(watcher.delivered) / len(watcher.sent) == pytest.approx(0.8, abs=0.05)
        world.network.set(CALM._replace(duplication=0.3))
        world.run_for(SECOND)
        watcher.clear()
        world.run_for(30 * SECOND)
        assert len(watcher.delivered) / len(watcher.sent) == pytest.approx(1.3, abs=0.05)


def test_a_stale_copy_arrives_long_after_at_the_process_that_runs_then() -> None:
    watcher = Watcher()
    stale = CALM._replace(stale=0.05, stale_min_ns=60 * SECOND, stale_max_ns=120 * SECOND)
    with begun(observers=[watcher], network=stale) as world:
        world.run_for(10 * SECOND)
        world.network.set(CALM)
        for name in world.names:
            world.kill(name)
            world.start(name)
        world.run_for(45 * SECOND)
        kept, before = world.network.counts["kept"], world.network.counts["stale"]
        assert kept > 5
        assert before == 0
        watcher.clear()
        world.run_for(100 * SECOND)
        assert world.network.counts["stale"] == kept
        old = [
            m for _, _, m in watcher.delivered if isinstance(m, AppendEntries | AppendEntriesResponse) and m.term == 1
        ]
        assert len(old) > 0


def test_damaged_bytes_are_refused_the_connection_breaks_and_the_cluster_goes_on() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM._replace(corruption=0.02)) as world:
        world.run_for(60 * SECOND)
        counts = world.network.counts
        assert counts["damaged"] >= 10
        assert counts["refused"] >= counts["damaged"] // 2, "others end by pings: the stream waits for more bytes"
        assert len(watcher.unreachable) >= counts["refused"]
        world.network.set(CALM)
        world.run_for(5 * SECOND)
        assert all(link.up and link.stream is None for link in world.network.links.values())


MESSAGES: list[Message] = [
    AppendEntries(3, 7, 2, 6, 123, [Entry(8, 3, 2, 99, b"payload" * 20), Entry(9, 3, 3, 100, b"")]),
    AppendEntriesResponse(3, True, 9, 0, 0, 123),
    PreVote(4, 9, 3, 77),
]


def test_no_damage_ever_makes_another_message() -> None:
    ends: Counter[str] = Counter()
    for seed in range(600):
        chance, stream = Random(seed), ByteStream()
        message = MESSAGES[seed % 3]
        read: list[object] = []
        try:
            read += stream.feed(encode_message(MESSAGES[0]), MESSAGES[0])
            read += stream.feed(damaged(encode_message(message), chance), None)
            for _ in range(3):
                read += stream.feed(encode_message(message), message)
            ends["read on"] += 1
        except FrameInvalid:
            ends["refused"] += 1
            assert read[:1] == [MESSAGES[0]]
            assert all(each == message for each in read[1:])
    assert ends["refused"] > 500


def test_a_stream_that_lets_a_wrong_message_through_fails_the_run() -> None:
    with pytest.raises(Violation, match="damage made a message"):
        ByteStream().feed(encode_message(MESSAGES[1]), MESSAGES[0])


def test_a_share_of_all_messages_passes_through_the_real_codec() -> None:
    with begun(network=CALM._replace(encoded=0.2)) as world:
        client = world.client()
        job = client.submit("a", payload=b'{"x":1}')
        world.run_until(lambda: job.done)
        world.run_for(5 * SECOND)
        assert world.network.counts["encoded"] > 20


def test_a_node_with_a_wiped_disk_is_let_in_by_nobody() -> None:
    """S21: its name is known with another instance; what it had promised is forgotten, so it may not vote."""
    with begun() as world:
        name = others(world, world.elect().name)[0]
        world.kill(name)
        world.hosts[name].disk.wipe()
        world.start(name)
        world.run_for(10 * SECOND)
        assert world.node(name).raft.leader == ""
        assert "instance" in world.network.link(name, world.elect().name).cause
        assert not any(link.up for link in world.network.links.values() if name in (link.source, link.to))
