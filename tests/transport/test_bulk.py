"""Snapshots on the way to one peer delay no heartbeat, neither its own nor another's (scenario S36)."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.raft.core.messages import AppendEntries, InstallSnapshot
from fencepost.transport.peer_link import PeerLimits

from .peer_world import LIMITS, Recorder, SocketCluster, until
from .samples import SNAPSHOT
from .world import Proxy

CHUNK_BYTES = 1024 * 1024
CHUNKS = 64
DATA = bytes(CHUNK_BYTES)
BEAT = AppendEntries(1, 0, 0, 0, 0, [])
PATIENT = LIMITS._replace(ping_s=30.0)
"""No ping falls into the test by chance."""


def chunk(number: int) -> InstallSnapshot:
    return InstallSnapshot(1, SNAPSHOT, number * CHUNK_BYTES, DATA, number)


def chunks_of(handler: Recorder) -> int:
    return sum(isinstance(message, InstallSnapshot) for _, message in handler.received)


def under_way_bytes(proxy: Proxy) -> int:
    """What has left the sender and not come to the receiver."""
    return sum(len(data) for _, data in proxy._kept)


def check_delays(handler: Recorder, chunks_when_sent: list[int]) -> int:
    """No heartbeat waited for more than one chunk. Returns how many waited for one.

    ``chunks_when_sent[n]`` is how many chunks had arrived when heartbeat n was sent.
    """
    chunks = behind_one = 0
    for _, message in handler.received:
        if isinstance(message, InstallSnapshot):
            chunks += 1
        else:
            assert isinstance(message, AppendEntries)
            delay = chunks - chunks_when_sent[message.sent_at]
            assert delay <= 1, f"heartbeat {message.sent_at} waited for {delay} chunks"
            behind_one += delay
    return behind_one


@pytest.mark.parametrize("polite", [True, False], ids=["the next after the answer", "as many as there are"])
async def test_no_heartbeat_waits_for_more_than_one_chunk_however_slow_the_reader(polite: bool) -> None:
    """64 MiB to a peer that reads 64 KiB at a time, with a heartbeat to both peers before each."""
    async with SocketCluster(limits=PATIENT) as cluster:
        await cluster.connected()
        n1, slow, other = cluster.transport("n1"), cluster.handlers["n2"], cluster.handlers["n3"]
        proxy = cluster.proxies["n1", "n2"]
        proxy.trickle = 64 * 1024
        chunks_when_sent: list[int] = []
        sent = highest = 0
        while chunks_of(slow) < CHUNKS:
            if sent <= chunks_of(slow) or not polite:
                n1.send("n2", chunk(sent))
                sent += 1
            beat = BEAT._replace(sent_at=len(chunks_when_sent))
            chunks_when_sent.append(chunks_of(slow))
            for peer in ("n2", "n3"):
                n1.send(peer, beat)
            # The healthy peer keeps pace, heartbeat by heartbeat.
            await other.changes.until(lambda: len(other.received) == len(chunks_when_sent))
            highest = max(highest, under_way_bytes(proxy) + n1.links()["n2"].queued_bytes)
            proxy.drip()
        assert check_delays(slow, chunks_when_sent) > CHUNKS, "the reader was not slow"
        # One on its way, one that waits, and what is small.
        assert highest < 2 * CHUNK_BYTES + 256 * 1024
        assert [message.sent_at for _, message in other.received] == list(range(len(chunks_when_sent)))  # type: ignore[union-attr]
        dropped = n1.links()["n2"].dropped
        assert dropped == 0 if polite else dropped > CHUNKS
        assert cluster.handlers["n1"].unreachable_peers == []


async def test_chunks_at_full_speed_delay_no_heartbeat() -> None:
    """64 MiB as fast as it goes, the next chunk on the arrival of the one before."""
    async with SocketCluster(limits=PATIENT) as cluster:
        await cluster.connected()
        n1, receiver = cluster.transport("n1"), cluster.handlers["n2"]
        chunks_when_sent: list[int] = []
        sent = 0
        while chunks_of(receiver) < CHUNKS:
            if sent <= chunks_of(receiver):
                n1.send("n2", chunk(sent))
                sent += 1
            chunks_when_sent.append(chunks_of(receiver))
            n1.send("n2", BEAT._replace(sent_at=len(chunks_when_sent) - 1))
            await asyncio.sleep(0)
        check_delays(receiver, chunks_when_sent)
        assert [m.offset for _, m in receiver.received if isinstance(m, InstallSnapshot)] == [
            number * CHUNK_BYTES for number in range(CHUNKS)
        ]
        assert n1.links()["n2"].dropped == 0


async def test_chunks_to_a_peer_that_does_not_read_are_bounded_and_gone_with_the_link() -> None:
    limits: PeerLimits = PATIENT._replace(write_buffer_bytes=64 * 1024)
    async with SocketCluster(2, limits=limits) as cluster:
        await cluster.connected()
        n1, handler = cluster.transport("n1"), cluster.handlers["n1"]
        proxy = cluster.proxies["n1", "n2"]
        proxy.frozen = True
        proxy.stop_reading()
        for number in range(100):
            n1.send("n2", chunk(number))
            assert n1.links()["n2"].queued_bytes < 2 * CHUNK_BYTES + 256 * 1024
            await asyncio.sleep(0)
        assert n1.links()["n2"].dropped == 98
        assert handler.unreachable_peers == []
        proxy.reset()
        await handler.changes.until(lambda: handler.unreachable_peers == ["n2"])
        assert n1.links()["n2"].dropped == 99
        assert n1.links()["n2"].queued_bytes == 0


async def test_a_chunk_is_kept_no_longer_than_it_takes_to_send_it() -> None:
    """Messages for several peers are kept encoded; a megabyte for one of them is not."""
    async with SocketCluster(2, limits=PATIENT) as cluster:
        await cluster.connected()
        n1, receiver = cluster.transport("n1"), cluster.handlers["n2"]
        n1.send("n2", BEAT)
        n1.send("n2", chunk(0))
        n1.send("n2", BEAT._replace(sent_at=1))
        await until(lambda: len(receiver.received) == 3, "all of it")
        assert len(n1._frame) < 100
