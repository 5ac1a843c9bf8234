"""The last events of a run, a line each, so that a failing seed can be read."""

from __future__ import annotations

from collections import deque

from ...raft.core.events import Effects, Event
from ...raft.core.options import MILLISECOND
from ...raft.core.state import RaftState

LINES = 60

COLUMNS = "{0} t{1} vote {2} log {3}:{4} durable {5} commit {6}"
"""The state after the event; ``log`` is the last index and its term."""


class Trace:
    """Keeps the values, not the text: most runs are never told."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str, Event | str, Effects | None, tuple[object, ...]]] = deque(maxlen=LINES)

    def note(self, now: int, name: str, text: str) -> None:
        self._lines.append((now, name, text, None, ()))

    def step(self, now: int, raft: RaftState, event: Event, effects: Effects | None) -> None:
        state = (
            raft.role.value,
            raft.current_term,
            raft.voted_for or "-",
            raft.log.last_index,
            raft.log.last_term,
            raft.durable_index,
            raft.commit_index,
        )
        self._lines.append((now, raft.node_id, event, effects, state))

    def story(self) -> str:
        """Time in milliseconds, node, state after the event, the event; its effects below it."""
        lines = []
        for now, name, event, effects, state in self._lines:
            columns = COLUMNS.format(*state) if state else ""
            lines.append(f"{now / MILLISECOND:10.3f} {name:3} {columns:66} {event}")
            if effects is None:
                continue
            done: list[object] = [*effects.persist, *effects.sends, *effects.store_chunks, *effects.chunks]
            if effects.restore is not None:
                done.append(f"restore {effects.restore}")
            if effects.apply_to:
                done.append(f"apply to {effects.apply_to}")
            if effects.take_snapshot is not None:
                done.append(f"take {effects.take_snapshot}")
            done += [*effects.reads, effects.proposed, effects.transfer, effects.configuration]
            lines += [f"{'':16}-> {effect}" for effect in done if effect is not None]
        return "\n".join(lines)
