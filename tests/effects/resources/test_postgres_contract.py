"""The conformance suite on a real PostgreSQL server, in both designs."""

from __future__ import annotations

import pytest

from fencepost.raft.effects.resources.postgres import Dedupe

from ...servers.postgres import PostgresServer, postgres, postgres_server
from .contract import FencedContract
from .query_contract import Nodes
from .server_subjects import PostgresSubject

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.servers


class TestTable(FencedContract):
    @pytest.fixture
    def subject(self, postgres: PostgresServer) -> PostgresSubject:
        return PostgresSubject(postgres, Dedupe.TABLE)

    @pytest.mark.parametrize("seed", range(2))
    async def test_random_leaders(self, subject: PostgresSubject, nodes: Nodes, seed: int) -> None:  # type: ignore[override]
        """Two of the seeds; the other design lives all of them."""
        await super().test_random_leaders(subject, nodes, seed)


@pytest.mark.endure
class TestOrderedLane(FencedContract):
    @pytest.fixture
    def subject(self, postgres: PostgresServer) -> PostgresSubject:
        return PostgresSubject(postgres, Dedupe.ORDERED_LANE)
