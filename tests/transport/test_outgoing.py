"""The bounded lanes of one peer (scenarios S35, S36)."""

from __future__ import annotations

from fencepost.transport.outgoing import OutgoingLanes, OutgoingQueue


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


# -- two lanes (S36) --------------------------------------------------------------------------------


class FakeWire:
    """Remembers what was written; pings stand as ``ping 1``."""

    def __init__(self) -> None:
        self.full = False
        self.written: list[bytes] = []

    def write(self, frame: bytes) -> None:
        self.written.append(frame)

    def ping(self, number: int) -> None:
        self.written.append(b"ping %d" % number)


def lanes() -> tuple[OutgoingLanes, FakeWire]:
    wire = FakeWire()
    return OutgoingLanes(wire, bytes_max=100, count_max=4), wire


def test_a_part_is_written_at_once_with_a_question_behind_it() -> None:
    out, wire = lanes()
    assert out.send_bulk(b"part1") == 0
    assert wire.written == [b"part1", b"ping 1"]
    assert out.queued_bytes == 0


def test_the_next_part_waits_until_this_one_was_read_and_nothing_urgent_waits_for_it() -> None:
    out, wire = lanes()
    out.ping()
    out.send_bulk(b"part1")
    out.send_bulk(b"part2")
    for number in (0, 1):  # A sign of life, and the answer to a question from before.
        out.ponged(number)
    out.send(b"urgent", heartbeat=False)
    assert wire.written == [b"ping 1", b"part1", b"ping 2", b"urgent"]
    assert out.queued_bytes == len(b"part2")
    out.ponged(2)
    assert wire.written[4:] == [b"part2", b"ping 3"]
    assert out.queued_bytes == 0


def test_the_answer_to_a_later_question_tells_as_much() -> None:
    out, wire = lanes()
    out.send_bulk(b"part1")
    out.send_bulk(b"part2")
    out.ping()
    out.ponged(2)
    assert wire.written == [b"part1", b"ping 1", b"ping 2", b"part2", b"ping 3"]


def test_a_newer_part_takes_the_place_of_one_that_waits() -> None:
    out, wire = lanes()
    out.send_bulk(b"part1")
    assert [out.send_bulk(part) for part in (b"part2", b"part3", b"part4")] == [0, 1, 1]
    assert out.queued_bytes == len(b"part4")
    out.ponged(1)
    assert wire.written == [b"part1", b"ping 1", b"part4", b"ping 2"]


def test_what_is_urgent_goes_before_a_part_when_the_wire_takes_more_again() -> None:
    out, wire = lanes()
    wire.full = True
    out.send_bulk(b"part")
    out.send(b"entries", heartbeat=False)
    out.send(b"beat", heartbeat=True)
    assert wire.written == []
    wire.full = False
    out.drained()
    assert wire.written == [b"entries", b"beat", b"part", b"ping 1"]


def test_a_full_wire_holds_back_a_part_even_when_the_one_before_it_was_read() -> None:
    out, wire = lanes()
    out.send_bulk(b"part1")
    out.send_bulk(b"part2")
    wire.full = True
    out.ponged(1)
    assert wire.written == [b"part1", b"ping 1"]
    wire.full = False
    out.drained()
    assert wire.written == [b"part1", b"ping 1", b"part2", b"ping 2"]


def test_no_room_for_what_is_urgent_costs_no_part_and_no_part_takes_its_room() -> None:
    out, wire = lanes()
    wire.full = True
    out.send_bulk(b"p" * 1000)
    assert out.send(b"x" * 90, heartbeat=False) == 0
    assert out.send(b"x" * 90, heartbeat=False) == 2
    wire.full = False
    out.drained()
    assert wire.written == [b"p" * 1000, b"ping 1"]


def test_clearing_drops_both_lanes() -> None:
    out, wire = lanes()
    wire.full = True
    out.send_bulk(b"part")
    out.send(b"entries", heartbeat=False)
    assert out.clear() == 2
    assert out.queued_bytes == 0
    wire.full = False
    out.drained()
    assert wire.written == []
