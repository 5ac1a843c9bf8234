"""What the whole cluster has done, as nobody in it can see it: who led, and what is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...raft.core.configuration import Configuration
from ...raft.core.entry import Entry, EntryKind
from ...raft.outbox.codec import ACTIVATION, SUBMIT, Activation, Command, decode
from .observed import Leadership, ObservedNode

if TYPE_CHECKING:
    from ..sim.world import World


class Commit(NamedTuple):
    """The newest commit: everything up to ``index`` was on a quorum of this configuration."""

    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    term: int
    """Of the entry there."""
    configuration: Configuration
    by: str


class Ledger:
    """Shared by all properties, which only read it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, ObservedNode] = {}
        self.base = 0
        """Entries up to this were committed before anybody looked, and are not known one by one."""
        self.base_term = 0
        self.adopted_to = 0
        """Entries up to this were committed before the world began: its disks had a history."""
        self.committed: list[Entry] = []
        """Every other committed entry, as the first node to commit it saw it."""
        self.committed_in: list[int] = []
        """In which term each of them was committed."""
        self.commit: Commit | None = None
        self.leaderships: dict[int, Leadership] = {}
        """By term."""
        self.no_ops: dict[int, int] = {}
        """By term: the index of its committed no-op."""
        self.commands: dict[int, Command] = {}
        """By index: every committed submission, repetitions included."""
        self.first_index: dict[str, int] = {}
        """By operation id: where it was committed first."""
        self.activations: dict[tuple[str, int, int], int] = {}
        """By resource, incarnation and term: where an activation with that token was committed first."""
        self.quorum_lost = False
        """Declared: the disks of a majority are not what they were. What was committed may be gone."""

    @property
    def now_ns(self) -> int:
        return self.world.agenda.now_ns

    # -- what is committed --------------------------------------------------------------------------

    @property
    def last_index(self) -> int:
        """The highest index that is known to be committed."""
        return self.base + len(self.committed)

    def term_at(self, index: int) -> int:
        """The term of the committed entry there; -1 where none is known."""
        place = index - self.base - 1
        if 0 <= place < len(self.committed):
            return self.committed[place].term
        return self.base_term if place == -1 else -1

    def entry(self, index: int) -> Entry | None:
        place = index - self.base - 1
        return self.committed[place] if 0 <= place < len(self.committed) else None

    def slice(self, first: int, last: int) -> list[Entry]:
        """Committed entries with ``first <= index <= last``, as far as they are known."""
        return self.committed[max(first - self.base - 1, 0) : max(last - self.base, 0)]

    def extend(self, entries: Sequence[Entry], term: int) -> None:
        """These follow the last one, and were committed in ``term``."""
        self.committed += entries
        self.committed_in += [term] * len(entries)
        for entry in entries:
            if entry.kind == EntryKind.NO_OP:
                self.no_ops.setdefault(entry.term, entry.index)
            elif entry.kind == EntryKind.OUTBOX:
                self._note(entry)

    def _note(self, entry: Entry) -> None:
        kind = entry.data[1] if len(entry.data) > 1 else 0
        if kind == SUBMIT:
            command = decode(entry.data)
            assert isinstance(command, Command)
            self.commands[entry.index] = command
            self.first_index.setdefault(command.operation_id, entry.index)
        elif kind == ACTIVATION:
            activation = decode(entry.data)
            assert isinstance(activation, Activation)
            self.activations.setdefault((activation.resource, *activation.token), entry.index)

    def begin_at(self, index: int, term: int) -> None:
        """What lies up to here is taken for committed and not known."""
        self.base, self.base_term = index, term
        self.committed.clear()
        self.committed_in.clear()

    # -- who is in it -------------------------------------------------------------------------------

    def members(self) -> list[ObservedNode]:
        """Those that receive the log, as far as their processes run."""
        return [self.nodes[node.name] for node in self.world.members()]

    # -- who holds it -------------------------------------------------------------------------------

    def holders(self, configuration: Configuration, index: int, term: int) -> list[str]:
        """The voters whose disks hold this entry durably, or did until they were declared lost."""
        voters = sorted({*configuration.voters, *configuration.outgoing})
        return [name for name in voters if name in self.nodes and self.nodes[name].holds(index, term)]


def lacking(configuration: Configuration, holders: Sequence[str]) -> str:
    """Which majority these are not; empty if they are a quorum (both majorities of a joint configuration)."""
    for part, voters in (("voters", configuration.voters), ("outgoing voters", configuration.outgoing)):
        if voters and len([name for name in voters if name in holders]) < len(voters) // 2 + 1:
            return f"{part} {', '.join(voters)}"
    return ""
