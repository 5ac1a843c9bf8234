"""Whom a node dials: the cluster's members and nobody else, at the addresses it knows (scenarios S02, S57)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from structlog.testing import capture_logs

from fencepost.cli.peer_addresses import PeerAddresses
from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.events import Role, RoleChange
from fencepost.raft.core.step import Raft

FILE = {"n2": "two:1", "n3": "three:1"}


class Node:
    """What is looked at of a core, and what the transport is told."""

    def __init__(self, configuration: Configuration) -> None:
        self.node_id = "n1"
        self.configuration = self.committed = configuration
        self.configuration_index = 0
        self.commit_index = 0
        self.departing: dict[str, int] = {}
        self.told: list[tuple[dict[str, str], frozenset[str]]] = []
        self.peers = PeerAddresses(cast(Raft, self), FILE, self.set_peers)
        self.peers.follow()

    def committed_configuration(self) -> Configuration:
        return self.committed

    def set_peers(self, addresses: Mapping[str, str], *, retired: Collection[str] | None = None) -> None:
        self.told.append((dict(addresses), frozenset(retired or ())))

    def append(self, configuration: Configuration, index: int) -> None:
        self.configuration, self.configuration_index = configuration, index
        self.peers.configuration_changed(configuration)

    def commit(self, index: int) -> None:
        self.commit_index = index
        if index >= self.configuration_index:
            self.committed = self.configuration
        self.peers.applied([Entry(index, 1, EntryKind.OUTBOX, 0, b"")], [None])

    def dials(self) -> set[str]:
        return set(self.told[-1][0])


def test_the_members_are_the_clusters_and_the_addresses_first_the_files() -> None:
    known = Configuration(("n1", "n2", "n4"), addresses=(("n2", "old:1"), ("n4", "four:1")))
    node = Node(known)
    assert node.told == [({"n2": "two:1", "n4": "four:1"}, frozenset())]


def test_s57_a_file_that_names_others_is_warned_about_once_and_not_followed() -> None:
    node = Node(Configuration(("n1", "n2", "n4")))
    with capture_logs() as logs:
        node.peers.warn()
    other, unknown = logs
    assert (other["file"], other["cluster"]) == (["n2", "n3"], ["n2", "n4"])
    assert unknown["nodes"] == ["n4"]
    assert node.dials() == {"n2"}
    with capture_logs() as logs:
        Node(Configuration(("n1", "n2", "n3"))).peers.warn()
        Node(Configuration(())).peers.warn()
    assert not logs


def test_a_node_without_members_dials_whom_its_file_names_until_it_has_been_added() -> None:
    node = Node(Configuration(()))
    assert node.told == [(FILE, frozenset())]
    node.append(Configuration(("n2", "n4"), learners=("n1",), addresses=(("n4", "four:1"),)), 1)
    assert node.dials() == {"n2", "n4"}


def test_a_new_member_is_dialled_as_soon_as_it_is_in_the_log_and_no_more_if_it_is_not_any_more() -> None:
    before = Configuration(("n1", "n2", "n3"))
    node = Node(before)
    node.append(before._replace(learners=("n4",), addresses=(("n4", "four:1"),)), 5)
    assert node.dials() == {"n2", "n3", "n4"}
    node.append(before, 0)
    assert node.dials() == {"n2", "n3"}


def test_s02_a_removed_node_is_refused_once_that_is_committed_and_not_before_it_was_told() -> None:
    node = Node(Configuration(("n1", "n2", "n3")))
    node.departing = {"n3": 5}  # This node leads, and still has to tell it.
    node.append(Configuration(("n1", "n2"), retired=("n3",)), 5)
    assert node.told[-1] == (FILE, frozenset()), "an uncommitted removal may be undone"
    node.commit(4)
    node.commit(5)
    node.peers.before_turn_ends(0)
    assert node.told[-1] == (FILE, frozenset()), "it does not know yet"
    node.departing = {}
    node.peers.before_turn_ends(0)
    assert node.told[-1] == ({"n2": "two:1"}, frozenset({"n3"}))


def test_s02_a_leader_that_is_one_no_longer_leaves_that_to_its_successor() -> None:
    node = Node(Configuration(("n1", "n2", "n3")))
    node.departing = {"n3": 5}
    node.append(Configuration(("n1", "n2"), retired=("n3",)), 5)
    node.departing = {}
    node.peers.role_changed(RoleChange(Role.FOLLOWER, 2, "", ""))
    assert node.told[-1] == ({"n2": "two:1"}, frozenset())
    node.commit(5)
    assert node.told[-1] == ({"n2": "two:1"}, frozenset({"n3"}))


def test_nothing_is_told_twice() -> None:
    node = Node(Configuration(("n1", "n2", "n3")))
    for _ in range(3):
        node.peers.follow()
        node.commit(9)
    restored: Any = None
    node.peers.restored(restored)
    assert len(node.told) == 1
