"""Making a failing plan small, so that a person can read what it does.

Delta debugging (Zeller and Hildebrandt, 2002) over the list of faults, with shorter runs, fewer nodes, fewer
clients and an empty beginning tried in between. Every try is a whole run from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...raft.core.options import SECOND
from .plan import Plan

NODES_MIN = 3
SAFETY_MIN_NS = SECOND


class Failure(NamedTuple):
    """How a run failed."""

    about: str
    """What was violated, without times and names: two failures of one fault have the same."""
    at_ns: int
    """When in the run."""
    text: str
    """All there is to say about it."""


Try = Callable[[Plan], Failure | None]
"""Runs a plan from its beginning."""


class Shrunk(NamedTuple):
    plan: Plan
    failure: Failure
    tries: int


class Shrinker:
    """``attempt`` runs a plan; after ``tries_max`` runs the smallest failing plan found so far is the answer."""

    def __init__(self, attempt: Try, *, tries_max: int = 200) -> None:
        self._attempt = attempt
        self._tries_max = tries_max
        self.tries = 0

    def shrink(self, plan: Plan, failure: Failure) -> Shrunk:
        """A smaller plan that fails in the same way, or the plan itself."""
        best = Shrunk(plan, failure, 0)
        while True:
            before = best.plan
            for smaller in (self._shorter, self._fewer_faults, self._fewer_nodes_and_clients, self._from_boot):
                best = smaller(best)
            if best.plan == before or self.tries >= self._tries_max:
                return best._replace(tries=self.tries)

    def _try(self, best: Shrunk, plan: Plan) -> Shrunk | None:
        """What comes of ``plan``, if it fails as ``best`` does."""
        if self.tries >= self._tries_max or plan == best.plan:
            return None
        self.tries += 1
        failure = self._attempt(plan)
        if failure is None or failure.about != best.failure.about:
            return None
        return Shrunk(plan, failure, self.tries)

    # -- the ways in which a plan gets smaller --------------------------------------------------------

    def _shorter(self, best: Shrunk) -> Shrunk:
        """Cut off what comes after the failure, then shorten what comes before it as long as it still fails."""
        plan = best.plan
        if plan.quiet_ns:
            best = self._try(best, plan._replace(quiet_ns=0)) or best
        if best.failure.at_ns < best.plan.safety_ns:
            plan = best.plan
            late = [place for place, fault in enumerate(plan.faults) if fault.at_ns > best.failure.at_ns]
            kept = plan.keeping(place for place in range(len(plan.faults)) if place not in late)
            best = self._try(best, kept if late else plan) or best
        while best.plan.safety_ns > SAFETY_MIN_NS:
            shorter = _round_up(best.plan.safety_ns // 2)
            tried = self._try(best, best.plan._replace(safety_ns=shorter))
            if tried is None:
                break
            best = tried
        return best

    def _fewer_faults(self, best: Shrunk) -> Shrunk:
        """Delta debugging: leave out ever smaller parts of the list."""
        parts = 2
        while best.plan.faults:
            places = list(range(len(best.plan.faults)))
            parts = min(parts, len(places))
            for part in _split(places, parts):
                gone = frozenset(part)
                tried = self._try(best, best.plan.keeping(place for place in places if place not in gone))
                if tried is not None:
                    best, parts = tried, max(parts - 1, 2)
                    break
            else:
                if parts == len(places):
                    break
                parts = min(2 * parts, len(places))
            if self.tries >= self._tries_max:
                break
        return best

    def _fewer_nodes_and_clients(self, best: Shrunk) -> Shrunk:
        while best.plan.nodes > NODES_MIN:
            tried = self._try(best, best.plan._replace(nodes=best.plan.nodes - 2))
            if tried is None:
                break
            best = tried
        while best.plan.clients > 1:
            tried = self._try(best, best.plan._replace(clients=best.plan.clients - 1))
            if tried is None:
                break
            best = tried
        return best

    def _from_boot(self, best: Shrunk) -> Shrunk:
        if not best.plan.hard_state:
            return best
        return self._try(best, best.plan._replace(hard_state="")) or best


def _split(places: Sequence[int], parts: int) -> list[Sequence[int]]:
    size, left = divmod(len(places), parts)
    found, start = [], 0
    for number in range(parts):
        end = start + size + (number < left)
        found.append(places[start:end])
        start = end
    return found


def _round_up(duration_ns: int) -> int:
    """To a tenth of a second, so that the command can be read."""
    tenth = SECOND // 10
    return max(SAFETY_MIN_NS, -(-duration_ns // tenth) * tenth)
