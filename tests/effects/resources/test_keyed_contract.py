"""The conformance suite of keyed resources: in memory, Python functions, an HTTP API in a process of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.raft.effects.handlers import EffectContext, Permanent
from fencepost.raft.effects.resources.http import HttpEffect, HttpResource
from fencepost.raft.effects.resources.memory import FakeResource, MemoryStore
from fencepost.raft.effects.resources.python import PythonEffect, PythonResource
from fencepost.raft.ports import Attempt, Guarantee, Resource

from ...servers.http_api import HttpApi, http_api, http_api_server
from .keyed_contract import KeyedContract

__all__ = ["http_api", "http_api_server"]


class KeyedMemorySubject:
    def __init__(self) -> None:
        self.store = MemoryStore()

    def node(self) -> Resource:
        return FakeResource(effects={"credit": self._credit}, store=self.store, guarantee=Guarantee.KEYED)

    def _credit(self, attempt: Attempt) -> bytes:
        if json.loads(attempt.payload)["cents"] < 0:
            raise Permanent("cents must not be negative")
        return b'{"place":%d}' % (len(self.store.effects) + 1)

    def world(self) -> list[str]:
        return [operation_id for _, operation_id in self.store.effects]


class KeyedPythonSubject:
    """A function that passes the operation id on, to something that recognises it."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[Any, Any]] = {}

    async def credit(self, context: EffectContext, payload: Any) -> Any:
        if payload["cents"] < 0:
            raise Permanent("cents must not be negative")
        before = self.known.setdefault(context.operation_id, (payload, {"place": len(self.known) + 1}))
        if before[0] != payload:
            raise Permanent("the key was used for another request")
        return before[1]

    def node(self) -> Resource:
        return PythonResource("mail", {"credit": PythonEffect(self.credit)}, guarantee=Guarantee.KEYED)

    def world(self) -> list[str]:
        return list(self.known)


class KeyedHttpSubject:
    def __init__(self, api: HttpApi) -> None:
        self.api = api

    def node(self) -> Resource:
        return HttpResource("api", self.api.url, {"credit": HttpEffect("/credits")}, cluster_id="cluster")

    def world(self) -> list[str]:
        return self.api.rows("effects")


class TestMemory(KeyedContract):
    @pytest.fixture
    def subject(self) -> KeyedMemorySubject:
        return KeyedMemorySubject()


class TestPython(KeyedContract):
    @pytest.fixture
    def subject(self) -> KeyedPythonSubject:
        return KeyedPythonSubject()


@pytest.mark.servers
class TestHttp(KeyedContract):
    @pytest.fixture
    def subject(self, http_api: HttpApi) -> KeyedHttpSubject:
        return KeyedHttpSubject(http_api)
