"""A document that can only be replaced as it was read: every sequence of mishaps, and each operation done once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest

from fencepost.raft.core.errors import Outcome, ResourceUnavailable, StaleLeader
from fencepost.raft.effects.resources.compare_and_set import (
    TRIES_MAX,
    AnswerLost,
    CompareAndSet,
    Conflict,
    Versioned,
)

MISHAPS = ("none", "lost", "lost and done", "lost, done and overwritten", "lost and done late", "overtaken", "unread")


class Store:
    """A document, and what befalls each replacement of it in turn."""

    def __init__(self, mishaps: tuple[str, ...] = ()) -> None:
        self.data: bytes | None = None
        self.version = 0
        self.mishaps = list(mishaps)
        self.late: list[tuple[bytes, str]] = []
        self.unread = 0
        self.reads = 0

    def put(self, data: bytes, before: str) -> None:
        if before != (str(self.version) if self.data is not None else ""):
            raise Conflict
        self.data, self.version = data, self.version + 1

    def other(self) -> None:
        """Somebody else's write, by the rules."""
        state = json.loads(self.data or b"[]")
        self.put(json.dumps([*state, f"other{self.version}"]).encode(), str(self.version) if self.data else "")

    async def read(self) -> Versioned:
        self.reads += 1
        if self.unread:
            self.unread -= 1
            raise ResourceUnavailable("cannot be read", outcome=Outcome.RETRY)
        found = Versioned(self.data, str(self.version) if self.data is not None else "")
        for data, before in self.late:
            try:
                self.put(data, before)
            except Conflict:
                continue
        self.late.clear()
        return found

    async def replace(self, data: bytes, before: str) -> str:
        mishap = self.mishaps.pop(0) if self.mishaps else "none"
        if mishap == "overtaken":
            self.other()
        if mishap == "lost and done late":
            # It is still on its way when the document is read again.
            self.late.append((data, before))
            raise AnswerLost(mishap)
        if mishap != "lost":
            self.put(data, before)
        if mishap == "lost, done and overwritten":
            self.other()
        if mishap == "unread":
            self.unread = 1
        if mishap.startswith("lost") or mishap == "unread":
            raise AnswerLost(mishap)
        return str(self.version)


async def _at_once(_: int) -> None:
    pass


def apply(word: str) -> Callable[[bytes | None], tuple[bytes | None, str]]:
    """Dedupes and applies, as every resource does."""

    def decide(data: bytes | None) -> tuple[bytes | None, str]:
        state = json.loads(data or b"[]")
        return (None, "replayed") if word in state else (json.dumps([*state, word]).encode(), "applied")

    return decide


async def tell(document: CompareAndSet, word: str) -> str | Outcome:
    try:
        return await document.change(apply(word), "it")
    except ResourceUnavailable as error:
        return error.outcome


@pytest.mark.parametrize("length", [1, 2, 3, 4])
async def test_every_sequence_of_mishaps(length: int) -> None:
    for mishaps in itertools.product(MISHAPS, repeat=length):
        store = Store(mishaps)
        document = CompareAndSet(store, _at_once)
        for word in ("a", "b"):
            for _ in range(length + 1):
                told = await tell(document, word)
                if told in ("applied", "replayed"):
                    break
                # A lost write and a reading that fails: nobody knows, whatever the reading says of itself.
                assert told is Outcome.UNKNOWN
            else:
                raise AssertionError(f"{word} never came through {mishaps}")
        done = [word for word in json.loads(store.data or b"[]") if not word.startswith("other")]
        assert done == ["a", "b"], mishaps


async def test_without_mishap_one_reading_serves_many_writes() -> None:
    store = Store()
    document = CompareAndSet(store, _at_once)
    for word in "abc":
        assert await document.change(apply(word), "it") == "applied"
    assert store.reads == 1


async def test_what_is_not_written_is_answered_from_a_fresh_reading() -> None:
    """The last state that this process knows may be old: by it alone nobody is told anything."""
    store = Store()
    document = CompareAndSet(store, _at_once)
    await document.change(apply("a"), "it")
    store.other()
    seen: list[bytes | None] = []

    def look(data: bytes | None) -> tuple[None, None]:
        seen.append(data)
        return None, None

    await document.change(look, "it")
    assert seen[-1] == store.data


async def test_a_refusal_is_one_of_the_document_as_it_is() -> None:
    store = Store()
    document = CompareAndSet(store, _at_once)
    await document.change(apply("a"), "it")
    store.other()

    def refuse(data: bytes | None) -> tuple[None, None]:
        raise StaleLeader(str(data))

    with pytest.raises(StaleLeader, match="other1"):
        await document.change(refuse, "it")


async def test_it_gives_up_after_a_while_and_says_what_is_known() -> None:
    for mishap, outcome in (("overtaken", Outcome.RETRY), ("lost", Outcome.UNKNOWN)):
        store = Store((mishap,) * TRIES_MAX)
        store.other()
        with pytest.raises(ResourceUnavailable) as error:
            await CompareAndSet(store, _at_once).change(apply("a"), "it")
        assert error.value.outcome is outcome
