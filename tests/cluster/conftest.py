"""Clusters of real processes, and their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.local_cluster import LocalCluster

from .support import FAST, LEDGER


@pytest.fixture
async def make_cluster(tmp_path: Path) -> AsyncIterator[Callable[..., LocalCluster]]:
    """Makes clusters that are gone after the test. Nothing is started yet."""
    async with AsyncExitStack() as stack:
        made: list[LocalCluster] = []

        def make(**options: Any) -> LocalCluster:
            options.setdefault("definitions", FAST + LEDGER)
            cluster = LocalCluster(tmp_path / f"cluster{len(made)}", **options)
            made.append(cluster)
            stack.push_async_exit(cluster)
            return cluster

        yield make
