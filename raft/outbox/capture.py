"""The state at one moment, drawn later and elsewhere while the machine goes on (scenario S19).

Copying every operation would hold the loop for a tenth of a second per hundred thousand of them. So only
how many there are is noted, and one that is about to change is copied then: *copy on write*.
Whoever draws reads an operation first and looks for its copy afterwards. The machine does it the other
way round, copy first and change then; so a reading that a change has cut through is never used.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from .operation import Operation
from .snapshot import Record, encode_state, head_of, record_of
from .state import OutboxState


class _Capture:
    __slots__ = ("by_index", "count", "drawn", "ended", "head", "kept", "last_index", "operations")

    def __init__(self, state: OutboxState) -> None:
        self.head = head_of(state)
        self.operations = state.in_order
        self.by_index = state.by_index
        self.count = len(state.in_order)
        self.last_index = state.last_applied
        self.kept: dict[int, Record] = {}
        """By index: operations that have changed since and were not drawn yet, as they were."""
        self.drawn = 0
        """Index of the last operation that was drawn. It is raised by the one who draws, and read by the machine."""
        self.ended = False

    def records(self) -> Iterator[Record]:
        kept, known = self.kept, self.by_index.get
        for operation in islice(self.operations, self.count):
            index = operation.index
            # One that was forgotten before this is not in it; one that is forgotten now has its copy made first.
            record = record_of(operation) if known(index) is operation else None
            record = kept.pop(index, record)
            self.drawn = index  # Only now: as long as it might be needed the machine makes a copy.
            if record is not None:
                yield record


class CapturedChunks(Iterator[bytes]):
    """The chunks of one capture, once. May be drawn on another thread than the machine's."""

    def __init__(self, capture: _Capture) -> None:
        self._capture = capture
        self._chunks = encode_state(capture.head, capture.records())

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._chunks)
        except BaseException:
            self._capture.ended = True
            raise

    def __del__(self) -> None:
        # Given up before its end: the machine need not copy for it any more.
        self._capture.ended = True


class Captures:
    """Of one machine: who is still drawing. Used on the machine's thread only."""

    __slots__ = ("drawing",)

    def __init__(self) -> None:
        self.drawing: list[_Capture] = []
        """Looked at before every change, so it is a plain list. Empty most of the time."""

    def take(self, state: OutboxState) -> CapturedChunks:
        capture = _Capture(state)
        self.drawing = [each for each in self.drawing if not each.ended]
        self.drawing.append(capture)
        return CapturedChunks(capture)

    def keep(self, operation: Operation) -> None:
        """``operation`` is about to change: whoever has not drawn it yet gets it as it is now."""
        index = operation.index
        ended = False
        for capture in self.drawing:
            if capture.ended:
                ended = True
            elif capture.drawn < index <= capture.last_index and index not in capture.kept:
                capture.kept[index] = record_of(operation)
        if ended:
            self.drawing = [each for each in self.drawing if not each.ended]
