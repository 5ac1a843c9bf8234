"""The compiled halves of the libraries on the hot path are there.

Each of these falls back to Python without a word where its extension is missing, ten to a hundred
times slower. On CPython that is a broken installation, not a choice.
"""

from __future__ import annotations

import platform

import google_crc32c
import msgpack
import pytest

pytestmark = pytest.mark.skipif(
    platform.python_implementation() != "CPython", reason="elsewhere the fallbacks are all there is"
)


def test_msgpack_runs_compiled() -> None:
    assert msgpack.Packer.__module__ == "msgpack._cmsgpack"
    assert msgpack.Unpacker.__module__ == "msgpack._cmsgpack"


def test_crc32c_runs_compiled() -> None:
    assert google_crc32c.implementation == "c"


def test_crc32c_is_castagnoli() -> None:
    """The check value of the CRC catalogue; a CRC-32 of another polynomial would write unreadable logs."""
    assert google_crc32c.value(b"123456789") == 0xE3069283
