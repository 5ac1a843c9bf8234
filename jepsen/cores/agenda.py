"""What happens when: actions in the order of simulated time, and of their planning at the same time."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Agenda:
    """All times are simulated nanoseconds since the world began."""

    def __init__(self) -> None:
        self.now = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0

    def at(self, time: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (time, self._order, action))

    def after(self, delay: int, action: Callable[[], None]) -> None:
        """Do something at a later simulated time."""
        self.at(self.now + delay, action)

    def run_for(self, duration: int) -> None:
        end = self.now + duration
        while self.is_due(end):
            self.next()
        self.now = end

    def is_due(self, time: int) -> bool:
        """Whether anything is planned up to ``time``."""
        return bool(self._agenda) and self._agenda[0][0] <= time

    def next(self) -> None:
        self.now, _, action = heapq.heappop(self._agenda)
        action()
