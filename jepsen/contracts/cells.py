"""The cells: which there are, and who promises what each of them asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...raft.ports import Guarantee
from . import faults, fence, interruptions, repeats
from .stage import ALL, DEDUPED, FENCED, Findings, Setting

Play = Callable[[Setting, Findings], None]


@dataclass(frozen=True, slots=True)
class Cell:
    name: str
    title: str
    play: Play
    promised_by: frozenset[Guarantee]
    of_a_claim: str = ""
    """Why a handler cannot promise it that has no claim hook; empty where it can."""
    beyond_a_handler: str = ""
    """Why a handler cannot promise it, whatever it declares; empty where it can."""
    of_a_query: bool = False
    of_lanes: bool = False
    steps: bool = False
    """It is played once for each step, so one of them can be asked for: ``name@7``."""


NO_CLAIM = "a handler without a claim hook hears of no claim: the fence rises with the first write"
NO_COPY = "a handler cannot tell a fence that was put back from one that is to rise with the write"

CELLS = (
    Cell("one-effect", "one attempt has one effect, and the leader goes on", repeats.one_effect, ALL),
    Cell("refused", "what is refused has no effect", repeats.refused, ALL),
    Cell("same-id-twice", "the same id twice", repeats.same_id_twice, DEDUPED),
    Cell("two-leaders", "the same id from two leaders", repeats.two_leaders, DEDUPED),
    Cell("two-attempts", "two attempts in one term, the first one later", repeats.two_attempts, DEDUPED),
    Cell("other-payload", "another payload under the same id", repeats.other_payload, DEDUPED),
    Cell("lost-outcome", "the outcome is lost, and each leader asks again", repeats.lost_outcome, DEDUPED),
    Cell("lost-answer", "the answer is lost on its way", faults.lost_answer, ALL),
    Cell("out-of-order", "a lane does not go back", repeats.out_of_order, FENCED, of_lanes=True),
    Cell("stale-after-newer", "a stale write after a newer one", fence.stale_after_newer, FENCED),
    Cell("stale-asks", "a stale leader asks about what is done", fence.stale_asks, FENCED),
    Cell("stale-repeats", "a stale leader repeats what is done", fence.stale_repeats, DEDUPED),
    Cell("incarnation", "the incarnation comes before the term", fence.incarnation, FENCED),
    Cell("claim-then-stale", "a claim, then a stale write", fence.claim_then_stale, FENCED, NO_CLAIM),
    Cell("equal-token", "an equal token from another holder", fence.equal_token, FENCED, NO_CLAIM),
    Cell("wrong-cluster", "a node of another cluster", fence.wrong_cluster, FENCED, NO_CLAIM),
    Cell(
        "old-copy",
        "restored from an old copy: claimed again before use",
        fence.old_copy,
        FENCED,
        beyond_a_handler=NO_COPY,
    ),
    Cell("crash-before", "ended before the effect", interruptions.crash_before, DEDUPED, steps=True),
    Cell("crash-after", "ended after the effect", interruptions.crash_after, DEDUPED, steps=True),
    Cell(
        "frozen",
        "frozen in the middle, and a successor does the same",
        interruptions.frozen,
        DEDUPED,
        steps=True,
    ),
    Cell(
        "frozen-then-newer",
        "frozen in the middle, and a successor goes on with something else",
        interruptions.frozen_then_newer,
        FENCED,
        steps=True,
    ),
    Cell("hung-attempt", "a hung attempt wakes after newer ones of its term", interruptions.hung, DEDUPED, steps=True),
    Cell(
        "hung-in-lane",
        "a hung attempt that was given up wakes after its lane went on",
        interruptions.hung_in_lane,
        FENCED,
        of_lanes=True,
        steps=True,
    ),
    Cell("query", "the query knows what was applied and nothing else", faults.query, ALL, of_a_query=True),
    Cell(
        "query-after-crash",
        "the query is right wherever the node was ended",
        interruptions.query_after_crash,
        ALL,
        of_a_query=True,
        steps=True,
    ),
)
