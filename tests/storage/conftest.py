"""What all tests of storage share."""

from __future__ import annotations

import pytest

from fencepost.storage import segments


@pytest.fixture(autouse=True)
def little_space_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few sectors and not a mebibyte: every image of a simulated disk is a copy of it."""
    monkeypatch.setattr(segments, "AHEAD_BYTES", 4096)
    monkeypatch.setattr(segments, "_ZEROS", bytes(4096))
