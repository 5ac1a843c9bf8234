"""A program as an embedder writes it. Only its types are looked at (`test_types.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_type

import msgspec

from fencepost import (
    Applied,
    Effect,
    EffectContext,
    FencingToken,
    Handle,
    Leadership,
    LogEntry,
    Node,
    NodeSettings,
    NodeStatus,
    Outbox,
    StateMachine,
)


class Put(msgspec.Struct, tag=True):
    key: str
    value: int


class Drop(msgspec.Struct, tag=True):
    key: str


class Store:
    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def apply(self, index: int, term: int, command: Put | Drop) -> int | None:
        if isinstance(command, Drop):
            return self.values.pop(command.key, None)
        self.values[command.key] = command.value
        return command.value

    def snapshot(self) -> Iterable[bytes]:
        return [msgspec.msgpack.encode(self.values)]

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.values = msgspec.msgpack.decode(b"".join(chunks), type=dict[str, int])


machine: StateMachine[Put | Drop, int | None] = Store()

outbox = Outbox()
outbox.handlers("mail", guarantee="keyed")


@dataclass
class Mail:
    to: str


@dataclass
class Sent:
    at: int


@outbox.effect("send", resource="mail", payload=Mail)
async def send(context: EffectContext, mail: Mail) -> Sent:
    assert_type(context.token, FencingToken)
    return Sent(len(mail.to))


@outbox.effect("print", resource="mail", payload=Mail)
def print_it(context: EffectContext, mail: Mail) -> str:
    return mail.to


assert_type(send, Effect[Mail, Sent])
assert_type(print_it, Effect[Mail, str])
count = outbox.declare("count", resource="db", payload=Mail, result=int)
assert_type(count, Effect[Mail, int])


async def main(settings: NodeSettings) -> None:
    store = Store()
    async with Node(settings, store, outbox=outbox) as node:
        assert_type(node, Node[Put | Drop, int | None])
        assert_type(await node.propose(Put("a", 1), id="x"), Applied[int | None])
        assert_type(await node.read(lambda: store.values["a"]), int)
        assert_type(node.status, NodeStatus)
        async for entry in node.entries():
            assert_type(entry, LogEntry[Put | Drop])
        async for leadership in node.leadership():
            assert_type(leadership, Leadership)
        handle = await outbox.submit(send, Mail("a"), id="m", lane="l")
        assert_type(handle, Handle[Sent])
        assert_type(await handle.result(), Sent)
    async with Node("n1.toml", outbox=outbox) as alone:
        await alone.led()
