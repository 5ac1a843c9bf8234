"""Short words for operations: who, what, and from when to when."""

from __future__ import annotations

from typing import Any

from fencepost.jepsen.checkers import ApplyValue, CasValue, Judgement, Model, Operation, Status, Verdict, check
from fencepost.raft.core.token import FencingToken

Process = int | str


def read(process: Process, out: Any, invoke: int, return_: int | None, key: str = "x") -> Operation:
    return Operation(process, "read", key, None, out, invoke, return_)


def write(process: Process, value: Any, invoke: int, return_: int | None, key: str = "x") -> Operation:
    return Operation(process, "write", key, value, None, invoke, return_)


def cas(
    process: Process, from_: Any, to: Any, out: bool, invoke: int, return_: int | None, key: str = "x"
) -> Operation:
    return Operation(process, "cas", key, CasValue(from_, to), out, invoke, return_)


def append(process: Process, value: Any, invoke: int, return_: int | None, key: str = "x") -> Operation:
    return Operation(process, "append", key, value, None, invoke, return_)


def apply(
    process: Process,
    token: int | FencingToken,
    idem: str,
    out: str | None,
    invoke: int,
    return_: int | None,
    key: str = "x",
) -> Operation:
    return Operation(process, "apply", key, ApplyValue(token, idem), out, invoke, return_)


def info(operation: Operation) -> Operation:
    return operation._replace(status=Status.INFO, out=None)


def fail(operation: Operation) -> Operation:
    return operation._replace(status=Status.FAIL)


def done(operation: Operation) -> Operation:
    return operation._replace(status=Status.DONE, out=None)


def judge(model: Model, *history: Operation) -> Judgement:
    """The judgement, after a look at what every judgement has to keep."""
    judgement = check(history, model)
    keys = {operation.key for operation in history}
    told = {explanation.key for explanation in judgement.explanations}
    assert set(judgement.orders) | told == keys
    assert not set(judgement.orders) & told
    assert (judgement.verdict is Verdict.OK) == (not told)
    return judgement
