"""``snapshot.begin``, ``snapshot.next``, ``snapshot.end``: the state of one applied index, for whoever saves it.

The state is captured in one moment, after a quorum has confirmed that nothing newer was committed before the
call came; so what a client has been answered is in it. It is encoded part by part as it is asked for, on a
thread of its own, while the node goes on (S19). Nothing of it goes to this node's disk, and the log is not
shortened by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import structlog

from ..core.configuration import encode_configuration
from ..core.entry import Snapshot
from ..core.errors import Busy, CommandInvalid, FencepostError, NotFound
from ..core.snapshot import label_at
from .calls import Reply, SlowQuery
from .loop import RaftLoop
from .reads import Consistency, LocalReads
from .runner import BlockingRunner

_LOG = structlog.get_logger("fencepost.node")

SESSIONS_MAX = 2
"""Captures that may be open at once: what changes in the state meanwhile is kept twice, for each of them."""
IDLE_S = 60.0
"""A capture that nobody has drawn from for so long is given up."""
PART_BYTES = 1 << 20
"""A part is as long as this, and less than twice as long: a machine may give all of its state in one chunk, and no
frame holds that."""


class _Session:
    """One capture that is being drawn."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks = chunks
        self.drawing = False
        self.drawn = 0
        """How many parts were drawn."""
        self.part: dict[str, Any] | None = None
        """The last of them: whoever did not get the answer asks for it again."""
        self.expiry: asyncio.TimerHandle | None = None


class BackupCalls:
    """What ``fencepost snapshot save`` asks of a node."""

    def __init__(
        self,
        loop: RaftLoop,
        timers: asyncio.AbstractEventLoop,
        runner: BlockingRunner,
        *,
        identity: dict[str, Any],
        session_prefix: str,
        leader_address: Callable[[str], str],
    ) -> None:
        """``identity`` goes into the answer as it stands. ``session_prefix`` is of this process alone: what another
        one has begun is not gone on with here. ``leader_address`` as for every call."""
        self._loop = loop
        self._timers = timers
        self._runner = runner
        self._identity = identity
        self._prefix = session_prefix
        self._reads = LocalReads(loop, leader_address)
        self._sessions: dict[str, _Session] = {}
        self._begun = 0

    def methods(self) -> dict[str, SlowQuery]:
        return {"snapshot.begin": self.begin, "snapshot.next": self.next, "snapshot.end": self.end}

    # -- the calls --------------------------------------------------------------------------------

    def begin(self, parameters: dict[str, Any], reply: Reply) -> None:
        """Capture the state: a session, and the label of what it will give."""

        def captured(body: dict[str, Any] | None, error: BaseException | None) -> None:
            reply(body, _told(error))

        self._reads.read(self._capture, captured, Consistency.LINEARIZABLE)

    def next(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``session``, ``sequence`` (0, 1, 2, …): a part, and whether it is the last."""
        name, session = self._find(parameters)
        sequence = parameters.get("sequence")
        if session.part is not None and session.part["sequence"] == sequence:
            self._stay(name, session)
            reply(session.part, None)
            return
        if sequence != session.drawn or session.drawing:
            raise CommandInvalid(f"part {sequence!r} of session {name} is not the next one, {session.drawn}")
        session.drawing = True
        work = partial(_draw, session.chunks, session.drawn)
        self._runner.run(work, self._loop.guarded(partial(self._drawn, name, session, reply)))

    def end(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``session``: it is not needed any more. One that is gone already is fine."""
        self._drop(str(parameters.get("session") or ""))
        reply({}, None)

    # -- inside -----------------------------------------------------------------------------------

    def _capture(self) -> dict[str, Any]:
        if len(self._sessions) >= SESSIONS_MAX:
            raise Busy(f"{SESSIONS_MAX} snapshots are being saved from this node already", next_step="wait for one")
        label = self._label()
        self._begun += 1
        name = f"{self._prefix}-{self._begun}"
        session = self._sessions[name] = _Session(_cut(self._loop.applier.capture()))
        self._stay(name, session)
        _LOG.info("snapshot is being saved", last_index=label.last_index, session=name)
        return {
            **self._identity,
            "session": name,
            "last_index": label.last_index,
            "last_term": label.last_term,
            "last_time_ns": label.last_time_ns,
            "configuration": encode_configuration(label.configuration),
            "configuration_index": label.configuration_index,
        }

    def _label(self) -> Snapshot:
        raft, applied = self._loop.raft, self._loop.applier.last_applied
        if raft.snapshot is not None and raft.snapshot.last_index == applied:
            return raft.snapshot
        if applied + 1 < raft.log.window_start:
            # Its entry has left the core's memory before it was applied here, and with it the time it bears.
            raise Busy("this node is still applying what is committed; nothing was begun", next_step="ask again")
        if not applied or not raft.configuration_at(applied)[1].voters:
            raise NotFound("this node has applied nothing yet", next_step="fencepost status")
        return label_at(raft, applied)

    def _drawn(self, name: str, session: _Session, reply: Reply, part: Any, error: BaseException | None) -> None:
        session.drawing = False
        if error is not None:
            self._drop(name)
            reply(None, _told(error))
            return
        session.drawn += 1
        session.part = part
        if name in self._sessions:
            self._stay(name, session)
        reply(part, None)

    def _find(self, parameters: dict[str, Any]) -> tuple[str, _Session]:
        name = str(parameters.get("session") or "")
        session = self._sessions.get(name)
        if session is None:
            raise NotFound(
                f"this node knows no session {name!r}: it has restarted since, or the session was idle for too long",
                next_step="begin again",
            )
        return name, session

    def _stay(self, name: str, session: _Session) -> None:
        """It was used: it expires later."""
        if session.expiry is not None:
            session.expiry.cancel()
        session.expiry = self._timers.call_later(IDLE_S, self._drop, name)

    def _drop(self, name: str) -> None:
        session = self._sessions.pop(name, None)
        if session is not None and session.expiry is not None:
            session.expiry.cancel()

    def close(self) -> None:
        """Give up what is open."""
        for name in list(self._sessions):
            self._drop(name)


def _cut(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, none of the chunks longer than a part: whoever reads them gets them cut at any place."""
    for chunk in chunks:
        for start in range(0, len(chunk), PART_BYTES):
            yield chunk[start : start + PART_BYTES]


def _draw(chunks: Iterator[bytes], sequence: int) -> dict[str, Any]:
    pieces: list[bytes] = []
    size = 0
    for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size >= PART_BYTES:
            return {"sequence": sequence, "data": b"".join(pieces), "last": False}
    return {"sequence": sequence, "data": b"".join(pieces), "last": True}


def _told(error: BaseException | None) -> FencepostError | None:
    if error is None or isinstance(error, FencepostError):
        return error
    _LOG.error("snapshot could not be given", exc_info=error)
    return FencepostError(f"the snapshot could not be given: {type(error).__name__}: {error}")
