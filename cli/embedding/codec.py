"""How commands and results of an embedder's state machine become bytes, and come back with their types."""

from __future__ import annotations

import inspect
from typing import Any, Generic, Protocol, TypeVar, get_type_hints

import msgspec

from ...raft.core.errors import CommandInvalid, ConfigurationError

T = TypeVar("T")


class Codec(Protocol[T]):
    """Makes bytes of a value and a value of bytes.

    The bytes go into the log and stay there: a later version has to read what an earlier one wrote. Equal
    values should give equal bytes, for it is by the bytes that two commands under one id are compared.
    """

    def encode(self, value: T) -> bytes: ...

    def decode(self, data: bytes) -> T: ...


class MsgpackCodec(Generic[T]):
    """msgpack of anything that msgspec knows: plain values, dataclasses, named tuples, typed dicts, its structs."""

    def __init__(self, type_: Any = Any) -> None:
        """Values come back as ``type_``, and bytes that do not fit it are refused. Raises ConfigurationError."""
        # Sorted keys: a dictionary filled in another order is the same command.
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        try:
            self._decoder = msgspec.msgpack.Decoder(type_)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"msgpack cannot tell values of {type_} apart: {error}",
                next_step="for several kinds of command, msgspec.Struct classes with tag=True; or pass a codec",
            ) from error

    def encode(self, value: T) -> bytes:
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> T:
        value: T = self._decoder.decode(data)
        return value


def checked(codec: Codec[T], value: T, what: str) -> bytes:
    """The bytes of ``value``, which can be read again. Raises :class:`CommandInvalid`.

    Tried here because a command in the log that cannot be read stops every node.
    """
    try:
        data = codec.encode(value)
        codec.decode(data)
    except Exception as error:  # A codec is the embedder's, and may raise anything.
        raise CommandInvalid(
            f"{what} {_short(value)} does not fit: {error}", next_step="nothing was sent; correct it"
        ) from error
    return data


def codecs_of(machine: Any) -> tuple[Codec[Any], Codec[Any]]:
    """msgpack for the command and the result that ``machine.apply`` is annotated with; of anything where it is not.

    Raises :class:`ConfigurationError` for annotations that nobody can read: a command would come back as a
    dictionary, and not as what it was.
    """
    apply = type(machine).apply
    try:
        hints = get_type_hints(apply)
    except Exception as error:
        raise ConfigurationError(
            f"the annotations of {type(machine).__qualname__}.apply cannot be read: {error}",
            next_step="define the types at the top of a module, or pass commands= and results=",
        ) from error
    parameters = list(inspect.signature(apply).parameters)
    command = hints.get(parameters[3], Any) if len(parameters) > 3 else Any
    return MsgpackCodec(_concrete(command)), MsgpackCodec(_concrete(hints.get("return", Any)))


def _concrete(hint: Any) -> Any:
    return Any if isinstance(hint, TypeVar) else hint


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
