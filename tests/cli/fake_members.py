"""The members of the fake cluster: the real configuration of the core, changed at once."""

from __future__ import annotations

from typing import Any

from fencepost.raft.core.configuration import Change, ChangeKind, Configuration, change_simply
from fencepost.raft.core.errors import ChangeRefused, NotCaughtUp, NotLeader, TransferRefused
from fencepost.raft.node.members import configuration_json


class FakeMembers:
    """What a fake cluster knows of its members, and what it answers about them.

    ``silent``: members that have answered nothing so far. ``transfers``: to whom leadership went, in order.
    ``stuck``: a transfer never succeeds.
    """

    def __init__(self, leader: str, *nodes: str) -> None:
        self.leader = leader
        self.configuration = Configuration(nodes)
        self.silent: set[str] = set()
        self.behind: dict[str, int] = {}
        """Entries that members lack which do answer."""
        self.stuck = False
        self.transfers: list[str] = []
        self.term = 7
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """Every change that was asked for, dry runs included."""

    def call(self, node_id: str, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if method == "member.list" and parameters.get("consistency") == "stale":
            return {**self._list(), "read": {"consistency": "stale", "applied_index": 1, "age_s": 0.25}}
        if node_id != self.leader:
            raise NotLeader("this node does not lead")
        if method == "member.list":
            return {**self._list(), "read": {"consistency": "linearizable", "applied_index": 1, "age_s": 0}}
        self.asked.append((method, parameters))
        if method == "cluster.transfer_leader":
            return self._transfer(parameters.get("target", ""))
        if method == "cluster.step_down":
            return self._lead("n3" if self.leader != "n3" else "n1")
        return self._change(method.removeprefix("member."), parameters)

    def _list(self) -> dict[str, Any]:
        members = []
        for node in self.configuration.members:
            own, silent = node == self.leader, node in self.silent
            port = 7000 + int(node[1:])
            members.append(
                {
                    "node": node,
                    "part": "voter" if node in self.configuration.voters else "learner",
                    "leader": own,
                    "address": self.configuration.address(node) or f"127.0.0.1:{port}",
                    "connected": None if own else not silent,
                    "match_index": 0 if silent else 12,
                    "behind": None if own else 12 if silent else self.behind.get(node, 0),
                    "last_contact_s": None if own or silent else 0.125,
                }
            )
        body = {"members": members, "configuration": configuration_json(self.configuration)}
        return {**body, "configuration_index": 3, "committed": True}

    def _change(self, verb: str, parameters: dict[str, Any]) -> dict[str, Any]:
        node = parameters["node"]
        if verb == "add" and node in self.configuration.members:
            raise ChangeRefused(f"{node} is a member of this cluster already", next_step="fencepost member list")
        if verb == "add" and node in self.configuration.retired:
            raise ChangeRefused(f"{node} was removed, and ids are not used again", next_step="give it a new id")
        if verb != "add" and node not in self.configuration.members:
            raise ChangeRefused(f"{node} is no member of this cluster", next_step="fencepost member list")
        changes = {
            "add": [Change(ChangeKind.ADD_LEARNER, node, parameters.get("address", ""))],
            "promote": [Change(ChangeKind.ADD_VOTER, node)],
            "remove": [Change(ChangeKind.REMOVE, node)],
        }[verb]
        if verb == "add" and not parameters["learner"]:
            changes.append(Change(ChangeKind.ADD_VOTER, node))
        planned = self.configuration
        for change in changes:
            planned = change_simply(planned, [change])
        if parameters.get("dry_run"):
            return {"dry_run": True, "configuration": configuration_json(planned)}
        if verb == "promote" and node in self.silent:
            raise NotCaughtUp(f"{node} is behind by 12, last seen never", next_step="fencepost member list")
        self.configuration = planned
        return {"node": node, "index": 13, "term": self.term, "configuration": configuration_json(planned)}

    def _transfer(self, target: str) -> dict[str, Any]:
        if self.stuck:
            raise TransferRefused("n1 did not take over in time; this node leads on", next_step="fencepost status")
        return {**self._lead(target or min(set(self.configuration.voters) - {self.leader})), "drained": True}

    def _lead(self, node: str) -> dict[str, Any]:
        self.transfers.append(node)
        self.leader = node
        self.term += 1
        return {"leader": node, "term": self.term}
