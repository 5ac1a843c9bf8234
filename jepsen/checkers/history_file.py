"""Histories as files: one operation a line, as a JSON object (proof.md, Checking histories).

The fields of an operation are ``process``, ``op``, ``key``, ``value``, ``out``, ``invoke``, ``return``,
``status``, ``position``; a cas has ``from`` and ``to``, an apply ``token`` and ``idem``, in place of
``value`` or in it.
Fields of other names are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isinf
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ...raft.core.errors import HistoryInvalid
from ...raft.core.token import FencingToken
from .models.append import Append
from .models.fenced import Fenced
from .models.model import Model
from .models.register import Register
from .operation import ApplyValue, CasValue, Operation, Status
from .validation import problems

PROBLEMS_SHOWN = 10
"""How many problems of one file an error lists."""

_REGISTER = frozenset({"read", "write", "cas"})
_APPEND = frozenset({"read", "write", "append", "sappend"})
_APPLY = frozenset({"apply"})
_KNOWN = _REGISTER | _APPEND | _APPLY


class History(NamedTuple):
    """A file that was read: what happened, and to what kind of object."""

    operations: list[Operation]
    numbers: list[int]
    """The line of each operation, from 1 on."""
    model: Model


class _Malformed(ValueError):
    """What is wrong with one line."""


def read_history(path: Path) -> History:
    """Read a file and recognise the kind of its objects.

    Raises :class:`HistoryInvalid` naming file and line for what cannot be read or cannot have been.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise HistoryInvalid(f"cannot read {path}: {error.strerror or error}") from error
    return parse_history(raw, str(path))


def parse_history(raw: bytes, name: str) -> History:
    """The history in ``raw``; ``name`` is the file's in errors. A file without a line is a history too: nothing
    happened. Raises :class:`HistoryInvalid`."""
    operations: list[Operation] = []
    numbers: list[int] = []
    wrong: list[tuple[int, str]] = []
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            operations.append(_operation(_object(line)))
            numbers.append(number)
        except _Malformed as error:
            wrong.append((number, str(error)))
    if not wrong:
        model, place, text = recognise(operations)
        wrong = [(numbers[place], text)] if text else []
    if not wrong:
        wrong = [(numbers[problem.place], problem.text) for problem in problems(operations, model)]
    if wrong:
        _refuse(name, wrong)
    return History(operations, numbers, model)


def _refuse(name: str, wrong: Sequence[tuple[int, str]]) -> NoReturn:
    (first, text), *others = wrong
    tried = [f"{name}:{number}: {other}" for number, other in others[: PROBLEMS_SHOWN - 1]]
    if len(others) >= PROBLEMS_SHOWN:
        tried.append(f"and {len(others) - PROBLEMS_SHOWN + 1} more")
    raise HistoryInvalid(f"{name}:{first}: {text}", tried=tried, next_step="fencepost explain HISTORY_INVALID")


# -- what kind of object ---------------------------------------------------------------------------


def recognise(operations: Sequence[Operation]) -> tuple[Model, int, str]:
    """The model that a history's operations name; or, with a text, what does not fit and at which place.

    ``apply`` makes it a fenced resource, ``append`` or ``sappend`` a string or a list, else it is a
    register. ``sappend`` is of strings; ``append`` is of strings if anything read or written as a
    whole is one.
    """
    used = {operation.op for operation in operations}
    if used <= _REGISTER:
        return Register(), 0, ""
    family = _APPLY if "apply" in used else _APPEND
    for place, operation in enumerate(operations):
        if operation.op not in family:
            other = "apply" if "apply" in used else "append"
            return Register(), place, f"{operation.op!r} and {other!r} do not belong to one kind of object"
    if family is _APPEND:
        return Append(str if _of_strings(operations) else list), 0, ""
    kinds = [isinstance(operation.value, ApplyValue) and type(operation.value.token) for operation in operations]
    odd = next((place for place, kind in enumerate(kinds) if kind is not kinds[0]), 0)
    return Fenced(), odd, "tokens are whole numbers, or all of them incarnation and term" if odd else ""


def _of_strings(operations: Sequence[Operation]) -> bool:
    if any(operation.op == "sappend" for operation in operations):
        return True
    wholes = [operation.value for operation in operations if operation.op == "write"]
    wholes += [operation.out for operation in operations if operation.op == "read"]
    return any(isinstance(whole, str) for whole in wholes)


# -- one line --------------------------------------------------------------------------------------


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(
            line.decode("utf-8"), parse_constant=_no_constant, parse_float=_float, object_pairs_hook=_pairs
        )
        if b"\\u" in line:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise _Malformed(f"not UTF-8: byte {error.start + 1} of the line") from error
    except json.JSONDecodeError as error:
        raise _Malformed(f"not JSON: {error.msg} at column {error.colno}") from error
    except UnicodeEncodeError as error:
        raise _Malformed("a lone surrogate is in it, no valid text") from error
    except RecursionError as error:
        raise _Malformed("not JSON that can be read: nested too deeply") from error
    except _Malformed:
        raise
    except ValueError as error:
        raise _Malformed(f"not JSON that can be read: {error}") from error
    if not isinstance(value, dict):
        raise _Malformed(f"a line is a JSON object, not {_kind(value)}")
    return value


def _no_constant(name: str) -> NoReturn:
    raise _Malformed(f"not JSON: {name} is no number")


def _float(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise _Malformed(f"not JSON that can be read: {text} is too large")
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Malformed(f"field {name!r} stands twice")
        found[name] = value
    return found


def _operation(fields: Mapping[str, Any]) -> Operation:
    op = _field(fields, "op", str)
    if op not in _KNOWN:
        raise _Malformed(f"unknown op {op!r}; known are {', '.join(sorted(_KNOWN))}")
    status = _status(fields)
    answers = status is Status.OK and op in ("read", "cas", "apply")
    # An ok without its return is told by its line like any other missing field; null is told by what it means.
    heard = status is Status.OK if "return" not in fields else fields["return"] is not None
    return Operation(
        process=_field(fields, "process", int, str),
        op=op,
        key=_field(fields, "key", str, int),
        value=_value(op, fields),
        out=_present(fields, "out") if answers else None,
        invoke=_field(fields, "invoke", int),
        return_=_field(fields, "return", int) if heard else None,
        status=status,
        position=None if fields.get("position") is None else _field(fields, "position", int),
    )


def _status(fields: Mapping[str, Any]) -> Status:
    status = _field(fields, "status", str) if "status" in fields else Status.OK
    try:
        return Status(status)
    except ValueError:
        raise _Malformed(f"unknown status {status!r}; known are {', '.join(Status)}") from None


def _value(op: str, fields: Mapping[str, Any]) -> object:
    if op == "read":
        return None
    if op not in ("cas", "apply"):
        return _present(fields, "value")
    inner = fields.get("value")
    if isinstance(inner, dict):
        fields = inner
    if op == "cas":
        return CasValue(_present(fields, "from"), _present(fields, "to"))
    return ApplyValue(_token(_present(fields, "token")), _field(fields, "idem", str, int))


def _token(value: Any) -> int | FencingToken:
    """A whole number, or a token as fencepost prints it: ``{"incarnation": "1", "term": "7"}``."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, dict):
        incarnation, term = (str(value.get(name)) for name in FencingToken._fields)
        if (incarnation + term).isascii() and incarnation.isdigit() and term.isdigit():
            return FencingToken(int(incarnation), int(term))
    raise _Malformed("`token` is a whole number, or incarnation and term as decimal texts")


def _present(fields: Mapping[str, Any], name: str) -> Any:
    if name not in fields:
        raise _Malformed(f"field {name!r} is missing")
    return fields[name]


def _field(fields: Mapping[str, Any], name: str, *kinds: type) -> Any:
    value = _present(fields, name)
    if isinstance(value, bool) or not isinstance(value, kinds):
        wanted = " or ".join(_NAMES[kind] for kind in kinds)
        raise _Malformed(f"field {name!r} is {_kind(value)} and not {wanted}")
    return value


_NAMES: dict[type, str] = {
    int: "a whole number", str: "a text", float: "a number with a fraction", bool: "true or false",
    list: "an array", dict: "an object", type(None): "null",
}  # fmt: skip


def _kind(value: Any) -> str:
    return _NAMES[type(value)]
