"""What has happened: its hash, and its last events as lines.

Every event of a run goes into the hash as a few numbers, so two runs with one hash were the same run.
The last events are kept as values and made into text only when somebody reads them. A line::

        1234.567890  n2  leader    t7 vote n2 log 120:7 durable 118 commit 117   <event>
                                                                                 -> <what the step asked for>

are milliseconds since the world began, the node, its role, term and vote *after* the event, the last
index and term of its log, how far the log is durable there and known to be committed, and the event.
A step that wrote nothing, applied nothing and changed no role leaves the middle columns empty.
Lines without an event are what the world did: faults, starts and ends of processes, what
nodes logged as warnings, calls of resources, what clients asked and heard.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from typing import Any, get_args

from ...raft.core.events import Effects, Event
from ...raft.core.state import RaftState

LINES = 200
HASH_AFTER = 4096
"""Numbers are gathered until there are so many, then hashed together."""

_KINDS: dict[type, int] = {kind: number for number, kind in enumerate(get_args(Event), 1)}
_COLUMNS = "{0} t{1} vote {2} log {3}:{4} durable {5} commit {6}"


class Trace:
    """The record of one run."""

    def __init__(self, lines: int = LINES) -> None:
        self._lines: deque[tuple[Any, ...]] = deque(maxlen=lines)
        self._keep = self._lines.append
        self._numbers: list[int] = []
        self._hash = hashlib.blake2b(digest_size=16)

    # -- the hash -----------------------------------------------------------------------------------

    def mix(self, *numbers: int) -> None:
        """Put numbers of 64 bits into the hash."""
        self._numbers += numbers
        if len(self._numbers) >= HASH_AFTER:
            self._flush()

    def _flush(self) -> None:
        numbers = self._numbers
        self._hash.update(array("q", numbers).tobytes())
        numbers.clear()

    def digest(self) -> str:
        """The hash of everything so far, 32 hexadecimal digits."""
        self._flush()
        return self._hash.hexdigest()

    # -- the lines ----------------------------------------------------------------------------------

    def step(self, now_ns: int, number: int, raft: RaftState, event: Event, effects: Effects | None) -> None:
        """A step of the core of the node with this number; ``effects`` None: it raised."""
        numbers = self._numbers
        numbers += (now_ns, number, _KINDS[type(event)], raft.current_term, raft.commit_index)
        if len(numbers) >= HASH_AFTER:
            self._flush()
        if effects is not None and not effects.persist and not effects.apply_to and not effects.role_changes:
            # Most steps of a run are heartbeats: they change nothing that the columns show.
            self._keep((now_ns, raft.node_id, event, effects, None))
            return
        log = raft.log
        self._keep(
            (
                now_ns,
                raft.node_id,
                event,
                effects,
                (
                    raft.role,
                    raft.current_term,
                    raft.voted_for,
                    log.last_index,
                    log.last_term,
                    raft.durable_index,
                    raft.commit_index,
                ),
            )
        )

    def tell(self, now_ns: int, name: str, *what: object) -> None:
        """A line that does not go into the hash."""
        self._keep((now_ns, name, what))

    def note(self, now_ns: int, name: str, *what: object) -> None:
        """A line of the world's. What it says must not depend on the machine or its process."""
        self._keep((now_ns, name, what))
        text = f"{name} {what}" if len(what) != 1 else f"{name} {what[0]}"
        self._hash.update(b"%d %s" % (now_ns, text.encode()))

    def story(self, last: int = LINES) -> str:
        """The last events, oldest first."""
        lines: list[str] = []
        for line in list(self._lines)[-last:]:
            now_ns, name = line[0], line[1]
            if len(line) == 3:
                lines.append(f"{now_ns / 1e6:13.6f}  {name:4} {' '.join(map(str, line[2]))}")
                continue
            event, effects, state = line[2:]
            columns = ""
            if state is not None:
                role, term, vote, *rest = state
                columns = _COLUMNS.format(role.value, term, vote or "-", *rest)
            lines.append(f"{now_ns / 1e6:13.6f}  {name:4} {columns:68} {event}")
            if effects is not None:
                lines += [f"{'':20}-> {what}" for what in _asked(effects)]
        return "\n".join(lines)


def _asked(effects: Effects) -> list[object]:
    """What a step asked for, in the order in which it is carried out; what it did not ask for is left out."""
    asked: list[object] = [*effects.persist, *effects.sends]
    for name in effects.__slots__:
        value = getattr(effects, name)
        if name in ("persist", "sends") or not value:
            continue
        asked.append(f"{name}: {value}")
    return asked
