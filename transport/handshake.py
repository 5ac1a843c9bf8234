"""The handshake, without I/O: who may talk to whom, judged before any Raft message.

The end that dialled says ``Hello``: its cluster, its name and instance, and whom it means to reach.
The other answers ``Welcome`` with the same about itself, or ``Refuse`` with an error, and each end
judges the other. An address that was given to another cluster's node, a node restored from an old
copy of its disk, a second node under one name: all end here, with both terms and logs untouched
(scenarios S21, S38).

Nodes that were first started with different lists of voters refuse each other too. Majorities of
different lists need not meet: n1 started with n1, n2, n3 and n2 with n2, n3, n4 could be led by two
leaders at once, under one cluster id. What counts is the list at the first start, which stays in the
data directory; members that come and go change nothing about it, and a node that joined has none.

A node that is not in the other's list of peers is let in all the same if it is of the cluster. Who is a
member stands in the log, and a node that joins, or one that lags behind, can learn of a member only by
letting it in. Only one that was removed is refused: its id is never used again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec import structs

from ..raft.core.errors import (
    BootstrapMismatch,
    ClusterMismatch,
    HandshakeRefused,
    IncarnationMismatch,
    InstanceChanged,
)
from .codec import Hello, Welcome

PEER_VERSION = 3
"""What peers may say to each other. Version 1 had no snapshots, no transfer, no reads through
followers, and nothing came back on a connection but pongs; in version 2 answers to a leader did not say for
how long a vote is kept. Such a peer would take the others' messages for garbage, so it is refused in words instead."""
CLIENT_VERSION = 1
"""What a client and a node may say to each other. It changes on its own: a new kind of message between
nodes is no reason to refuse a client."""
NODE_ID_BYTES_MAX = 255
"""In UTF-8; what the log has room for in a vote."""

PEER = "peer"
CLIENT = "client"


class NotAMember(HandshakeRefused):
    """The node was removed from the cluster. Its id is never used again."""

    code = "NOT_A_MEMBER"


class LocalNode(NamedTuple):
    """What a node says about itself in every handshake."""

    cluster_id: str
    incarnation: int
    node_id: str
    instance_id: str
    """Random, made with the data directory: another one under the same node id is another disk."""
    client_address: str
    """``host:port`` where clients reach this node; given to clients of other nodes as a hint."""
    bootstrap_voters: tuple[str, ...] = ()
    """The voters that its data directory was made with; none for a node that joined."""
    boot: int = 0
    """How often its data directory has been opened."""
    process: str = ""
    """Random, of this process alone: another one with the same instance and boot runs on a copy of the directory."""

    @property
    def bootstrap_digest(self) -> str:
        """32 hexadecimal digits that stand for the voters in any order; empty for none."""
        if not self.bootstrap_voters:
            return ""
        # Node ids have no blanks, so no two lists are joined to the same text.
        text = " ".join(sorted(self.bootstrap_voters))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def hello_to_peer(local: LocalNode, to_node_id: str) -> Hello:
    return Hello(
        version=PEER_VERSION,
        role=PEER,
        cluster_id=local.cluster_id,
        incarnation=local.incarnation,
        node_id=local.node_id,
        instance_id=local.instance_id,
        to_node_id=to_node_id,
        client_address=local.client_address,
        bootstrap_digest=local.bootstrap_digest,
        boot=local.boot,
        process=local.process,
        state_digests=True,
    )


def hello_of_client(cluster_id: str = "") -> Hello:
    return Hello(version=CLIENT_VERSION, role=CLIENT, cluster_id=cluster_id)


def welcome_to_peer(local: LocalNode) -> Welcome:
    welcome = _welcome(local, PEER_VERSION)
    return structs.replace(
        welcome,
        bootstrap_digest=local.bootstrap_digest,
        boot=local.boot,
        process=local.process,
        state_digests=True,
    )


def welcome_to_client(local: LocalNode) -> Welcome:
    return _welcome(local, CLIENT_VERSION)


def _welcome(local: LocalNode, version: int) -> Welcome:
    return Welcome(
        version=version,
        cluster_id=local.cluster_id,
        incarnation=local.incarnation,
        node_id=local.node_id,
        instance_id=local.instance_id,
        client_address=local.client_address,
    )


def check_peer_hello(
    local: LocalNode,
    hello: Hello,
    *,
    peers: Collection[str],
    known_instances: Mapping[str, str],
    retired: Collection[str] = (),
) -> None:
    """Judge a ``Hello`` on the peer port. Raises :class:`HandshakeRefused`, :class:`BootstrapMismatch` among them.

    ``peers`` are the nodes that this one dials; another one is let in too. ``retired`` are those that
    were removed and refused as :class:`NotAMember`.
    """
    if hello.role != PEER:
        raise HandshakeRefused(
            f"this is the peer port of node {local.node_id}, and a {hello.role} came",
            next_step=f"clients connect to {local.client_address}",
        )
    _check_version(hello.version, PEER_VERSION)
    _check_cluster(local, hello.cluster_id, hello.incarnation, hello.node_id)
    if hello.to_node_id != local.node_id:
        raise HandshakeRefused(
            f"node {hello.node_id} means to reach {hello.to_node_id or 'nobody'}, but this is {local.node_id}",
            next_step=f"correct the address of {hello.to_node_id} in the configuration of {hello.node_id}",
        )
    _check_node_id(local, hello.node_id)
    if hello.node_id in retired and hello.node_id not in peers:
        raise NotAMember(
            f"node {hello.node_id} is not a member of cluster {local.cluster_id!r}: it was removed",
            next_step=f"stop {hello.node_id}; to come back it needs a node id that was never used, and an empty "
            "data directory",
        )
    _check_instance(local, hello.node_id, hello.instance_id, known_instances, is_peer=hello.node_id in peers)
    _check_bootstrap(local, hello.node_id, hello.bootstrap_digest)


def check_welcome(local: LocalNode, to_node_id: str, welcome: Welcome, *, known_instances: Mapping[str, str]) -> None:
    """Judge the ``Welcome`` of the peer that was dialled. Raises as :func:`check_peer_hello` does."""
    _check_version(welcome.version, PEER_VERSION)
    _check_cluster(local, welcome.cluster_id, welcome.incarnation, welcome.node_id)
    if welcome.node_id != to_node_id:
        raise HandshakeRefused(
            f"meant to reach {to_node_id}, but {welcome.node_id} answers there",
            next_step=f"correct the address of {to_node_id} in the configuration of {local.node_id}",
        )
    _check_node_id(local, welcome.node_id)
    _check_instance(local, welcome.node_id, welcome.instance_id, known_instances, is_peer=True)
    _check_bootstrap(local, welcome.node_id, welcome.bootstrap_digest)


def check_client_hello(local: LocalNode, hello: Hello) -> None:
    """Judge a ``Hello`` on the client port. Raises :class:`HandshakeRefused`."""
    if hello.role != CLIENT:
        raise HandshakeRefused(
            f"this is the client port of node {local.node_id}, and a {hello.role} came"
            + (f" ({hello.node_id})" if hello.node_id else ""),
            next_step="give the peer address of the node, not its client address",
        )
    _check_version(hello.version, CLIENT_VERSION)
    if hello.cluster_id and hello.cluster_id != local.cluster_id:
        raise ClusterMismatch(
            f"the client asks for cluster {hello.cluster_id!r}, but node {local.node_id} "
            f"belongs to cluster {local.cluster_id!r}",
            next_step="check the endpoints, or the cluster id the client was given",
        )
    if hello.to_node_id and hello.to_node_id != local.node_id:
        raise HandshakeRefused(f"the client asks for node {hello.to_node_id}, but this is {local.node_id}")


def check_welcome_to_client(cluster_id: str, welcome: Welcome, *, incarnation: int = 0) -> None:
    """Judge the ``Welcome`` a client gets; an empty ``cluster_id`` takes any cluster.

    ``incarnation`` is the highest in which the client has met the cluster. A node of a lower one may still
    lead those that are left of it, and what it commits is lost to the cluster that came after.
    Raises :class:`HandshakeRefused`.
    """
    _check_version(welcome.version, CLIENT_VERSION)
    if cluster_id and welcome.cluster_id != cluster_id:
        raise ClusterMismatch(
            f"node {welcome.node_id} belongs to cluster {welcome.cluster_id!r}, not to {cluster_id!r}",
            next_step="check the endpoints",
        )
    if welcome.incarnation < incarnation:
        raise IncarnationMismatch(
            f"node {welcome.node_id} is of incarnation {welcome.incarnation} of cluster {welcome.cluster_id!r}, "
            f"and others are of {incarnation}: it missed a restore or a forced recovery",
            next_step=f"stop {welcome.node_id}; docs/operations.md, INCARNATION_MISMATCH",
        )


def _check_version(version: int, spoken: int) -> None:
    if version > spoken:
        raise HandshakeRefused(
            f"the other end speaks protocol version {version}, this one only up to {spoken}",
            next_step="upgrade this end",
        )
    if version < spoken:
        raise HandshakeRefused(
            f"the other end speaks protocol version {version}, this one needs {spoken}",
            next_step="upgrade the other end",
        )


def _check_cluster(local: LocalNode, cluster_id: str, incarnation: int, node_id: str) -> None:
    if cluster_id != local.cluster_id:
        raise ClusterMismatch(
            f"node {node_id} belongs to cluster {cluster_id!r}, but node {local.node_id} to {local.cluster_id!r}",
            next_step="check the peer addresses: one of them was given to another cluster",
        )
    if incarnation != local.incarnation:
        raise IncarnationMismatch(
            f"node {node_id} is of incarnation {incarnation} of the cluster, but node {local.node_id} "
            f"of {local.incarnation}: one of them missed a restore or a forced recovery",
            next_step="stop the node of the lower incarnation; docs/operations.md, INCARNATION_MISMATCH",
        )


def _check_node_id(local: LocalNode, node_id: str) -> None:
    if node_id == local.node_id:
        raise HandshakeRefused(
            f"the other end calls itself {node_id} too: two nodes under one name, or a node that dials itself",
            next_step="check node.id and the peer addresses",
        )
    # It may end up in the log, as a vote or in a configuration, where parts are set off by blanks.
    if not node_id or len(node_id.encode()) > NODE_ID_BYTES_MAX or " " in node_id or not node_id.isprintable():
        raise HandshakeRefused(
            f"the other end calls itself {node_id[:NODE_ID_BYTES_MAX]!r}, which is no node id",
            next_step="check node.id of the other end",
        )


def _check_instance(
    local: LocalNode, node_id: str, instance_id: str, known_instances: Mapping[str, str], *, is_peer: bool
) -> None:
    if not instance_id:
        raise HandshakeRefused(f"node {node_id} names no instance of its data directory")
    known = known_instances.get(node_id)
    if known is not None and known != instance_id:
        next_step = f"put back the data directory that {node_id} had; docs/operations.md, 'When something is lost'"
        if not is_peer:
            next_step = f"{next_step}; if it was never a member: join under a node id that was never used"
        raise InstanceChanged(
            f"node {node_id} came with instance {instance_id} of its data directory, but {local.node_id} knows it "
            f"as {known}: its disk was wiped or replaced, and what it had acknowledged may be lost",
            next_step=next_step,
        )


def _check_bootstrap(local: LocalNode, node_id: str, digest: str) -> None:
    """A node that joined has no digest, and neither has one of a version that did not say it yet."""
    own = local.bootstrap_digest
    if own and digest and own != digest:
        raise BootstrapMismatch(
            f"node {local.node_id} was first started with the voters {', '.join(sorted(local.bootstrap_voters))}, "
            f"and node {node_id} with others: two clusters under the id {local.cluster_id!r}",
            next_step="compare [peers] in the files that both were first started with; "
            "docs/operations.md, BOOTSTRAP_MISMATCH",
        )
