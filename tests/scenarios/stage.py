"""A few cores on a stage, moved by the directives of a scenario text, a line of text for all that happens.

Nothing moves by itself: messages lie in their links until they are delivered, time stands still
until it is told to pass. Disks write at once unless they are held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from fencepost.raft.core.configuration import Change, ChangeKind, Configuration
from fencepost.raft.core.entry import Entry, EntryKind, HardState, Snapshot
from fencepost.raft.core.events import (
    Accepted,
    Campaign,
    ChangeConfiguration,
    ChunkStored,
    ChunkUnavailable,
    Durable,
    Effects,
    Event,
    Persist,
    Propose,
    Read,
    ReadReady,
    Receive,
    Refused,
    Send,
    SnapshotReceived,
    SnapshotTaken,
    StepDown,
    Tick,
    TransferBegun,
    TransferEnded,
    TransferLeadership,
    Transition,
)
from fencepost.raft.core.invariants import check, check_step, summarize
from fencepost.raft.core.messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    PreVote,
    PreVoteResponse,
    ReadIndex,
    ReadIndexResponse,
    RequestVote,
    RequestVoteResponse,
    TimeoutNow,
)
from fencepost.raft.core.options import MILLISECOND, SECOND, Options
from fencepost.raft.core.snapshot import label_at
from fencepost.raft.core.step import Raft

CHANGES = {
    "voter": ChangeKind.ADD_VOTER,
    "learner": ChangeKind.ADD_LEARNER,
    "remove": ChangeKind.REMOVE,
}
ROUNDS_MAX = 200


class Actor:
    """One core, and the disk that outlives it."""

    def __init__(self, name: str, configuration: Configuration) -> None:
        self.name = name
        self.bootstrap = configuration
        self.hard_state = HardState(0, "")
        self.entries: list[Entry] = []
        self.previous = (0, 0)
        self.snapshot: Snapshot | None = None
        self.raft: Raft | None = None
        self.writes: deque[Persist] = deque()
        self.held: list[Send] = []
        self.durable_sequence = 0
        self.disk_held = False

    def write(self, write: Persist) -> None:
        if write.truncate_from:
            del self.entries[write.truncate_from - self.previous[0] - 1 :]
        if write.reset is not None:
            self.entries.clear()
            self.previous = (write.reset.last_index, write.reset.last_term)
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        self.entries += write.entries
        if write.compact_to > self.previous[0]:
            count = write.compact_to - self.previous[0]
            self.previous = (write.compact_to, self.entries[count - 1].term)
            del self.entries[:count]
        self.durable_sequence = write.sequence


class Stage:
    """``do`` carries out one directive and returns what happened."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND
        self.options = Options(retained_entries=0)
        self.actors: dict[str, Actor] = {}
        self.links: list[tuple[str, str, Message]] = []
        self.cuts: set[tuple[str, str]] = set()
        self.happened: list[str] = []
        self._reads = 0
        self._rounds = 0

    def do(self, line: str) -> list[str]:
        """Raises AssertionError on a broken invariant, ValueError for a directive that is none."""
        words = line.split()
        act: Callable[[list[str]], None] | None = getattr(self, "do_" + words[0].replace("-", "_"), None)
        if act is None:
            raise ValueError(f"no such directive: {line}")
        self.happened = []
        act(words[1:])
        return self.happened or ["ok"]

    # -- who is there -----------------------------------------------------------------------------

    def do_options(self, words: list[str]) -> None:
        """options NAME=VALUE...: before anybody starts; times in milliseconds."""
        values: dict[str, object] = {}
        for word in words:
            name, value = word.split("=")
            known = getattr(self.options, name)
            values[name] = value == "true" if isinstance(known, bool) else int(value)
            if name.endswith(("timeout", "interval", "bound", "delay")):
                values[name] = int(value) * MILLISECOND
        fields = {name: getattr(self.options, name) for name in Options.__dataclass_fields__}
        self.options = Options(**{**fields, **values})

    def do_cluster(self, words: list[str]) -> None:
        """cluster NAME...: voters that start with empty disks."""
        for name in words:
            self._start(Actor(name, Configuration(tuple(sorted(words)))))

    def do_join(self, words: list[str]) -> None:
        """join NAME...: start empty, without knowing any cluster."""
        for name in words:
            self._start(Actor(name, Configuration(())))

    def do_disk(self, words: list[str]) -> None:
        """disk NAME TERM VOTE INDEX:TERM...: what a node finds when it starts (- for no vote)."""
        name, term, vote, *places = words
        actor = self.actors[name]
        actor.raft = None
        actor.hard_state = HardState(int(term), "" if vote == "-" else vote)
        pairs = [tuple(map(int, place.split(":"))) for place in places]
        actor.entries = [Entry(index, at, EntryKind.EMBEDDED, 0, b"%d:%d" % (index, at)) for index, at in pairs]
        self._start(actor)

    def do_crash(self, words: list[str]) -> None:
        """crash NAME...: lose the process and every write that is held."""
        for name in words:
            actor = self.actors[name]
            actor.raft = None
            actor.writes.clear()
            actor.held.clear()

    def do_restart(self, words: list[str]) -> None:
        for name in words:
            self.do_crash([name])
            self._start(self.actors[name])

    def _start(self, actor: Actor) -> None:
        actor.durable_sequence = 0
        actor.raft = Raft(
            node_id=actor.name,
            configuration=actor.bootstrap,
            hard_state=actor.hard_state,
            entries=list(actor.entries),
            commit_index=0,
            options=self.options,
            between=self._between,
            now=self.now,
            snapshot=actor.snapshot,
            previous_index=actor.previous[0],
            previous_term=actor.previous[1],
        )
        self.actors[actor.name] = actor

    def _between(self, low: int, high: int) -> int:
        if low == 1:
            self._rounds += 1
            return self._rounds
        return low

    # -- what happens to them ---------------------------------------------------------------------

    def do_campaign(self, words: list[str]) -> None:
        self._step(words[0], Campaign(self.now))

    def do_step_down(self, words: list[str]) -> None:
        self._step(words[0], StepDown(self.now, "asked to"))

    def do_propose(self, words: list[str]) -> None:
        name, *data = words
        proposals = [(int(EntryKind.EMBEDDED), item.encode()) for item in data]
        self._answered(name, self._step(name, Propose(self.now, 0, proposals)))

    def do_change(self, words: list[str]) -> None:
        """change LEADER [unchecked] [explicit] voter|learner|remove NAME...; without a name: leave a joint one."""
        name, *rest = words
        unchecked = "unchecked" in rest
        transition = Transition.EXPLICIT if "explicit" in rest else Transition.AUTO
        rest = [word for word in rest if word not in ("unchecked", "explicit")]
        changes = [Change(CHANGES[kind], node) for kind, node in zip(rest[::2], rest[1::2], strict=True)]
        self._answered(name, self._step(name, ChangeConfiguration(self.now, changes, transition, unchecked)))

    def do_transfer(self, words: list[str]) -> None:
        """transfer LEADER [TARGET]"""
        self._step(words[0], TransferLeadership(self.now, words[1] if len(words) > 1 else ""))

    def do_read(self, words: list[str]) -> None:
        """read NAME [lease]"""
        self._reads += 1
        self.happened.append(f"{words[0]} read {self._reads} asked for")
        self._step(words[0], Read(self.now, [self._reads], "lease" in words))

    def do_snapshot(self, words: list[str]) -> None:
        """snapshot NAME: of everything that it has applied; the log in front of it goes."""
        raft = self._raft(words[0])
        label = label_at(raft, raft.apply_reported)._replace(size_bytes=1)
        self.actors[words[0]].snapshot = label
        self._step(words[0], SnapshotTaken(self.now, label))

    def do_hold(self, words: list[str]) -> None:
        """hold NAME: from now on its writes wait."""
        self.actors[words[0]].disk_held = True

    def do_write(self, words: list[str]) -> None:
        """write NAME: its writes are done, and wait no more."""
        actor = self.actors[words[0]]
        actor.disk_held = False
        self._write(actor)

    # -- network and clock ------------------------------------------------------------------------

    def do_cut(self, words: list[str]) -> None:
        """cut FROM TO: what is on the way is lost, too."""
        self.cuts.add((words[0], words[1]))
        self.links = [link for link in self.links if (link[0], link[1]) not in self.cuts]

    def do_isolate(self, words: list[str]) -> None:
        for other in self.actors:
            if other != words[0]:
                self.do_cut([words[0], other])
                self.do_cut([other, words[0]])

    def do_heal(self, words: list[str]) -> None:
        self.cuts.clear()

    def do_lose(self, words: list[str]) -> None:
        """lose FROM TO: what is on the way between them."""
        self.links = [link for link in self.links if (link[0], link[1]) != (words[0], words[1])]

    def do_deliver(self, words: list[str]) -> None:
        """deliver [FROM] TO: what lies there now."""
        to, source = words[-1], words[0] if len(words) > 1 else ""
        arriving = [link for link in self.links if link[1] == to and source in ("", link[0])]
        self.links = [link for link in self.links if link not in arriving]
        for sender, _, message in arriving:
            self._receive(sender, to, message)

    def do_settle(self, words: list[str]) -> None:
        """settle [NAME...]: deliver among these, or everywhere, until nothing is on its way."""
        among = words or list(self.actors)
        for _ in range(ROUNDS_MAX):
            arriving = [link for link in self.links if link[0] in among and link[1] in among]
            if not arriving:
                return
            self.links = [link for link in self.links if link not in arriving]
            for sender, to, message in arriving:
                self._receive(sender, to, message)
        raise AssertionError("messages without end")

    def do_wait(self, words: list[str]) -> None:
        """wait MILLISECONDS [NAME...]: time passes, and the timers of these, or of all, run out."""
        end = self.now + int(words[0]) * MILLISECOND
        among = words[1:] or [name for name, actor in self.actors.items() if actor.raft is not None]
        while True:
            due = min((self._raft(name).deadline(), name) for name in among)
            if due[0] > end:
                break
            self.now = max(self.now, due[0])
            self._step(due[1], Tick(self.now))
        self.now = end

    def do_messages(self, words: list[str]) -> None:
        """What is on its way."""
        self.happened += [f"{source} > {to} {_said(message)}" for source, to, message in self.links]

    def do_state(self, words: list[str]) -> None:
        """state [NAME...]"""
        for name in words or self.actors:
            raft = self.actors[name].raft
            if raft is None:
                self.happened.append(f"{name} is down")
                continue
            log = " ".join(_entry(entry) for entry in raft.log.slice(raft.log.first_index, raft.log.last_index))
            begins = f"({raft.log.previous_index}:{raft.log.previous_term}) " if raft.log.previous_index else ""
            self.happened.append(
                f"{name} {raft.role.value} t{raft.current_term} vote {raft.voted_for or '-'} "
                f"leader {raft.leader or '-'} commit {raft.commit_index} log {begins}{log or '-'}"
            )

    def do_members(self, words: list[str]) -> None:
        """members NAME: the configuration in force there."""
        self.happened.append(_members(self._raft(words[0]).configuration))

    # -- the machinery ----------------------------------------------------------------------------

    def _raft(self, name: str) -> Raft:
        raft = self.actors[name].raft
        assert raft is not None, f"{name} is down"
        return raft

    def _receive(self, source: str, to: str, message: Message) -> None:
        if self.actors[to].raft is not None:
            self._step(to, Receive(self.now, source, message))

    def _step(self, name: str, event: Event) -> Effects:
        actor, raft = self.actors[name], self._raft(name)
        before = summarize(raft)
        effects = raft.step(event)
        check_step(before, raft, event, effects)
        check(raft)
        self._tell(name, effects)
        actor.writes.extend(effects.persist)
        actor.held += effects.sends
        for chunk in effects.chunks:
            if chunk.message.snapshot == actor.snapshot:
                actor.held.append(Send(chunk.to, chunk.message._replace(data=b"s"), chunk.after))
            else:
                self._step(name, ChunkUnavailable(self.now, chunk.to))
        self._release(actor)
        for stored in effects.store_chunks:
            actor.snapshot = stored.snapshot
            self._step(name, ChunkStored(self.now, stored.snapshot, stored.snapshot.size_bytes))
            self._step(name, SnapshotReceived(self.now, stored.snapshot))
        if not actor.disk_held:
            self._write(actor)
        return effects

    def _write(self, actor: Actor) -> None:
        while actor.writes:
            actor.write(actor.writes.popleft())
            self._step(actor.name, Durable(self.now, actor.durable_sequence))

    def _release(self, actor: Actor) -> None:
        held, actor.held = actor.held, []
        for send in held:
            if send.after > actor.durable_sequence:
                actor.held.append(send)
            elif send.to in self.actors and (actor.name, send.to) not in self.cuts:
                self.links.append((actor.name, send.to, send.message))

    def _tell(self, name: str, effects: Effects) -> None:
        told = self.happened
        for change in effects.role_changes:
            told.append(f"{name} {change.role.value} t{change.term} ({change.reason})")
        if effects.configuration is not None:
            told.append(f"{name} configuration {_members(effects.configuration)}")
        for write in effects.persist:
            if write.truncate_from:
                told.append(f"{name} truncates from {write.truncate_from}")
            if write.reset is not None:
                told.append(f"{name} begins anew behind {write.reset.last_index}:{write.reset.last_term}")
        if effects.restore is not None:
            told.append(f"{name} restores {effects.restore.last_index}:{effects.restore.last_term}")
        if effects.apply_to:
            told.append(f"{name} applies to {effects.apply_to}")
        for read in effects.reads:
            outcome = f"at {read.read_index}" if isinstance(read, ReadReady) else f"refused {read.code}"
            told.append(f"{name} read {read.request_id} {outcome}")
        match effects.transfer:
            case TransferBegun(target=target):
                told.append(f"{name} hands over to {target}")
            case TransferEnded(target=target, reason=reason):
                told.append(f"{name} leads on: {reason}")
            case Refused(code=code, detail=detail):
                told.append(f"{name} refuses {code}" + (f": {detail}" if detail else ""))

    def _answered(self, name: str, effects: Effects) -> None:
        outcome = effects.proposed
        if isinstance(outcome, Accepted):
            self.happened.insert(0, f"{name} takes {outcome.first_index}:{outcome.term}")
        elif outcome is not None:
            detail = f": {outcome.detail}" if outcome.detail else ""
            self.happened.append(f"{name} refuses {outcome.code}{detail}")


def _entry(entry: Entry) -> str:
    kind = {EntryKind.NO_OP: "no-op", EntryKind.CONFIGURATION: "members"}.get(EntryKind(entry.kind), "")
    return f"{entry.index}:{entry.term}" + (f"({kind})" if kind else "")


def _members(configuration: Configuration) -> str:
    text = " ".join(configuration.voters)
    if configuration.outgoing:
        text += f" | from {' '.join(configuration.outgoing)}"
    if configuration.learners:
        text += f" | learners {' '.join(configuration.learners)}"
    if configuration.learners_next:
        text += f" | learners next {' '.join(configuration.learners_next)}"
    return text or "nobody"


def _said(message: Message) -> str:
    match message:
        case AppendEntries(term, index, at, commit, _, entries):
            sent = " ".join(map(_entry, entries)) or "heartbeat"
            return f"AppendEntries t{term} after {index}:{at} commit {commit} {sent}"
        case AppendEntriesResponse(term, True, match_index):
            return f"AppendEntriesResponse t{term} matches {match_index}"
        case AppendEntriesResponse(term, False, index, hint_index, hint_term):
            return f"AppendEntriesResponse t{term} not at {index}, perhaps at {hint_index}:{hint_term}"
        case PreVote(term, index, at):
            return f"PreVote t{term} log {index}:{at}"
        case PreVoteResponse(term, granted, _, reason):
            return f"PreVoteResponse t{term} {'granted' if granted else reason}"
        case RequestVote(term, index, at, transfer):
            return f"RequestVote t{term} log {index}:{at}" + (" at the leader's word" if transfer else "")
        case RequestVoteResponse(term, granted, reason):
            return f"RequestVoteResponse t{term} {'granted' if granted else reason}"
        case InstallSnapshot(term, snapshot, offset):
            return f"InstallSnapshot t{term} of {snapshot.last_index}:{snapshot.last_term} from {offset}"
        case InstallSnapshotResponse(term, last_index, offset, installed):
            return f"InstallSnapshotResponse t{term} of {last_index} " + ("installed" if installed else f"at {offset}")
        case TimeoutNow(term):
            return f"TimeoutNow t{term}"
        case ReadIndex(term):
            return f"ReadIndex t{term}"
        case ReadIndexResponse(term, _, read_index):
            return f"ReadIndexResponse t{term} at {read_index}"
    raise AssertionError(message)
