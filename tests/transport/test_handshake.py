"""The handshake's table: who is let in, and each reason for which one is not (scenarios S21, S38)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fencepost.raft.core.errors import BootstrapMismatch, HandshakeRefused, Outcome
from fencepost.transport.codec import Hello
from fencepost.transport.handshake import (
    CLIENT_VERSION,
    NODE_ID_BYTES_MAX,
    PEER_VERSION,
    NotAMember,
    check_client_hello,
    check_peer_hello,
    check_welcome,
    check_welcome_to_client,
    hello_of_client,
    hello_to_peer,
    welcome_to_client,
    welcome_to_peer,
)

from .samples import local_node

N1 = local_node("n1")
N2 = local_node("n2")
KNOWN = {"n2": "instance-of-n2"}

REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"version": PEER_VERSION + 1}, "speaks protocol version 4, this one only up to 3"),
    ({"version": 1}, "speaks protocol version 1, this one needs 3"),
    ({"cluster_id": "cluster-b"}, "belongs to cluster 'cluster-b'"),
    ({"cluster_id": ""}, "belongs to cluster ''"),
    ({"incarnation": 2}, "incarnation 2"),
    ({"node_id": "n1"}, "calls itself n1 too|n1 answers"),
    ({"instance_id": "other"}, "disk was wiped or replaced"),
    ({"instance_id": ""}, "names no instance"),
]


def check_hello(hello: Hello) -> None:
    check_peer_hello(N1, hello, peers=("n2", "n3"), known_instances=KNOWN)


def test_a_peer_is_let_in() -> None:
    check_hello(hello_to_peer(N2, "n1"))
    check_welcome(N1, "n2", welcome_to_peer(N2), known_instances=KNOWN)


def test_a_peer_that_was_never_met_is_let_in() -> None:
    check_peer_hello(N1, hello_to_peer(N2, "n1"), peers=("n2",), known_instances={})
    check_welcome(N1, "n2", welcome_to_peer(N2), known_instances={})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        *REFUSALS,
        ({"role": "client"}, "peer port"),
        ({"to_node_id": "n3"}, "means to reach n3, but this is n1"),
        ({"to_node_id": ""}, "means to reach nobody"),
        ({"node_id": ""}, "no node id"),
        ({"node_id": "n 2"}, "no node id"),
        ({"node_id": "n2\n"}, "no node id"),
        ({"node_id": "ä" * (NODE_ID_BYTES_MAX // 2 + 1)}, "no node id"),
    ],
)
def test_refusals_of_a_peer_that_dials(changes: dict[str, Any], says: str) -> None:
    hello = msgspec.structs.replace(hello_to_peer(N2, "n1"), **changes)
    with pytest.raises(HandshakeRefused, match=says) as caught:
        check_hello(hello)
    assert caught.value.outcome is Outcome.REFUSED


@pytest.mark.parametrize(("changes", "says"), [*REFUSALS, ({"node_id": "n9"}, "meant to reach n2, but n9 answers")])
def test_refusals_of_a_peer_that_answers(changes: dict[str, Any], says: str) -> None:
    welcome = msgspec.structs.replace(welcome_to_peer(N2), **changes)
    with pytest.raises(HandshakeRefused, match=says):
        check_welcome(N1, "n2", welcome, known_instances=KNOWN)


def test_a_member_that_is_not_in_the_list_of_peers_is_let_in() -> None:
    """Who is a member stands in the log, which may yet have to come from it."""
    hello = hello_to_peer(local_node("n9"), "n1")
    check_peer_hello(N1, hello, peers=(), known_instances={})
    check_peer_hello(N1, hello, peers=("n2",), known_instances={"n9": "instance-of-n9"})


def test_a_node_that_is_not_in_the_list_and_comes_with_another_disk_is_refused_s21() -> None:
    hello = hello_to_peer(local_node("n9"), "n1")
    with pytest.raises(HandshakeRefused, match="disk was wiped or replaced") as caught:
        check_peer_hello(N1, hello, peers=("n2",), known_instances={"n9": "other"})
    assert "if it was never a member" in caught.value.next_step
    with pytest.raises(HandshakeRefused, match="disk was wiped or replaced") as caught:
        check_peer_hello(N1, hello, peers=("n9",), known_instances={"n9": "other"})
    assert "never a member" not in caught.value.next_step


def test_a_node_that_was_removed_is_refused_as_such_unless_it_is_named_again() -> None:
    hello = hello_to_peer(N2, "n1")
    with pytest.raises(NotAMember, match="n2 is not a member of cluster 'cluster-a'") as caught:
        check_peer_hello(N1, hello, peers=("n3",), known_instances=KNOWN, retired=("n2",))
    assert caught.value.code == "NOT_A_MEMBER"
    assert "node id that was never used" in caught.value.next_step
    check_peer_hello(N1, hello, peers=("n2",), known_instances=KNOWN, retired=("n2",))


# -- bootstrapped with different voters ---------------------------------------------------------------

FIRST = N1._replace(bootstrap_voters=("n1", "n2", "n3"))


@pytest.mark.parametrize("voters", [("n2", "n3", "n4"), ("n1", "n2"), ("n1", "n2", "n3", "n4"), ("n2",)])
def test_nodes_that_were_first_started_with_different_voters_refuse_each_other(voters: tuple[str, ...]) -> None:
    other = N2._replace(bootstrap_voters=voters)
    with pytest.raises(BootstrapMismatch, match="n1, n2, n3, and node n2 with others") as caught:
        check_peer_hello(FIRST, hello_to_peer(other, "n1"), peers=("n2", "n3"), known_instances={})
    assert (caught.value.code, caught.value.outcome) == ("BOOTSTRAP_MISMATCH", Outcome.REFUSED)
    with pytest.raises(BootstrapMismatch, match="n1, n2, n3, and node n2 with others"):
        check_welcome(FIRST, "n2", welcome_to_peer(other), known_instances={})
    # And the other way round: whoever dials.
    with pytest.raises(BootstrapMismatch, match="and node n1 with others"):
        check_peer_hello(other, hello_to_peer(FIRST, "n2"), peers=(), known_instances={})
    with pytest.raises(BootstrapMismatch, match="and node n1 with others"):
        check_welcome(other, "n1", welcome_to_peer(FIRST), known_instances={})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("n1", "n2", "n3"), ("n3", "n1", "n2")),  # Order says nothing.
        (("n1", "n2", "n3"), ()),  # The other one joined.
        ((), ("n2", "n3", "n4")),
        ((), ()),
    ],
)
def test_the_same_voters_and_nodes_that_joined_are_let_in(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    here, there = N1._replace(bootstrap_voters=one), N2._replace(bootstrap_voters=other)
    check_peer_hello(here, hello_to_peer(there, "n1"), peers=(), known_instances={})
    check_welcome(here, "n2", welcome_to_peer(there), known_instances={})


def test_a_hello_and_a_welcome_that_do_not_speak_of_voters_are_read_as_of_a_node_that_joined() -> None:
    """So says a node of a version that has no such field; and one that has it may be read by that version."""
    for sent in (hello_to_peer(FIRST, "n2"), welcome_to_peer(FIRST)):
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(sent))
        assert len(bytes.fromhex(fields.pop("bootstrap_digest"))) == 16
        read = msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=type(sent))
        assert read == msgspec.structs.replace(sent, bootstrap_digest="")


def test_the_digest_is_what_it_was() -> None:
    """Two versions must agree on it. BLAKE2b of 16 bytes of the text `n1 n2 n3`, worked out apart from this program."""
    assert FIRST.bootstrap_digest == "81d73b4220601f6ecc00c89a1c5d15a1"


def test_another_disk_is_named_before_other_voters() -> None:
    """A directory that was wiped and made anew from another file: what is lost matters more than the list."""
    other = N2._replace(instance_id="other", bootstrap_voters=("n2", "n4"))
    with pytest.raises(HandshakeRefused, match="disk was wiped or replaced"):
        check_peer_hello(FIRST, hello_to_peer(other, "n1"), peers=("n2",), known_instances=KNOWN)


def test_a_client_is_told_nothing_of_voters() -> None:
    assert welcome_to_client(FIRST).bootstrap_digest == ""


def test_the_wrong_port_is_named_before_the_version() -> None:
    """Peers and clients count their versions apart: one compared with the other would say nothing."""
    assert PEER_VERSION != CLIENT_VERSION
    with pytest.raises(HandshakeRefused, match="peer port of node n1, and a client came"):
        check_hello(hello_of_client())
    with pytest.raises(HandshakeRefused, match="client port of node n1, and a peer came"):
        check_client_hello(N1, hello_to_peer(N2, "n1"))


def test_a_client_is_let_in_with_and_without_a_cluster() -> None:
    check_client_hello(N1, hello_of_client())
    check_client_hello(N1, hello_of_client("cluster-a"))
    check_welcome_to_client("", welcome_to_client(N1))
    check_welcome_to_client("cluster-a", welcome_to_client(N1))


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
        check_welcome_to_client("cluster-b", welcome_to_client(N1))
