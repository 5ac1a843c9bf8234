"""Files of histories: what is read, as what, and what is refused, by file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fencepost.jepsen.checkers import (
    ApplyValue,
    CasValue,
    Operation,
    Status,
    Verdict,
    check,
    parse_history,
    read_history,
)
from fencepost.jepsen.checkers.history_file import PROBLEMS_SHOWN
from fencepost.raft.core.errors import HistoryInvalid, Outcome
from fencepost.raft.core.token import FencingToken

READ: dict[str, Any] = {"process": 0, "op": "read", "key": "x", "out": None, "invoke": 1, "return": 2}


def row(**fields: Any) -> dict[str, Any]:
    """A good read with these fields changed; ... takes one out."""
    found = {**READ, **{name.rstrip("_"): value for name, value in fields.items()}}
    return {name: value for name, value in found.items() if value is not ...}


def raw(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in rows)


def parsed(*rows: dict[str, Any]) -> list[Operation]:
    return parse_history(raw(*rows), "h.jsonl").operations


def model_of(*rows: dict[str, Any]) -> str:
    return parse_history(raw(*rows), "h.jsonl").model.name


# -- what is read --------------------------------------------------------------------------------------


CAS = {"op": "cas", "from": 1, "to": 2}
APPLIED = {"op": "apply", "token": 5, "idem": "c", "out": "stale"}
TOKEN = {"incarnation": "1", "term": "7"}


def operation(op: str, value: object = None, out: object = None, **changed: Any) -> Operation:
    return Operation(0, op, "x", value, out, 1, 2)._replace(**changed)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, operation("read")),
        ({"value": None, "status": "ok"}, operation("read")),
        ({"process": "c1", "key": 7, "out": [1]}, operation("read", None, [1], process="c1", key=7)),
        ({"comment": {"any": "thing"}}, operation("read")),
        ({"op": "write", "value": 3, "out": ...}, operation("write", 3)),
        ({"op": "write", "value": None}, operation("write")),
        ({**CAS, "out": True}, operation("cas", CasValue(1, 2), True)),
        ({"op": "cas", "value": {"from": 1, "to": 2}, "out": False}, operation("cas", CasValue(1, 2), False)),
        (APPLIED, operation("apply", ApplyValue(5, "c"), "stale")),
        ({**APPLIED, "token": TOKEN}, operation("apply", ApplyValue(FencingToken(1, 7), "c"), "stale")),
        (
            {"op": "apply", "value": {"token": 5, "idem": 3}, "out": ..., "status": "info", "return": None},
            operation("apply", ApplyValue(5, 3), return_=None, status=Status.INFO),
        ),
        ({"op": "append", "value": 1}, operation("append", 1)),
        ({"op": "sappend", "value": "a", "out": "b"}, operation("sappend", "a")),
        ({"status": "info", "return": ..., "out": ...}, operation("read", return_=None, status=Status.INFO)),
        ({"status": "info", "return": -7, "out": 3}, operation("read", return_=-7, status=Status.INFO)),
        ({"status": "fail", "return": None, "out": ...}, operation("read", return_=None, status=Status.FAIL)),
        ({"status": "done", "position": 4}, operation("read", status=Status.DONE, position=4)),
        ({"position": None}, operation("read")),
        ({"invoke": -5, "return": 10**30}, operation("read", invoke=-5, return_=10**30)),
        ({"out": "\U0001f600"}, operation("read", None, "\U0001f600")),
    ],
    ids=str,
)
def test_a_line(fields: dict[str, Any], expected: Operation) -> None:
    assert parsed(row(**fields)) == [expected]


def test_lines_are_numbered_as_they_stand() -> None:
    text = b"\xef\xbb\xbf" + raw(READ) + b"\n  \r\n" + raw(row(invoke=3, return_=4)).replace(b"\n", b"\r\n") + b"\n"
    history = parse_history(text, "h.jsonl")
    assert history.numbers == [1, 4]
    assert [operation.invoke for operation in history.operations] == [1, 3]


def test_no_line_at_all_is_a_history() -> None:
    for text in (b"", b"\n\n"):
        history = parse_history(text, "h.jsonl")
        assert history.operations == []
        assert check(history.operations, history.model).verdict is Verdict.OK


def test_a_last_line_without_an_end() -> None:
    assert len(parse_history(raw(READ).rstrip(b"\n"), "h.jsonl").operations) == 1


# -- what kind of object it is -------------------------------------------------------------------------

WRITE = row(op="write", value="a")
APPEND, SAPPEND = row(op="append", value="a", process=1), row(op="sappend", value="a", process=2)
APPLY = row(op="apply", token=1, idem="a", out="accepted")


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([READ], "register"),
        ([WRITE], "register"),
        ([READ, row(op="cas", from_=1, to=2, out=True, process=1)], "register"),
        ([APPLY], "fenced"),
        ([SAPPEND, READ], "string"),
        ([APPEND, READ], "list"),
        ([APPEND, row(out=["a"])], "list"),
        ([APPEND, row(out="a")], "string"),
        ([APPEND, WRITE], "string"),
        ([APPEND, SAPPEND], "string"),
    ],
)
def test_the_kind_of_object(rows: list[dict[str, Any]], name: str) -> None:
    assert model_of(*rows) == name


# -- what is refused -----------------------------------------------------------------------------------

BAD_LINES = {
    b"{": "not JSON: Expecting property name enclosed in double quotes at column 2",
    b"[1]": "a line is a JSON object, not an array",
    b"7": "a line is a JSON object, not a whole number",
    b"null": "a line is a JSON object, not null",
    b'{"a": NaN}': "not JSON: NaN is no number",
    b'{"op": "read", "op": "read"}': "field 'op' stands twice",
    b'{"a": \xff}': "not UTF-8: byte 7 of the line",
    b"[" * 100_000: "not JSON that can be read: nested too deeply",
    b'{"a": ' + b"9" * 5000 + b"}": "not JSON that can be read: Exceeds the limit (4300 digits)",
    b'{"a": 1e999}': "not JSON that can be read: 1e999 is too large",
    b'{"a": "\\ud800"}': "a lone surrogate is in it, no valid text",
    b"{} {}": "not JSON: Extra data at column 4",
    b"{}": "field 'op' is missing",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: repr(line[:20]))
def test_a_line_that_is_none(line: bytes) -> None:
    with pytest.raises(HistoryInvalid) as caught:
        parse_history(raw(READ) + line + b"\n", "h.jsonl")
    assert caught.value.message.startswith(f"h.jsonl:2: {BAD_LINES[line]}")


BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    *((({name: ...}), f"field {name!r} is missing") for name in READ),
    ({"process": 1.5}, "field 'process' is a number with a fraction and not a whole number or a text"),
    ({"process": True}, "field 'process' is true or false and not a whole number or a text"),
    ({"key": None}, "field 'key' is null and not a text or a whole number"),
    ({"op": 3}, "field 'op' is a whole number and not a text"),
    ({"op": "raed"}, "unknown op 'raed'; known are append, apply, cas, read, sappend, write"),
    ({"invoke": "1"}, "field 'invoke' is a text and not a whole number"),
    ({"invoke": 1.0}, "field 'invoke' is a number with a fraction and not a whole number"),
    ({"return": True}, "field 'return' is true or false and not a whole number"),
    ({"return": "2", "status": "info"}, "field 'return' is a text and not a whole number"),
    ({"return": None}, "is ok and does not return"),
    ({"return": 0}, "returns at 0, before it is invoked at 1"),
    ({"return": 0, "status": "fail"}, "returns at 0, before it is invoked at 1"),
    ({"status": "maybe"}, "unknown status 'maybe'; known are ok, fail, info, done"),
    ({"status": None}, "field 'status' is null and not a text"),
    ({"position": "4"}, "field 'position' is a text and not a whole number"),
    ({"op": "write"}, "field 'value' is missing"),
    ({"op": "cas", "to": 1}, "field 'from' is missing"),
    ({"op": "cas", "from": 1}, "field 'to' is missing"),
    ({"op": "cas", "from": 1, "to": 1}, "`out` of a cas is true or false"),
    ({"op": "cas", "from": 1, "to": 1, "out": 1}, "`out` of a cas is true or false"),
    ({"op": "cas", "from": 1, "to": 1, "out": ...}, "field 'out' is missing"),
    ({"op": "apply", "idem": "a"}, "field 'token' is missing"),
    ({"op": "apply", "token": 1}, "field 'idem' is missing"),
    ({"op": "apply", "token": "1", "idem": "a"}, "`token` is a whole number, or incarnation and term"),
    ({"op": "apply", "token": True, "idem": "a"}, "`token` is a whole number, or incarnation and term"),
    ({"op": "apply", "token": {"term": "7"}, "idem": "a"}, "`token` is a whole number, or incarnation and term"),
    ({"op": "apply", "token": -1, "idem": "a", "out": "stale"}, "`token` is a whole number from 0 on"),
    ({"op": "apply", "token": 1, "idem": None}, "field 'idem' is null and not a text or a whole number"),
    ({"op": "apply", "token": 1, "idem": "a", "out": "done"}, "`out` of an apply is one of accepted, duplicate, stale"),
    ({"op": "sappend", "value": 1}, "`value` appended to a string is no string"),
]


@pytest.mark.parametrize(("fields", "says"), BAD_FIELDS, ids=str)
def test_a_field_that_is_wrong(fields: dict[str, Any], says: str) -> None:
    """Each of them alone in a line that would be good without."""
    with pytest.raises(HistoryInvalid) as caught:
        parsed(row(**fields))
    assert caught.value.message.startswith(f"h.jsonl:1: {says}")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([APPLY, row(process=1)], "h.jsonl:2: 'read' and 'apply' do not belong to one kind of object"),
        ([APPEND, row(op="cas", from_=1, to=1, out=True)], "h.jsonl:2: 'cas' and 'append' do not belong to one"),
        ([APPEND, row(out="a"), row(out=["a"], process=2)], "h.jsonl:3: `out` is no string, and other operations say"),
        ([SAPPEND, row(op="write", value=["a"])], "h.jsonl:2: `value` is no string, and other operations say"),
        ([APPEND, row(out=3)], "h.jsonl:2: `out` is no list, and other operations say that this is one"),
        (
            [APPLY, {**APPLY, "process": 1, "token": {"incarnation": "1", "term": "1"}}],
            "h.jsonl:2: tokens are whole numbers, or all of them incarnation and term",
        ),
        (
            [row(return_=5), row(invoke=3, return_=9)],
            "h.jsonl:2: process 0 is invoked at 3, while its operation at the same key is under way from 1 to 5",
        ),
        (
            [row(invoke=3, return_=9), row(return_=5)],
            "h.jsonl:1: process 0 is invoked at 3, while its operation at the same key is under way from 1 to 5",
        ),
        ([row(return_=5), row(invoke=3, status="info")], "h.jsonl:2: process 0 is invoked at 3, while its operation"),
        ([row(return_=5, status="fail"), row(invoke=3, return_=9)], "h.jsonl:2: process 0 is invoked at 3, while"),
        (
            [row(position=4), row(process=1, position=4, key="y")],
            'h.jsonl:2: position 4 holds another one: process 0 read() = null [1, 2] at position 4',
        ),
    ],
)  # fmt: skip
def test_lines_that_do_not_go_together(rows: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(HistoryInvalid) as caught:
        parsed(*rows)
    assert caught.value.message.startswith(says)


@pytest.mark.parametrize(
    "rows",
    [
        [row(return_=5), row(invoke=5, return_=9)],
        [row(return_=5), row(invoke=3, return_=9, key="y")],
        [row(return_=5), row(invoke=3, return_=9, process=1)],
        [row(status="info", return_=5), row(invoke=3, return_=9)],
        [row(invoke=3, return_=3), row(invoke=3, return_=9)],
        [row(invoke=3, return_=9), row(invoke=3, return_=3)],
        [row(return_=5), row(status="done", invoke=3, return_=9, position=1)],
    ],
)
def test_lines_that_do_go_together(rows: list[dict[str, Any]]) -> None:
    assert len(parsed(*rows)) == 2


def test_all_problems_are_listed_up_to_a_limit() -> None:
    with pytest.raises(HistoryInvalid) as caught:
        parsed(*[row(process=None)] * PROBLEMS_SHOWN)
    assert caught.value.message.startswith("h.jsonl:1: ")
    assert [line.split(": ")[0] for line in caught.value.tried] == [
        f"h.jsonl:{n}" for n in range(2, PROBLEMS_SHOWN + 1)
    ]
    with pytest.raises(HistoryInvalid) as caught:
        parsed(*[row(process=None)] * (PROBLEMS_SHOWN + 5))
    assert caught.value.tried[-1] == "and 5 more"


def test_the_error() -> None:
    with pytest.raises(HistoryInvalid) as caught:
        parsed(row(process=None))
    assert (caught.value.code, caught.value.exit_code) == ("HISTORY_INVALID", 2)
    assert (caught.value.outcome, caught.value.next_step) == (Outcome.REFUSED, "fencepost explain HISTORY_INVALID")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.jsonl", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(HistoryInvalid, match=f"cannot read {path}: {why}"):
            read_history(path)


def test_a_history_in_memory_is_held_to_the_same() -> None:
    (good,) = parsed(READ)
    model = parse_history(raw(READ), "h.jsonl").model
    for bad, says in (
        (good._replace(op="apply"), "'apply' is no operation of a register, which has cas, read, write"),
        (good._replace(return_=0), "returns at 0, before it is invoked at 1"),
        (good._replace(op="cas", value=(1, 2)), "a cas needs `from` and `to`"),
        (good._replace(op="write", value=bytearray()), "bytearray is no JSON value"),
    ):
        with pytest.raises(HistoryInvalid) as caught:
            check([bad], model)
        assert caught.value.message.startswith("operation 0, process 0 ")
        assert caught.value.message.endswith(says)
