"""The contents of a node's snapshot: whole or refused, with the old state as it was (scenarios S33, S55)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import FencepostError, StorageCorrupt, StorageFormatUnknown, UnknownEntry
from fencepost.raft.node import snapshot_format
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.plainlog import PlainLog
from fencepost.raft.node.snapshot_format import decode_snapshot, encode_snapshot
from fencepost.raft.outbox.codec import Command, encode
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.ports import Machine

from ..core.planting import planted


class Embedded:
    """A machine as an embedder writes it: ``restore`` and nothing else."""

    def __init__(self) -> None:
        self.state: list[bytes] = []
        self.refuses = False

    def apply(self, entry: Entry) -> Any:
        self.state.append(entry.data)

    def snapshot(self) -> Iterable[bytes]:
        return list(self.state)

    def restore(self, chunks: Iterable[bytes]) -> None:
        if self.refuses:
            raise ValueError("not mine")
        self.state = list(chunks)


class Node:
    """Two machines and the entries that they have applied."""

    def __init__(self, embedded: Machine | None = None) -> None:
        self.outbox = OutboxMachine()
        self.embedded = Embedded() if embedded is None else embedded
        self.applier = Applier({EntryKind.OUTBOX: self.outbox, EntryKind.EMBEDDED: self.embedded})

    def apply(self, *names: str) -> None:
        for name in names:
            index = self.applier.last_applied + 1
            command = encode(Command(name, "ledger", "credit", "", b"{}"))
            entries = [
                Entry(index, 1, EntryKind.NO_OP, index, b""),
                Entry(index + 1, 1, EntryKind.CONFIGURATION, index, b"voters n1"),
                Entry(index + 2, 1, EntryKind.OUTBOX, index, command),
                Entry(index + 3, 1, EntryKind.EMBEDDED, index, name.encode()),
            ]
            self.applier.apply(entries)

    def restore(self, contents: Iterable[bytes], last_index: int = 0) -> None:
        self.applier.adopt(self.applier.prepare(contents), last_index)

    def state(self) -> Any:
        embedded = self.embedded
        return self.outbox.state_hash(), embedded.state if isinstance(embedded, Embedded) else embedded


@pytest.fixture
def node() -> Node:
    node = Node()
    node.apply("a", "b", "c")
    return node


def cut(contents: bytes, chance: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(contents):
        size = chance.choice([0, 1, 2, 7, 100, 5000])
        yield contents[at : at + size]
        at += size


@pytest.mark.parametrize("seed", range(10))
def test_contents_cut_at_any_place_give_the_same_state(node: Node, seed: int) -> None:
    contents = b"".join(node.applier.capture())
    other = Node()
    other.apply("x")
    other.restore(cut(contents, random.Random(seed)), 12)
    assert other.state() == node.state()
    assert other.applier.last_applied == node.applier.last_applied == 12


def test_s19_it_is_of_the_index_at_which_it_was_taken(node: Node) -> None:
    before, contents = node.state(), node.applier.capture()
    node.apply("d")
    other = Node()
    other.restore(contents, 12)
    assert other.state() == (before[0], [b"a", b"b", b"c"])
    other.apply("d")
    assert other.state() == node.state()


def test_nothing_is_drawn_from_a_machine_before_it_is_asked_for() -> None:
    def chunks() -> Iterator[bytes]:
        raise AssertionError("drawn")
        yield b""

    contents = encode_snapshot([(2, chunks())])
    next(contents)
    with pytest.raises(AssertionError, match="drawn"):
        next(contents)


def test_any_flipped_bit_is_found_and_the_old_state_stays(node: Node) -> None:
    contents = b"".join(node.applier.capture())
    before = node.state()
    for position in range(len(contents)):
        damaged = bytearray(contents)
        damaged[position] ^= 0x10
        with pytest.raises((StorageCorrupt, StorageFormatUnknown)):
            node.restore([bytes(damaged)])
    assert node.state() == before
    assert node.applier.last_applied == 12


def test_any_shortening_and_any_addition_is_found(node: Node) -> None:
    contents = b"".join(node.applier.capture())
    for length in range(len(contents)):
        with pytest.raises(StorageCorrupt):
            node.restore([contents[:length]])
    with pytest.raises(StorageCorrupt, match="after its tail"):
        node.restore([contents, b"\0"])


@pytest.mark.parametrize("order", [[2, 1, 0], [0, 0, 1], [0, 2, 1]])
def test_chunks_in_another_order_or_twice_are_found(order: list[int]) -> None:
    """A machine without a digest of its own is covered all the same."""
    head, *pieces, tail = encode_snapshot([(3, [b"one", b"two", b"three"])])
    mangled = [head, *[pieces[number] for number in order], tail]
    with pytest.raises(StorageCorrupt, match="digest"):
        decode_snapshot(mangled, {3: list})


def test_chunks_of_another_machine_are_found() -> None:
    head, one, two, tail = encode_snapshot([(2, [b"one"]), (3, [b"two"])])
    with pytest.raises(StorageCorrupt):
        decode_snapshot([head, two, one, tail], {2: list, 3: list})
    with pytest.raises(StorageCorrupt, match="more chunks"):
        decode_snapshot([head, one, two, tail], {2: list, 3: lambda chunks: []})


def test_a_machine_without_state_has_no_chunk() -> None:
    assert decode_snapshot(encode_snapshot([(2, []), (3, [b"x"]), (4, [])]), dict.fromkeys((2, 3, 4), list)) == {
        2: [],
        3: [b"x"],
        4: [],
    }


def test_s55_a_newer_version_or_other_machines_are_refused_before_anything_changes(node: Node) -> None:
    contents = b"".join(node.applier.capture())
    before = node.state()
    with pytest.raises(StorageFormatUnknown, match="format 2"):
        node.restore([contents[:9] + b"\x02" + contents[10:]])
    alone = Applier({EntryKind.OUTBOX: OutboxMachine()})
    with pytest.raises(StorageFormatUnknown, match=r"\[2, 3\]"):
        alone.prepare([contents])
    with pytest.raises(StorageFormatUnknown):
        node.applier.prepare(alone.capture())
    assert node.state() == before


def test_one_machine_that_cannot_read_its_part_keeps_the_others_from_changing(node: Node) -> None:
    contents = b"".join(node.applier.capture())
    node.apply("d")
    before = node.state()
    assert isinstance(node.embedded, Embedded)
    node.embedded.refuses = True
    with pytest.raises(ValueError, match="not mine"):
        node.restore([contents])
    assert node.state() == before
    assert node.applier.last_applied == 16


def test_the_plain_log_counts_on() -> None:
    node = Node(PlainLog())
    node.apply("a", "b")
    other = Node(PlainLog())
    other.restore(node.applier.capture(), 8)
    other.apply("c")
    assert isinstance(other.embedded, PlainLog)
    assert other.embedded.entries == 3
    for wrong, error in (
        (b"\x02" + b"\0" * 8, StorageFormatUnknown),
        (b"\x01\0", StorageCorrupt),
        (b"", StorageCorrupt),
    ):
        with pytest.raises(error):
            other.embedded.restore([wrong])
    assert other.embedded.entries == 3
    again = PlainLog()
    again.restore(other.embedded.snapshot())
    assert again.entries == 3


def test_an_entry_of_an_unknown_kind_is_not_applied(node: Node) -> None:
    with pytest.raises(UnknownEntry):
        node.applier.apply([Entry(13, 1, 77, 1, b"")])
    assert node.applier.last_applied == 12


@pytest.mark.parametrize(
    ("function", "line", "fault"),
    [
        (snapshot_format._Chunks.check_tail, "if digest != expected:", "if False:"),
        (snapshot_format._Chunks.check_tail, "if self._source.peek():", "if False:"),
        (snapshot_format.decode_snapshot, "if next(section, None) is not None:", "if False:"),
        (snapshot_format.decode_snapshot, "if sorted(kinds) != sorted(readers):", "if False:"),
        (snapshot_format._read_head, "if version != FORMAT_VERSION:", "if False:"),
        (Applier.capture, "machine.snapshot()", "(chunk for _ in (0,) for chunk in machine.snapshot())"),
        (Applier.adopt, "if not isinstance(machine, PreparingMachine):", "if False:"),
    ],
)
def test_a_planted_fault_is_seen(function: Any, line: str, fault: str) -> None:
    def tests() -> None:
        for test in (
            test_any_flipped_bit_is_found_and_the_old_state_stays,
            test_any_shortening_and_any_addition_is_found,
            test_s55_a_newer_version_or_other_machines_are_refused_before_anything_changes,
            test_one_machine_that_cannot_read_its_part_keeps_the_others_from_changing,
            test_s19_it_is_of_the_index_at_which_it_was_taken,
        ):
            fresh = Node()
            fresh.apply("a", "b", "c")
            test(fresh)
        test_chunks_of_another_machine_are_found()
        test_chunks_in_another_order_or_twice_are_found([2, 1, 0])

    with (
        planted(function, line, fault),
        pytest.raises((AssertionError, pytest.fail.Exception, LookupError, FencepostError)),
    ):
        tests()
