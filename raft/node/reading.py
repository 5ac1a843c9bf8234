"""What operators read of a node as a whole: its state, to save it, and its log. On a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .backup import BackupCalls
from .calls import SlowQuery
from .log_calls import LogCalls, ReadEntries
from .loop import RaftLoop
from .runner import BlockingRunner


class ReadingCalls:
    """:class:`.backup.BackupCalls` and :class:`.log_calls.LogCalls` over one ``runner``, which is theirs."""

    def __init__(
        self,
        loop: RaftLoop,
        timers: asyncio.AbstractEventLoop,
        runner: BlockingRunner,
        *,
        read_log: ReadEntries,
        identity: dict[str, Any],
        session_prefix: str,
        leader_address: Callable[[str], str],
    ) -> None:
        self._backup = BackupCalls(
            loop, timers, runner, identity=identity, session_prefix=session_prefix, leader_address=leader_address
        )
        self._log = LogCalls(loop, runner, read_log)
        self._runner = runner

    def methods(self) -> dict[str, SlowQuery]:
        return {**self._backup.methods(), **self._log.methods()}

    async def close(self) -> None:
        """Give up what is open, and wait until what is under way has ended. Bounded."""
        self._backup.close()
        await self._runner.close()
