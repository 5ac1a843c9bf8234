"""The clients of a run: commands at a rate, each submitted under its own id until its end is known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

from ...raft.outbox.codec import Command
from ...raft.ports import Answer
from ...transport.client import Client

PASSES_MAX = 5


class Load:
    """``answers`` by operation id: state and result. ``rate`` is commands a second over all resources, 0 for as fast as
    they are taken."""

    def __init__(self, client: Client, *, rate: float = 0.0, window: int = 128) -> None:
        self.answers: dict[str, tuple[str, bytes]] = {}
        self.retried = 0
        """Commands that were submitted again, under the same id, because an answer had not come or was *retry*."""
        self.replayed = 0
        self.longest_gap_s = 0.0
        """Between two answers, whatever they are about."""
        self.gaps_s: dict[str, float] = {}
        """The longest between two answers about one resource, by its name."""
        self._heard_of: dict[str, float] = {}
        self._client = client
        self._rate = rate
        self._window = window
        self._heard = 0.0

    async def run(self, commands: Sequence[Command], tell: Callable[[int], None] = lambda done: None) -> None:
        """Until every command has an answer that is one."""
        self._heard = time.monotonic()
        left = list(commands)
        for number in range(PASSES_MAX):
            if number:
                self.retried += len(left)
            await self._submit(left, tell, paced=not number)
            left = [command for command in left if command.operation_id not in self.answers]
            if not left:
                return

    async def repeat(self, commands: Sequence[Command]) -> list[str]:
        """Submit commands that are done once more. What was answered otherwise than before, a sentence each."""
        problems = []
        async for command, answer in self._client.submit_many(commands, window=self._window):
            before = self.answers.get(command.operation_id)
            if not isinstance(answer, Answer) or not answer.replayed or (answer.state, answer.result) != before:
                problems.append(
                    f"{command.operation_id} was answered {before} first, and {answer} when it was repeated"
                )
            else:
                self.replayed += 1
        return problems

    async def _submit(self, commands: Sequence[Command], tell: Callable[[int], None], *, paced: bool) -> None:
        source = self._paced(commands) if paced and self._rate else commands
        async for command, answer in self._client.submit_many(source, window=self._window):
            now = time.monotonic()
            gap_s, self._heard = now - self._heard, now
            self.longest_gap_s = max(self.longest_gap_s, gap_s)
            name = command.resource
            self.gaps_s[name] = max(self.gaps_s.get(name, 0.0), now - self._heard_of.get(name, now))
            self._heard_of[name] = now
            if isinstance(answer, Answer):
                self.answers[command.operation_id] = (answer.state, answer.result)
            tell(len(self.answers))

    async def _paced(self, commands: Sequence[Command]) -> AsyncIterator[Command]:
        """A command that is late, because nobody has taken any for a while, is not waited for any longer."""
        due = time.monotonic()
        for command in commands:
            due = max(due + 1 / self._rate, time.monotonic() - 1.0)
            ahead_s = due - time.monotonic()
            if ahead_s > 0.01:  # Timers are no finer.
                await asyncio.sleep(ahead_s)
            yield command
