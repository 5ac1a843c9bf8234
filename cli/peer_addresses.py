"""Whom a node dials: the members of the configuration in force, at the addresses that it knows of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import structlog

from ..raft.core.configuration import Configuration
from ..raft.core.entry import Entry, Snapshot
from ..raft.core.events import RoleChange
from ..raft.core.step import Raft
from ..raft.node.observers import Onlooker

_LOG = structlog.get_logger("fencepost")


class PeersSetter(Protocol):
    def __call__(self, addresses: Mapping[str, str], *, retired: Collection[str] | None = None) -> None: ...


class PeerAddresses(Onlooker):
    """Follows the configuration (``raft.node.observers.LoopObserver``) and has the transport follow it.

    The membership is the cluster's and not the file's (S57). The file's addresses come first, so that a
    node that has moved can be found again by editing it; those that were given with a change of members
    are for whoever the file does not know. A node without members dials whom its file names, and waits
    to be added to their cluster.
    """

    def __init__(self, raft: Raft, configured: Mapping[str, str], set_peers: Callable[..., None]) -> None:
        self._raft = raft
        self._configured = dict(configured)
        self._set_peers: PeersSetter = set_peers
        self._departing: tuple[str, ...] = ()
        self._awaited_index = 0
        """Where the configuration in force stands, while it is not known to be committed."""
        self._told: tuple[dict[str, str], frozenset[str]] | None = None

    def current(self) -> dict[str, str]:
        """``host:port`` by node id, this node left out. A member whose address nobody knows is not in it:
        it dials this node, and is answered on what it has dialled."""
        configuration = self._raft.configuration
        if not configuration.members:
            return dict(self._configured)
        # A leader goes on telling former members that they are no members any more.
        wanted = [*configuration.members, *self._raft.departing]
        found = {node: self._configured.get(node) or configuration.address(node) for node in wanted}
        return {node: address for node, address in found.items() if address and node != self._raft.node_id}

    def warn(self) -> None:
        """Say once where the file and the cluster do not agree."""
        configuration, node_id = self._raft.configuration, self._raft.node_id
        members = set(configuration.members) - {node_id}
        if members and members != set(self._configured):
            _LOG.warning(
                "the file names other peers than the cluster has; the cluster counts",
                file=sorted(self._configured),
                cluster=sorted(members),
            )
        unknown = sorted(members - set(self.current()))
        if unknown:
            _LOG.warning("members whose address nobody has given; they can only dial this node", nodes=unknown)

    def follow(self) -> None:
        """Have the transport dial whom this node wants to reach now, and refuse whom the cluster has removed."""
        raft = self._raft
        self._departing = tuple(raft.departing)
        self._awaited_index = raft.configuration_index if raft.configuration_index > raft.commit_index else 0
        retired = frozenset(raft.committed_configuration().retired) - set(self._departing)
        told = (self.current(), retired)
        if told != self._told:
            self._told = told
            self._set_peers(told[0], retired=retired)

    # -- LoopObserver -----------------------------------------------------------------------------

    def configuration_changed(self, configuration: Configuration) -> None:
        self.follow()

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        if self._awaited_index and entries[-1].index >= self._awaited_index:
            self.follow()  # Committed: whom it has removed is not let in again.

    def restored(self, snapshot: Snapshot) -> None:
        self.follow()

    def role_changed(self, change: RoleChange) -> None:
        if self._departing:
            self.follow()

    def before_turn_ends(self, now: int) -> None:
        if self._departing and len(self._departing) != len(self._raft.departing):
            self.follow()
