"""One operation of a recorded history: what a client asked, what it heard, and between which two moments."""

from __future__ import annotations

import json
from enum import StrEnum
from math import inf
from typing import NamedTuple

from ...raft.core.token import FencingToken


class Status(StrEnum):
    """What the client knows of its operation."""

    OK = "ok"
    """It took effect once, between ``invoke`` and ``return_``, and answered ``out``."""
    FAIL = "fail"
    """It certainly did not take effect."""
    INFO = "info"
    """It may have taken effect, once, at any time after ``invoke``, or may still do so."""
    DONE = "done"
    """It took effect once, between ``invoke`` and ``return_`` (without one: before the end), and what it
    answered is not known. No client says so: ``settle`` makes it of INFO."""


class CasValue(NamedTuple):
    """The ``value`` of a ``cas``: write ``to`` if ``from_`` stands there."""

    from_: object
    to: object


class ApplyValue(NamedTuple):
    """The ``value`` of an ``apply``: under which token, and the operation id that it is known by."""

    token: int | FencingToken
    idem: str | int

    @property
    def rank(self) -> tuple[int, int]:
        """The token as a pair that can be compared; a plain number has no incarnation."""
        return (0, self.token) if isinstance(self.token, int) else (self.token[0], self.token[1])


class Answer(StrEnum):
    """The ``out`` of an ``apply``."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    STALE = "stale"


class Operation(NamedTuple):
    """One line of a history.

    Times are integers of one order for all processes: nanoseconds, events, whatever. Two operations
    of which one returns when the other is invoked are concurrent, unless one process made both.
    """

    process: int | str
    op: str
    """``read``, ``write``, ``cas``, ``append``, ``sappend`` or ``apply``; the model says which it knows."""
    key: int | str
    """Keys are independent: each has an object of its own."""
    value: object
    """What was asked: a JSON value, a :class:`CasValue` or an :class:`ApplyValue`; None for a read."""
    out: object
    """What was answered: the value read, whether a cas held, what an apply decided. Ignored elsewhere."""
    invoke: int
    return_: int | None
    """None where nothing was heard. Ignored with INFO."""
    status: Status = Status.OK
    position: int | None = None
    """Where it stands in the log, if that is known (``settle``): then it took effect after every operation of its
    key that stands before it. Ignored with INFO and FAIL."""


Identity = tuple[int | str, int | str, int]


def identity_of(operation: Operation) -> Identity:
    """``(process, key, invoke)``: a process has one operation at a time under way at a key."""
    return operation.process, operation.key, operation.invoke


def own_order(operation: Operation) -> tuple[int, float]:
    """Sorts the operations of one process: one of which it did not hear the end is before what it began at the same
    moment. Those that it made in no time stay as they were recorded."""
    if operation.return_ is None or operation.status is Status.INFO:
        return operation.invoke, -inf
    return operation.invoke, operation.return_


def describe(operation: Operation) -> str:
    """The operation in one line: ``process 3 cas(0 -> 3) = false [27, 29]``."""
    value = operation.value
    if isinstance(value, CasValue):
        asked = f"{as_text(value.from_)} -> {as_text(value.to)}"
    elif isinstance(value, ApplyValue):
        asked = f"token {value.token}, {as_text(value.idem)}"
    else:
        asked = "" if operation.op == "read" else as_text(value)
    answered = operation.status is Status.OK and operation.op in ("read", "cas", "apply")
    answer = f" = {as_text(operation.out)}" if answered else ""
    end = "" if operation.return_ is None or operation.status is Status.INFO else str(operation.return_)
    status = "" if operation.status is Status.OK else f" {operation.status.value}"
    position = "" if operation.position is None else f" at position {operation.position}"
    who = f"process {as_text(operation.process)}"
    return f"{who} {operation.op}({asked}){answer} [{operation.invoke}, {end}]{status}{position}"


def as_text(value: object) -> str:
    """A value as JSON where it is one, in one line that never speaks to the terminal."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
