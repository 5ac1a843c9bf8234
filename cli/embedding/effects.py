"""One effect as an embedder defines it: a name, the type of its payload, and the function that carries it out."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Generic, Protocol, TypeVar, get_type_hints, overload

import msgspec

from ...raft.core.errors import CommandInvalid, ConfigurationError
from ...raft.effects.handlers import EffectContext, Retryable
from ...raft.effects.policy import RetryPolicy
from ...raft.effects.resources.python import Handler
from ...raft.outbox.codec import canonical_json

P = TypeVar("P")
R = TypeVar("R")


class Effect(Generic[P, R]):
    """What ``Outbox.effect`` makes of a function, to be handed to ``submit``. Called, it is the function itself."""

    def __init__(
        self,
        name: str,
        resource: str,
        payload: Any,
        result: Any,
        *,
        function: Callable[[EffectContext, P], Any] | None = None,
        retry: RetryPolicy | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """``function`` is None where the resource itself knows how. Raises :class:`ConfigurationError` for types that
        do not pass through JSON."""
        self.name = name
        self.resource = resource
        self.payload = payload
        self.result = result
        self.retry = retry
        self.timeout_s = timeout_s
        self._function = function
        try:
            self._payloads = msgspec.json.Decoder(payload)
            self._results = msgspec.json.Decoder(result)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"effect {name!r}: its types do not pass through JSON: {error}") from error
        self.__doc__ = function.__doc__ if function is not None else None

    def __repr__(self) -> str:
        return f"<Effect {self.resource}.{self.name}>"

    def __call__(self, context: EffectContext, payload: P) -> Any:
        """Carry it out here and now, as the outbox would: for tests of a handler."""
        if self._function is None:
            raise TypeError(f"effect {self.name!r} is carried out by its resource")
        return self._function(context, payload)

    # -- on the way in ------------------------------------------------------------------------------

    def encode(self, payload: P) -> bytes:
        """Canonical JSON. Raises :class:`CommandInvalid` for a payload that does not fit the type; nothing was sent."""
        try:
            if isinstance(self.payload, type) and self.payload is not Any and not _is_typed_dict(self.payload):
                _check_instance(self.payload, payload)
            data = canonical_json(msgspec.to_builtins(payload, str_keys=True))
            self._payloads.decode(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CommandInvalid(
                f"payload of effect {self.name!r} does not fit {_name_of(self.payload)}: {error}",
                next_step="nothing was submitted; correct the payload",
            ) from error
        return data

    def decode_result(self, result: bytes) -> R:
        """Raises ValueError for a result that is no ``R``."""
        value: R = self._results.decode(result or b"null")
        return value

    # -- where it is carried out --------------------------------------------------------------------

    @property
    def is_handler(self) -> bool:
        return self._function is not None

    def handler(self) -> Handler:
        """The function as a resource of kind ``python`` calls it: plain ones on its threads, others on the loop."""
        function = self._function
        if function is None:
            raise AssertionError(f"effect {self.name!r} has no function")
        if not inspect.iscoroutinefunction(function):
            return lambda context, raw: _plain(function(context, self._typed(raw)))

        async def carry_out(context: EffectContext, raw: Any) -> Any:
            return _plain(await function(context, self._typed(raw)))

        return carry_out

    def _typed(self, raw: Any) -> P:
        try:
            payload: P = msgspec.convert(raw, self.payload, str_keys=True)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            # Submitted by another version of the program. Nothing was done, and a node of that version may do it.
            raise Retryable(f"its payload does not fit {_name_of(self.payload)} on this node: {error}") from error
        return payload

    def described(self) -> dict[str, Any]:
        """What nodes compare."""
        return {"payload": _name_of(self.payload), "result": _name_of(self.result)}


class Definer(Protocol[P]):
    """What ``Outbox.effect(...)`` gives: it makes an :class:`Effect` of a function, async or plain."""

    @overload
    def __call__(self, function: Callable[[EffectContext, P], Awaitable[R]], /) -> Effect[P, R]: ...

    @overload
    def __call__(self, function: Callable[[EffectContext, P], R], /) -> Effect[P, R]: ...


def result_type_of(function: Callable[..., Any], effect: str) -> Any:
    """The type that ``function`` says it returns; anything where it says nothing."""
    # Of its own: the payload's type is known, and may well be one that cannot be looked up by name.
    alone = SimpleNamespace(__annotations__={"return": inspect.get_annotations(function).get("return", Any)})
    try:
        return get_type_hints(alone, globalns=getattr(function, "__globals__", None)).get("return", Any)
    except Exception as error:
        raise ConfigurationError(
            f"effect {effect!r}: what {function!r} says it returns cannot be read: {error}",
            next_step="define the type at the top of a module",
        ) from error


def _plain(result: Any) -> Any:
    """As JSON has it. What cannot be said in JSON goes on as it is: the effect is done, and the resource says so."""
    try:
        return msgspec.to_builtins(result, str_keys=True)
    except (TypeError, ValueError):
        return result


def _check_instance(wanted: type, payload: object) -> None:
    number = wanted is float and isinstance(payload, int)
    if not isinstance(payload, wanted) and not number:
        raise TypeError(f"it is a {type(payload).__name__}")


def _is_typed_dict(wanted: type) -> bool:
    return issubclass(wanted, dict) and hasattr(wanted, "__total__")


def _name_of(type_: Any) -> str:
    return getattr(type_, "__qualname__", None) or str(type_)
