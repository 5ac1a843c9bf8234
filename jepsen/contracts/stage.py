"""What a cell is played on: fresh worlds with nodes in them, and a place to put down what is wrong."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from ...raft.core.token import FencingToken
from ...raft.outbox.codec import Command, canonical_json, digest
from ...raft.ports import Attempt, Guarantee
from .node import RESOURCE, Node, Said, Word
from .steps import Files, Stepper
from .world import NodeHandle, NotShown, World

FENCED = frozenset({Guarantee.FENCED})
DEDUPED = FENCED | {Guarantee.KEYED}
ALL = DEDUPED | {Guarantee.NAKED}
LANE = "lane"


class Broken(Exception):
    """What every guarantee takes for granted did not happen: the cell cannot be played."""


class Findings:
    """What is wrong, and by which guarantees it is wrong."""

    def __init__(self) -> None:
        self.wrong: list[tuple[frozenset[Guarantee], str]] = []
        self.note = ""

    def expect(self, good: bool, guarantees: frozenset[Guarantee], sentence: str) -> None:
        if not good:
            self.wrong.append((guarantees, sentence))

    def expect_effects(self, guarantees: frozenset[Guarantee], effects: Sequence[str], *allowed: Sequence[str]) -> None:
        """That what took effect, in order, is one of ``allowed``."""
        ways = " or ".join(shown(way) for way in allowed)
        self.expect(
            list(effects) in [list(way) for way in allowed],
            guarantees,
            f"what took effect is {shown(effects)}, and it must be {ways}",
        )

    def expect_once(self, guarantees: frozenset[Guarantee], effects: Sequence[str], *operations: str) -> None:
        for operation in operations:
            times = list(effects).count(operation)
            self.expect(times == 1, guarantees, f"{operation} took effect {count(times)}: {shown(effects)}")

    def expect_word(self, guarantees: frozenset[Guarantee], said: Said, who: str, *allowed: Word) -> None:
        self.expect(said.word in allowed, guarantees, f"{who} heard {said}, and must hear {' or '.join(allowed)}")


def shown(effects: Sequence[str]) -> str:
    return f"[{', '.join(effects)}]"


def count(times: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(times, f"{times} times")


def token(term: int, incarnation: int = 1) -> FencingToken:
    return FencingToken(incarnation, term)


@dataclass(frozen=True, slots=True)
class Setting:
    """How a matrix is run."""

    make: Callable[[], World]
    guarantee: Guarantee
    steps_max: int
    bound_s: float
    patience_s: float
    only_step: int = 0

    @contextmanager
    def stage(self) -> Iterator[Stage]:
        """A fresh world; it and its nodes are gone afterwards."""
        with ExitStack() as after:
            world = self.make()
            after.callback(world.close)
            yield Stage(self, world, after)


class Stage:
    """One world. Operation ids are ``a``, ``b``, ``c``; the leader of term 1 is ``n1``, of term 2 ``n2``."""

    def __init__(self, setting: Setting, world: World, after: ExitStack) -> None:
        self.world = world
        self._setting = setting
        self._after = after

    def node(self, make: Callable[[], NodeHandle] | None = None) -> Node:
        """Another node, opened."""
        node = Node(
            make or self.world.node,
            self.world.effect,
            self._setting.guarantee,
            Stepper(Files(self.world.steps_in)),
            self._setting.bound_s,
        )
        self._after.callback(node.close)
        said = node.open()
        if said.word is not Word.DONE:
            raise Broken(f"a node's handle could not be opened: {said}")
        return node

    def effects(self) -> list[str]:
        found: Any = self.world.effects()
        if inspect.isawaitable(found):
            with ThreadPoolExecutor(1) as thread:  # The caller may stand in a loop of its own.
                found = thread.submit(asyncio.run, _awaited(found)).result()
        return list(found)

    def attempt(
        self, operation: str, index: int = 1, *, number: int = 1, lane: str = "", payload: Any = None
    ) -> Attempt:
        given = self.world.payload if payload is None else payload
        data = given if isinstance(given, bytes) else canonical_json(given)
        command = Command(operation, RESOURCE, self.world.effect, lane, data)
        return Attempt(operation, index, 1, self.world.effect, lane, data, digest(command), number)

    def run(self, node: Node, term: int, operation: str, index: int = 1, *, holder: str = "", **rest: Any) -> Said:
        attempt = self.attempt(operation, index, **rest)
        return node.execute(token(term), holder or f"n{term}", attempt)

    def done(self, node: Node, term: int, operation: str, index: int = 1, *, holder: str = "", **rest: Any) -> Said:
        """What has to succeed for the cell to be about anything. Raises :class:`Broken`."""
        said = self.run(node, term, operation, index, holder=holder, **rest)
        if said.word is not Word.DONE:
            raise Broken(f"{operation} under token {token(term)} did not succeed where nothing was wrong: {said}")
        return said

    def claim(self, node: Node, term: int, holder: str = "") -> Said:
        said = node.claim(token(term), holder or f"n{term}")
        if said.word is not Word.DONE:
            raise Broken(f"the claim of token {token(term)} did not succeed where nothing was wrong: {said}")
        return said


async def _awaited(found: Any) -> Any:
    return await found


__all__ = ["ALL", "DEDUPED", "FENCED", "LANE", "Broken", "Findings", "NotShown", "Setting", "Stage", "token"]
