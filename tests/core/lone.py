"""One core alone: the test is its network, its disk and its clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind, HardState
from fencepost.raft.core.events import (
    Accepted,
    Campaign,
    Durable,
    Effects,
    Event,
    Persist,
    Propose,
    Receive,
    Refused,
    Role,
    Send,
    StepDown,
    StorageFailed,
    Tick,
    Unreachable,
)
from fencepost.raft.core.invariants import check, check_step, summarize
from fencepost.raft.core.messages import (
    AppendEntries,
    AppendEntriesResponse,
    Message,
    PreVoteResponse,
    RequestVoteResponse,
)
from fencepost.raft.core.options import SECOND, Options
from fencepost.raft.core.step import Raft

THREE = ("n1", "n2", "n3")
FIVE = ("n1", "n2", "n3", "n4", "n5")


def entry(index: int, term: int, data: bytes = b"") -> Entry:
    """``entry(10, 3)`` is the scenarios' ``10:3``. The payload tells entries of other terms apart."""
    return Entry(index, term, EntryKind.EMBEDDED, 0, data or b"%d:%d" % (index, term))


def entries(*terms: int, start: int = 1) -> list[Entry]:
    """One entry for each term, from index ``start`` on."""
    return [entry(index, term) for index, term in enumerate(terms, start)]


class Lone:
    """n1 of a cluster. Sends are visible once their write is durable; ``durable()`` makes writes so."""

    def __init__(
        self,
        *,
        voters: tuple[str, ...] = THREE,
        term: int = 0,
        voted_for: str = "",
        log: Sequence[Entry] = (),
        commit_index: int = 0,
        options: Options | None = None,
    ) -> None:
        self.now = 1000 * SECOND
        self.raft = Raft(
            node_id="n1",
            configuration=Configuration(voters),
            hard_state=HardState(term, voted_for),
            entries=list(log),
            commit_index=commit_index,
            options=options or Options(),
            between=lambda low, high: low,
            now=self.now,
        )
        self.writes: list[Persist] = []
        self.pending: deque[int] = deque()
        self.held: list[Send] = []
        self.visible: list[Send] = []
        """Everything that has left, in order."""
        self.applied_to = 0

    def step(self, event: Event) -> Effects:
        before = summarize(self.raft)
        effects = self.raft.step(event)
        check_step(before, self.raft, event, effects)
        check(self.raft)
        for write in effects.persist:
            self.writes.append(write)
            self.pending.append(write.sequence)
        for send in effects.sends:
            (self.held if send.after else self.visible).append(send)
        self.applied_to = max(self.applied_to, effects.apply_to)
        return effects

    def receive(self, source: str, message: Message) -> list[Message]:
        """Deliver, and return what became visible because of it."""
        start = len(self.visible)
        self.step(Receive(self.now, source, message))
        return [send.message for send in self.visible[start:]]

    def durable(self, writes: int | None = None) -> list[Message]:
        """Complete the oldest pending writes, all of them unless told how many."""
        start = len(self.visible)
        for _ in range(len(self.pending) if writes is None else writes):
            sequence = self.pending.popleft()
            self.step(Durable(self.now, sequence))
            self.visible += [send for send in self.held if send.after <= sequence]
            self.held = [send for send in self.held if send.after > sequence]
        return [send.message for send in self.visible[start:]]

    def settle(self) -> None:
        """Complete writes until none is left, those that completions cause included."""
        while self.pending:
            self.durable()

    def advance(self, duration: int) -> None:
        """Let time pass and deliver the ticks that are due, as a node's timer would."""
        end = self.now + duration
        while (due := self.raft.deadline()) <= end:
            self.now = max(due, self.now)
            self.tick()
        self.now = end

    def tick(self) -> Effects:
        return self.step(Tick(self.now))

    def campaign(self) -> None:
        self.step(Campaign(self.now))

    def propose(self, *data: bytes) -> Accepted | Refused:
        outcome = self.step(Propose(self.now, 0, [(int(EntryKind.EMBEDDED), item) for item in data])).proposed
        assert outcome is not None
        return outcome

    def step_down(self) -> None:
        self.step(StepDown(self.now, "test"))

    def unreachable(self, peer: str) -> None:
        self.step(Unreachable(self.now, peer))

    def storage_failed(self) -> None:
        self.step(StorageFailed(self.now))

    def take(self, to: str = "") -> list[Message]:
        """What has left since the last call, to ``to`` or to anybody."""
        taken = [send.message for send in self.visible if to in ("", send.to)]
        self.visible.clear()
        return taken

    # -- playing the others -----------------------------------------------------------------------

    def append(
        self, term: int, prev: tuple[int, int], entries: Sequence[Entry] = (), commit: int = 0, source: str = "n2"
    ) -> list[Message]:
        """AppendEntries from ``source`` after the entry ``prev``, (index, term)."""
        return self.receive(source, AppendEntries(term, prev[0], prev[1], commit, 7, list(entries)))

    def acknowledge(self, peer: str, match_index: int, *, sent_at: int | None = None) -> None:
        """``peer`` says that it holds everything to ``match_index``."""
        sent = self.now if sent_at is None else sent_at
        self.receive(peer, AppendEntriesResponse(self.raft.current_term, True, match_index, 0, 0, sent))

    def refuse(self, peer: str, rejected: int, hint: tuple[int, int]) -> None:
        """``peer`` has no such entry at ``rejected``; it may match at ``hint``, (index, term)."""
        self.receive(peer, AppendEntriesResponse(self.raft.current_term, False, rejected, hint[0], hint[1], self.now))

    def become_candidate(self) -> None:
        """Campaign with the pre-votes of everybody; its own vote is not durable yet."""
        self.campaign()
        round_ = self.raft.pre_vote_round
        for peer in self.raft.peers:
            if self.raft.role is Role.PRE_CANDIDATE:
                self.receive(peer, PreVoteResponse(self.raft.current_term, True, round_, ""))
        assert self.raft.role is Role.CANDIDATE
        self.take()

    def become_leader(self) -> None:
        """Win an election; the no-op is durable here and on nobody else. Nothing is left to ``take``."""
        self.become_candidate()
        self.durable()
        for peer in self.raft.peers:
            if self.raft.role is Role.CANDIDATE:
                self.receive(peer, RequestVoteResponse(self.raft.current_term, True, ""))
        assert self.raft.role is Role.LEADER
        self.settle()
        self.take()
