"""A ledger in memory and the handlers that write to it: one that is right, and many that are not quite."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fencepost import EffectContext, Permanent, Retryable, StaleLeader
from fencepost.testing import World

Handler = Callable[[EffectContext, Any], Any]


class Ledger:
    """The outside thing. Its lock is what a transaction is elsewhere."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.fence: tuple[int, ...] = (0, 0)
        self.effects: list[str] = []
        self.known: dict[str, tuple[Any, int]] = {}
        self.lanes: dict[str, int] = {}

    def pass_fence(self, context: EffectContext) -> None:
        if tuple(context.token) < self.fence:
            raise StaleLeader(f"{context.token}, and the fence stands at {self.fence}")
        self.fence = tuple(context.token)

    def find(self, context: EffectContext, payload: Any) -> int | None:
        known = self.known.get(context.operation_id)
        if known is None:
            return None
        if known[0] != payload:
            raise Permanent("OPERATION_ID_REUSED")
        return known[1]

    def add(self, context: EffectContext, payload: Any) -> int:
        """The effect alone."""
        if payload["cents"] < 0:
            raise Permanent("cents must not be negative")
        self.effects.append(context.operation_id)
        return len(self.effects)

    def keep(self, context: EffectContext, payload: Any, place: int) -> int:
        """What was done, for whoever asks again."""
        return self.known.setdefault(context.operation_id, (payload, place))[1]


class LedgerWorld(World):
    """A node's handler is ``handler(ledger, context, payload)``."""

    refused_payload = b'{"cents":-1}'

    def __init__(self, handler: Callable[[Ledger, EffectContext, Any], Any]) -> None:
        self.ledger = Ledger()
        self.handler = handler

    def node(self) -> Any:
        return lambda context, payload: self.handler(self.ledger, context, payload)

    def effects(self) -> list[str]:
        return list(self.ledger.effects)


def fenced(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        ledger.pass_fence(context)
        place = ledger.find(context, payload)
        return _add(ledger, context, payload) if place is None else place


def fenced_and_ordered(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        ledger.pass_fence(context)
        place = ledger.find(context, payload)
        if place is not None:
            return place
        if context.lane and context.index <= ledger.lanes.get(context.lane, 0):
            raise Permanent("LANE_SUPERSEDED")
        place = _add(ledger, context, payload)
        ledger.lanes[context.lane] = context.index
        return place


def keyed(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        place = ledger.find(context, payload)
        return _add(ledger, context, payload) if place is None else place


def _add(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    """What a transaction is: if it ends in the middle, it never began."""
    effects, known = list(ledger.effects), dict(ledger.known)
    try:
        return ledger.keep(context, payload, ledger.add(context, payload))
    except BaseException:
        ledger.effects[:], ledger.known = effects, known
        raise


def naked(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    return ledger.add(context, payload)


# -- not quite -----------------------------------------------------------------------------------------


def check_then_act(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        ledger.pass_fence(context)
        place = ledger.find(context, payload)
    if place is not None:
        return place
    with ledger.lock:
        return _add(ledger, context, payload)


def without_a_lock(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    ledger.pass_fence(context)
    place = ledger.find(context, payload)
    return _add(ledger, context, payload) if place is None else place


def without_digest(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        ledger.pass_fence(context)
        if context.operation_id in ledger.known:
            return ledger.known[context.operation_id][1]
        return _add(ledger, context, payload)


def fence_that_does_not_rise(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        if ledger.fence == (0, 0):
            ledger.fence = tuple(context.token)
        if tuple(context.token) < ledger.fence:
            raise StaleLeader("stale")
        place = ledger.find(context, payload)
        return _add(ledger, context, payload) if place is None else place


def fence_of_terms_alone(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        if context.token.term < ledger.fence[1]:
            raise StaleLeader("stale")
        ledger.fence = tuple(context.token)
        place = ledger.find(context, payload)
        return _add(ledger, context, payload) if place is None else place


def fence_for_greater_tokens_alone(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        if tuple(context.token) <= ledger.fence:
            raise StaleLeader("stale")
        ledger.fence = tuple(context.token)
        place = ledger.find(context, payload)
        return _add(ledger, context, payload) if place is None else place


def repeat_before_fence(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        place = ledger.find(context, payload)
        if place is not None:
            return place
        ledger.pass_fence(context)
        return _add(ledger, context, payload)


def stale_as_failure(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        if tuple(context.token) < ledger.fence:
            raise Permanent("a newer leader is at work")
        return fenced(ledger, context, payload)


def another_result(ledger: Ledger, context: EffectContext, payload: Any) -> Any:
    return {"place": fenced(ledger, context, payload), "attempt": context.attempt}


def written_down_before(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        ledger.pass_fence(context)
        place = ledger.find(context, payload)
        if place is None and payload["cents"] >= 0:
            place = ledger.keep(context, payload, len(ledger.effects) + 1)
        elif place is not None:
            return place
    return ledger.add(context, payload)


def written_down_after(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        ledger.pass_fence(context)
        place = ledger.find(context, payload)
        if place is not None:
            return place
        place = ledger.add(context, payload)
    return ledger.keep(context, payload, place)


def lost_as_refused(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    try:
        place = keyed(ledger, context, payload)
        return place
    except ConnectionError as error:
        raise Retryable("the connection was lost") from error


def twice(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    with ledger.lock:
        ledger.add(context, payload)
        return ledger.add(context, payload)


def refused_too_late(ledger: Ledger, context: EffectContext, payload: Any) -> int:
    ledger.effects.append(context.operation_id)
    if payload["cents"] < 0:
        raise Permanent("cents must not be negative")
    return len(ledger.effects)


class KnownToTheNodeAlone(LedgerWorld):
    """Each node remembers for itself what was done."""

    def __init__(self) -> None:
        super().__init__(fenced)

    def node(self) -> Any:
        own: dict[str, tuple[Any, int]] = {}

        def handler(context: EffectContext, payload: Any) -> int:
            with self.ledger.lock:
                self.ledger.pass_fence(context)
                if context.operation_id in own:
                    self.ledger.known[context.operation_id] = own[context.operation_id]
                    found = self.ledger.find(context, payload)
                    assert found is not None
                    return found
                own[context.operation_id] = (payload, self.ledger.add(context, payload))
                return own[context.operation_id][1]

        return handler
