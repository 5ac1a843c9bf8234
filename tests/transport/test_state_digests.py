"""Digests of the state go only to peers that take them: one of an earlier version would hang up over them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from fencepost.raft.core.messages import StateDigest, TimeoutNow
from fencepost.transport import handshake, peer_port, peers
from fencepost.transport.peers import PeerTransport

from ..core.planting import planted
from .peer_world import SocketCluster

DIGEST = StateDigest(1000, [])
AFTER = TimeoutNow(7)


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """n2 says nothing of digests, as a node of the version before does."""
    hello, welcome = handshake.hello_to_peer, handshake.welcome_to_peer

    def said(body: Any, node_id: str) -> Any:
        return structs.replace(body, state_digests=False) if node_id == "n2" else body

    monkeypatch.setattr(peers, "hello_to_peer", lambda local, to: said(hello(local, to), local.node_id))
    monkeypatch.setattr(peer_port, "welcome_to_peer", lambda local: said(welcome(local), local.node_id))


async def exchange() -> dict[str, list[Any]]:
    """What n2 and n3 get of the messages that n1 sends to both."""
    async with SocketCluster() as cluster:
        await cluster.connected()
        for peer in ("n2", "n3"):
            for message in (DIGEST, AFTER):
                cluster.transport("n1").send(peer, message)
        handlers = cluster.handlers
        await cluster.until(lambda: all(AFTER in handlers[peer].of("n1") for peer in ("n2", "n3")), "both hear n1")
        return {peer: handlers[peer].of("n1") for peer in ("n2", "n3")}


async def test_a_peer_of_this_version_gets_them() -> None:
    assert await exchange() == {"n2": [DIGEST, AFTER], "n3": [DIGEST, AFTER]}


@pytest.mark.usefixtures("earlier")
async def test_a_peer_of_an_earlier_version_gets_everything_else() -> None:
    assert await exchange() == {"n2": [AFTER], "n3": [DIGEST, AFTER]}


@pytest.mark.usefixtures("earlier")
async def test_a_planted_fault_is_seen() -> None:
    with planted(PeerTransport.send, "if type(message) is StateDigest and not path.takes_digests:", "if False:"):
        assert await exchange() != {"n2": [AFTER], "n3": [DIGEST, AFTER]}
