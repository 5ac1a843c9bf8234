"""Whom this node has met, and whom it will meet: judged in every handshake, remembered durably.

The first instance under which a node id is met is the only one under which it is met again (S21),
whether the id is in this node's list of peers, was, or will be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..raft.core.errors import HandshakeRefused, StorageError
from .codec import Hello, Welcome
from .handshake import LocalNode, check_peer_hello, check_welcome


class Acquaintances:
    """The instance ids of peers, and the node ids that never come back.

    ``remember_instance(node_id, instance_id)`` makes a new one durable before the peer is admitted.
    ``on_failure`` hears of a disk that failed under it.
    """

    def __init__(
        self,
        node: LocalNode,
        known_instances: Mapping[str, str],
        remember_instance: Callable[[str, str], None] | None,
        on_failure: Callable[[BaseException], None] | None,
    ) -> None:
        self._node = node
        self._known_instances = dict(known_instances)
        self._remember_instance = remember_instance
        self._on_failure = on_failure
        self.peers: Collection[str] = ()
        """The ids in this node's list of peers."""
        self.retired: frozenset[str] = frozenset()
        """The ids of former members."""

    def welcomed(self, peer: str, welcome: Welcome) -> None:
        """Judge the peer that was dialled. Raises :class:`HandshakeRefused`, or an error of the storage."""
        check_welcome(self._node, peer, welcome, known_instances=self._known_instances)
        self._remember(peer, welcome.instance_id)

    def greeted(self, hello: Hello) -> None:
        """Judge a peer that dialled. Raises as ``welcomed`` does."""
        check_peer_hello(
            self._node, hello, peers=self.peers, known_instances=self._known_instances, retired=self.retired
        )
        self._remember(hello.node_id, hello.instance_id)

    def _remember(self, peer: str, instance_id: str) -> None:
        if self._known_instances.get(peer) == instance_id:
            return
        if self._remember_instance is not None:
            try:
                self._remember_instance(peer, instance_id)
            except StorageError as error:
                if type(error) is StorageError and self._on_failure is not None:
                    # A failed write or sync is final for the process (S12): tried again at the next
                    # dial it might pass, and the disk still not know the peer. No space is not final.
                    self._on_failure(error)
                raise
            except OSError as error:
                raise HandshakeRefused(f"the instance of {peer} could not be recorded: {error}") from error
        self._known_instances[peer] = instance_id
