"""The network: frames, the bodies in them, and who is let in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....transport import codec
from ....transport.framing import FrameDecoder
from .mutant import Mutant


def _mutant(name: str, function: Callable[..., Any], line: str, fault: str) -> Mutant:
    return Mutant(name, "transport", function, line, fault)


MUTANTS = (
    _mutant(
        "the checksum of a frame is not compared",
        FrameDecoder._cut,
        "if _crc_extend(_crc_of(data[start : start + _CHECKED_BYTES]), body) != checksum:",
        "if False:",
    ),
    _mutant(
        "the lowest bit of a term is lost on the wire",
        codec.encode_message,
        "_encode(message)",
        "_encode(message._replace(term=message.term & ~1) if hasattr(message, 'term') else message)",
    ),
)
