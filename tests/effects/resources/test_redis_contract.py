"""The conformance suite on a real Redis server that syncs every write."""

from __future__ import annotations

import pytest

from ...servers.redis import RedisServer, redis, redis_server
from .contract import FencedContract
from .server_subjects import RedisSubject

__all__ = ["redis", "redis_server"]

pytestmark = pytest.mark.servers


class TestRedis(FencedContract):
    @pytest.fixture
    def subject(self, redis: RedisServer) -> RedisSubject:
        return RedisSubject(redis)
