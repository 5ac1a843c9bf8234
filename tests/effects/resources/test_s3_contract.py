"""The conformance suite on a real S3 server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from fencepost.raft.ports import Resource

from ...servers.s3 import S3Server, s3, s3_server
from .contract import FencedContract
from .s3_subjects import S3Subject
from .subjects import Subject

__all__ = ["s3", "s3_server"]

pytestmark = pytest.mark.servers

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.endure) for seed in range(1, 8))]


class TestS3(FencedContract):
    @pytest.fixture
    def subject(self, s3: S3Server) -> S3Subject:
        return S3Subject(s3)

    @pytest.mark.parametrize("seed", SEEDS)
    async def test_random_leaders(self, subject: Subject, nodes: Callable[..., Awaitable[Resource]], seed: int) -> None:
        """The server answers one request at a time, and takes milliseconds for each: most seeds are for longer runs."""
        await super().test_random_leaders(subject, nodes, seed)
