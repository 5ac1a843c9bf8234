"""A replicated key-value store.

python kv.py serve n1                    one node of three (n1, n2, n3); its data lies in ./n1
python kv.py ask set colour green        asks whichever node answers
python kv.py ask get colour
python kv.py ask swap colour green blue  only if it is green still
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from fencepost import FencepostError, Node, NodeSettings

PEERS = {"n1": "127.0.0.1:7001", "n2": "127.0.0.1:7002", "n3": "127.0.0.1:7003"}
CLIENTS = {"n1": "127.0.0.1:7101", "n2": "127.0.0.1:7102", "n3": "127.0.0.1:7103"}
STORES = {"n1": "127.0.0.1:7301", "n2": "127.0.0.1:7302", "n3": "127.0.0.1:7303"}


class Set(msgspec.Struct, tag=True):
    key: str
    value: str


class Swap(msgspec.Struct, tag=True):
    key: str
    old: str
    value: str


class Store:
    def __init__(self) -> None:
        self.data: dict[str, str] = {}

    def apply(self, index: int, term: int, command: Set | Swap) -> bool:
        if isinstance(command, Swap) and self.data.get(command.key) != command.old:
            return False
        self.data[command.key] = command.value
        return True

    def snapshot(self) -> Iterable[bytes]:
        return [json.dumps(self.data).encode()]

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.data = json.loads(b"".join(chunks))


async def answer(node: Node[Set | Swap, bool], store: Store, request_id: str, words: list[str]) -> object:
    if words[0] == "get":
        return await node.read(lambda: store.data.get(words[1]))  # Everything that was set before, on any node.
    command = Set(*words[1:]) if words[0] == "set" else Swap(*words[1:])
    return (await node.propose(command, id=request_id)).result


async def serve(name: str) -> object:
    store, others = Store(), {peer: address for peer, address in PEERS.items() if peer != name}
    settings = NodeSettings(
        cluster_id="kv", node_id=name, data_dir=name, peer=PEERS[name], client=CLIENTS[name], peers=others
    )

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request_id, *words = json.loads(await reader.readline())
        try:
            writer.write(json.dumps(await answer(node, store, request_id, words)).encode() + b"\n")
        except FencepostError as error:
            print(error.code, error)  # No answer: whoever asked asks again, under the same id.
        writer.close()

    async with Node(settings, store) as node, await asyncio.start_server(serve_one, *STORES[name].split(":")):
        await node.stopped()
    return "stopped"


async def ask(words: list[str]) -> object:
    line = json.dumps([str(uuid.uuid4()), *words]).encode() + b"\n"
    async with asyncio.timeout(30):
        while True:  # One node after the other, under one id: it is done once, however often it is asked for.
            for address in STORES.values():
                with suppress(OSError):
                    reader, writer = await asyncio.open_connection(*address.split(":"))
                    writer.write(line)
                    said = await reader.readline()
                    writer.close()
                    if said:
                        return json.loads(said)
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    words = sys.argv[2:]
    print(json.dumps(asyncio.run(serve(words[0]) if sys.argv[1] == "serve" else ask(words))))
