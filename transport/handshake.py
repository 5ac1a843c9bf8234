"""The handshake, without I/O: who may talk to whom, judged before any Raft message.

The end that dialled says ``Hello``: its cluster, its name and instance, and whom it means to reach.
The other answers ``Welcome`` with the same about itself, or ``Refuse`` with an error, and each end
judges the other. An address that was given to another cluster's node, a node restored from an old
copy of its disk, a second node under one name: all end here, with both terms and logs untouched
(scenarios S21, S38).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..raft.core.errors import HandshakeRefused
from .codec import Hello, Welcome

PROTOCOL_VERSION = 1

PEER = "peer"
CLIENT = "client"


class LocalNode(NamedTuple):
    """What a node says about itself in every handshake."""

    cluster_id: str
    incarnation: int
    node_id: str
    instance_id: str
    """Random, made with the data directory: another one under the same node id is another disk."""
    client_address: str
    """``host:port`` where clients reach this node; given to clients of other nodes as a hint."""


def hello_to_peer(local: LocalNode, to_node_id: str) -> Hello:
    return Hello(
        version=PROTOCOL_VERSION,
        role=PEER,
        cluster_id=local.cluster_id,
        incarnation=local.incarnation,
        node_id=local.node_id,
        instance_id=local.instance_id,
        to_node_id=to_node_id,
        client_address=local.client_address,
    )


def hello_of_client(cluster_id: str = "") -> Hello:
    return Hello(version=PROTOCOL_VERSION, role=CLIENT, cluster_id=cluster_id)


def welcome_of(local: LocalNode) -> Welcome:
    return Welcome(
        version=PROTOCOL_VERSION,
        cluster_id=local.cluster_id,
        incarnation=local.incarnation,
        node_id=local.node_id,
        instance_id=local.instance_id,
        client_address=local.client_address,
    )


def check_peer_hello(
    local: LocalNode, hello: Hello, *, peers: Collection[str], known_instances: Mapping[str, str]
) -> None:
    """Judge a ``Hello`` on the peer port. Raises :class:`HandshakeRefused`."""
    _check_version(hello.version)
    if hello.role != PEER:
        raise HandshakeRefused(
            f"this is the peer port of node {local.node_id}, and a {hello.role} came",
            next_step=f"clients connect to {local.client_address}",
        )
    _check_cluster(local, hello.cluster_id, hello.incarnation, hello.node_id)
    if hello.to_node_id != local.node_id:
        raise HandshakeRefused(
            f"node {hello.node_id} means to reach {hello.to_node_id or 'nobody'}, but this is {local.node_id}",
            next_step=f"correct the address of {hello.to_node_id} in the configuration of {hello.node_id}",
        )
    _check_peer(local, hello.node_id, hello.instance_id, peers, known_instances)


def check_welcome(local: LocalNode, to_node_id: str, welcome: Welcome, *, known_instances: Mapping[str, str]) -> None:
    """Judge the ``Welcome`` of the peer that was dialled. Raises :class:`HandshakeRefused`."""
    _check_version(welcome.version)
    _check_cluster(local, welcome.cluster_id, welcome.incarnation, welcome.node_id)
    if welcome.node_id != to_node_id:
        raise HandshakeRefused(
            f"meant to reach {to_node_id}, but {welcome.node_id} answers there",
            next_step=f"correct the address of {to_node_id} in the configuration of {local.node_id}",
        )
    _check_peer(local, welcome.node_id, welcome.instance_id, (to_node_id,), known_instances)


def check_client_hello(local: LocalNode, hello: Hello) -> None:
    """Judge a ``Hello`` on the client port. Raises :class:`HandshakeRefused`."""
    _check_version(hello.version)
    if hello.role != CLIENT:
        raise HandshakeRefused(
            f"this is the client port of node {local.node_id}, and a {hello.role} came"
            + (f" ({hello.node_id})" if hello.node_id else ""),
            next_step="give the peer address of the node, not its client address",
        )
    if hello.cluster_id and hello.cluster_id != local.cluster_id:
        raise HandshakeRefused(
            f"the client asks for cluster {hello.cluster_id!r}, but node {local.node_id} "
            f"belongs to cluster {local.cluster_id!r}",
            next_step="check the endpoints, or the cluster id the client was given",
        )
    if hello.to_node_id and hello.to_node_id != local.node_id:
        raise HandshakeRefused(f"the client asks for node {hello.to_node_id}, but this is {local.node_id}")


def check_welcome_to_client(cluster_id: str, welcome: Welcome) -> None:
    """Judge the ``Welcome`` a client gets; an empty ``cluster_id`` takes any cluster."""
    _check_version(welcome.version)
    if cluster_id and welcome.cluster_id != cluster_id:
        raise HandshakeRefused(
            f"node {welcome.node_id} belongs to cluster {welcome.cluster_id!r}, not to {cluster_id!r}",
            next_step="check the endpoints",
        )


def _check_version(version: int) -> None:
    if version > PROTOCOL_VERSION:
        raise HandshakeRefused(
            f"the other end speaks protocol version {version}, this one only up to {PROTOCOL_VERSION}",
            next_step="upgrade this end",
        )
    if version < PROTOCOL_VERSION:
        raise HandshakeRefused(
            f"the other end speaks protocol version {version}, this one needs {PROTOCOL_VERSION}",
            next_step="upgrade the other end",
        )


def _check_cluster(local: LocalNode, cluster_id: str, incarnation: int, node_id: str) -> None:
    if cluster_id != local.cluster_id:
        raise HandshakeRefused(
            f"node {node_id} belongs to cluster {cluster_id!r}, but node {local.node_id} to {local.cluster_id!r}",
            next_step="check the peer addresses: one of them was given to another cluster",
        )
    if incarnation != local.incarnation:
        raise HandshakeRefused(
            f"node {node_id} is of incarnation {incarnation} of the cluster, but node {local.node_id} "
            f"of {local.incarnation}: one of them missed a restore or a forced recovery",
            next_step="restore the node of the lower incarnation from the same backup, or give it a new data directory",
        )


def _check_peer(
    local: LocalNode,
    node_id: str,
    instance_id: str,
    peers: Collection[str],
    known_instances: Mapping[str, str],
) -> None:
    if node_id == local.node_id:
        raise HandshakeRefused(
            f"the other end calls itself {node_id} too: two nodes under one name, or a node that dials itself",
            next_step="check node.id and the peer addresses",
        )
    if node_id not in peers:
        raise HandshakeRefused(
            f"node {node_id!r} is no peer of {local.node_id}; it knows {', '.join(sorted(peers)) or 'none'}",
            next_step=f"add {node_id} to the peers of {local.node_id}, or stop it",
        )
    if not instance_id:
        raise HandshakeRefused(f"node {node_id} names no instance of its data directory")
    known = known_instances.get(node_id)
    if known is not None and known != instance_id:
        raise HandshakeRefused(
            f"node {node_id} came with instance {instance_id} of its data directory, but {local.node_id} knows it "
            f"as {known}: its disk was wiped or replaced, and what it had acknowledged may be lost",
            next_step=f"put back the data directory that {node_id} had; docs/operations.md, 'When something is lost'",
        )
