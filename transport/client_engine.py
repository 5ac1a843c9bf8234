"""Requests under way: where they are sent, what an answer does to them, and when they are given up.

One engine serves every submitter of a client. A request is a slot in a table and a future; there is
no task, lock or timer for it. What was asked in one loop turn leaves in one frame, and one sweep
looks at deadlines and at silence.

What may happen to a request (concepts: The four answers)::

    done, refused           the future ends
    retry                   certainly not executed: asked again, with the same id
    unknown, or the link    a submission is asked again with the same id, and from now on only a
    was lost after sending  definite answer or OutcomeUnknown can end it; a proposal has no id to
                            be recognised by, so it ends with OutcomeUnknown at once (scenario S32)
    deadline                OutcomeUnknown if it may have been executed, else what kept it
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from ..raft.core.errors import FencepostError, HandshakeRefused, TransportError
from ..raft.ports import Answer, AnswerStatus, Clock, ProposeRequest, Randomness, SubmitRequest
from .address import Resolver
from .alarm import NEVER, Alarm
from .backoff import jittered_s
from .client_link import ClientLink, Endpoint
from .client_requests import Request, closing_of, expiry_of, failure_of, no_endpoint, refusal_of, too_late
from .client_reroutes import Reroutes
from .client_search import SWEEP_S, LeaderSearch
from .codec import Welcome, encode_propose, encode_submit
from .handshake import check_welcome_to_client

BATCH_BYTES_MAX = 2 * 1024 * 1024

_DONE = int(AnswerStatus.DONE)
_REFUSED = int(AnswerStatus.REFUSED)
_UNKNOWN = int(AnswerStatus.UNKNOWN)
_IN_DOUBT = "in-doubt"
"""``Answer.state`` of a command whose outcome nobody knows."""
_S = 1_000_000_000


class Engine:
    """The table of requests. Where they go is the search's to say (``client_search.py``)."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        cluster_id: str,
        connect_timeout_s: float,
        clock: Clock | None,
        randomness: Randomness,
        resolver: Resolver,
        sweep_s: float = SWEEP_S,
        unreachable_after_s: float | None = None,
    ) -> None:
        self._sweep_s = sweep_s
        self._unreachable_after_s = unreachable_after_s
        self._unreached_since_ns = 0
        self._now = clock.monotonic_ns if clock is not None else time.monotonic_ns
        self._randomness = randomness
        self.closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last_id = 0
        self._table: dict[int, Request] = {}
        self._waiting: list[Request] = []
        self._delayed: list[tuple[int, Request]] = []
        self._flush_scheduled = False
        self._wake_alarm = Alarm(self._now, self._wake)
        self._sweep_alarm = Alarm(self._now, self._sweep)
        self._look_at_ns = 0
        """When links are looked at next; a sweep may come earlier for a deadline."""
        self._cluster_id = cluster_id
        self.reroutes = Reroutes()
        self._incarnation = 0
        """The highest in which the cluster was met."""
        self._search = LeaderSearch(
            addresses,
            self,
            cluster_id=cluster_id,
            connect_timeout_s=connect_timeout_s,
            now_ns=self._now,
            randomness=randomness,
            resolver=resolver,
            wake=self._wake_alarm,
        )
        self.endpoints = self._search.endpoints

    # -- in -----------------------------------------------------------------------------------------

    def start(
        self, *, wait: int, data: bytes, operation_id: str, proposal: bool, timeout_s: float
    ) -> asyncio.Future[Answer]:
        """Send a request; the future ends with its answer or an error, within the timeout (seconds)."""
        if self.closed:
            raise TransportError("the client was closed", next_step="open a new one")
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        self._last_id = request_id = self._last_id + 1
        deadline_ns = self._now() + int(timeout_s * _S)
        future: asyncio.Future[Answer] = loop.create_future()
        request = Request(request_id, wait, data, operation_id, proposal, deadline_ns, timeout_s, future)
        self._table[request_id] = request
        self._waiting.append(request)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            loop.call_soon(self._flush)
        if deadline_ns < self._sweep_alarm.at_ns:
            self._watch(deadline_ns)
        return future

    # -- out ----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """There is something to send."""
        return bool(self._waiting)

    def may_send(self) -> None:
        """Look at what waits, once the loop turns."""
        if not self._flush_scheduled and self._waiting and self._loop is not None and not self.closed:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what waits to the endpoint that is thought to lead, or look for one."""
        self._flush_scheduled = False
        if self.closed or not self._waiting:
            return
        link = self._search.link()
        if link is None or link.full:
            return
        waiting, self._waiting = self._waiting, []
        submits: list[SubmitRequest] = []
        proposals: list[ProposeRequest] = []
        size = 0
        for at, request in enumerate(waiting):
            if request.future.done():
                self._table.pop(request.request_id, None)
                continue
            if request.last_code and too_late(request, self._now()):
                continue  # It stays in the table until it expires.
            request.link = link
            if request.proposal:
                proposals.append(ProposeRequest(request.request_id, request.data))
            else:
                submits.append(SubmitRequest(request.request_id, request.wait, request.data))
            size += len(request.data)
            if size >= BATCH_BYTES_MAX:
                # Large payloads leave in several frames, and no more of them than the link takes.
                self._waiting = waiting[at + 1 :] + self._waiting
                self.may_send()
                break
        link.outstanding += len(submits) + len(proposals)
        if submits:
            link.write(encode_submit(submits))
        if proposals:
            link.write(encode_propose(proposals))

    # -- links --------------------------------------------------------------------------------------

    def connect(self, endpoint: Endpoint) -> asyncio.Task[ClientLink]:
        """Connect, whatever the endpoint's back-off says; joins an attempt that is under way."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._search.connect(endpoint)

    def refused_by_all(self, refusal: HandshakeRefused) -> None:
        for request in list(self._table.values()):
            if not request.uncertain and request.link is None:
                self._fail(
                    request,
                    type(refusal)(refusal.message, tried=self.endpoints.tried(), next_step=refusal.next_step),
                )

    def welcomed(self, link: ClientLink, welcome: Welcome) -> None:
        """Nobody is followed who is left of a former incarnation, once a node of a later one was met."""
        check_welcome_to_client(self._cluster_id, welcome, incarnation=self._incarnation)
        link.incarnation = welcome.incarnation
        if welcome.incarnation > self._incarnation:
            self._incarnation = welcome.incarnation
            for endpoint in list(self.endpoints):
                left = endpoint.link
                if left is not None and left.incarnation < welcome.incarnation:
                    left.abort(f"it is of incarnation {left.incarnation}, others are of {welcome.incarnation}")

    def link_lost(self, link: ClientLink) -> None:
        if self.closed or not self._search.lost(link):
            return
        for request in list(self._table.values()):
            if request.link is link:
                self._maybe_executed(request, f"the connection to {link.endpoint.address} was lost ({link.why})")
        self.may_send()

    def _maybe_executed(self, request: Request, why: str) -> None:
        """It was sent and no answer will come from there any more."""
        request.link = None
        request.uncertain = True
        request.why = why
        if request.proposal:
            self._fail(request, failure_of(request, self.endpoints.tried()))
        else:
            self._waiting.append(request)

    def link_drained(self, link: ClientLink) -> None:
        self.may_send()

    # -- answers ------------------------------------------------------------------------------------

    def answered(self, link: ClientLink, answers: list[Answer]) -> None:
        table = self._table
        link.outstanding -= len(answers)
        first: Request | None = None
        for answer in answers:
            request = table.get(answer.request_id)
            if request is None:
                continue  # It was answered elsewhere, or given up.
            if answer.status == _DONE:
                del table[answer.request_id]
                first = first or request
                if not request.future.done():
                    request.future.set_result(answer)
            else:
                self._not_done(link, request, answer)
        if first is not None:
            self._search.executed_by(link.endpoint)
            self.reroutes.answered(link.endpoint, first.deadline_ns - int(first.timeout_s * _S), self._now())

    def _not_done(self, link: ClientLink, request: Request, answer: Answer) -> None:
        if answer.status == _REFUSED:
            self._fail(request, refusal_of(request, answer, link.endpoint.address))
            return
        request.last_code = answer.code
        if answer.status == _UNKNOWN:
            request.uncertain = True
            request.why = f"{link.endpoint.address} does not know: {answer.detail or answer.code}"
            if answer.state == _IN_DOUBT:  # Nobody knows, and asking again would not change that.
                self._fail(request, failure_of(request, self.endpoints.tried()))
                return
            # It leads no more, or is cut off from whoever does: asked again, it would join the running
            # command again and never hear its outcome.
            self.endpoints.move_on_from(link.endpoint)
            if request.proposal:
                self._fail(request, failure_of(request, self.endpoints.tried()))
                return
        elif answer.code == "NOT_LEADER":
            self._search.not_the_leader(link.endpoint, answer)
        if request.link is not link:
            return  # It has been sent elsewhere since; that answer counts.
        request.link = None
        if answer.code == "NOT_LEADER" and answer.status != _UNKNOWN:
            self._waiting.append(request)
            self.may_send()
            return
        request.tries += 1
        at = self._now() + int(jittered_s(self._randomness, 0.01, min(0.02 * 2 ** min(request.tries, 6), 0.5)) * _S)
        self._delayed.append((at, request))
        self._wake_alarm.set(at)

    # -- time ---------------------------------------------------------------------------------------

    def _wake(self) -> None:
        now = self._now()
        if self._delayed:
            later = [(at, request) for at, request in self._delayed if at > now]
            self._waiting += [request for at, request in self._delayed if at <= now]
            self._delayed = later
            if later:
                self._wake_alarm.set(min(at for at, _ in later))
        self._flush()

    def _watch(self, at_ns: int) -> None:
        """Sweep at ``at_ns`` at the latest, and look at links in the usual interval."""
        if self._sweep_alarm.at_ns == NEVER:
            self._look_at_ns = self._now() + int(self._sweep_s * _S)
        self._sweep_alarm.set(min(at_ns, self._look_at_ns))

    def _sweep(self) -> None:
        now = self._now()
        if now >= self._look_at_ns:
            self._look_at_ns = now + int(self._sweep_s * _S)
            self._search.sweep_links(self._sweep_s)
            self._search.probe(now)
            self._give_up_if_unreachable(now)
        next_at = self._look_at_ns
        for request in list(self._table.values()):
            if request.future.done():
                self._table.pop(request.request_id, None)
            elif request.deadline_ns <= now:
                self._fail(request, expiry_of(request, self.endpoints.tried(), any_up=self.endpoints.any_up))
            elif request.deadline_ns < next_at:
                next_at = request.deadline_ns
        if self._table or self._search.owed:
            self._sweep_alarm.set(next_at)

    def _give_up_if_unreachable(self, now: int) -> None:
        if self._unreachable_after_s is None:
            return
        if not self._waiting or self.endpoints.any_up:
            self._unreached_since_ns = 0
        elif not self._unreached_since_ns:
            self._unreached_since_ns = now
        elif now - self._unreached_since_ns >= self._unreachable_after_s * _S:
            for request in list(self._table.values()):
                if not request.uncertain:
                    self._fail(request, no_endpoint(f"for {self._unreachable_after_s:g} s", self.endpoints.tried()))

    # -- calls --------------------------------------------------------------------------------------

    def call_on(self, link: ClientLink, method: str, parameters: dict[str, Any]) -> asyncio.Future[Any]:
        """Send a call on a live link. The future ends with its body, its error, or LinkLost."""
        self._last_id = request_id = self._last_id + 1
        future = link.call(request_id, method, parameters)
        self._watch(NEVER)
        return future

    # -- ends ---------------------------------------------------------------------------------------

    def _fail(self, request: Request, error: FencepostError) -> None:
        self._table.pop(request.request_id, None)
        if not request.future.done():
            request.future.set_exception(error)
        # What is left of it in ``_waiting`` and ``_delayed`` is passed over: its future is done.

    async def close(self) -> None:
        """End every request and every connection. Bounded."""
        if self.closed:
            return
        self.closed = True
        self._wake_alarm.close()
        self._sweep_alarm.close()
        tried = self.endpoints.tried()
        for request in list(self._table.values()):
            self._fail(request, closing_of(request, tried))
        for endpoint in self.endpoints:
            await endpoint.stop()
