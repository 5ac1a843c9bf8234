"""Failovers under ten thousand pending commands: what each endpoint gets of it, second by second (S53).

A simulated cluster of three nodes, decided by a seed. All commands are pending when the first leader is killed; from
then on leaders are killed and frozen in turn, every ten seconds. One endpoint works, one refuses every connection, one
takes two seconds for each call, and one answers every call with an error that may be tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...raft.core.errors import FencepostError, Outcome, ResourceUnavailable
from ...raft.core.options import MILLISECOND, SECOND
from ...raft.effects.handlers import Retryable
from ...raft.effects.policy import ActivationPolicy, DispatchPolicy, RetryPolicy
from ...raft.effects.tenure import CLAIM_RETRY_MAX_S, CLAIM_RETRY_MIN_S
from ...raft.outbox.codec import Command, encode
from ...raft.outbox.operation import Operation
from ...raft.ports import Answer, Attempt, Guarantee, SubmitRequest, Wait
from ..sim.resource import Request, ResourceSpec
from ..sim.settings import ResourceSettings
from ..sim.world import World
from .bars import Mark, Row, bars

LIVE, DEAD, SLOW, FAILING = "live", "dead", "slow", "failing"
SHARES = {LIVE: 4, DEAD: 4, SLOW: 1, FAILING: 1}
FAILOVERS = 6
APART_S = 10
FROZEN_S = 3
SLOW_NS = 2 * SECOND
FAILING_NS = 50 * MILLISECOND
FRAME = 250
WITHOUT_NOISE = ResourceSettings(tail=0.0, patience_ns=10 * SECOND)
OPTIONAL = ActivationPolicy(required=False)
"""A resource that is away does not make elections of its own here: they are made by the plan."""


def _refuses(_: Attempt) -> bytes:
    raise ResourceUnavailable("connection refused", outcome=Outcome.RETRY)


def _fails(_: Attempt) -> bytes:
    raise Retryable("503")


def specs(policy: RetryPolicy) -> list[ResourceSpec]:
    """The four endpoints. One call carries one command but at the live one, as HTTP does."""

    def taking(service_ns: int) -> ResourceSettings:
        return WITHOUT_NOISE._replace(service_min_ns=service_ns, service_spread_ns=MILLISECOND)

    return [
        ResourceSpec(LIVE, activation=OPTIONAL, settings=WITHOUT_NOISE, policy=policy),
        ResourceSpec(DEAD, {"credit": _refuses}, Guarantee.FENCED, 1, 16, policy, OPTIONAL, taking(MILLISECOND)),
        ResourceSpec(SLOW, ("credit",), Guarantee.KEYED, 1, 4, policy, OPTIONAL, taking(SLOW_NS)),
        ResourceSpec(FAILING, {"credit": _fails}, Guarantee.KEYED, 1, 16, policy, OPTIONAL, taking(FAILING_NS)),
    ]


class Arrival(NamedTuple):
    """A call that has reached an endpoint: a claim of a leader, or an attempt."""

    time_ns: int
    kind: str
    node: str


@dataclass(slots=True)
class Storm:
    """What was seen. Times are nanoseconds since the first failover."""

    pending: int
    seconds: int
    arrivals: dict[str, list[Arrival]] = field(default_factory=dict)
    failovers: list[tuple[int, str]] = field(default_factory=list)
    operations: Mapping[str, Operation] = field(default_factory=dict)
    """In the end, by operation id."""

    def calls_each_second(self, endpoint: str) -> list[int]:
        found = [0] * self.seconds
        for arrival in self.arrivals[endpoint]:
            if 0 <= arrival.time_ns < self.seconds * SECOND:
                found[arrival.time_ns // SECOND] += 1
        return found

    def chart(self) -> str:
        """A picture of it, as SVG."""
        titles = {
            LIVE: "live: calls, each of many commands",
            DEAD: "dead: refused connections, claims among them",
            SLOW: "slow: calls that take two seconds",
            FAILING: "failing: calls that are answered 503",
        }
        limits = bounds(self.pending)
        rows = [Row(titles[name], self.calls_each_second(name), limits[name]) for name in SHARES]
        marks = [Mark(time_ns / SECOND, text) for time_ns, text in self.failovers]
        title = f"{self.pending:,} pending commands, {len(marks)} failovers: calls in each second, and their bound"
        return bars(title, rows, marks, unit="seconds since the first failover")


def bounds(pending: int) -> dict[str, int]:
    """What no second may exceed, by what the policies allow: two leaders, one after the other, in the same second."""
    by_name = {spec.name: spec for spec in specs(RetryPolicy())}
    # After a refusal the endpoint is left alone for a while that doubles, and claimed before it is tried again.
    claims, paused_s = 1, 0.0
    while (paused_s := paused_s + min(CLAIM_RETRY_MIN_S * 2 ** (claims - 1), CLAIM_RETRY_MAX_S)) < 1.0:
        claims += 1
    # Batches double from the slow start on, up to the limit.
    batches, carried, size = 0, 0, DispatchPolicy().slow_start
    while carried < pending * SHARES[LIVE] // sum(SHARES.values()):
        batches, carried, size = batches + 1, carried + size, min(2 * size, by_name[LIVE].batch_limit)
    in_a_second = {
        LIVE: batches + 1,
        DEAD: claims * (by_name[DEAD].concurrency + 1),
        SLOW: by_name[SLOW].concurrency + 1,
        FAILING: by_name[FAILING].concurrency * (SECOND // FAILING_NS) + 1,
    }
    at_the_end_of_the_last = {name: by_name[name].concurrency + 1 for name in by_name}
    return {name: each + at_the_end_of_the_last[name] for name, each in in_a_second.items()}


class _Deaf:
    """A connection of a client that hears nothing."""

    def answer(self, answers: Sequence[Answer]) -> None: ...

    def reply(self, request_id: int, body: Any) -> None: ...

    def reply_error(self, request_id: int, error: FencepostError) -> None: ...


def storm(seed: int = 1, pending: int = 10_000, policy: RetryPolicy | None = None) -> Storm:
    """Live it: a minute and what follows the last failover."""
    policy = policy or RetryPolicy()
    seen = Storm(pending, (FAILOVERS + 1) * APART_S)
    with World(seed, 3, resources=specs(policy)) as world:
        world.start_all()
        for outside in world.resources.values():
            outside.go_down()
        _submit(world, pending)
        began_ns = world.now_ns
        for name in world.resources:
            _watch(world, name, seen, began_ns)
            world.resources[name].come_up()
        for number in range(FAILOVERS):
            _fail_over(world, seen, began_ns, freeze=number % 2 == 1)
            world.run_for(began_ns + (number + 1) * APART_S * SECOND - world.now_ns)
        world.run_for(began_ns + seen.seconds * SECOND - world.now_ns)
        leader = world.leader()
        assert leader is not None
        seen.operations = leader.machine.operations
    return seen


def _submit(world: World, pending: int) -> None:
    """All of them committed, and none of them begun."""
    world.run_until(lambda: _accepting(world), what="a leader")
    leader = world.leader()
    assert leader is not None
    names = [name for name, share in SHARES.items() for _ in range(share)]
    commands = [
        Command(f"{names[number % len(names)]}-{number}", names[number % len(names)], "credit", "", b"{}")
        for number in range(pending)
    ]
    for first in range(0, pending, FRAME):
        requests = [
            SubmitRequest(first + number, int(Wait.ACCEPTED), encode(command))
            for number, command in enumerate(commands[first : first + FRAME], 1)
        ]
        leader.process.loop.call_soon(leader.service.submit, _Deaf(), requests)
        world.run_for(20 * MILLISECOND)
    machine = leader.machine
    world.run_until(lambda: len(machine.operations) == pending and world.settled(), what="all of them committed")
    assert not any(outside.store.operations for outside in world.resources.values())


def _accepting(world: World) -> bool:
    leader = world.leader()
    return leader is not None and leader.applier.last_applied >= leader.raft.term_start_index


def _watch(world: World, name: str, seen: Storm, began_ns: int) -> None:
    outside = world.resources[name]
    arrive, arrivals = outside.arrive, seen.arrivals.setdefault(name, [])

    def counted(request: Request) -> None:
        arrivals.append(Arrival(world.now_ns - began_ns, request.kind, request.node))
        arrive(request)

    # Every call passes here, whatever becomes of it.
    outside.arrive = counted  # type: ignore[method-assign]


def _fail_over(world: World, seen: Storm, began_ns: int, *, freeze: bool) -> None:
    world.run_until(lambda: _accepting(world), what="a leader")
    leader = world.leader()
    assert leader is not None
    seen.failovers.append((world.now_ns - began_ns, f"{leader.name} is {'frozen' if freeze else 'killed'}"))
    if freeze:
        world.pause(leader.name, FROZEN_S * SECOND)
    else:
        world.kill(leader.name)
        world.start(leader.name, after_ns=FROZEN_S * SECOND)
