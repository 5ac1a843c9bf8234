"""An embedder's machine behind its entries: recognised, applied, remembered, forgotten, saved."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from fencepost import ConfigurationError, Retention
from fencepost.cli.embedding.codec import MsgpackCodec, checked, codecs_of
from fencepost.cli.embedding.dedupe import Ids, Remembered
from fencepost.cli.embedding.envelope import Envelope, Status, Verdict, decode_verdict, encode_envelope
from fencepost.cli.embedding.machine import RESULT_BYTES_MAX, EmbeddedMachine
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import CommandInvalid, StorageCorrupt, StorageFormatUnknown, UnknownEntry
from fencepost.raft.node.applier import Discardable, PreparingMachine
from fencepost.raft.node.plainlog import PlainLog

from .support import Add, Counters

S = 1_000_000_000
COMMANDS = MsgpackCodec[Any](Add)


def embedded(machine: Any = None) -> EmbeddedMachine[Any, Any]:
    machine = Counters() if machine is None else machine
    return EmbeddedMachine(machine, *codecs_of(machine))


def proposal(name: str, by: int = 1, id: str = "", retention: Retention = Retention()) -> bytes:  # noqa: B008 - a value
    return encode_envelope(Envelope(id, retention if id else None, COMMANDS.encode(Add(name, by))))


def entry(index: int, data: bytes, time_ns: int = 0) -> Entry:
    return Entry(index, 3, EntryKind.EMBEDDED, time_ns or index * S, data)


def say(machine: EmbeddedMachine[Any, Any], index: int, data: bytes, time_ns: int = 0) -> Verdict:
    return decode_verdict(machine.apply(entry(index, data, time_ns)))


def test_a_command_under_one_id_is_applied_once_and_gives_its_first_result() -> None:
    counters = Counters()
    machine = embedded(counters)
    first = say(machine, 1, proposal("a", 5, "x"))
    say(machine, 2, proposal("a", 1))
    again = say(machine, 3, proposal("a", 5, "x"))
    assert (first.status, first.index, first.replayed) == (Status.APPLIED, 1, False)
    assert (again.status, again.index, again.replayed, again.result) == (Status.APPLIED, 1, True, first.result)
    other = say(machine, 4, proposal("a", 6, "x"))
    assert other.status == Status.REUSED
    assert "at index 1" in other.detail
    assert counters.applied == [1, 2]


def test_without_an_id_nothing_is_recognised() -> None:
    counters = Counters()
    machine = embedded(counters)
    say(machine, 1, proposal("a"))
    say(machine, 2, proposal("a"))
    assert counters.values == {"a": 2}
    assert len(machine.ids) == 0


@pytest.mark.parametrize(
    ("retention", "left"),
    [
        (Retention(ids=3), ["7", "8", "9"]),
        (Retention(result_bytes=2), ["8", "9"]),  # Each result has one byte.
        (Retention(seconds=1), ["8", "9"]),
        (Retention(ids=1, result_bytes=1, seconds=1), ["9"]),
    ],
)
def test_ids_are_forgotten_by_number_by_size_and_by_time(retention: Retention, left: list[str]) -> None:
    machine = embedded()
    for number in range(1, 10):
        say(machine, number, proposal("a", 1, str(number), retention))
    assert [record.operation_id for record in machine.ids.records()] == left
    assert machine.ids.forgotten_ns == (int(left[0]) - 1) * S


def test_what_goes_with_the_proposal_decides_and_not_the_node() -> None:
    machine = embedded()
    for number in range(1, 5):
        say(machine, number, proposal("a", 1, str(number)))
    say(machine, 5, proposal("a", 1, "5", Retention(ids=2)))
    assert len(machine.ids) == 2


def seven(milliseconds: int) -> str:
    return str(uuid.UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62 | 1))


def test_an_id_that_tells_its_time_is_refused_once_it_may_have_been_forgotten() -> None:
    counters = Counters()
    machine = embedded(counters)
    one = Retention(ids=1)
    say(machine, 1, proposal("a", 1, seven(1000), one))
    say(machine, 2, proposal("a", 1, seven(2000), one))
    expired = say(machine, 3, proposal("a", 1, seven(1000), one))
    assert expired.status == Status.EXPIRED
    assert counters.values == {"a": 2}
    # Others cannot be told from new ones, and one that is newer than all that was forgotten is new.
    assert say(machine, 4, proposal("a", 1, "order-1", one)).status == Status.APPLIED
    assert say(machine, 5, proposal("a", 1, seven(9000), one)).status == Status.APPLIED
    fourth = str(uuid.UUID(int=1000 << 80 | 4 << 76 | 2 << 62 | 1))
    assert say(machine, 6, proposal("a", 1, fourth, one)).status == Status.APPLIED


def test_an_id_of_a_clock_that_is_ahead_is_refused_once_it_was_forgotten_and_holds_up_nobody_for_long() -> None:
    counters = Counters()
    machine = embedded(counters)
    one = Retention(ids=1)
    say(machine, 1, proposal("a", 1, seven(5000), one))
    say(machine, 2, proposal("b", 1, seven(2000), one))
    assert say(machine, 3, proposal("a", 1, seven(5000), one)).status == Status.EXPIRED
    years = 100 * 365 * 86_400_000
    say(machine, 6, proposal("c", 1, seven(years), one))
    say(machine, 7, proposal("d", 1, "order-1", one))
    assert say(machine, 8, proposal("e", 1, seven(70_000), one)).status == Status.APPLIED
    assert counters.values == {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}


def test_what_is_no_proposal_is_refused_and_what_is_of_another_version_stops_the_node() -> None:
    counters = Counters()
    machine = embedded(counters)
    for junk in (b"", b"\x00", b"junk", proposal("a")[:5]):
        assert say(machine, 1, junk).status == Status.INVALID
    with pytest.raises(UnknownEntry, match="format 2"):
        machine.apply(entry(1, b"fpe\x02" + proposal("a")[4:]))
    assert counters.applied == []


def test_what_the_machine_or_its_codec_raises_stops_the_node_and_says_where() -> None:
    machine = embedded()
    with pytest.raises(RuntimeError, match="cannot take it") as raised:
        machine.apply(entry(7, proposal("poison", 1, "x")))
    assert raised.value.__notes__ == ["while entry 7 of term 3 was applied; the node stops before it"]
    with pytest.raises(Exception, match="Expected"):
        machine.apply(entry(8, encode_envelope(Envelope("", None, b"\x01"))))
    assert len(machine.ids) == 0


class Odd(Counters):
    """Gives back what cannot be given out."""

    def apply(self, index: int, term: int, command: Add) -> Any:
        super().apply(index, term, command)
        return object() if command.name == "object" else "x" * (RESULT_BYTES_MAX + 1)


@pytest.mark.parametrize(("name", "why"), [("object", "encoded"), ("long", "bytes")])
def test_a_result_that_cannot_be_given_out_does_not_undo_the_command(name: str, why: str) -> None:
    odd = Odd()
    machine = embedded(odd)
    first, again = (say(machine, index, proposal(name, 1, "x")) for index in (1, 2))
    assert first.status == again.status == Status.RESULT_LOST
    assert why in first.detail
    assert again.replayed
    assert odd.values == {name: 1}


# -- snapshots --------------------------------------------------------------------------------------


def test_a_snapshot_is_of_one_moment_and_carries_the_ids() -> None:
    counters = Counters()
    machine = embedded(counters)
    for number in range(1, 2501):  # More than two parts of ids.
        say(machine, number, proposal("a", 1, f"id-{number}"))
    captured = machine.snapshot()
    say(machine, 2501, proposal("a", 1, "later"))
    chunks = list(captured)
    restored_counters = Counters()
    restored = embedded(restored_counters)
    say(restored, 1, proposal("old", 1, "old"))
    restored.restore(chunks)
    assert restored_counters.values == {"a": 2500}
    assert restored.ids.find("old") is None
    assert restored.ids.find("later") is None
    assert say(restored, 2501, proposal("a", 1, "id-1")).replayed
    assert say(restored, 2502, proposal("a", 2, "id-2")).status == Status.REUSED
    assert restored.applied == 2500
    # The same from here on: nodes compare this.
    again = embedded()
    again.restore(chunks)
    say(again, 2501, proposal("a", 1, "id-1"))
    say(again, 2502, proposal("a", 2, "id-2"))
    assert again.state_digest() == restored.state_digest()
    assert list(again.snapshot()) == list(restored.snapshot())


class Lazy(Counters):
    def snapshot(self) -> Iterator[bytes]:
        yield json.dumps(self.values).encode()


def test_a_generator_function_is_drawn_before_the_state_changes() -> None:
    machine = embedded(Lazy())
    say(machine, 1, proposal("a"))
    captured = machine.snapshot()
    say(machine, 2, proposal("a"))
    restored = Counters()
    embedded(restored).restore(list(captured))
    assert restored.values == {"a": 1}


class Refusing(Counters):
    def restore(self, chunks: Iterable[bytes]) -> None:
        raise RuntimeError("not this one")


def test_a_snapshot_that_cannot_be_read_leaves_everything_as_it_was() -> None:
    source = embedded()
    say(source, 1, proposal("a", 1, "x"))
    chunks = list(source.snapshot())
    machine = embedded(Refusing())
    say(machine, 1, proposal("b", 1, "y"))
    for damaged, error in (
        (chunks, RuntimeError),
        ([b"fpm\x02" + chunks[0][4:], *chunks[1:]], StorageFormatUnknown),
        ([chunks[0][:-1], *chunks[1:]], StorageCorrupt),
        ([chunks[0]], StorageCorrupt),
    ):
        with pytest.raises(error):
            machine.restore(damaged)
    assert machine.ids.find("y") is not None
    assert machine.ids.find("x") is None


class Large(Counters):
    """Reads a snapshot before it is to be taken over."""

    def prepare(self, chunks: Iterable[bytes]) -> dict[str, int]:
        return dict(json.loads(b"".join(chunks)))

    def adopt(self, prepared: dict[str, int]) -> None:
        self.values = prepared

    def restore(self, chunks: Iterable[bytes]) -> None:
        raise AssertionError("it can be prepared")


@pytest.mark.parametrize("kind", [Counters, Large])
def test_a_snapshot_is_read_before_it_is_taken_over(kind: type[Counters]) -> None:
    source = embedded()
    say(source, 1, proposal("a", 5, "x"))
    chunks = list(source.snapshot())
    counters = kind()
    machine = embedded(counters)
    say(machine, 1, proposal("b", 1, "y"))
    prepared = machine.prepare(iter(chunks))
    assert counters.values == {"b": 1}
    assert machine.ids.find("y") is not None
    machine.adopt(prepared)
    assert counters.values == {"a": 5}
    assert machine.ids.find("x") is not None
    assert prepared.ids.find("y") is not None, "to be freed elsewhere"
    prepared.discard()
    assert machine.ids.find("x") is not None
    # This is how a node does it.
    assert isinstance(machine, PreparingMachine)
    assert isinstance(prepared, Discardable)


def test_a_node_that_had_no_machine_may_be_given_one_if_nothing_was_proposed() -> None:
    machine = embedded()
    plain = PlainLog()
    machine.restore(list(plain.snapshot()))
    plain.apply(entry(1, b"x"))
    with pytest.raises(StorageFormatUnknown, match="no state machine"):
        machine.restore(list(plain.snapshot()))


class Compared(Counters):
    def state_digest(self) -> bytes:
        return bytes([sum(self.values.values())])


def test_a_machine_that_can_be_compared_is() -> None:
    left, right = embedded(Compared()), embedded(Compared())
    say(left, 1, proposal("a", 1))
    say(right, 1, proposal("a", 2))
    assert left.state_digest() != right.state_digest()


# -- codecs -----------------------------------------------------------------------------------------


class Unannotated:
    def apply(self, index, term, command):  # type: ignore[no-untyped-def]
        return command

    def snapshot(self) -> Iterable[bytes]:
        return []

    def restore(self, chunks: Iterable[bytes]) -> None: ...


def test_types_come_from_the_annotations_of_apply() -> None:
    commands, results = codecs_of(Counters())
    assert commands.decode(commands.encode(Add("a", 1))) == Add("a", 1)
    with pytest.raises(CommandInvalid, match="does not fit"):
        checked(commands, {"name": "a", "by": "one"}, "command")
    with pytest.raises(CommandInvalid, match="does not fit"):
        checked(commands, object(), "command")
    assert results.decode(results.encode(5)) == 5
    commands, _ = codecs_of(Unannotated())
    assert commands.decode(commands.encode({"b": [1, None]})) == {"b": [1, None]}
    assert commands.encode({"a": 1, "b": 2}) == commands.encode({"b": 2, "a": 1})


def test_annotations_that_nobody_can_read_are_refused_rather_than_guessed() -> None:
    class Here:
        pass

    class Local(Counters):
        def apply(self, index: int, term: int, command: Here) -> int:  # type: ignore[override]
            return 0

    with pytest.raises(ConfigurationError, match=r"Local\.apply cannot be read"):
        codecs_of(Local())


def test_ids_count_only_what_they_hold() -> None:
    ids = Ids([Remembered("a", b"", 1, 1, 1, 0, b"xx", ""), Remembered("b", b"", 2, 1, 2, 0, b"x", "")])
    ids.remember(Remembered("c", b"", 3, 1, 3, 0, b"", ""), Retention(result_bytes=1))
    assert [record.operation_id for record in ids.records()] == ["b", "c"]
