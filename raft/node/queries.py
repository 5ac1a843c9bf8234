"""The questions a node answers, method by method, as JSON-like bodies. Read only."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from ..core.configuration import Configuration
from ..core.errors import CommandInvalid, NotFound, NotLeader
from ..core.events import Role
from ..core.progress import Progress, ProgressState
from ..core.token import token_json
from ..outbox.codec import json_or_text
from ..outbox.machine import OutboxMachine
from ..outbox.operation import TERMINAL, Operation, OperationState
from .loop import RaftLoop
from .members import configuration_json
from .reads import Consistency

LIST_LIMIT_MAX = 1000
LIST_SCAN_MAX = 50_000
"""Commands looked at in one call; a page may be short, ``next_after`` says where to go on."""


class NodeQueries:
    """``status``, ``command.get``, ``command.list``, ``member.list`` and ``events``."""

    def __init__(
        self,
        *,
        loop: RaftLoop,
        machine: OutboxMachine,
        identity: dict[str, Any],
        links: Callable[[], dict[str, dict[str, Any]]],
        resources: Callable[[], dict[str, dict[str, Any]]],
        waiting_reason: Callable[[Operation], str],
        leader_address: Callable[[str], str],
        addresses: Callable[[], Mapping[str, str]] = dict,
        disk: Callable[[], dict[str, Any]] = dict,
        happened: Callable[[int], list[dict[str, Any]]] = lambda number: [],
    ) -> None:
        """``identity`` goes into every status as it stands. ``links()`` and ``resources()`` describe
        peers and resources; ``waiting_reason(operation)`` says why a command stands still;
        ``addresses()`` are the peer addresses in use, by node id; ``disk()`` says how the log's disk is;
        ``happened(number)`` is what this node remembers of its own life after the one of that number."""
        self._loop = loop
        self._machine = machine
        self._identity = identity
        self._links = links
        self._resources = resources
        self._waiting_reason = waiting_reason
        self._leader_address = leader_address
        self._addresses = addresses
        self._disk = disk
        self._happened = happened
        self._started_at = loop.now()

    def methods(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        return {
            "status": self.status,
            "command.get": self.command_get,
            "command.list": self.command_list,
            "member.list": self.member_list,
            "events": self.events,
        }

    def status(self, parameters: dict[str, Any]) -> dict[str, Any]:
        raft = self._loop.raft
        links = self._links()
        resources = self._resources()
        for peer, progress in raft.progress.items():
            if peer in links:
                links[peer]["match_index"] = progress.match_index
                links[peer]["replicating"] = progress.state is ProgressState.REPLICATE
                links[peer]["snapshot"] = _on_its_way(progress)
        election = self._machine.elections[-1] if self._machine.elections else None
        return {
            **self._identity,
            "role": raft.role.value,
            "term": raft.current_term,
            "leader": raft.leader,
            "last_leader": self._last_leader(),
            "leader_client_address": self._leader_address(raft.leader) if raft.leader else "",
            "confirmed": raft.role is Role.LEADER and self._loop.holds_lease(),
            "commit_index": raft.commit_index,
            "last_index": raft.log.last_index,
            "applied_index": self._loop.applier.last_applied,
            "writes": raft.write_sequence,
            "voters": list(raft.configuration.voters),
            "outgoing": list(raft.configuration.outgoing),
            "learners": list(raft.configuration.learners),
            "joint": raft.configuration.is_joint,
            "transfer_to": "" if raft.transfer is None else raft.transfer.target,
            "first_index": raft.log.first_index,
            "snapshot_index": 0 if raft.snapshot is None else raft.snapshot.last_index,
            "peers": links,
            "disk": self._disk(),
            "resources": resources,
            "undefined": {
                name: len(waiting)
                for name, waiting in self._machine.pending.items()
                if waiting and name not in resources
            },
            "last_election": None if election is None else self._election(election),
            "longest_loop_lag_ms": self._loop.longest_lag_ns / 1e6,
            "state_digest": self._state_digest(),
            "outbox": self._outbox(),
            "uptime_s": (self._loop.now() - self._started_at) / 1e9,
            "pid": os.getpid(),
        }

    def member_list(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Who is in the cluster by the configuration in force here; how far each is, where this node leads."""
        raft = self._loop.raft
        configuration = raft.configuration
        addresses, links = self._addresses(), self._links()
        members = []
        for node in configuration.members:
            progress = raft.progress.get(node)
            own = node == raft.node_id
            members.append(
                {
                    "node": node,
                    "part": _part(configuration, node),
                    "leader": node == raft.leader,
                    "address": configuration.address(node) or addresses.get(node, ""),
                    "connected": None if own else bool(links.get(node, {}).get("connected")),
                    "match_index": raft.durable_index if own else progress.match_index if progress else None,
                    "behind": raft.log.last_index - progress.match_index if progress else None,
                    "last_contact_s": (raft.now - progress.contact_at) / 1e9 if progress and progress.heard else None,
                }
            )
        return {
            "members": members,
            "incarnation": self._identity.get("incarnation"),
            "configuration": configuration_json(configuration),
            "configuration_index": raft.configuration_index,
            "committed": raft.configuration_index <= raft.commit_index,
        }

    def _outbox(self) -> dict[str, Any]:
        """What is remembered, and from where on nothing has ended yet."""
        machine = self._machine
        return {
            "operations": len(machine.operations),
            "forgotten": machine.forgotten,
            "retention_ns": machine.retention.window_ns,
            "retention_count": machine.retention.ended_max,
            "done_watermark": machine.done_watermark,
            "forgotten_ids_ns": machine.forgotten_ids_ns,
            "cluster_time_ns": machine.cluster_time_ns,
        }

    def _state_digest(self) -> dict[str, Any] | None:
        """This node's last point of comparison with the others; None where nothing is compared."""
        if self._loop.divergence is None:
            return None
        ledger = self._loop.divergence.ledger
        index, digests = ledger.newest or (0, {})
        return {
            "index": index,
            "digests": {str(kind): digest.hex() for kind, digest in digests.items()},
            "agreed_index": ledger.agreed_index,
            "differences": ledger.differences,
        }

    def _last_leader(self) -> dict[str, Any] | None:
        """Who led before nobody did; None while somebody does."""
        last = self._loop.last_leader
        if last is None or self._loop.raft.leader:
            return None
        return {"node": last[0], "heard_s_ago": (self._loop.now() - last[1]) / 1e9}

    @staticmethod
    def _election(record: Any) -> dict[str, Any]:
        election = record.election
        return {
            "index": record.index,
            "time_ns": record.time_ns,
            "node": election.node,
            "token": token_json(election.token),
            "stages": [{"stage": stage.stage, "seconds": stage.seconds} for stage in election.stages],
        }

    def command_get(self, parameters: dict[str, Any]) -> dict[str, Any]:
        operation_id = str(parameters.get("id", ""))
        operation = self._machine.operations.get(operation_id)
        confirmed = parameters.get("consistency") not in (None, Consistency.STALE)
        if operation is None and not confirmed and not self._knows_every_command():
            # Whoever asks may be about to do it again under another id, because nobody knows this one:
            # a follower, a leader that was cut off, or one that has not caught up cannot tell (S29, S30).
            raise NotLeader(
                f"no command {operation_id!r} is applied on node {self._identity['node_id']}, "
                "which is not the leader or does not know yet what others have committed",
                next_step="ask again, or another node",
            )
        if operation is None:
            raise NotFound(
                f"no command {operation_id!r} is applied on node {self._identity['node_id']}",
                next_step="fencepost command list",
            )
        body = self._summary(operation)
        body["payload"] = operation.payload.decode("utf-8", "replace")
        body["place"] = operation.place
        body["not_before_ns"] = operation.not_before_ns or None
        body["deadline_ns"] = operation.deadline_ns or None
        body["next_try_ns"] = operation.next_try_ns or None
        body["cancel_asked_ns"] = operation.cancel_ns or None
        body["may_have_been_applied"] = operation.unsure or operation.state is OperationState.IN_DOUBT
        body["waiting_reason"] = "" if operation.state in TERMINAL else self._waiting_reason(operation)
        body["history"] = [
            {
                "index": row.index,
                "time_ns": row.time_ns,
                "state": str(row.state),
                "attempt": row.attempt,
                "token": token_json(row.token),
                "note": row.note,
            }
            for row in operation.history
        ]
        return body

    def _knows_every_command(self) -> bool:
        """Whether what was committed before this moment is applied here, as far as the lease tells."""
        return self._loop.holds_lease() and self._loop.applier.last_applied >= self._loop.term_start_index()

    def _summary(self, operation: Operation) -> dict[str, Any]:
        return {
            "id": operation.operation_id,
            "resource": operation.resource,
            "effect": operation.effect,
            "lane": operation.lane or None,
            "state": operation.state.value,
            "index": operation.index,
            "term": operation.term,
            "attempt": operation.attempt,
            "failures": operation.failures,
            "token": token_json(operation.token),
            "submitted_ns": operation.submitted_ns,
            "finished_ns": operation.finished_ns or None,
            "result": json_or_text(operation.result),
            "error": operation.error or None,
        }

    def command_list(self, parameters: dict[str, Any]) -> dict[str, Any]:
        state, resource, lane = (parameters.get(name) for name in ("state", "resource", "lane"))
        if state and state not in {known.value for known in OperationState}:
            raise CommandInvalid(
                f"no state {state!r}", next_step="one of: " + ", ".join(known.value for known in OperationState)
            )
        limit = max(1, min(int(parameters.get("limit") or 100), LIST_LIMIT_MAX))
        after = int(parameters.get("after_index") or 0)
        found: list[dict[str, Any]] = []
        next_after = last = 0
        operations = self._machine.in_order
        start = bisect_right(operations, after, key=lambda each: each.index)
        for position in range(start, len(operations)):
            operation = operations[position]
            if len(found) == limit or position - start == LIST_SCAN_MAX:
                next_after = last
                break
            last = operation.index
            if self._machine.by_index.get(operation.index) is not operation:
                continue  # It is forgotten, and the list not swept yet.
            if (
                (not state or operation.state == state)
                and (not resource or operation.resource == resource)
                and (lane is None or operation.lane == lane)
            ):
                found.append(self._summary(operation))
        return {"commands": found, "next_after": next_after}

    def events(self, parameters: dict[str, Any]) -> dict[str, Any]:
        after = int(parameters.get("after_index") or 0)
        return {
            "elections": [self._election(record) for record in self._machine.elections if record.index > after],
            "activations": [
                {
                    "index": record.index,
                    "time_ns": record.time_ns,
                    "resource": record.activation.resource,
                    "token": token_json(record.activation.token),
                    "holder": record.activation.holder,
                    "returned": record.returned,
                    "in_doubt": record.in_doubt,
                }
                for record in self._machine.activations
                if record.index > after
            ],
            "happened": self._happened(int(parameters.get("after_number") or 0)),
        }


def _on_its_way(progress: Progress) -> dict[str, int] | None:
    """The snapshot that a follower is being sent, and how much of it the follower has."""
    if progress.snapshot is None:
        return None
    return {
        "last_index": progress.snapshot.last_index,
        "size_bytes": progress.snapshot.size_bytes,
        "received_bytes": progress.snapshot_offset,
    }


def _part(configuration: Configuration, node: str) -> str:
    """What a member is, in a word. While the configuration is joint, a voter may be on its way in or out."""
    if node in configuration.voters:
        return "voter" if not configuration.is_joint or node in configuration.outgoing else "incoming voter"
    return "outgoing voter" if node in configuration.outgoing else "learner"
