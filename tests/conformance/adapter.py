"""The pure core behind the directives of etcd-io/raft's interaction tests.

``Adapter`` plays network, disk and clock of a few cores, step by step as a transcript says, and
shows their state in that library's words. What is compared is the state when everything is quiet, so
how many messages it takes is each library's own business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from fencepost.raft.core.configuration import Change, ChangeKind, Configuration
from fencepost.raft.core.entry import EntryKind, HardState, Snapshot
from fencepost.raft.core.events import (
    Campaign,
    ChangeConfiguration,
    ChunkStored,
    Durable,
    Effects,
    Event,
    Propose,
    Receive,
    Refused,
    Role,
    Send,
    SnapshotReceived,
    SnapshotTaken,
    Tick,
    TransferLeadership,
    Transition,
    Unreachable,
)
from fencepost.raft.core.invariants import check, check_step, summarize
from fencepost.raft.core.messages import AppendEntries, Message
from fencepost.raft.core.options import SECOND, Options
from fencepost.raft.core.step import Raft

HEARTBEAT_TICK = SECOND
ELECTION_TICKS = 3
ROLES = {
    Role.FOLLOWER: "Follower",
    Role.PRE_CANDIDATE: "PreCandidate",
    Role.CANDIDATE: "Candidate",
    Role.LEADER: "Leader",
}
CHANGES = {
    "v": ChangeKind.ADD_VOTER,
    "l": ChangeKind.ADD_LEARNER,
    "r": ChangeKind.REMOVE,
    "u": ChangeKind.UPDATE,
}

NOT_APPLICABLE: dict[str, str] = {}
"""Transcript -> why it says nothing about this core."""

Arguments = Sequence[tuple[str, list[str]]]


class Forwarded:
    """A proposal that a follower passes on: that library's clients may talk to anybody."""

    def __init__(self, event: Propose | ChangeConfiguration) -> None:
        self.event = event


class Node:
    """One core with what it has asked for and not yet got."""

    def __init__(self, number: int, snapshot: Snapshot, options: Options) -> None:
        self.number = number
        self.now = SECOND
        self.timeout_ticks = 0
        """Ticks until an election, where a transcript sets them."""
        self._rounds = 0
        fresh = snapshot.last_index == 0
        self.raft = Raft(
            node_id=str(number),
            configuration=snapshot.configuration,
            hard_state=HardState(0, ""),
            entries=[],
            commit_index=snapshot.last_index,
            options=options,
            between=self._between,
            now=self.now,
            snapshot=None if fresh else snapshot,
            previous_index=snapshot.last_index,
            previous_term=snapshot.last_term,
        )
        self.writes: deque[int] = deque()
        self.appending: deque[int] = deque()
        """Writes that a thread of its own has been given, where storage is asynchronous."""
        self.held: list[Send] = []
        self.applied = snapshot.last_index
        self.first_snapshot = self.raft.snapshot
        self.snapshots: dict[int, Snapshot] = {}
        """What could be made at every index that was applied here."""
        self.keeps_its_leader = False

    def _between(self, low: int, high: int) -> int:
        if low == 1:  # The name of a round of pre-votes.
            self._rounds += 1
            return self._rounds
        return self.timeout_ticks * HEARTBEAT_TICK if self.timeout_ticks else low


class Adapter:
    """``handle`` takes one directive; ``state`` shows all nodes in the order of their ids."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.inflight: list[tuple[int, int, Message | Forwarded]] = []
        self.asynchronous = False

    # -- directives -------------------------------------------------------------------------------

    def handle(self, command: str, arguments: Arguments, lines: Sequence[str]) -> None:
        named = dict(arguments)
        ids = [int(key) for key, values in arguments if not values and key.isdigit()]
        match command:
            case "add-nodes":
                self._add_nodes(ids[0], named)
            case "campaign":
                self._step(ids[0], Campaign(self._now(ids[0])))
            case "propose":
                data = next((key for key, values in list(arguments)[1:] if not values), "")
                self._propose(ids[0], Propose(self._now(ids[0]), 0, [(int(EntryKind.EMBEDDED), data.encode())]))
            case "propose-conf-change":
                self._propose(ids[0], self._change(ids[0], named, lines))
            case "process-ready":
                for number in ids:
                    self._process(number)
            case "process-append-thread":
                for number in ids:
                    self._append_thread(number)
            case "process-apply-thread":
                pass  # What is committed is applied at once.
            case "deliver-msgs":
                self._deliver(ids, [int(number) for number in named.get("drop", [])])
            case "stabilize":
                self._stabilize(ids or sorted(self.nodes))
            case "tick-heartbeat":
                self._tick(ids[0], 1)
            case "tick-election":
                self._tick(ids[0], ELECTION_TICKS)
            case "set-randomized-election-timeout":
                self._set_timeout(ids[0], int(named["timeout"][0]))
            case "transfer-leadership":
                leader, target = int(named["from"][0]), named["to"][0]
                self._step(leader, TransferLeadership(self._now(leader), target))
            case "report-unreachable":
                self._step(ids[0], Unreachable(self._now(ids[0]), str(ids[1])))
            case "forget-leader":
                self._forget_leader(ids[0])
            case "compact":
                self._compact(ids[0], ids[1])
            case _:
                raise ValueError(f"no such directive: {command}")

    def _add_nodes(self, count: int, named: dict[str, list[str]]) -> None:
        def flag(name: str) -> bool:
            return named.get(name, ["false"])[0] == "true"

        self.asynchronous = self.asynchronous or flag("async-storage-writes")
        options = Options(
            # That library's leader looks once in an election timeout whether a quorum has answered since
            # it last looked: silence costs it its leadership after one to two of them, and after two at
            # the latest. This core's leader counts from the last answer.
            election_timeout=(2 if flag("checkquorum") else 1) * ELECTION_TICKS * HEARTBEAT_TICK,
            heartbeat_interval=HEARTBEAT_TICK,
            stall_bound=1 << 60,
            transfer_timeout=ELECTION_TICKS * HEARTBEAT_TICK,
            chunk_timeout=HEARTBEAT_TICK,
            commit_notice_delay=0,
            in_flight_max=int(named.get("inflight", ["64"])[0]),
            retained_entries=0,
            pre_vote=flag("prevote"),
            check_quorum=flag("checkquorum"),
            step_down_on_removal=flag("step-down-on-removal"),
            hand_on_removal=False,  # That library's removed leader leaves the others to their timeouts.
        )
        configuration = Configuration(
            tuple(sorted(named.get("voters", []))), learners=tuple(sorted(named.get("learners", [])))
        )
        # That library begins below the term of its own snapshot; this core never would. With the
        # snapshot's term as 0 both begin alike, and nothing else looks at it.
        snapshot = Snapshot(int(named.get("index", ["0"])[0]), 0, 0, configuration, 0, 1)
        for _ in range(count):
            number = len(self.nodes) + 1
            self.nodes[number] = Node(number, snapshot, options)
            self.nodes[number].keeps_its_leader = named.get("read-only") == ["lease-based"]

    def _change(self, number: int, named: dict[str, list[str]], lines: Sequence[str]) -> ChangeConfiguration:
        changes = [
            Change(CHANGES[word[0]], word[1:] if word[0] != "=" else word) for line in lines for word in line.split()
        ]
        transition = Transition(named.get("transition", ["auto"])[0])
        return ChangeConfiguration(self._now(number), changes, transition, unchecked=True)

    def _propose(self, number: int, event: Propose | ChangeConfiguration) -> None:
        node = self.nodes[number]
        outcome = self._step(number, event).proposed
        if not isinstance(outcome, Refused):
            return
        if node.raft.role is not Role.LEADER and outcome.leader:
            self.inflight.append((number, int(outcome.leader), Forwarded(event)))
        elif node.raft.role is Role.LEADER and isinstance(event, ChangeConfiguration):
            # That library finds out when it applies, and has an empty entry by then.
            self._step(number, Propose(self._now(number), 0, [(int(EntryKind.EMBEDDED), b"")]))

    def _set_timeout(self, number: int, ticks: int) -> None:
        node = self.nodes[number]
        node.timeout_ticks = ticks
        node.raft.reset_election_deadline()

    def _tick(self, number: int, ticks: int) -> None:
        node = self.nodes[number]
        for _ in range(ticks):
            node.now += HEARTBEAT_TICK
            if node.raft.deadline() <= node.now:
                self._step(number, Tick(node.now))

    def _forget_leader(self, number: int) -> None:
        """A follower that is told to look for another leader: not a notion of this core, but its parts are."""
        node, raft = self.nodes[number], self.nodes[number].raft
        if raft.role is Role.FOLLOWER and not node.keeps_its_leader:
            raft.leader = ""
            raft.last_leader_contact = -(1 << 62)

    def _compact(self, number: int, index: int) -> None:
        node, raft = self.nodes[number], self.nodes[number].raft
        newest, raft.snapshot = raft.snapshot, node.first_snapshot
        self._step(number, SnapshotTaken(self._now(number), node.snapshots[index]))
        assert raft.log.previous_index == index
        raft.snapshot = newest

    # -- network, disk and clock ------------------------------------------------------------------

    def _now(self, number: int) -> int:
        """A moment later: what is asked now is later than what was asked before."""
        self.nodes[number].now += 1
        return self.nodes[number].now

    def _step(self, number: int, event: Event) -> Effects:
        node = self.nodes[number]
        before = summarize(node.raft)
        effects = node.raft.step(event)
        check_step(before, node.raft, event, effects)
        check(node.raft)
        node.writes.extend(write.sequence for write in effects.persist)
        node.held += effects.sends
        node.held += [Send(chunk.to, chunk.message, chunk.after) for chunk in effects.chunks]
        if effects.restore is not None:
            node.applied = effects.restore.last_index
            node.first_snapshot = effects.restore
        if effects.apply_to:
            self._apply(node, effects.apply_to)
            self._begin_where_admitted(node)
        for chunk in effects.store_chunks:
            self._step(number, ChunkStored(self._now(number), chunk.snapshot, chunk.snapshot.size_bytes))
            self._step(number, SnapshotReceived(self._now(number), chunk.snapshot))
        return effects

    def _apply(self, node: Node, index: int) -> None:
        """That library can make a snapshot at any applied index, and sends the newest."""
        raft = node.raft
        for applied in range(node.applied + 1, index + 1):
            entry = raft.log.entry(applied)
            at, configuration = raft.configuration_at(applied)
            node.snapshots[applied] = Snapshot(applied, entry.term, entry.time_ns, configuration, at, 1)
        node.applied = index
        raft.snapshot = node.snapshots[index]

    def _begin_where_admitted(self, node: Node) -> None:
        """In that library a new node is sent nothing before the entry that adds it is applied, and so
        begins with a snapshot of that place or later. Here the entry itself may reach it by the log:
        then the log is cut off where it would have begun."""
        first = node.first_snapshot
        name = str(node.number)
        if first is None or name in first.configuration.members:
            return
        for index in range(max(first.last_index, node.raft.log.previous_index) + 1, node.applied + 1):
            if name in node.snapshots[index].configuration.members:
                self._compact(node.number, index)
                node.first_snapshot = node.snapshots[index]
                return

    def _process(self, number: int) -> None:
        """Let a node write, and speak once it has written."""
        node = self.nodes[number]
        if self.asynchronous:
            node.appending.extend(node.writes)
            node.writes.clear()
        while node.writes and not self.asynchronous:
            last = node.writes[-1]
            node.writes.clear()
            self._step(number, Durable(self._now(number), last))
        if node.raft.role is Role.LEADER and node.raft.deadline() <= node.now:
            self._step(number, Tick(node.now))
        self._release(node)

    def _append_thread(self, number: int) -> None:
        node = self.nodes[number]
        if node.appending:
            self._step(number, Durable(self._now(number), node.appending.popleft()))
            self._release(node)

    def _release(self, node: Node) -> None:
        """Send what may be sent; entries for one follower that follow each other travel in one message."""
        leaving: list[tuple[int, int, Message | Forwarded]] = []
        for send in list(node.held):
            if send.after > node.raft.durable_sequence:
                continue
            node.held.remove(send)
            to = int(send.to)
            last = next((place for place in reversed(range(len(leaving))) if leaving[place][1] == to), -1)
            joined = _joined(leaving[last][2], send.message) if last >= 0 else None
            if joined is not None:
                leaving[last] = (node.number, to, joined)
            else:
                leaving.append((node.number, to, send.message))
        self.inflight += [message for message in leaving if message[1] in self.nodes]

    def _deliver(self, ids: Sequence[int], drop: Sequence[int]) -> None:
        arriving = [message for message in self.inflight if message[1] in ids or message[1] in drop]
        self.inflight = [message for message in self.inflight if message not in arriving]
        for source, to, message in arriving:
            if to in drop:
                continue
            if isinstance(message, Forwarded):
                self._propose(to, message.event._replace(now=self._now(to)))
            else:
                self._step(to, Receive(self._now(to), str(source), message))

    def _has_work(self, node: Node) -> bool:
        due = node.raft.role is Role.LEADER and node.raft.deadline() <= node.now
        sendable = any(send.after <= node.raft.durable_sequence for send in node.held)
        return bool(node.writes or node.appending or due or sendable)

    def _stabilize(self, ids: Sequence[int]) -> None:
        for _ in range(1000):
            busy = [number for number in ids if self._has_work(self.nodes[number])]
            arriving = [number for number in ids if any(to == number for _, to, _ in self.inflight)]
            if not busy and not arriving:
                return
            for number in busy:
                self._process(number)
            self._deliver(arriving, [])
            for number in ids:
                while self.nodes[number].appending:
                    self._append_thread(number)
        raise AssertionError("not quiet after a thousand rounds")

    # -- what is shown ----------------------------------------------------------------------------

    def state(self) -> list[dict[str, Any]]:
        return [self._show(node) for _, node in sorted(self.nodes.items())]

    def _show(self, node: Node) -> dict[str, Any]:
        raft = node.raft
        configuration = raft.configuration
        entries = raft.log.slice(raft.log.first_index, raft.log.last_index)
        return {
            "id": node.number,
            "role": ROLES[raft.role],
            "term": raft.current_term,
            "vote": int(raft.voted_for or 0),
            "commit": raft.commit_index,
            "applied": node.applied,
            "lead": int(raft.leader or 0),
            "log": [
                [
                    entry.index,
                    entry.term,
                    "Conf" if entry.kind == EntryKind.CONFIGURATION else "Normal",
                    "" if entry.kind == EntryKind.CONFIGURATION else entry.data.decode(),
                ]
                for entry in entries
            ],
            "config": {
                "voters": _numbers(configuration.voters),
                "outgoing": _numbers(configuration.outgoing),
                "learners": _numbers(configuration.learners),
                "learners_next": _numbers(configuration.learners_next),
                "auto_leave": configuration.auto_leave,
            },
        }


def _joined(earlier: Message | Forwarded, later: Message) -> Message | None:
    """Two messages with entries as one, if the second goes on where the first ends."""
    if not isinstance(earlier, AppendEntries) or not isinstance(later, AppendEntries):
        return None
    if not earlier.entries or not later.entries or later.prev_log_index != earlier.entries[-1].index:
        return None
    return later._replace(
        prev_log_index=earlier.prev_log_index,
        prev_log_term=earlier.prev_log_term,
        entries=[*earlier.entries, *later.entries],
    )


def _numbers(ids: Sequence[str]) -> list[int]:
    return sorted(int(number) for number in ids)
