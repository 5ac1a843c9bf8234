"""What the tests of the simulation look on with, and short ways to a world."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.jepsen.sim.observer import Observer
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.events import Effects, Event, Unreachable
from fencepost.raft.core.invariants import Summary, check, check_step
from fencepost.raft.core.messages import Message
from fencepost.raft.core.options import MILLISECOND, SECOND

__all__ = ["MILLISECOND", "SECOND", "Sound", "Watcher", "begun"]


class Sound(Observer):
    """Every core keeps its own invariants, step by step."""

    def on_step(self, node: Any, before: Summary, event: Event, effects: Effects) -> None:
        check_step(before, node.raft, event, effects)
        check(node.raft)


class Watcher(Observer):
    """Remembers messages and what cores heard of broken links."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Message]] = []
        self.delivered: list[tuple[str, str, Message]] = []
        self.unreachable: list[tuple[str, str]] = []

    def on_sent(self, source: str, to: str, message: Message) -> None:
        self.sent.append((source, to, message))

    def on_delivered(self, source: str, to: str, message: Message) -> None:
        self.delivered.append((source, to, message))

    def before_step(self, node: Any, event: Event) -> None:
        if isinstance(event, Unreachable):
            self.unreachable.append((node.name, event.peer))

    def clear(self) -> None:
        self.sent.clear()
        self.delivered.clear()
        self.unreachable.clear()

    def between(self, source: str, to: str) -> list[Message]:
        """What arrived on one link."""
        return [message for one, other, message in self.delivered if (one, other) == (source, to)]


@contextmanager
def begun(seed: int = 1, nodes: int = 3, **options: Any) -> Iterator[World]:
    """A world with an active leader, in which every core is watched."""
    observers = [Sound(), *options.pop("observers", [])]
    with World(seed, nodes, observers=observers, **options) as world:
        world.start_all()
        world.elect()
        world.run_for(200 * MILLISECOND)
        yield world
