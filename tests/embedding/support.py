"""A state machine, typed effects, and clusters of embedded nodes in this process."""

from __future__ import annotations

import contextlib
import json
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost import (
    Effect,
    EffectContext,
    Node,
    NodeSettings,
    NotLeader,
    Outbox,
    OutcomeUnknown,
    Permanent,
    Retention,
    Retry,
    Retryable,
    TransferRefused,
)
from fencepost.cli.local_cluster import free_peer_addresses
from tests.waiting import eventually_async


@dataclass(frozen=True)
class Add:
    name: str
    by: int


class Counters:
    """Sums by name. ``apply`` fails for the name ``poison``."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.applied: list[int] = []

    def apply(self, index: int, term: int, command: Add) -> int:
        if command.name == "poison":
            raise RuntimeError("cannot take it")
        self.applied.append(index)
        self.values[command.name] = self.values.get(command.name, 0) + command.by
        return self.values[command.name]

    def snapshot(self) -> Iterable[bytes]:
        return [json.dumps(self.values).encode()]

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.values = json.loads(b"".join(chunks))


@dataclass(frozen=True)
class Mail:
    to: str
    cents: int


@dataclass(frozen=True)
class Sent:
    text: str
    attempt: int


class Post:
    """The other side, which knows keys. One for all nodes of a test."""

    def __init__(self) -> None:
        self.sent: dict[str, Mail] = {}
        self.calls: list[tuple[str, int]] = []
        self.threads: set[str] = set()
        self.gate = threading.Event()
        """Who sends to ``held`` waits for it."""

    def send(self, context: EffectContext, mail: Mail) -> Sent:
        self.calls.append((context.operation_id, context.attempt))
        self.threads.add(threading.current_thread().name)
        if mail.to == "nobody":
            raise Permanent("no such address")
        if mail.to == "slow" and context.attempt < 3:
            raise Retryable("not now")
        if mail.to == "held":
            assert self.gate.wait(20)
        self.sent.setdefault(context.operation_id, mail)
        return Sent(f"{mail.to} {mail.cents}", context.attempt)


def mailing(post: Post, **options: Any) -> tuple[Outbox, Effect[Mail, Sent]]:
    outbox = Outbox(**options)
    outbox.handlers("mail", guarantee="keyed", retry=Retry(backoff_s=0.001))

    @outbox.effect("send", resource="mail", payload=Mail)
    async def send(context: EffectContext, mail: Mail) -> Sent:
        return post.send(context, mail)

    return outbox, send


Make = Callable[[], Outbox]


class Embedded:
    """Nodes of one cluster, each with a machine of its own."""

    def __init__(self, folder: Path, *names: str, make: Make | None = None, **settings: Any) -> None:
        self.folder = folder
        self.names = names or ("n1",)
        reserved = contextlib.ExitStack()
        self.peers = free_peer_addresses(self.names, reserved=reserved)
        weakref.finalize(self, reserved.close)
        self.settings = {"heartbeat_s": 0.05, "election_timeout_s": 0.3, **settings}
        self.retention = Retention()
        self.machines: dict[str, Counters] = {}
        self.nodes: dict[str, Node[Add, int]] = {}
        self.outboxes: dict[str, Outbox] = {}
        self._make = make

    def settings_of(self, name: str) -> NodeSettings:
        host, _, port = self.peers[name].rpartition(":")
        return NodeSettings(
            cluster_id="embedded",
            node_id=name,
            data_dir=self.folder / name,
            peer=self.peers[name],
            client=f"{host}:{int(port) + 100}",
            peers={peer: address for peer, address in self.peers.items() if peer != name},
            **self.settings,
        )

    async def start(self, *names: str) -> None:
        for name in names or self.names:
            machine = self.machines[name] = Counters()
            outbox = None if self._make is None else self._make()
            if outbox is not None:
                self.outboxes[name] = outbox
            node = Node(self.settings_of(name), machine, outbox=outbox, retention=self.retention)
            self.nodes[name] = await node.__aenter__()

    async def stop(self, *names: str, hand_over: bool = True) -> None:
        for name in names:
            await self.nodes.pop(name).close(hand_over=hand_over)

    async def leader(self) -> str:
        """Once somebody leads and knows all that was committed."""

        async def look() -> str | None:
            return next((name for name, node in self.nodes.items() if node.status.role == "leader"), None)

        name = await eventually_async(look, within_s=20, what="a leader")
        await self.nodes[name].led()
        return name

    async def follower(self) -> str:
        leader = await self.leader()
        return next(name for name in self.nodes if name != leader)

    async def hand_over(self, target: str) -> None:
        """A leader refuses while it has not heard of the target, or may lose the leadership itself."""

        async def look() -> bool:
            leader = await self.leader()
            if leader == target:
                return True
            try:
                return await self.nodes[leader].hand_over(target) == target
            except (TransferRefused, NotLeader, OutcomeUnknown):
                return False

        await eventually_async(look, within_s=20, what=f"{target} in the lead")

    async def __aenter__(self) -> Embedded:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            await node.close(hand_over=False)
