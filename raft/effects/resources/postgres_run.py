"""A run of attempts of one effect in one exchange with the server, and which rows came of which attempt.

The driver sends one prepared statement with many sets of values and waits once. It gives back all rows, one behind the
other, and no count for each. So the statement is told to return the number of its attempt with every row.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from .named_parameters import Numbered
from .postgres_errors import Cause, cause_of

RUN_BYTES_MAX = 16 * 1024
"""Values in one exchange. What is this small goes to the operating system in one piece. A larger one could be sent in
two, and between two statements of one exchange the server has no bound for how long it waits: a holder that froze
between the pieces would keep the fence for as long as it is frozen."""
RUN_LENGTH_FIRST = 16
RUN_LENGTH_MAX = 256
QUICK_S = 0.25
"""A run that took less may be twice as long the next time, and one that took longer is half as long: the wait for an
answer is bounded for the whole exchange, and must not end while the server is still at work."""

_NUMBER = "fencepost_attempt"
_CAN_RETURN = frozenset({"insert", "update", "delete"})
_END = re.compile(r"[\s;]*\Z")


class Runs:
    """One statement that is sent many times at once; for one connection at a time."""

    def __init__(self, numbered: Numbered, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._sql = _numbering(numbered)
        """Empty if it cannot be sent so."""
        self._prepared: Any = None
        self._prepared_on = 0
        self._names: tuple[str, ...] = ()
        self._length = RUN_LENGTH_FIRST
        self._clock_s = clock_s

    @property
    def length_max(self) -> int:
        """How many attempts a run may have; 1 if each has to go alone."""
        return self._length if self._sql else 1

    async def prepare(self, connection: Any, opened: int) -> None:
        """Let the server parse it, if it has not on this connection. Raises its errors; one that will come again
        is raised once only."""
        if self._prepared is not None and self._prepared_on == opened:
            return
        self._prepared = None
        try:
            prepared = await connection.prepare(self._sql)
        except Exception as error:
            if cause_of(error) not in (Cause.SERVER, Cause.CONTENTION):
                self._sql = ""  # A rule on the table, say, which leaves no rows to return.
            raise
        self._names = tuple(each.name for each in prepared.get_attributes()[:-1])
        self._prepared, self._prepared_on = prepared, opened

    async def send(self, values: Sequence[Sequence[Any]]) -> list[list[dict[str, Any]]]:
        """Run once for each set of values, in order. The rows of each; empty dictionaries where the statement itself
        returns none. Raises the error of the first that fails, and nothing is known of the others then."""
        began_s = self._clock_s()
        try:
            rows = await self._prepared.fetchmany([(*each, number) for number, each in enumerate(values)])
        except TimeoutError:
            self._length = 1
            raise
        took_s = self._clock_s() - began_s
        if took_s > QUICK_S:
            self._length = max(1, self._length // 2)
        elif len(values) >= self._length:
            self._length = min(2 * self._length, RUN_LENGTH_MAX)
        found: list[list[dict[str, Any]]] = [[] for _ in values]
        names = self._names
        for row in rows:
            found[row[-1]].append(dict(zip(names, row.values(), strict=False)))
        return found


def _numbering(numbered: Numbered) -> str:
    """The statement, with the number of its attempt as the last column that it returns; empty if it can have none.

    The clause is the last one of its kinds of statement, so nothing else of it changes. A word that only looks like
    the clause makes SQL that the server does not take.
    """
    words = numbered.words
    if not words or words[0] not in _CAN_RETURN:
        return ""
    column = f"${len(numbered.names) + 1}::bigint AS {_NUMBER}"
    # On a line of its own: there may be a comment before it.
    return f"{_END.sub('', numbered.sql)}\n{', ' if 'returning' in words else 'RETURNING '}{column}"


def size_of(values: Sequence[Any]) -> int:
    """About how many bytes the values take on their way, rather too many."""
    size = 64
    for value in values:
        if isinstance(value, str):
            size += 8 + (len(value) if value.isascii() else 4 * len(value))
        elif isinstance(value, bytes):
            size += 8 + len(value)
        else:
            size += 24
    return size
