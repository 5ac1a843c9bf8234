"""The bounded queue of one peer (scenario S35)."""

from __future__ import annotations

from fencepost.transport.outgoing import OutgoingQueue


def queue() -> OutgoingQueue:
    return OutgoingQueue(bytes_max=100, count_max=4)


def test_order_is_kept() -> None:
    q = queue()
    for frame in (b"a", b"b", b"c"):
        assert q.add(frame, heartbeat=False) == 0
    assert q.take() == [b"a", b"b", b"c"]
    assert len(q) == q.queued_bytes == 0


def test_the_newest_heartbeat_wins() -> None:
    q = queue()
    for number in range(1000):
        assert q.add(b"beat%d" % number, heartbeat=True) == 0
    assert q.queued_bytes == len(b"beat999")
    assert q.take() == [b"beat999"]


def test_a_heartbeat_does_not_overtake_entries() -> None:
    q = queue()
    q.add(b"beat1", heartbeat=True)
    q.add(b"entries", heartbeat=False)
    q.add(b"beat2", heartbeat=True)
    q.add(b"beat3", heartbeat=True)
    assert q.take() == [b"beat1", b"entries", b"beat3"]


def test_too_many_bytes_drop_everything() -> None:
    q = queue()
    q.add(b"x" * 60, heartbeat=False)
    assert q.add(b"y" * 41, heartbeat=False) == 2
    assert len(q) == q.queued_bytes == 0
    assert q.add(b"z" * 60, heartbeat=False) == 0


def test_too_many_frames_drop_everything() -> None:
    q = queue()
    for _ in range(4):
        assert q.add(b"x", heartbeat=False) == 0
    assert q.add(b"x", heartbeat=False) == 5


def test_one_frame_larger_than_the_queue_fits_alone() -> None:
    q = queue()
    assert q.add(b"x" * 1000, heartbeat=False) == 0
    assert q.take() == [b"x" * 1000]


def test_after_a_drop_a_heartbeat_is_not_taken_for_the_one_before_it() -> None:
    q = queue()
    q.add(b"beat1", heartbeat=True)
    q.clear()
    assert q.add(b"beat2", heartbeat=True) == 0
    assert q.take() == [b"beat2"]
