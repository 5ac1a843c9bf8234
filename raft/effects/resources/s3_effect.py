"""The effects of an S3 resource: what a command does to the values inside the object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import ConfigurationError
from ...outbox.codec import canonical_json
from ...ports import Attempt
from .payload_template import NotBindable, Template, Values

OPERATIONS = {"set": 3, "append": 3, "add": 3, "at-least": 3, "delete": 2}
"""How many words each takes, its own among them."""


@dataclass(frozen=True, slots=True)
class S3Effect:
    """One effect: steps done together, each of words that may hold names of the payload in braces:

    ``("set", key, value)``, ``("append", key, value)`` to a list, ``("add", key, number)`` to a whole number,
    ``("at-least", key, number)``, which fails the command if the number is less, and ``("delete", key)``.
    A word that is one name and nothing else keeps the type that it has in the payload.
    """

    steps: Sequence[Sequence[str]]


class Step:
    """One step. Raises :class:`ConfigurationError` if it can never work."""

    def __init__(self, resource: str, effect: str, words: Sequence[str]) -> None:
        try:
            self._operation = words[0] if words else ""
            if OPERATIONS.get(self._operation) != len(words):
                raise ValueError(f"{' '.join(words)!r} is not one of {', '.join(OPERATIONS)} with a key and a value")
            self._key = Template(words[1])
            self._value = Template(words[2]) if len(words) == 3 else None
        except ValueError as error:
            raise ConfigurationError(
                f"resource {resource!r}, effect {effect!r}: the steps are not usable: {error}",
                next_step=f"correct steps under [resources.{resource}.effects.{effect}]",
            ) from error

    @property
    def grows(self) -> bool:
        return self._operation in ("set", "append", "add")

    def run(self, values: dict[str, Any], named: Values) -> Any:
        """Do it to ``values``; what it answers. Raises :class:`NotBindable`."""
        key = self._key.fill(named)
        value = None if self._value is None else self._value.value(named)
        return _ACTIONS[self._operation](values, key, value)


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    values[key] = value


def _append(values: dict[str, Any], key: str, value: Any) -> int:
    before = values.get(key, [])
    if not isinstance(before, list):
        raise NotBindable(f"{key!r} is no list")
    values[key] = [*before, value]
    return len(before) + 1


def _add(values: dict[str, Any], key: str, value: Any) -> int:
    values[key] = _whole(key, values.get(key, 0)) + _whole(key, value)
    return int(values[key])


def _at_least(values: dict[str, Any], key: str, value: Any) -> int:
    there, least = _whole(key, values.get(key, 0)), _whole(key, value)
    if there < least:
        raise NotBindable(f"{key!r} would be {there}, less than {least}")
    return there


def _delete(values: dict[str, Any], key: str, _: Any) -> bool:
    return values.pop(key, _MISSING) is not _MISSING


_MISSING = object()
_ACTIONS: dict[str, Callable[[dict[str, Any], str, Any], Any]] = {
    "set": _set,
    "append": _append,
    "add": _add,
    "at-least": _at_least,
    "delete": _delete,
}


def _whole(key: str, value: Any) -> int:
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 40:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotBindable(f"{key!r}: {str(value)[:60]!r} is no whole number")
    return value


def run_all(steps: Sequence[Step], values: dict[str, Any], attempt: Attempt) -> tuple[dict[str, Any], bytes]:
    """What ``values`` are after all steps, and the result as JSON. ``values`` themselves stay as they are."""
    after = dict(values)
    named = Values(attempt)
    results = [step.run(after, named) for step in steps]
    return after, canonical_json({"results": results})
