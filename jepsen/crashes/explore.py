"""A life on a disk in memory, cut off between any two of its operations, and again while it recovers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from ...raft.core.entry import Entry, EntryKind, HardState
from ...raft.core.errors import FencepostError, StorageError
from ...raft.core.events import Persist
from ..sim.quiet import logging_to
from .aftermath import aftermaths, power
from .judge import Known, Opened, judge, known_after, leftovers, match, opened, refusal
from .life import Life, little_in_advance
from .plan import FIRST_TIME_NS, State, Write, make_plan, written
from .recording import Image, RecordingDisk

ROOT = Path("/data/n1")
PROBLEMS_KEPT = 20


class Explored(NamedTuple):
    """What was looked at. States are counted by the content of the whole disk."""

    boundaries: int
    states: int
    judged: int
    """States, each counted once more where it was left by another moment, of which more is expected."""
    kinds: Counter[str]
    """Of the states that were judged, by the first word of how they came about."""
    problems: list[str]


class Explorer:
    """One life after another. Nothing of it is left to chance: the same seeds, the same states."""

    def __init__(self, *, every: int = 1, again_every: int = 1, problems_max: int = PROBLEMS_KEPT) -> None:
        """Look at every so many states after the first crash, and cut off the recovery of every so many of those.

        An ``again_every`` of 0 looks at no second crash. ``problems_max``: with so many, nothing more is looked at.
        """
        self._every = every
        self._again_every = again_every
        self._problems_max = problems_max
        self._seen: set[tuple[int, object]] = set()
        self._contents: set[int] = set()
        self._first = 0
        self._boundaries = 0
        self._kinds: Counter[str] = Counter()
        self._problems: list[str] = []

    def explored(self) -> Explored:
        return Explored(self._boundaries, len(self._contents), len(self._seen), self._kinds, self._problems)

    def live(self, seed: int, steps: int) -> None:
        """Live one plan and judge what every crash of it leaves."""
        plan = make_plan(seed, steps)
        disk = RecordingDisk({"/data": None})
        acknowledged, instance_id, boundary = 0, "", 0

        def acknowledge(count: int, what: str) -> None:
            nonlocal acknowledged, instance_id
            acknowledged = count
            instance_id = instance_id or what.rpartition(" ")[2]

        def between(operation: str) -> None:
            nonlocal boundary
            if len(self._problems) >= self._problems_max:
                return
            boundary += 1
            self._boundaries += 1
            known = known_after(plan, acknowledged, instance_id)
            place = f"seed {seed}, boundary {boundary} ({operation}), {acknowledged} acknowledged"
            for kind, image in aftermaths(disk, place):
                if self._is_new(image, (seed, acknowledged), kind):
                    self._first += 1
                    if self._first % self._every == 0:
                        self._recover(image, known, (seed, acknowledged), f"{place}: {kind}")

        disk.between = between
        with _quiet(), little_in_advance():
            Life(plan, disk, ROOT, acknowledge).run()

    def recover(self, image: Image, known: Known, place: str) -> None:
        """Recover from one state, and from every state that a crash of that recovery leaves."""
        with _quiet(), little_in_advance():
            self._recover(image, known, (0, 0), place)

    def _is_new(self, image: Image, moment: object, kind: str) -> bool:
        content = hash(frozenset(image.items()))
        if (content, moment) in self._seen:
            return False
        self._seen.add((content, moment))
        self._contents.add(content)
        self._kinds[kind.partition(" ")[0]] += 1
        return True

    def _tell(self, place: str, problems: list[str]) -> None:
        self._problems += [f"{place}: {problem}" for problem in problems][: self._problems_max - len(self._problems)]

    # -- the recovery, and what a second crash leaves of it --------------------------------------------

    def _recover(self, image: Image, known: Known, moment: tuple[int, int], place: str) -> None:
        """Open what is left, judge it, and write one thing more; cut off in between, judge that, too."""
        disk = RecordingDisk(image)
        expected = (known._replace(more_openings=1), "recovering")

        def between(operation: str) -> None:
            self._boundaries += 1
            now, phase = expected
            for kind, left in aftermaths(disk, place):
                if self._is_new(left, (*moment, phase), f"again-{kind}"):
                    self._tell(f"{place}, then {operation}: {kind}", judge(RecordingDisk(left), ROOT, now))

        def expect(states: tuple[State, ...], phase: str) -> None:
            nonlocal expected
            expected = (Known(states, found.directory.instance_id), f"{phase} {number}")

        if self._again_every and self._first % self._again_every == 0:
            disk.between = between
        try:
            with opened(disk, ROOT) as found:
                number, problems = match(found, known)
                problems += leftovers(disk, ROOT)
                self._tell(place, problems)
                if problems:
                    return
                # What was found is what this process goes by: it must not be otherwise the next time.
                state = known.possible[number]._replace(opened=found.directory.boot)
                after = probed(state)
                expect((state, after), "probing")
                write_on(found, after, lambda: expect((after,), "probed"))
        except FencepostError as error:
            self._tell(place, [refusal(error)])
            return
        disk.between = lambda operation: None
        self._tell(f"{place}, and opened again", judge(RecordingDisk(power(disk)), ROOT, expected[0]))


def _quiet() -> AbstractContextManager[None]:
    return logging_to(lambda level, event: None)


def probed(state: State) -> State:
    """The state behind one more write."""
    term = state.hard_state.term + 1
    index = state.last_index + 1
    row = Entry(index, term, EntryKind.OUTBOX, FIRST_TIME_NS + index, b"written after the crash")
    return written(state, Write((row,), HardState(term, "")))


def write_on(found: Opened, after: State, acknowledge: Callable[[], None]) -> None:
    """Write what leads to the state ``after``. Raises StorageError."""
    failures: list[StorageError] = []
    found.store.start_stepped(lambda sequence: acknowledge(), failures.append)
    found.store.append(Persist(1, after.hard_state, 0, [after.entries[-1]], 0))
    found.store.step()
    if failures:
        raise failures[0]
