"""A small world that all properties look at, with something committed and done, and short ways to its parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from fencepost.jepsen.invariants import Properties, Property, PropertyViolated, all_properties
from fencepost.jepsen.invariants.observed import ObservedNode
from fencepost.jepsen.sim.load import Load
from fencepost.jepsen.sim.registers import write
from fencepost.jepsen.sim.resource import ResourceCall, ResourceSpec
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.events import Persist
from fencepost.raft.core.invariants import Summary, summarize
from fencepost.raft.core.options import MILLISECOND, SECOND
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import Guarantee

__all__ = ["MILLISECOND", "SECOND", "Scene", "scene"]

P = TypeVar("P", bound=Property)

RESOURCES = (
    ResourceSpec("ledger"),
    ResourceSpec("keyed", guarantee=Guarantee.KEYED),
    ResourceSpec("naked", guarantee=Guarantee.NAKED),
)


class Scene:
    """``leader`` and ``follower`` are what is known of two of the nodes."""

    def __init__(self, world: World, properties: Properties) -> None:
        self.world = world
        self.properties = properties
        self.ledger = properties.ledger
        self.refresh()

    def refresh(self) -> None:
        """Find out anew who leads."""
        leader = self.world.elect().name
        self.leader = self.ledger.nodes[leader]
        self.followers = [node for name, node in self.ledger.nodes.items() if name != leader]
        self.follower = self.followers[0]

    def of(self, kind: type[P]) -> P:
        """The property of this kind."""
        return next(each for each in self.properties.all if type(each) is kind)

    @contextmanager
    def breaks(self, kind: type[Property], says: str) -> Iterator[None]:
        """What is done within breaks this property, and the text says so."""
        with pytest.raises(PropertyViolated, match=says) as caught:
            yield
        assert caught.value.property_name == kind.name
        assert str(caught.value).startswith(f"{kind.name}: ")

    # -- what wrong histories are made of -----------------------------------------------------------

    @property
    def term(self) -> int:
        return self.leader.raft.current_term

    def before(self, node: ObservedNode | None = None) -> Summary:
        return summarize((node or self.leader).raft)

    def next_entry(self, data: bytes = b"x", *, term: int = 0, kind: int = EntryKind.EMBEDDED) -> Entry:
        """One that would follow the log of the leader."""
        return Entry(self.leader.raft.log.last_index + 1, term or self.term, kind, 1, data)

    def call(self, kind: str = "execute", resource: str = "ledger") -> ResourceCall:
        """The last call of this kind that a resource has accepted."""
        calls = self.world.resources[resource].calls
        return next(call for call in reversed(calls) if call.kind == kind and call.decision == "accepted")

    def tell(self, kind: type[Property], call: ResourceCall) -> None:
        """Have one property hear of a call that never was."""
        self.of(kind).called(call, self.world.resources[call.resource])

    def submit(self, operation_id: str, **options: Any) -> Any:
        """Have a command executed, and wait for its answer."""
        job = self.world.client().submit(operation_id, **options)
        self.world.run_until(lambda: job.done)
        return job


def persist(entries: Sequence[Entry] = (), **parts: Any) -> Persist:
    """A write; what is not named is not in it."""
    filled = {"sequence": 99, "hard_state": None, "truncate_from": 0, "commit_index": 0, **parts}
    return Persist(entries=list(entries), **filled)


def come_to_rest(world: World, load: Load) -> None:
    """Want nothing more, and let everything that was wanted come to its end."""
    load.stop()
    leader = world.elect()

    def rests() -> bool:
        left = [each for pending in leader.machine.pending.values() for each in pending.values()]
        return load.at_rest and world.settled() and all(each.state is OperationState.IN_DOUBT for each in left)

    world.run_until(rests, within_ns=120 * SECOND, what="rest")


@contextmanager
def scene(seed: int = 1, nodes: int = 3, **options: Any) -> Iterator[Scene]:
    """Three commands done, one at each resource, and one register written."""
    with World(seed, nodes, resources=RESOURCES, **options) as world:
        properties = all_properties(world)
        world.start_all()
        made = Scene(world, properties)
        for resource in world.resources:
            made.submit(f"first at {resource}", resource=resource, lane="lane", payload=b"[1]")
        job = world.client().propose("first write", write("r", 1))
        world.run_until(lambda: job.done and world.settled())
        yield made
