"""An outside resource: it outlives every node, and keeps a record of every call that reached it.

Behind it stands the real in-memory resource, with fence, dedupe and lanes. Around it is a way there and
a way back, on which calls can be slow, lost, or answered too late. A call that has left its process
arrives even if the process is gone by then, and even if another leads since: a *zombie*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import copy
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...raft.core.errors import FencepostError, ResourceUnavailable
from ...raft.core.errors import Outcome as OutcomeOf
from ...raft.core.token import FencingToken
from ...raft.effects.policy import ActivationPolicy, DispatchPolicy, RetryPolicy
from ...raft.effects.resources.memory import Effect, FakeResource, MemoryStore
from ...raft.ports import Attempt, AttemptOutcome, Guarantee
from .loop import SimLoop
from .settings import ResourceSettings

if TYPE_CHECKING:
    from .observer import Hooks

T = TypeVar("T")


class ResourceSpec(NamedTuple):
    """What a resource is. ``effects`` are names, or functions by name that may raise as handlers do."""

    name: str = "ledger"
    effects: Mapping[str, Effect] | tuple[str, ...] = ("credit",)
    guarantee: Guarantee = Guarantee.FENCED
    batch_limit: int = 512
    concurrency: int = 1
    policy: RetryPolicy = RetryPolicy()
    activation: ActivationPolicy = ActivationPolicy()
    settings: ResourceSettings = ResourceSettings()
    dispatch: DispatchPolicy = DispatchPolicy()
    queryable: bool = False
    """Whether it can be asked what has become of an operation. One that is not fenced cannot, for an attempt may come
    after the answer."""


QUESTIONS = ("fence", "query")
"""Kinds of calls that anybody may make: they carry no token and change nothing."""


class AttemptRecord(NamedTuple):
    """One attempt of a call, and what the resource decided about it."""

    operation_id: str
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    lane: str
    number: int
    digest: bytes
    """Of the command, as the log has it."""
    payload_digest: bytes
    """Of the bytes that arrived here: 8 bytes."""
    outcome: AttemptOutcome | None
    """None: the call was refused as a whole."""


class ResourceCall(NamedTuple):
    """One call that reached a resource. Times are nanoseconds of the world."""

    number: int
    time_ns: int
    """When the resource decided."""
    sent_ns: int
    resource: str
    kind: str
    """``claim``, ``execute`` or ``fence``."""
    node: str
    boot: int
    token: FencingToken
    holder: str
    decision: str
    """``accepted``, or the code of the error that it was refused with."""
    attempts: tuple[AttemptRecord, ...]
    zombie: bool
    """A leader of a later term had been elected when it arrived."""


class Request:
    """A call under way."""

    __slots__ = ("attempts", "boot", "fail", "holder", "kind", "node", "reply", "sent_ns", "token")

    def __init__(
        self,
        kind: str,
        node: str,
        boot: int,
        token: FencingToken,
        holder: str,
        attempts: Sequence[Attempt],
        sent_ns: int,
        reply: Callable[[Any, BaseException | None], None],
    ) -> None:
        """``reply(result, error)`` sends the answer on its way back; nobody may hear it."""
        self.kind = kind
        self.node = node
        self.boot = boot
        self.token = token
        self.holder = holder
        self.attempts = attempts
        self.sent_ns = sent_ns
        self.reply = reply


NO_TOKEN = FencingToken(0, 0)


class OutsideResource:
    """One resource. ``outside`` is the thread of the world, ``newest_term`` what the newest leader's term is."""

    def __init__(
        self,
        spec: ResourceSpec,
        outside: SimLoop,
        chance: Random,
        hooks: Hooks,
        *,
        cluster_id: str,
        newest_token: Callable[[], FencingToken],
        record: Callable[[ResourceCall], None],
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.settings = spec.settings
        self.store = MemoryStore()
        self.calls: list[ResourceCall] = []
        """Everything that was decided here, in order."""
        self.events: list[tuple[int, str]] = []
        """(nanoseconds, what) of restarts, restores and outages."""
        self.zombies = 0
        """Calls that arrived after a later leader had been elected."""
        self.zombies_accepted = 0
        self.unreached: dict[str, None] = {}
        """Nodes whose calls do not arrive here, nor answers there."""
        self.hanging = False
        self.lost_answers = 0
        """So many answers of calls that were carried out get lost from now on."""
        self._lost_untold = False
        self.outside = outside
        self._chance = chance
        self.hooks = hooks
        self._newest_token = newest_token
        self._record = record
        self._cluster_id = cluster_id
        self._connections = 0
        """Raised when all connections break; what came on an earlier one gets no answer."""
        self._open: dict[Request, None] = {}
        self._held: list[Request] = []
        self.inner = self._make_inner()

    def _make_inner(self) -> FakeResource:
        spec = self.spec
        return FakeResource(
            spec.name,
            spec.effects,
            store=self.store,
            cluster_id=self._cluster_id,
            guarantee=spec.guarantee,
            batch_limit=spec.batch_limit,
            concurrency=spec.concurrency,
        )

    # -- faults -------------------------------------------------------------------------------------

    def go_down(self) -> None:
        """From now on every call is turned away at once; those under way break."""
        self._note("down")
        self.store.down = True
        self._break_connections()

    def come_up(self) -> None:
        self._note("up")
        self.store.down = False

    def restart(self) -> None:
        """All connections break. What was decided stands; what was under way is gone, or its answer is."""
        self._note("restarted")
        self.hanging = False
        self._held.clear()
        self._break_connections()

    def hang(self) -> None:
        """Calls arrive and nothing happens, until ``go_on`` or ``restart``."""
        self._note("hangs")
        self.hanging = True

    def go_on(self) -> None:
        """What has waited is carried out now, by whomever it was sent."""
        self._note("goes on")
        self.hanging = False
        held, self._held = self._held, []
        for request in held:
            self.outside.call_after_ns(self._service_ns(), self._act, request, self._connections)

    def lose_answers(self, count: int = 1, *, told: bool = True) -> None:
        """The next ``count`` calls are carried out and their answers lost. ``told``: the connection breaks at
        once, and the caller knows that it does not know; else it waits until its patience ends."""
        self.lost_answers = count
        self._lost_untold = not told

    def backup(self) -> MemoryStore:
        """What a backup made now would hold."""
        made = copy(self.store)
        for name, value in vars(self.store).items():
            if isinstance(value, dict | list):
                setattr(made, name, value.copy())
        return made

    def restore(self, backup: MemoryStore) -> None:
        """Go back to an old backup of its own: the fence and the memory of operations go back with it."""
        self._note(f"restored to {len(backup.operations)} of {len(self.store.operations)} operations")
        down = self.store.down
        for name, value in vars(backup).items():
            setattr(self.store, name, value.copy() if isinstance(value, dict | list) else value)
        self.store.down = down
        for look in self.hooks.on_restored:
            look(self)
        self._break_connections()

    def _note(self, what: str) -> None:
        self.events.append((self.outside.agenda.now_ns, what))

    def _break_connections(self) -> None:
        self._connections += 1
        broken, self._open = list(self._open), {}
        for request in broken:
            if request.node not in self.unreached:
                request.reply(None, ResourceUnavailable(f"resource {self.name!r}: connection reset"))

    # -- calls --------------------------------------------------------------------------------------

    def arrive(self, request: Request) -> None:
        """A call has come all the way here."""
        if request.node in self.unreached:
            return
        if self.store.down:
            away = ResourceUnavailable(f"resource {self.name!r} is down", outcome=OutcomeOf.RETRY)
            request.reply(None, away)
            return
        self._open[request] = None
        if self.hanging:
            self._held.append(request)
        else:
            self.outside.call_after_ns(self._service_ns(), self._act, request, self._connections)

    def _service_ns(self) -> int:
        settings = self.settings
        return settings.service_min_ns + int(self._chance.random() * settings.service_spread_ns)

    def _act(self, request: Request, connections: int) -> None:
        """The atomic step: decide, and do it."""
        if connections != self._connections and self._chance.random() < 0.5:
            return  # The connection broke before it had begun. Otherwise it is carried out, for nobody.
        result: Any = None
        error: FencepostError | None = None
        inner = self.inner
        try:
            if request.kind == "execute":
                result = _run_now(inner.execute(request.token, request.holder, request.attempts))
            elif request.kind == "claim":
                result = _run_now(inner.claim(request.token, request.holder))
            elif request.kind == "query":
                result = _run_now(inner.query(request.attempts[0]))
            else:
                result = _run_now(inner.fence())
        except FencepostError as raised:
            error = raised
        self._keep(request, result, error)
        if request not in self._open:
            return
        del self._open[request]
        if self.lost_answers:
            self.lost_answers -= 1
            if self._lost_untold:
                return
            result, error = None, ResourceUnavailable(f"resource {self.name!r}: connection reset")
        if request.node not in self.unreached:
            request.reply(result, error)

    def _keep(self, request: Request, result: Any, error: FencepostError | None) -> None:
        zombie = request.kind not in QUESTIONS and request.token < self._newest_token()
        attempts = request.attempts if request.kind == "execute" else ()
        outcomes = result if attempts and error is None else [None] * len(attempts)
        call = ResourceCall(
            len(self.calls) + 1,
            self.outside.agenda.now_ns,
            request.sent_ns,
            self.name,
            request.kind,
            request.node,
            request.boot,
            request.token,
            request.holder,
            "accepted" if error is None else error.code,
            tuple(
                AttemptRecord(
                    attempt.operation_id,
                    attempt.index,
                    attempt.lane,
                    attempt.number,
                    attempt.digest,
                    hashlib.blake2b(attempt.payload, digest_size=8).digest(),
                    outcome,
                )
                for attempt, outcome in zip(attempts, outcomes, strict=True)
            ),
            zombie,
        )
        self.calls.append(call)
        if zombie:
            self.zombies += 1
            self.zombies_accepted += error is None
        self._record(call)
        for hook in self.hooks.on_resource:
            hook(call)


def _run_now(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("the atomic step of a resource waited for something")
