"""What must hold when a run is over, everything was healed, and all is at rest."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ...raft.core.configuration import Configuration
from ...raft.core.errors import StorageCorrupt
from ...raft.effects.resources.memory import MemoryStore
from ...raft.ports import Guarantee
from ...storage.identity import DataDirectory
from ...storage.log_store import FileLogStore
from ...storage.snapshots import FileSnapshotStore
from ..checkers import (
    Append,
    Fenced,
    Model,
    Operation,
    Register,
    Verdict,
    check,
    contradictions,
    lines,
    settle,
    violations,
)
from ..sim.jobs import Fate, Job
from ..sim.node import CLUSTER_ID, DATA_DIRECTORY, SimNode
from ..sim.resource import OutsideResource
from .histories import History, Past, is_list, of_fence, of_log, of_nobody, of_registers, repeated
from .image import LogImage
from .observed import ObservedNode
from .properties import Properties, properties_of
from .property import PropertyViolated

if TYPE_CHECKING:
    from ..sim.world import World

SEARCHED_MAX = 2000
"""Operations at one resource beyond which the search for an order is left to the properties that need none."""


def final_scan(world: World) -> None:
    """Everything that can be asked in the end. Raises :class:`Violation` with the seed and the last events.

    ``world`` was healed and given time: every member's process runs, and clients want nothing any more.
    """
    try:
        _scan(properties_of(world))
    except AssertionError as error:
        raise world.violation(f"in the end: {error}") from error


def _scan(properties: Properties) -> None:
    _check_starts(properties)
    nodes = _members(properties)
    _check_at_rest(properties, nodes)
    _check_logs(properties, nodes)
    properties.finished()
    for node in nodes:
        _check_waiters(node)
        _check_disk(properties.ledger.nodes[node.name])
    _check_clients(properties)
    for resource in properties.world.resources.values():
        _check_fence(resource, properties.known_before.get(resource.name))


def _check_starts(properties: Properties) -> None:
    """A node that calls its disk damaged is right: it was damaged, and that was declared."""
    for name, host in properties.world.hosts.items():
        node = properties.ledger.nodes.get(name)
        declared = node is None or node.fate or node.lost is not None
        if isinstance(host.refused, StorageCorrupt) and not declared:
            raise PropertyViolated("disks", f"nothing was done to the disk of {name}, and {host.refused.message}")


def _members(properties: Properties) -> list[SimNode]:
    world = properties.world
    running = {node.name: node for node in world.up()}
    names = world.configuration().members
    missing = [name for name in names if name not in running]
    if missing:
        raise PropertyViolated("at rest", f"of the members {', '.join(names)} these do not run: {', '.join(missing)}")
    return [running[name] for name in names]


# -- nodes ----------------------------------------------------------------------------------------------


def _check_at_rest(properties: Properties, nodes: list[SimNode]) -> None:
    last_index = properties.ledger.last_index
    for node in nodes:
        raft, applied = node.raft, node.applier.last_applied
        if (raft.log.last_index, applied) != (last_index, last_index):
            raise PropertyViolated(
                "at rest",
                f"{node.name}, term {raft.current_term}, has its log to {raft.log.last_index} and has applied to "
                f"{applied}; committed is everything up to {last_index}",
            )
    open_still = [job for job in properties.jobs if job.fate is Fate.OPEN]
    if open_still:
        raise PropertyViolated("at rest", f"{len(open_still)} jobs have not ended, the first is {open_still[0]}")


def _check_logs(properties: Properties, nodes: list[SimNode]) -> None:
    """Every member's log is the committed one, as far as it is not in a snapshot."""
    ledger = properties.ledger
    for node in nodes:
        log = node.raft.log
        # What is on disk only is compared with what was written of it (``log_matching``), and the disk below.
        first = max(log.window_start, ledger.base + 1)
        held, wanted = log.slice(first, log.last_index), ledger.slice(first, ledger.last_index)
        if held != wanted:
            wrong = next(
                index for index, pair in enumerate(zip(held, wanted, strict=True), first) if pair[0] != pair[1]
            )
            raise PropertyViolated(
                "equal logs", f"{node.name} has {log.entry(wrong)} at index {wrong}; committed is {ledger.entry(wrong)}"
            )


def _check_waiters(node: SimNode) -> None:
    """Nobody waits for anything that will not come (S44)."""
    loop, service = node.loop, node.service
    waiting = {
        "proposals": len(loop.waiters),
        "reads": len(loop.reads),
        "transfers": len(loop.transfers),
        "outcomes": len(service._done_waiters),
        "reads of the core": len(node.raft.pending_reads) + len(node.raft.forwarded_reads),
    }
    if any(waiting.values()):
        raise PropertyViolated("no waiter left", f"at {node.name} wait {waiting}")


def _check_disk(node: ObservedNode) -> None:
    """What a power cut would leave of the disk is what the disk is said to hold: read by the real recovery."""
    disk = node.node.host.disk.copy()
    disk.lose_power(None)
    directory = DataDirectory.open(
        DATA_DIRECTORY,
        cluster_id=CLUSTER_ID,
        node_id=node.name,
        voters=node.node.host.voters,
        disk=disk,
        entropy=Random(0).randbytes,
    )
    newest = FileSnapshotStore.open(directory).newest()
    store, recovered = FileLogStore.open(directory)
    store.close()
    held = LogImage(
        Configuration(directory.voters), recovered.hard_state, recovered.entries, recovered.previous_index, 0, newest
    )
    said = node.disk
    first = max(held.previous_index, said.previous_index) + 1
    if (held.hard_state, held.last_index) != (said.hard_state, said.last_index) or held.slice(
        first, held.last_index
    ) != said.slice(first, said.last_index):
        raise PropertyViolated(
            "disks",
            f"the disk of {node} is said to hold {said.hard_state} and a log to {said.last_index}; a power cut would "
            f"leave {held.hard_state} and a log from {held.previous_index + 1} to {held.last_index}",
        )


# -- clients and resources ------------------------------------------------------------------------------


def _check_clients(properties: Properties) -> None:
    ledger, jobs = properties.ledger, list(properties.jobs)
    twice = repeated(jobs, ledger.committed)
    if twice:
        raise PropertyViolated(
            "history", f"proposals that stand in the log more than once, and at which indexes: {twice}"
        )
    _check_asked_for(properties, jobs)
    _check_against_log(of_log(jobs, ledger.first_index, ledger.committed, ledger.adopted_to))
    past = Past(ledger.adopted_to, properties.reference.values_at(ledger.adopted_to))
    values = properties.reference.at_end().registers.values
    history = of_registers(jobs, ledger.committed, values, ledger.now_ns, past)
    _check_against_log(history)
    keys: dict[int | str, list[Operation]] = {}
    for operation in settle(history.operations, history.committed):
        keys.setdefault(operation.key, []).append(operation)
    for operations in keys.values():
        _judge(operations, Append(list) if is_list(operations) else Register())


def _check_asked_for(properties: Properties, jobs: list[Job]) -> None:
    """What stands in the log has been asked for; but not what leaders of before the world have appended."""
    ledger = properties.ledger
    for entry in of_nobody(jobs, ledger.slice(ledger.adopted_to + 1, ledger.last_index)):
        if entry.term in ledger.leaderships:
            raise PropertyViolated("history", f"nobody has asked for {entry}")


def _check_against_log(history: History) -> None:
    for found in contradictions(history.operations, history.committed):
        raise PropertyViolated("history", str(found))


def _judge(operations: list[Operation], model: Model) -> None:
    judgement = check(operations, model)
    if judgement.verdict is not Verdict.OK:
        numbers = range(1, len(operations) + 1)
        told = "\n".join(
            line for explanation in judgement.explanations for line in lines(explanation, operations, numbers)
        )
        raise PropertyViolated("history", f"the verdict on {len(operations)} operations is {judgement.verdict}\n{told}")


def _check_fence(resource: OutsideResource, known_before: MemoryStore | None) -> None:
    """The resource's own record is that of a fence, for whoever knows nothing of calls and clusters."""
    if resource.spec.guarantee is not Guarantee.FENCED or any(
        what.startswith("restored") for _, what in resource.events
    ):
        return
    operations = of_fence(resource, known_before)
    for violation in violations(operations):
        raise PropertyViolated("history", f"resource {resource.name}: {violation}")
    if len(operations) <= SEARCHED_MAX:
        _judge(operations, Fenced())
