"""Applying committed entries to the state machines, strictly in order, each exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..core.entry import Entry, EntryKind
from ..core.errors import UnknownEntry
from ..ports import Machine
from .digests import POINT_ENTRIES, Digests
from .snapshot_format import decode_snapshot, encode_snapshot

RAFTS_OWN = frozenset({int(EntryKind.NO_OP), int(EntryKind.CONFIGURATION)})
"""Entries that no state machine sees."""


@runtime_checkable
class PreparingMachine(Protocol):
    """A :class:`~fencepost.raft.ports.Machine` whose ``restore`` comes in two halves, so that the long
    one need not hold the loop. ``prepare`` touches no machine and may run on any thread."""

    def prepare(self, chunks: Iterable[bytes]) -> Any: ...

    def adopt(self, prepared: Any) -> None:
        """Replace the whole state. Short, and does not fail. It may leave the old one in ``prepared``, whose
        method ``discard``, if it has one, is called on another thread afterwards."""


@runtime_checkable
class Discardable(Protocol):
    def discard(self) -> None: ...


@runtime_checkable
class DigestingMachine(Protocol):
    """A :class:`~fencepost.raft.ports.Machine` whose state nodes compare with each other's (``digests``)."""

    def state_digest(self) -> bytes:
        """A few bytes, the same on two nodes exactly if their states are the same, and short to make: it is called on
        the node's loop, every thousand entries. The first byte says how it was made; change it with that."""


class PreparedState(NamedTuple):
    """A snapshot's state, read and verified, of all machines."""

    by_kind: dict[int, Any]

    def discard(self) -> None:
        """Free it, or the old state that was exchanged for it. For another thread than the loop's."""
        while self.by_kind:
            _, state = self.by_kind.popitem()
            if isinstance(state, Discardable):
                state.discard()


class Applier:
    """Hands each entry to the machine of its kind.

    An entry that no machine here knows, or on which a machine raises, is not skipped: the error
    goes up, the node stops, and ``last_applied`` stays before it (S55, S59).
    """

    def __init__(self, machines: Mapping[int, Machine], *, point_entries: int = POINT_ENTRIES) -> None:
        """``point_entries``: digests of the state are taken at the multiples of this index."""
        self._machines = {int(kind): machines[kind] for kind in sorted(machines)}
        self._apply = {kind: machine.apply for kind, machine in self._machines.items()}
        self.last_applied = 0
        self._digesting = {
            kind: machine for kind, machine in self._machines.items() if isinstance(machine, DigestingMachine)
        }
        self._point_entries = point_entries
        self._points: list[tuple[int, Digests]] = []

    def apply(self, entries: list[Entry]) -> list[Any]:
        """Apply entries that follow ``last_applied``; one result an entry, None where Raft made it."""
        first, every = entries[0].index, self._point_entries
        points = range(first + -first % every, entries[-1].index + 1, every)
        if not points:
            return self._apply_all(entries)
        results: list[Any] = []
        for point in points:
            results += self._apply_all(entries[len(results) : point - first + 1])
            self._points.append((point, self.digests()))
        results += self._apply_all(entries[len(results) :])
        return results

    def digests(self) -> Digests:
        """Of the state now, by entry kind; without the machines that have none."""
        return {kind: machine.state_digest() for kind, machine in self._digesting.items()}

    def take_points(self) -> list[tuple[int, Digests]]:
        """The points passed since this was called last, with the digests there."""
        points, self._points = self._points, []
        return points

    def _apply_all(self, entries: list[Entry]) -> list[Any]:
        results: list[Any] = []
        append = results.append
        for entry in entries:
            apply = self._apply.get(entry.kind)
            if apply is not None:
                append(apply(entry))
            elif entry.kind in RAFTS_OWN:
                append(None)
            else:
                raise UnknownEntry(
                    f"entry {entry.index} of term {entry.term} is of kind {entry.kind}, which this node cannot apply",
                    next_step="install the version that wrote it; the node applies nothing past it",
                )
            self.last_applied = entry.index
        return results

    def capture(self) -> Iterator[bytes]:
        """The state of all machines after ``last_applied``, as the contents of a snapshot. Taken now; may be
        drawn later and on another thread, while entries are applied (S19)."""
        return encode_snapshot([(kind, machine.snapshot()) for kind, machine in self._machines.items()])

    def prepare(self, contents: Iterable[bytes]) -> PreparedState:
        """Read and verify a snapshot's contents. Touches no machine: may run on any thread.

        Raises :class:`StorageCorrupt` or :class:`StorageFormatUnknown`, and what a machine raises.
        """
        readers = {kind: _reader(machine) for kind, machine in self._machines.items()}
        return PreparedState(decode_snapshot(contents, readers))

    def adopt(self, prepared: PreparedState, last_index: int) -> None:
        """Replace the state of all machines: it is the one after ``last_index``. All of them or none."""
        # First whoever reads his chunks only now, for he may find that he cannot; nothing has changed then.
        for kind, machine in self._machines.items():
            if not isinstance(machine, PreparingMachine):
                machine.restore(prepared.by_kind[kind])
        for kind, machine in self._machines.items():
            if isinstance(machine, PreparingMachine):
                machine.adopt(prepared.by_kind[kind])
        self.last_applied = last_index


def _reader(machine: Machine) -> Callable[[Iterator[bytes]], Any]:
    return machine.prepare if isinstance(machine, PreparingMachine) else list
