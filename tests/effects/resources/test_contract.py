"""The conformance suite, on the resource in memory and on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.raft.effects.modes import FenceMode

from .contract import FencedContract
from .subjects import MemorySubject, SqliteSubject


class TestMemory(FencedContract):
    @pytest.fixture
    def subject(self) -> MemorySubject:
        return MemorySubject()


class TestSqlite(FencedContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> SqliteSubject:
        return SqliteSubject(tmp_path)


class TestSqliteObserving(FencedContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> SqliteSubject:
        return SqliteSubject(tmp_path).guarded(FenceMode.OBSERVE)


class TestSqliteEnforcing(FencedContract):
    """Nothing that passes the fence is refused for it."""

    @pytest.fixture
    def subject(self, tmp_path: Path) -> SqliteSubject:
        return SqliteSubject(tmp_path).guarded(FenceMode.ENFORCE)
