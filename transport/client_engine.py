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
from functools import partial
from typing import Any

from ..raft.core.errors import (
    FencepostError,
    HandshakeRefused,
    Outcome,
    TransportError,
)
from ..raft.ports import Answer, AnswerStatus, Clock, ProposeRequest, Randomness, SubmitRequest
from .address import Resolver
from .alarm import NEVER, Alarm
from .backoff import jittered_s
from .client_endpoints import Endpoints
from .client_link import ClientLink, Endpoint
from .client_requests import Request, expiry_of, failure_of, last_leader_of, no_endpoint, refusal_of
from .codec import encode_call, encode_propose, encode_submit

SWEEP_S = 0.25
SILENT_SWEEPS = 4
"""A link that owes answers and gives no byte for so many sweeps (a second) is given up. Its node may
be stopped with its sockets open, and only silence tells."""
HEDGE_S = 0.3
"""When a connect takes longer, the next endpoint is tried beside it."""
LAST_TRY_S = 0.25
"""A request that was told "not now" is not tried again when less than this is left, or a fifth."""
BATCH_BYTES_MAX = 2 * 1024 * 1024

_DONE = int(AnswerStatus.DONE)
_REFUSED = int(AnswerStatus.REFUSED)
_UNKNOWN = int(AnswerStatus.UNKNOWN)
_IN_DOUBT = "in-doubt"
"""``Answer.state`` of a command whose outcome nobody knows."""
_S = 1_000_000_000


class Engine:
    """The table of requests, the endpoints, and the guess which of them leads."""

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
        self._resolver = resolver
        self._connect_timeout_s = connect_timeout_s
        self._cluster_id = cluster_id
        self.endpoints = Endpoints(addresses, self._new_endpoint)
        self.closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last_id = 0
        self._table: dict[int, Request] = {}
        self._waiting: list[Request] = []
        self._delayed: list[tuple[int, Request]] = []
        self._flush_scheduled = False
        self._hold_until_ns = 0
        self._redirects = 0
        self._wake_alarm = Alarm(self._now, self._wake)
        self._sweep_alarm = Alarm(self._now, self._sweep)
        self._look_at_ns = 0
        """When links are looked at next; a sweep may come earlier for a deadline."""
        self._leaderless_sweeps = 0

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

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled and self._waiting and self._loop is not None and not self.closed:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what waits to the endpoint that is thought to lead, or look for one."""
        self._flush_scheduled = False
        if self.closed or not self._waiting:
            return
        link = self.endpoints.target.link
        if link is None or self._hold_until_ns:
            now = self._now()
            if now < self._hold_until_ns:
                self._wake_alarm.set(self._hold_until_ns)
                return
            self._hold_until_ns = 0
            if link is None:
                self._seek(now)
                link = self.endpoints.target.link
                if link is None:
                    return
        if link.full:
            return
        waiting, self._waiting = self._waiting, []
        submits: list[SubmitRequest] = []
        proposals: list[ProposeRequest] = []
        size = 0
        for at, request in enumerate(waiting):
            if request.future.done():
                self._table.pop(request.request_id, None)
                continue
            if request.last_code and self._too_late(request):
                continue
            request.link = link
            if request.proposal:
                proposals.append(ProposeRequest(request.request_id, request.data))
            else:
                submits.append(SubmitRequest(request.request_id, request.wait, request.data))
            size += len(request.data)
            if size >= BATCH_BYTES_MAX:
                # Large payloads leave in several frames, and no more of them than the link takes.
                self._waiting = waiting[at + 1 :] + self._waiting
                self._schedule_flush()
                break
        link.outstanding += len(submits) + len(proposals)
        if submits:
            link.write(encode_submit(submits))
        if proposals:
            link.write(encode_propose(proposals))

    def _too_late(self, request: Request) -> bool:
        """Not again so shortly before the deadline: the answer might not come in time, and what is
        certain now (not executed) would become unknown. It stays in the table until it expires."""
        last_s = min(LAST_TRY_S, request.timeout_s / 5)
        return not request.uncertain and self._now() > request.deadline_ns - int(last_s * _S)

    def _seek(self, now: int) -> None:
        """There is work and the target has no link: use another live one, or connect."""
        order = self.endpoints.rotation()
        for endpoint in order:
            if endpoint.link is not None:
                self.endpoints.target = endpoint
                return
            if endpoint.connecting:
                hedge_at = endpoint.attempt_since_ns + int(HEDGE_S * _S)
                if now < hedge_at:
                    self._wake_alarm.set(hedge_at)
                    return
            elif endpoint.not_before_ns <= now:
                self.endpoints.target = endpoint
                endpoint.connect(self, now, self._connected)
                self._wake_alarm.set(now + int(HEDGE_S * _S))
                return
        later = [endpoint.not_before_ns for endpoint in order if not endpoint.connecting]
        if later:
            self._wake_alarm.set(min(later))

    def _new_endpoint(self, address: str, listed: bool) -> Endpoint:
        return Endpoint(
            address,
            listed=listed,
            randomness=self._randomness,
            resolver=self._resolver,
            connect_timeout_s=self._connect_timeout_s,
            cluster_id=self._cluster_id,
        )

    # -- links --------------------------------------------------------------------------------------

    def connect(self, endpoint: Endpoint) -> asyncio.Task[ClientLink]:
        """Connect, whatever the endpoint's back-off says; joins an attempt that is under way."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return endpoint.connect(self, self._now(), self._connected)

    def _connected(self, endpoint: Endpoint, error: BaseException | None) -> None:
        if self.closed:
            if endpoint.link is not None:
                endpoint.link.abort("the client was closed")
            return
        if error is None:
            endpoint.backoff.reset()
            endpoint.not_before_ns = 0
            endpoint.refusal = None
            endpoint.said = "up"
            if self.endpoints.target.link is None:
                self.endpoints.target = endpoint
        else:
            endpoint.failed(error, self._now() + int(endpoint.backoff.next_s() * _S))
            self.endpoints.move_on_from(endpoint)
            self._refuse_if_all_refuse()
        self._schedule_flush()

    def _refuse_if_all_refuse(self) -> None:
        """Every endpoint says that this client does not belong there: waiting will not change it."""
        refusal = self.endpoints.common_refusal()
        if refusal is None:
            return
        for request in list(self._table.values()):
            if not request.uncertain and request.link is None:
                self._fail(
                    request,
                    HandshakeRefused(refusal.message, tried=self.endpoints.tried(), next_step=refusal.next_step),
                )

    def link_lost(self, link: ClientLink) -> None:
        endpoint = link.endpoint
        if endpoint.link is not link or self.closed:
            return
        endpoint.link = None
        endpoint.failed(
            TransportError(f"connection lost ({link.why})"), self._now() + int(endpoint.backoff.next_s() * _S)
        )
        self.endpoints.move_on_from(endpoint)
        for request in list(self._table.values()):
            if request.link is link:
                self._maybe_executed(request, f"the connection to {endpoint.address} was lost ({link.why})")
        self._schedule_flush()

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
        self._schedule_flush()

    # -- answers ------------------------------------------------------------------------------------

    def answered(self, link: ClientLink, answers: list[Answer]) -> None:
        table = self._table
        link.outstanding -= len(answers)
        progress = False
        for answer in answers:
            request = table.get(answer.request_id)
            if request is None:
                continue  # It was answered elsewhere, or given up.
            if answer.status == _DONE:
                progress = True
                del table[answer.request_id]
                if not request.future.done():
                    request.future.set_result(answer)
            else:
                self._not_done(link, request, answer)
        if progress and link.endpoint is self.endpoints.target:
            self._redirects = 0
            self._leaderless_sweeps = 0

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
            self._not_the_leader(link.endpoint, answer)
        if request.link is not link:
            return  # It has been sent elsewhere since; that answer counts.
        request.link = None
        if answer.code == "NOT_LEADER" and answer.status != _UNKNOWN:
            self._waiting.append(request)
            self._schedule_flush()
            return
        request.tries += 1
        at = self._now() + int(self._pause_s(request.tries) * _S)
        self._delayed.append((at, request))
        self._wake_alarm.set(at)

    def _pause_s(self, tries: int) -> float:
        return jittered_s(self._randomness, 0.01, min(0.02 * 2 ** min(tries, 6), 0.5))

    def _not_the_leader(self, endpoint: Endpoint, answer: Answer) -> None:
        """Follow the hint, unless it leads in circles or to an endpoint that has just failed."""
        hint = answer.detail
        if endpoint.probed_term != answer.term:  # What it said when asked for its status tells more.
            term = f" in term {answer.term}" if answer.term else ""
            endpoint.said = f"up, not the leader{term}, " + (f"names {hint}" if hint else "knows no leader")
        if endpoint is not self.endpoints.target or self._hold_until_ns:
            return
        now = self._now()
        leader = self.endpoints.at(hint) if hint else None
        if leader is not None and leader is not endpoint and leader.not_before_ns <= now:
            self.endpoints.target = leader
            self._redirects += 1
            if self._redirects <= 2:
                return
        else:
            self.endpoints.move_on_from(endpoint)
        # Nobody leads, or they name one another: an election is under way. Ask again, but not in a storm.
        self._hold_until_ns = now + int(jittered_s(self._randomness, 0.05, 0.2) * _S)

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
            self._sweep_links()
            self._probe(now)
            self._give_up_if_unreachable(now)
        next_at = self._look_at_ns
        for request in list(self._table.values()):
            if request.future.done():
                self._table.pop(request.request_id, None)
            elif request.deadline_ns <= now:
                self._fail(request, self._expired(request))
            elif request.deadline_ns < next_at:
                next_at = request.deadline_ns
        if self._table or any(e.link is not None and e.link.outstanding for e in self.endpoints):
            self._sweep_alarm.set(next_at)

    def _sweep_links(self) -> None:
        for endpoint in self.endpoints:
            link = endpoint.link
            if link is None:
                continue
            if link.outstanding <= 0:
                link.heard = True  # It owes nothing; its silence means nothing.
            silent = link.sweep()
            if silent >= SILENT_SWEEPS:
                link.abort(f"no answer for {self._sweep_s * SILENT_SWEEPS:g} s")
                # The operating system reports the end of an aborted connection a turn later.
                self.link_lost(link)
                # It may be named as the leader by followers that have not noticed yet.
                endpoint.not_before_ns = self._now() + 2 * _S
            elif silent:
                link.ping(silent)

    def _probe(self, now: int) -> None:
        """While requests wait for a leader, ask everybody how they stand: it finds a leader that
        nobody names yet, and gives the error its lines if there is none."""
        if not self._waiting and not self._hold_until_ns:
            self._leaderless_sweeps = 0
            return
        self._leaderless_sweeps += 1
        if self._leaderless_sweeps < 2:
            return
        for endpoint in self.endpoints:
            if endpoint.link is None:
                if not endpoint.connecting and endpoint.not_before_ns <= now:
                    endpoint.connect(self, now, self._connected)
            elif not endpoint.probing:
                endpoint.probing = True
                future = self.call_on(endpoint.link, "status", {})
                future.add_done_callback(partial(self._probed, endpoint))

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

    def _probed(self, endpoint: Endpoint, future: asyncio.Future[Any]) -> None:
        endpoint.probing = False
        if future.cancelled() or future.exception() is not None or self.closed:
            return
        status = future.result()
        if not isinstance(status, dict):
            return
        leader = status.get("leader")
        endpoint.probed_term = status.get("term")
        leadership = f"leader {leader}" if leader else last_leader_of(status)
        endpoint.said = f"up, {status.get('role')} in term {status.get('term')}, {leadership}"
        if status.get("role") == "leader" and self._waiting:
            self.endpoints.target = endpoint
            self._schedule_flush()

    # -- calls --------------------------------------------------------------------------------------

    def call_on(self, link: ClientLink, method: str, parameters: dict[str, Any]) -> asyncio.Future[Any]:
        """Send a call on a live link. The future ends with its body, its error, or LinkLost."""
        assert self._loop is not None
        self._last_id = request_id = self._last_id + 1
        future: asyncio.Future[Any] = self._loop.create_future()
        link.calls[request_id] = future
        link.outstanding += 1
        link.write(encode_call(request_id, method, parameters))
        self._watch(NEVER)
        return future

    # -- ends ---------------------------------------------------------------------------------------

    def _fail(self, request: Request, error: FencepostError) -> None:
        self._table.pop(request.request_id, None)
        if not request.future.done():
            request.future.set_exception(error)
        # What is left of it in ``_waiting`` and ``_delayed`` is passed over: its future is done.

    def _expired(self, request: Request) -> FencepostError:
        return expiry_of(request, self.endpoints.tried(), any_up=self.endpoints.any_up)

    async def close(self) -> None:
        """End every request and every connection. Bounded."""
        if self.closed:
            return
        self.closed = True
        self._wake_alarm.close()
        self._sweep_alarm.close()
        tried = self.endpoints.tried()
        for request in list(self._table.values()):
            if request.uncertain or request.link is not None:
                request.why = request.why or "the client was closed before the answer came"
                self._fail(request, failure_of(request, tried))
            else:
                self._fail(
                    request,
                    TransportError("the client was closed before it was sent", outcome=Outcome.RETRY, tried=tried),
                )
        for endpoint in self.endpoints:
            await endpoint.stop()
