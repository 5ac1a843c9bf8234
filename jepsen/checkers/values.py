"""JSON values made comparable: hashable, and different where JSON says that they differ.

To Python ``True == 1``, a list has no hash, and a tuple of pairs may equal one that was never an
object. A state that mixes these up would explain answers that nobody can have given.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

from .operation import ApplyValue, CasValue, Operation


class Truth(Enum):
    """JSON's true and false, which are no numbers."""

    FALSE = "false"
    TRUE = "true"


def frozen(value: object) -> Hashable:
    """``value`` as a hashable: arrays become tuples, objects frozensets of pairs, truths :class:`Truth`.

    Raises TypeError for what is no JSON value and has no hash of its own.
    """
    if isinstance(value, bool):
        return Truth.TRUE if value else Truth.FALSE
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    if isinstance(value, dict):
        return frozenset((name, frozen(item)) for name, item in value.items())
    if not isinstance(value, Hashable):
        raise TypeError(f"{type(value).__name__} is no JSON value")
    hash(value)
    return value


def freeze(operation: Operation) -> Operation:
    """The operation with value and answer frozen."""
    value = operation.value
    if isinstance(value, CasValue):
        value = CasValue(frozen(value.from_), frozen(value.to))
    elif not isinstance(value, ApplyValue):
        value = frozen(value)
    return operation._replace(value=value, out=frozen(operation.out))


def thawed(value: object) -> object:
    """A frozen value as it may be printed; the inverse of :func:`frozen` as far as a reader can see."""
    if isinstance(value, Truth):
        return value is Truth.TRUE
    if isinstance(value, tuple):
        return [thawed(item) for item in value]
    if isinstance(value, frozenset):
        return {str(name): thawed(item) for name, item in sorted(value, key=lambda pair: str(pair[0]))}
    return value
