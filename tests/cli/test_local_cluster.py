"""Ports of clusters on this machine: two that are made at the same time never get the same one."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from fencepost.cli import local_cluster
from fencepost.cli.commands.cluster import CLIENT_PORT_OFFSET
from fencepost.cli.local_cluster import free_peer_addresses
from fencepost.raft.core.errors import ConfigurationError


def unused_below_ephemeral() -> int:
    """A port that is free with its neighbour, and so are their client ports."""
    for port in range(31_000, 32_000, 2):
        with contextlib.ExitStack() as held:
            try:
                for each in (port, port + 1, port + CLIENT_PORT_OFFSET, port + 1 + CLIENT_PORT_OFFSET):
                    held.enter_context(socket.create_server(("127.0.0.1", each)))
            except OSError:
                continue
            return port
    raise AssertionError("no free ports")


async def test_a_reserved_port_is_nobody_elses_and_a_node_can_listen_there(monkeypatch: pytest.MonkeyPatch) -> None:
    first = unused_below_ephemeral()
    monkeypatch.setattr(local_cluster, "_PORTS", range(first, first + 2))
    with contextlib.ExitStack() as one, contextlib.ExitStack() as other:
        mine = free_peer_addresses(["n1"], reserved=one)
        yours = free_peer_addresses(["n1"], reserved=other)
        assert {*mine.values(), *yours.values()} == {f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}"}
        with pytest.raises(ConfigurationError, match="no free ports"):
            free_peer_addresses(["n1"])
        host, _, port = mine["n1"].rpartition(":")
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, int(port))
        server.close()
        await server.wait_closed()
        other.close()
        assert free_peer_addresses(["n1"]) == yours
    assert len(free_peer_addresses(["n1", "n2"])) == 2
