"""Commands whose leader has ended in the middle of them."""

from __future__ import annotations

from ....raft.core.options import SECOND
from ....raft.core.token import FencingToken
from ....raft.outbox.codec import Command, Dispatch, DispatchRow, Outcome, OutcomeRow, digest
from ....raft.outbox.transitions import Verdict
from ....raft.ports import Attempt, Guarantee
from ...sim.clock import WALL_CLOCK_NS
from ...sim.resource import OutsideResource
from .past import Disk, Log, Past, hard_state


def _office(past: Past, log: Log, term: int, node: str) -> FencingToken:
    """A leader comes into office: no-op, claims, activations."""
    token = past.lead(term, node)
    log.no_op(term)
    for resource in past.world.resources.values():
        past.claim(log, resource, token, node)
    return token


def _command(log: Log, term: int, number: int, resource: OutsideResource, lane: str = "") -> tuple[int, Command]:
    effect = next(iter(resource.inner.effects))
    command = Command(f"past-{number}", resource.name, effect, lane, b'{"amount":%d}' % number)
    return log.outbox(term, command), command


def _dispatch(log: Log, token: FencingToken, resource: OutsideResource, index: int, attempt: int = 1) -> None:
    log.outbox(token.term, Dispatch(resource.name, token, [DispatchRow(index, attempt)]))


def _attempt(log: Log, index: int, command: Command, number: int = 1) -> Attempt:
    return Attempt(
        command.operation_id, index, log.entries[index - 1].term, command.effect, command.lane, command.payload,
        digest(command), number,
    )  # fmt: skip


def _everywhere(past: Past, log: Log, term: int, leader: str, *, back: int = 0) -> None:
    """All have this log; the followers may lack its last ``back`` entries, but for a majority."""
    for place, name in enumerate(past.names):
        lacks = back if place > len(past.names) // 2 else 0
        held = log.up_to(log.last_index - lacks)
        known = log.last_index if name == leader else min(held.last_index, past.random.randint(0, log.last_index))
        past.disks[name] = Disk(held, term, leader, commit_index=known)


@hard_state("dispatch-without-outcome")
def dispatch_without_outcome(past: Past) -> None:
    """Dispatches are committed, the effects were never begun, and their leader has ended (S50)."""
    leader, log = past.names[0], Log()
    token = _office(past, log, 1, leader)
    for number, resource in enumerate(past.world.resources.values()):
        index, _ = _command(log, 1, number, resource)
        _dispatch(log, token, resource, index)
    _everywhere(past, log, 1, leader, back=1)


@hard_state("effect-unrecorded")
def effect_unrecorded(past: Past) -> None:
    """Effects were accepted by their resources, and the log knows nothing of it: their outcomes, of a fenced
    resource even their dispatches, went with their leader."""
    leader, log = past.names[0], Log()
    token = _office(past, log, 1, leader)
    for number, resource in enumerate(past.world.resources.values()):
        index, command = _command(log, 1, number, resource, "lane1")
        if resource.spec.guarantee is not Guarantee.FENCED:
            _dispatch(log, token, resource, index)
        past.call(resource, "execute", token, leader, (_attempt(log, index, command),))
        _command(log, 1, number + 100, resource, "lane1")
    _everywhere(past, log, 1, leader)


@hard_state("in-doubt", "naked")
def in_doubt(past: Past) -> None:
    """A naked effect was under way when its leader ended, and a successor has put it in doubt."""
    first, second = past.names[0], past.names[1]
    log = Log()
    token = _office(past, log, 1, first)
    naked = next(each for each in past.world.resources.values() if each.spec.guarantee is Guarantee.NAKED)
    index, command = _command(log, 1, 1, naked, "lane1")
    _dispatch(log, token, naked, index)
    if past.random.random() < 0.5:
        past.call(naked, "execute", token, first, (_attempt(log, index, command),))
    _command(log, 1, 2, naked, "lane1")
    _command(log, 1, 3, naked)
    _office(past, log, 2, second)
    _everywhere(past, log, 2, second)


@hard_state("retry-waiting")
def retry_waiting(past: Past) -> None:
    """An attempt has failed, and the next one waits for a time that is in the log."""
    leader, log = past.names[0], Log()
    token = _office(past, log, 1, leader)
    resource = next(iter(past.world.resources.values()))
    index, _ = _command(log, 1, 1, resource, "lane1")
    _dispatch(log, token, resource, index)
    due_ns = WALL_CLOCK_NS + past.random.randint(1, 6) * SECOND
    log.outbox(1, Outcome(resource.name, token, [OutcomeRow(index, 1, Verdict.RETRY, b"", "503", due_ns)]))
    _command(log, 1, 2, resource, "lane1")
    _everywhere(past, log, 1, leader)


@hard_state("dead-lane-head")
def dead_lane_head(past: Past) -> None:
    """The head of a lane is dead, and what stands behind it has not gone on yet."""
    leader, log = past.names[0], Log()
    token = _office(past, log, 1, leader)
    resource = next(iter(past.world.resources.values()))
    index, _ = _command(log, 1, 1, resource, "lane1")
    for number in (2, 3):
        _command(log, 1, number, resource, "lane1")
    _dispatch(log, token, resource, index)
    log.outbox(1, Outcome(resource.name, token, [OutcomeRow(index, 1, Verdict.DEAD, b"", "gave up", 0)]))
    _everywhere(past, log, 1, leader, back=1)
