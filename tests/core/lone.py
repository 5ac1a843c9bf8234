"""One core alone: the test is its network, its disk and its clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from fencepost.raft.core.configuration import Change, Configuration
from fencepost.raft.core.entry import Entry, EntryKind, HardState, Snapshot
from fencepost.raft.core.events import (
    Accepted,
    Campaign,
    ChangeConfiguration,
    Durable,
    Effects,
    EntriesRead,
    Event,
    Persist,
    Propose,
    Read,
    ReadChunk,
    ReadEntries,
    ReadReady,
    ReadRefused,
    Receive,
    Refused,
    Role,
    Send,
    StepDown,
    StorageFailed,
    StoreChunk,
    Tick,
    TransferBegun,
    TransferEnded,
    TransferLeadership,
    Transition,
    Unreachable,
)
from fencepost.raft.core.invariants import check, check_step, summarize
from fencepost.raft.core.log import OlderEntries
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


def label(index: int, term: int, configuration: Configuration | None = None, **more: int) -> Snapshot:
    """A snapshot's label; ``more`` are its other fields."""
    return Snapshot(
        index,
        term,
        more.pop("last_time_ns", 0),
        configuration or Configuration(THREE),
        **{"configuration_index": 0, "size_bytes": 0, "checksum": 0, **more},
    )


class Lone:
    """n1 of a cluster. Sends are visible once their write is durable; ``durable()`` makes writes so."""

    def __init__(
        self,
        *,
        voters: tuple[str, ...] = THREE,
        configuration: Configuration | None = None,
        term: int = 0,
        voted_for: str = "",
        log: Sequence[Entry] = (),
        previous: tuple[int, int] = (0, 0),
        snapshot: Snapshot | None = None,
        commit_index: int = 0,
        options: Options | None = None,
        name: str = "n1",
        older: OlderEntries | None = None,
    ) -> None:
        """``previous`` is (index, term) of what stands before the first entry of ``log``."""
        self.now = 1000 * SECOND
        self.raft = Raft(
            node_id=name,
            configuration=configuration or Configuration(voters),
            hard_state=HardState(term, voted_for),
            entries=list(log),
            commit_index=commit_index,
            options=options or Options(),
            between=lambda low, high: low,
            now=self.now,
            snapshot=snapshot,
            previous_index=previous[0],
            previous_term=previous[1],
            older=older,
        )
        self.writes: list[Persist] = []
        self.pending: deque[int] = deque()
        self.held: list[Send] = []
        self.visible: list[Send] = []
        """Everything that has left, in order."""
        self.applied_to = 0
        self.chunks: list[ReadChunk] = []
        self.readings: list[ReadEntries] = []
        """What was asked for that is on disk only."""
        self.stores: list[StoreChunk] = []
        self.restored: list[Snapshot] = []
        self.wanted: list[Snapshot] = []
        """Labels of the snapshots that were asked for."""
        self.reads: list[ReadReady | ReadRefused] = []
        self.transfers: list[TransferBegun | TransferEnded | Refused] = []
        self.configurations: list[Configuration] = []

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
        self.chunks += effects.chunks
        self.readings += effects.read_entries
        self.stores += effects.store_chunks
        self.restored += [effects.restore] if effects.restore else []
        self.wanted += [effects.take_snapshot] if effects.take_snapshot else []
        self.reads += effects.reads
        self.transfers += [effects.transfer] if effects.transfer else []
        self.configurations += [effects.configuration] if effects.configuration else []
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

    def change(
        self, *changes: Change, transition: Transition = Transition.AUTO, unchecked: bool = False
    ) -> Accepted | Refused:
        """Ask for a change of the members."""
        outcome = self.step(ChangeConfiguration(self.now, list(changes), transition, unchecked)).proposed
        assert outcome is not None
        return outcome

    def transfer(self, target: str = "") -> TransferBegun | TransferEnded | Refused:
        outcome = self.step(TransferLeadership(self.now, target)).transfer
        assert outcome is not None
        return outcome

    def read(self, *request_ids: int, lease: bool = False) -> list[ReadReady | ReadRefused]:
        """Ask for reads; what is answered at once, to them or to earlier ones."""
        return self.step(Read(self.now, list(request_ids), lease)).reads

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

    def answer(self, reading: ReadEntries, entries: Sequence[Entry]) -> Effects:
        """What the disk says to ``reading``."""
        return self.step(EntriesRead(self.now, reading.to, reading.term, reading.start, list(entries)))

    # -- playing the others -----------------------------------------------------------------------

    def append(
        self, term: int, prev: tuple[int, int], entries: Sequence[Entry] = (), commit: int = 0, source: str = "n2"
    ) -> list[Message]:
        """AppendEntries from ``source`` after the entry ``prev``, (index, term)."""
        return self.receive(source, AppendEntries(term, prev[0], prev[1], commit, 7, list(entries)))

    def acknowledge(self, peer: str, match_index: int, *, sent_at: int | None = None, promise: int = 0) -> None:
        """``peer`` says that it holds everything to ``match_index``, and for how long it keeps its vote."""
        sent = self.now if sent_at is None else sent_at
        self.receive(peer, AppendEntriesResponse(self.raft.current_term, True, match_index, 0, 0, sent, promise))

    def refuse(self, peer: str, rejected: int, hint: tuple[int, int]) -> None:
        """``peer`` has no such entry at ``rejected``; it may match at ``hint``, (index, term)."""
        self.receive(peer, AppendEntriesResponse(self.raft.current_term, False, rejected, hint[0], hint[1], self.now))

    def become_candidate(self) -> None:
        """Campaign with the pre-votes of everybody; its own vote is not durable yet."""
        if self.raft.options.lease_reads:
            self.now += self.raft.options.election_timeout  # For so long it keeps its vote to itself.
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
