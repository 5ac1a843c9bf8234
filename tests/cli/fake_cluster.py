"""A cluster in one thread: real client listeners, and a handler that keeps commands in memory.

It speaks the real protocol, so that what is tested is the command and the client together; only
consensus and effects are made up. Knobs say what goes wrong.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from fencepost.raft.core.configuration import encode_configuration
from fencepost.raft.core.errors import CommandInvalid, FencepostError, NotFound, NotLeader, WrongState
from fencepost.raft.outbox.codec import Command, decode_submission, digest
from fencepost.raft.ports import Answer, AnswerStatus, Connection, ProposeRequest, SubmitRequest, Wait
from fencepost.transport.handshake import LocalNode
from fencepost.transport.listener import ClientListener

from .directories import COMMITTED, contents_of_entries, outbox_entries
from .fake_members import FakeMembers

T = TypeVar("T")

CLUSTER = "c-test"
TOKEN = {"incarnation": "1", "term": "7"}
START_NS = 1_760_000_000_000_000_000


class FakeNode:
    """One node's ``RequestHandler``."""

    def __init__(self, node_id: str, cluster: FakeCluster) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.digest = "d1"
        self.calls: Counter[str] = Counter()

    def submit(self, connection: Connection, requests: list[SubmitRequest]) -> None:
        answers = [self._answer(connection, request) for request in requests]
        connection.answer([answer for answer in answers if answer is not None])

    def _answer(self, connection: Connection, request: SubmitRequest) -> Answer | None:
        cluster = self.cluster
        try:
            command = decode_submission(request.data)
        except CommandInvalid as error:
            return _answer(request, AnswerStatus.REFUSED, code=error.code, detail=error.message)
        if cluster.leader != self.node_id:
            detail = cluster.addresses.get(cluster.leader, "")
            return _answer(request, AnswerStatus.RETRY, code="NOT_LEADER", detail=detail)
        cluster.received.append((command.operation_id, request.wait))
        if cluster.refusals.get(command.operation_id, 0) > 0:
            cluster.refusals[command.operation_id] -= 1
            return _answer(request, AnswerStatus.RETRY, code="LEADERSHIP_LOST")
        found = cluster.commands.get(command.operation_id)
        if found is not None and found["digest"] != digest(command):
            return _answer(
                request, AnswerStatus.REFUSED, code="OPERATION_ID_REUSED", detail="the id stands for another command"
            )
        replayed = found is not None
        if found is None:
            found = cluster.commit(command)
        if command.operation_id in cluster.silent:
            return None
        if request.wait >= Wait.DONE and command.operation_id in cluster.held:
            cluster.held[command.operation_id].append((connection, request))
            return None
        return cluster.answer_of(request, found, replayed)

    def propose(self, connection: Connection, requests: list[ProposeRequest]) -> None:
        raise NotImplementedError

    def call(self, connection: Connection, request_id: int, method: str, parameters: dict[str, Any]) -> None:
        self.calls[method] += 1
        if self.node_id in self.cluster.frozen:
            return
        try:
            if method.startswith(("member.", "cluster.")):
                body = self.cluster.members.call(self.node_id, method, parameters)
            else:
                body = getattr(self, "call_" + method.replace(".", "_"))(**parameters)
            connection.reply(request_id, body)
        except FencepostError as error:
            connection.reply_error(request_id, error)

    def closed(self, connection: Connection) -> None:
        pass

    def call_status(self) -> dict[str, Any]:
        cluster = self.cluster
        leads = cluster.leader == self.node_id
        return {
            "node_id": self.node_id,
            "cluster_id": CLUSTER,
            "incarnation": 1,
            "version": "0",
            "role": "leader" if leads else "follower",
            "term": cluster.members.term,
            "leader": cluster.leader,
            "leader_client_address": cluster.addresses.get(cluster.leader, ""),
            "commit_index": cluster.index,
            "last_index": cluster.index,
            "applied_index": cluster.lagging.get(self.node_id, cluster.index),
            "voters": list(cluster.members.configuration.voters),
            "outgoing": list(cluster.members.configuration.outgoing),
            "learners": list(cluster.members.configuration.learners),
            "joint": cluster.members.configuration.is_joint,
            "transfer_to": "",
            "first_index": 1,
            "snapshot_index": cluster.snapshot_index,
            "peers": cluster.links if leads else {},
            "resources": {
                "ledger": {
                    "kind": "sqlite",
                    "guarantee": "fenced",
                    "activation": cluster.activation if leads else "FOLLOWER",
                    "token": TOKEN,
                    "pending": 0,
                    "in_flight": 0,
                    "dead": 0,
                    "stale_refusals": 0,
                    "last_error": cluster.trouble if leads else "",
                    "required": cluster.required,
                }
            },
            "definitions_digest": self.digest,
            "last_election": {"node": cluster.leader, "token": TOKEN, "stages": [{"stage": "elect", "seconds": 0.25}]},
            "uptime_s": 1.0,
            "pid": 1,
        }

    def call_events(self) -> dict[str, Any]:
        activation = {
            "index": 2, "time_ns": START_NS + 1, "resource": "ledger", "token": TOKEN, "holder": "n2/i/1",
            "returned": 3, "in_doubt": 1,
        }  # fmt: skip
        return {
            "elections": self.cluster.elections,
            "activations": [activation],
            "happened": self.cluster.happened.get(self.node_id, []),
        }

    def call_command_get(self, id: str) -> dict[str, Any]:
        found = self.cluster.commands.get(id)
        if found is None:
            raise NotFound(f"no command {id!r}")
        return {key: value for key, value in found.items() if key != "digest"}

    def call_command_list(
        self,
        limit: int,
        after_index: int,
        state: str | None = None,
        resource: str | None = None,
        lane: str | None = None,
    ) -> dict[str, Any]:
        later = [found for found in self.cluster.commands.values() if found["index"] > after_index]
        # Pages of two looked at, whatever matches: a page may be short or empty.
        page = later[: min(2, limit)]
        kept = [
            {key: value for key, value in found.items() if key not in ("digest", "history", "payload")}
            for found in page
            if all(want is None or found[key] == want for key, want in
                   (("state", state), ("resource", resource), ("lane", lane)))
        ]  # fmt: skip
        return {"commands": kept, "next_after": page[-1]["index"] if len(later) > len(page) else 0}

    def call_log_entries(self, limit: int = 1000, after_index: int = 0, last: int | None = None) -> dict[str, Any]:
        entries = outbox_entries()[:COMMITTED]
        after = after_index if last is None else max(COMMITTED - last, 0)
        page = entries[after : after + min(limit, 2)]  # Pages of two.
        return {"entries": [list(entry) for entry in page], "first_index": 1, "commit_index": COMMITTED}

    def call_snapshot_begin(self) -> dict[str, Any]:
        last = outbox_entries()[COMMITTED - 1]
        return {
            "cluster_id": CLUSTER,
            "incarnation": 1,
            "node_id": self.node_id,
            "session": f"of-{self.node_id}",
            "last_index": last.index,
            "last_term": last.term,
            "last_time_ns": last.time_ns,
            "configuration": encode_configuration(self.cluster.members.configuration),
            "configuration_index": 0,
        }

    def call_snapshot_next(self, session: str, sequence: int) -> dict[str, Any]:
        assert session == f"of-{self.node_id}"
        chunks = contents_of_entries()
        return {"sequence": sequence, "data": chunks[sequence], "last": sequence == len(chunks) - 1}

    def call_snapshot_end(self, session: str) -> dict[str, Any]:
        self.cluster.sessions_ended.append(session)
        return {}

    def call_command_cancel(self, **parameters: Any) -> dict[str, Any]:
        asked = parameters["id"] in self.cluster.under_way
        return self._wish("requested" if asked else "cancelled", "dispatched" if asked else "cancelled", parameters)

    def call_command_redrive(self, **parameters: Any) -> dict[str, Any]:
        return self._wish("redriven", "committed", parameters)

    def call_command_resolve(self, **parameters: Any) -> dict[str, Any]:
        return self._wish("resolved", "succeeded" if parameters["as"] == "done" else "dead", parameters)

    def call_command_discard(self, **parameters: Any) -> dict[str, Any]:
        return self._wish("discarded", "failed", parameters)

    def _wish(self, did: str, state: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if self.cluster.leader != self.node_id:
            raise NotLeader("this node does not lead")
        if parameters["id"] in self.cluster.final:
            raise WrongState(f"command {parameters['id']!r} is succeeded: it can be cancelled no more")
        self.cluster.wishes.append(parameters)
        return {
            "id": parameters["id"], "did": did, "definite": did != "requested", "state": state, "attempt": 1,
            "error": None,
        }  # fmt: skip

    def call_resource_claim(self, name: str) -> dict[str, Any]:
        if name != "ledger":
            raise NotFound(f"the leader has no resource {name!r}")
        return {"resource": name, "token": TOKEN}

    def call_resource_fences(self) -> dict[str, Any]:
        fence = {"kind": "sqlite", "guarantee": "fenced", "token": TOKEN, "holder": "n2/i/1", "error": ""}
        fence |= self.cluster.fence
        return {"resources": {"ledger": {**fence, "activation": "ACTIVE", "leader_token": TOKEN}}}

    def call_resource_mode(self, resource: str, mode: str, quiet_ns: int) -> dict[str, Any]:
        observed = {"since_ns": 1, "observed_ns": 1, "guarded": ["entries"]} if mode else {"guarded": []}
        return {
            "resource": resource, "now_ns": 2, "mode": mode or "off", "since_ns": None, "observed_ns": None,
            "unfenced": 0, "would_reject": 0, "last_unfenced_ns": None, "unguarded": [], **observed,
        }  # fmt: skip


def _answer(request: SubmitRequest, status: AnswerStatus, *, code: str = "", detail: str = "") -> Answer:
    return Answer(request.request_id, int(status), 0, 0, False, "", b"", code, detail)


class FakeCluster:
    """Three nodes n1, n2, n3, of which n2 leads unless told otherwise. A context manager.

    ``refusals``: how often a command is turned away before it is taken. ``silent``: ids that are
    committed and never answered. ``failing``: effects that fail for good. ``held``: ids whose
    outcome waits for :meth:`release`. ``frozen``: nodes that take questions and never answer them.
    """

    def __init__(self, *, leader: str = "n2", down: tuple[str, ...] = ()) -> None:
        self.wishes: list[dict[str, Any]] = []
        self.under_way: set[str] = set()
        self.final: set[str] = set()
        """Commands that nobody can decide about any more."""
        self.times: dict[str, tuple[int, int]] = {}
        self.members = FakeMembers(leader, "n1", "n2", "n3")
        self.down = down
        self.nodes = {node_id: FakeNode(node_id, self) for node_id in ("n1", "n2", "n3")}
        self.addresses: dict[str, str] = {}
        self.commands: dict[str, dict[str, Any]] = {}
        self.received: list[tuple[str, int]] = []
        self.refusals: dict[str, int] = {}
        self.silent: set[str] = set()
        self.failing: set[str] = set()
        self.held: dict[str, list[tuple[Connection, SubmitRequest]]] = {}
        self.frozen: set[str] = set()
        self.sessions_ended: list[str] = []
        self.activation = "ACTIVE"
        self.trouble = ""
        self.required = True
        self.fence: dict[str, Any] = {}
        """What the ledger says of its fence, other than usual."""
        self.happened: dict[str, list[dict[str, Any]]] = {}
        """By node, what it says that happened to it."""
        self.elections: list[dict[str, Any]] = [
            {"index": 1, "time_ns": START_NS, "node": leader, "token": TOKEN,
             "stages": [{"stage": "elect", "seconds": 0.25}]}
        ]  # fmt: skip
        self.index = 1
        self.snapshot_index = 0
        self.lagging: dict[str, int] = {}
        """What nodes have applied that have not applied everything."""
        self.links: dict[str, dict[str, Any]] = {}
        """What the leader says of its links to its peers."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-cluster")
        self._listeners: list[ClientListener] = []

    def __enter__(self) -> FakeCluster:
        self._thread.start()
        self.on_loop(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.on_loop(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def leader(self) -> str:
        return self.members.leader

    @property
    def endpoints(self) -> str:
        return ",".join(self.addresses.values())

    def on_loop(self, coroutine: Any) -> Any:
        """Run a coroutine in the cluster's thread."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(timeout=10)

    def do(self, action: Callable[[], T]) -> T:
        """Run something in the cluster's thread, between two requests."""

        async def run() -> T:
            return action()

        done: T = self.on_loop(run())
        return done

    async def _start(self) -> None:
        for node_id, node in self.nodes.items():
            if node_id in self.down:
                self.addresses[node_id] = unused_address()
                continue
            local = LocalNode(CLUSTER, 1, node_id, f"i-{node_id}", "")
            listener = ClientListener("127.0.0.1:0", node, local)
            await listener.start()
            self._listeners.append(listener)
            self.addresses[node_id] = listener.address

    async def _stop(self) -> None:
        for listener in self._listeners:
            await listener.close()

    def commit(self, command: Command) -> dict[str, Any]:
        """Commit and execute at once."""
        self.times[command.operation_id] = (command.not_before_ns, command.deadline_ns)
        self.index += 1
        failed = command.effect in self.failing
        state = "failed" if failed else "succeeded"
        steps = [("committed", 0, None), ("dispatched", 1, TOKEN), (state, 1, TOKEN)]
        names = ("index", "time_ns", "state", "attempt", "token", "note")
        self.commands[command.operation_id] = found = {
            "id": command.operation_id,
            "resource": command.resource,
            "effect": command.effect,
            "lane": command.lane,
            "state": state,
            "index": self.index,
            "term": 7,
            "attempt": 1,
            "token": TOKEN,
            "submitted_ns": START_NS,
            "finished_ns": START_NS + 1,
            "result": None if failed else {"rows": 1},
            "error": "UNIQUE constraint failed" if failed else "",
            "payload": command.payload.decode(),
            "digest": digest(command),
            "history": [dict(zip(names, (self.index, START_NS, *step, ""), strict=True)) for step in steps],
        }
        return found

    def answer_of(self, request: SubmitRequest, found: dict[str, Any], replayed: bool) -> Answer:
        done = request.wait >= Wait.DONE or replayed
        failed = done and found["state"] == "failed"
        return Answer(
            request.request_id, int(AnswerStatus.DONE), found["index"], 7, replayed,
            found["state"] if done else "committed", b'{"rows":1}' if done and not failed else b"",
            "COMMAND_FAILED" if failed else "", found["error"] if failed else "",
        )  # fmt: skip

    def release(self, operation_id: str) -> None:
        """Let a held command end, and answer who waits for it."""

        def action() -> None:
            for connection, request in self.held.pop(operation_id):
                connection.answer([self.answer_of(request, self.commands[operation_id], False)])

        self.do(action)

    def asked(self, node_id: str, method: str) -> int:
        """How often a node was asked a question."""
        return self.nodes[node_id].calls[method]

    def order_of(self, lane: str) -> list[str]:
        return [found["id"] for found in self.commands.values() if found["lane"] == lane]


def unused_address() -> str:
    """An address on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return f"127.0.0.1:{port}"
