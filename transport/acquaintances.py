"""Whom this node has met, and whom it will meet: judged in every handshake, remembered durably.

The first instance under which a node id is met is the only one under which it is met again (S21),
whether the id is in this node's list of peers, was, or will be.

An instance is a data directory, and one process at a time runs on it: each opening has a higher number
than the one before. Two processes that come with the same number run on copies of one directory; one that
comes with a lower number runs on a copy that is older than what was met before. Neither may be believed,
and the one that came second is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import structlog

from ..raft.core.errors import DirectoryCopied, HandshakeRefused, StorageError
from .codec import Hello, Welcome
from .handshake import LocalNode, check_peer_hello, check_welcome

_log = structlog.get_logger("fencepost.transport")


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
        self._processes: dict[tuple[str, str], tuple[int, str]] = {}
        """By node and instance: the highest boot that was met, and the process that had it."""
        self._told: set[tuple[str, str]] = set()
        self.peers: Collection[str] = ()
        """The ids in this node's list of peers."""
        self.retired: frozenset[str] = frozenset()
        """The ids of former members."""

    def welcomed(self, peer: str, welcome: Welcome) -> None:
        """Judge the peer that was dialled. Raises :class:`HandshakeRefused`, or an error of the storage."""
        check_welcome(self._node, peer, welcome, known_instances=self._known_instances)
        self._check_process(peer, welcome.instance_id, welcome.boot, welcome.process)
        self._remember(peer, welcome.instance_id)

    def greeted(self, hello: Hello) -> None:
        """Judge a peer that dialled. Raises as ``welcomed`` does."""
        check_peer_hello(
            self._node, hello, peers=self.peers, known_instances=self._known_instances, retired=self.retired
        )
        self._check_process(hello.node_id, hello.instance_id, hello.boot, hello.process)
        self._remember(hello.node_id, hello.instance_id)

    def _check_process(self, peer: str, instance_id: str, boot: int, process: str) -> None:
        if not process:
            return  # One of a version that does not say it.
        known = self._processes.get((peer, instance_id))
        if known is None or boot > known[0]:
            self._processes[(peer, instance_id)] = (boot, process)
        elif (boot, process) != known:
            what = (
                "two processes run on copies of one data directory"
                if boot == known[0]
                else "it runs on an older copy of its data directory, unless this greeting was only late"
            )
            error = DirectoryCopied(
                f"node {peer} came with opening {boot} of instance {instance_id} (process {process}), and opening "
                f"{known[0]} of it (process {known[1]}) was met before: {what}",
                next_step=f"stop every process of {peer}, and keep the directory that was written to last; "
                "docs/operations.md, DIRECTORY_COPIED",
            )
            if (peer, process) not in self._told:
                # Once for each process, and louder than a refusal that will pass.
                self._told.add((peer, process))
                _log.error("directory_copied", peer=peer, reason=error.message, next_step=error.next_step)
            raise error

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
