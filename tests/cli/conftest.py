"""Fixtures of the command's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        yield running
