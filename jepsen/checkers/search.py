"""The search for an order that explains a history of one object.

The algorithm is Wing and Gong's ("Testing and Verifying Concurrent Objects", 1993) as Lowe improved it
("Testing for Linearizability", 2017): calls and returns stand in one list; an operation may be placed
next if its call stands before the first return; placing it takes both out; at a return nothing can be
placed any more, and the last choice is taken back. Configurations met before are not entered again.

Four things keep it short, none of which changes a verdict:

- An operation that leaves every state as it is (a read) is placed as soon as it fits: whatever
  follows does so as well after it, and it could only be in the way later.
- Unknown outcomes are optional and never due, so a configuration is hopeless already if the same
  one with fewer of them placed was met before.
- Of unknown outcomes that ask for the same, the earliest goes first.
- An unknown outcome that changes nothing is not placed.

The bound on the work is a number of steps, so that it is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import StrEnum
from itertools import pairwise
from math import inf
from typing import NamedTuple

from .models.model import IMPOSSIBLE, Model
from .operation import Operation, Status, own_order


class Verdict(StrEnum):
    """What is known of a history."""

    OK = "ok"
    """There is an order of its operations, true to time, in which an object would have answered so."""
    ILLEGAL = "illegal"
    """There is none."""
    UNKNOWN = "unknown"
    """The search was given up at its bound."""


class Found(NamedTuple):
    """What a search has come to."""

    verdict: Verdict
    order: tuple[int, ...]
    """With OK: which operations were placed, in order, by their place in what was searched."""
    steps: int


class _Placed(NamedTuple):
    """One operation that was placed, and what to go back to."""

    operation: int
    state: Hashable
    forced: bool
    """Whether there is no other choice to be tried instead."""


def search(operations: Sequence[Operation], model: Model, steps_max: int) -> Found:
    """Look for an order of ``operations``: frozen, of one key, and valid (``validation.py``).

    ``steps_max`` bounds how often an operation is tried in a state.
    """
    return _Search(*model.narrowed(operations), steps_max).run()


class _Search:
    """Nodes of the list: ``i`` is the call of operation i, ``n + i`` its return, ``2n`` both ends."""

    def __init__(self, model: Model, operations: Sequence[Operation], steps_max: int) -> None:
        self._operations = operations
        self._model = model
        self._steps_max = steps_max
        self._steps = 0
        self._n = len(operations)
        self._end = 2 * self._n
        self._next = [self._end] * (2 * self._n + 1)
        self._previous = [self._end] * (2 * self._n + 1)
        self._observes = [model.observes(operation) for operation in operations]
        self._optional = [operation.status is Status.INFO for operation in operations]
        self._after = _own_order(operations)
        for before, i in pairwise(self._in_log()):
            self._after[i] |= 1 << before
        self._twin = _twins(operations, self._after)
        self._left = 0
        """How many operations that must be placed are not."""
        self._link()
        self._state = model.initial
        self._done = 0
        """Which operations that must be placed are, as bits."""
        self._used = 0
        """Which optional ones are."""
        self._placed: list[_Placed] = []
        self._met: dict[tuple[int, Hashable], list[int]] = {}
        """By what must be placed, and the state: which optional ones were used there."""

    def _counts(self, i: int) -> bool:
        """Not what never happened, nor what changes nothing and has shown nothing."""
        status = self._operations[i].status
        return status is Status.OK or (status is not Status.FAIL and not self._observes[i])

    def _in_log(self) -> list[int]:
        """The operations that must be placed and stand in the log, in its order."""
        known = [
            (operation.position, i)
            for i, operation in enumerate(self._operations)
            if operation.position is not None and self._counts(i) and not self._optional[i]
        ]
        return [i for _, i in sorted(known)]

    def _link(self) -> None:
        """String calls and returns by time. At one time calls come first: those two are concurrent."""
        events: list[tuple[float, int, int]] = []
        for i in filter(self._counts, range(self._n)):
            operation = self._operations[i]
            events.append((operation.invoke, 0, i))
            if not self._optional[i]:
                self._left += 1
                events.append((inf if operation.return_ is None else operation.return_, 1, self._n + i))
        at = self._end
        for _, _, node in sorted(events):
            self._next[at], self._previous[node] = node, at
            at = node
        self._next[at], self._previous[self._end] = self._end, at

    def run(self) -> Found:
        self._place_observers()
        node = self._next[self._end]
        while self._left:
            if self._steps > self._steps_max:
                return self._found(Verdict.UNKNOWN)
            if node < self._n:
                if self._place(node):
                    self._place_observers()
                    node = self._next[self._end]
                else:
                    node = self._next[node]
                continue
            # A return: whoever is to come before it has had every chance.
            changed = self._take_back()
            if changed is None:
                return self._found(Verdict.ILLEGAL)
            node = self._next[changed]
        return self._found(Verdict.OK)

    def _found(self, verdict: Verdict) -> Found:
        order = tuple(placed.operation for placed in self._placed) if verdict is Verdict.OK else ()
        return Found(verdict, order, self._steps)

    # -- placing -----------------------------------------------------------------------------------

    def _place(self, i: int) -> bool:
        """Place operation ``i`` next, if that is possible and leads to what was not met before."""
        if self._after[i] & ~self._done or self._twin[i] & ~self._used:
            return False
        self._steps += 1
        state = self._model.step(self._state, self._operations[i])
        if state is IMPOSSIBLE:
            return False
        done, used = self._done, self._used
        if self._optional[i]:
            if state == self._state:
                return False
            used |= 1 << i
        else:
            done |= 1 << i
        if self._was_met(done, used, state):
            return False
        self._take(i, state, done, used, forced=False)
        return True

    def _place_observers(self) -> None:
        """Place every operation that fits and leaves the state as it is."""
        node = self._next[self._end]
        while node < self._n:
            if self._observes[node] and not self._after[node] & ~self._done:
                self._steps += 1
                if self._model.step(self._state, self._operations[node]) is not IMPOSSIBLE:
                    self._take(node, self._state, self._done | 1 << node, self._used, forced=True)
            node = self._next[node]

    def _was_met(self, done: int, used: int, state: Hashable) -> bool:
        met = self._met.setdefault((done, state), [])
        if any(not before & ~used for before in met):
            return True
        met.append(used)
        return False

    def _take(self, i: int, state: Hashable, done: int, used: int, *, forced: bool) -> None:
        self._placed.append(_Placed(i, self._state, forced))
        self._state, self._done, self._used = state, done, used
        if not self._optional[i]:
            self._left -= 1
            self._lift(self._n + i)
        self._lift(i)

    def _take_back(self) -> int | None:
        """Take back the last choice and what was forced after it. The operation, or None at the start."""
        while self._placed:
            i, self._state, forced = self._placed.pop()
            self._put_back(i)
            if self._optional[i]:
                self._used ^= 1 << i
            else:
                self._left += 1
                self._put_back(self._n + i)
                self._done ^= 1 << i
            if not forced:
                return i
        return None

    # -- the list ----------------------------------------------------------------------------------

    def _lift(self, node: int) -> None:
        """Take a node out. It keeps its neighbours, so that :meth:`_put_back`, in reverse order, puts it back."""
        before, after = self._previous[node], self._next[node]
        self._next[before], self._previous[after] = after, before

    def _put_back(self, node: int) -> None:
        self._next[self._previous[node]] = self._previous[self._next[node]] = node


def _own_order(operations: Sequence[Operation]) -> list[int]:
    """By operation, a bit for the one that must come before it although their times do not say so: the
    one that the same process had ended at the very moment when it began this one."""
    after = [0] * len(operations)
    latest: dict[int | str, int] = {}
    for i in sorted(range(len(operations)), key=lambda i: own_order(operations[i])):
        operation = operations[i]
        # The times of a DONE are those of the log, not of its process.
        if operation.status in (Status.FAIL, Status.DONE):
            continue
        before = latest.get(operation.process)
        if before is not None and operations[before].return_ == operation.invoke:
            after[i] = 1 << before
        if operation.status is Status.OK:
            latest[operation.process] = i
    return after


def _twins(operations: Sequence[Operation], after: Sequence[int]) -> list[int]:
    """By unknown outcome, a bit for the one before it in time that asks for exactly the same."""
    twins = [0] * len(operations)
    latest: dict[tuple[str, object], int] = {}
    for i in sorted(range(len(operations)), key=lambda i: operations[i].invoke):
        operation = operations[i]
        # One that has to wait for another by its own order must not hold up its twin.
        if operation.status is not Status.INFO or after[i]:
            continue
        asked = (operation.op, operation.value)
        if asked in latest:
            twins[i] = 1 << latest[asked]
        latest[asked] = i
    return twins
