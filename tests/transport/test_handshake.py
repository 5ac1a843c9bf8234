"""The handshake's table: who is let in, and each reason for which one is not (scenarios S21, S38)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fencepost.raft.core.errors import HandshakeRefused, Outcome
from fencepost.transport.codec import Hello
from fencepost.transport.handshake import (
    PROTOCOL_VERSION,
    check_client_hello,
    check_peer_hello,
    check_welcome,
    check_welcome_to_client,
    hello_of_client,
    hello_to_peer,
    welcome_of,
)

from .samples import local_node

N1 = local_node("n1")
N2 = local_node("n2")
KNOWN = {"n2": "instance-of-n2"}

REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"version": PROTOCOL_VERSION + 1}, "speaks protocol version 2"),
    ({"version": 0}, "speaks protocol version 0"),
    ({"cluster_id": "cluster-b"}, "belongs to cluster 'cluster-b'"),
    ({"cluster_id": ""}, "belongs to cluster ''"),
    ({"incarnation": 2}, "incarnation 2"),
    ({"node_id": "n9"}, "'n9'|n9 answers"),
    ({"node_id": "n1"}, "calls itself n1 too|n1 answers"),
    ({"instance_id": "other"}, "disk was wiped or replaced"),
    ({"instance_id": ""}, "names no instance"),
]


def check_hello(hello: Hello) -> None:
    check_peer_hello(N1, hello, peers=("n2", "n3"), known_instances=KNOWN)


def test_a_peer_is_let_in() -> None:
    check_hello(hello_to_peer(N2, "n1"))
    check_welcome(N1, "n2", welcome_of(N2), known_instances=KNOWN)


def test_a_peer_that_was_never_met_is_let_in() -> None:
    check_peer_hello(N1, hello_to_peer(N2, "n1"), peers=("n2",), known_instances={})
    check_welcome(N1, "n2", welcome_of(N2), known_instances={})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        *REFUSALS,
        ({"role": "client"}, "peer port"),
        ({"to_node_id": "n3"}, "means to reach n3, but this is n1"),
        ({"to_node_id": ""}, "means to reach nobody"),
    ],
)
def test_refusals_of_a_peer_that_dials(changes: dict[str, Any], says: str) -> None:
    hello = msgspec.structs.replace(hello_to_peer(N2, "n1"), **changes)
    with pytest.raises(HandshakeRefused, match=says) as caught:
        check_hello(hello)
    assert caught.value.outcome is Outcome.REFUSED


@pytest.mark.parametrize(("changes", "says"), REFUSALS)
def test_refusals_of_a_peer_that_answers(changes: dict[str, Any], says: str) -> None:
    welcome = msgspec.structs.replace(welcome_of(N2), **changes)
    with pytest.raises(HandshakeRefused, match=says):
        check_welcome(N1, "n2", welcome, known_instances=KNOWN)


def test_a_client_is_let_in_with_and_without_a_cluster() -> None:
    check_client_hello(N1, hello_of_client())
    check_client_hello(N1, hello_of_client("cluster-a"))
    check_welcome_to_client("", welcome_of(N1))
    check_welcome_to_client("cluster-a", welcome_of(N1))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": 7}, "protocol version 7"),
        ({"role": "peer", "node_id": "n2"}, r"client port of node n1, and a peer came \(n2\)"),
        ({"cluster_id": "cluster-b"}, "asks for cluster 'cluster-b'"),
        ({"to_node_id": "n2"}, "asks for node n2"),
    ],
)
def test_refusals_of_a_client(changes: dict[str, Any], says: str) -> None:
    hello = msgspec.structs.replace(hello_of_client(), **changes)
    with pytest.raises(HandshakeRefused, match=says):
        check_client_hello(N1, hello)


def test_a_client_refuses_another_cluster() -> None:
    with pytest.raises(HandshakeRefused, match="belongs to cluster 'cluster-a', not to 'cluster-b'"):
        check_welcome_to_client("cluster-b", welcome_of(N1))
