"""Each check over a long run can fail: a recording that holds, and one fault put into it for each of F1 to F9."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from fencepost.jepsen.cluster.evidence import EffectRow, Evidence, FenceSample, ResourceRecord
from fencepost.jepsen.cluster.judge import AUDIT, LOGS, ONCE, judge
from fencepost.raft.core.entry import EntryKind
from fencepost.raft.outbox.codec import Outcome, decode, encode

from .recording import COMMANDS, FIRST, HOLDERS, INDEXES, SECOND, keyed_call, record


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return asyncio.run(record(tmp_path_factory.mktemp("recording")))


def test_the_recording_holds_and_is_counted(evidence: Evidence) -> None:
    verdict = judge(evidence)
    assert verdict.violations == {}
    assert verdict.figures == {
        "file": {"effects": 4, "claims": 2, "stale_refusals": 1, "stale_calls": 1, "duplicates_recognised": 1},
        "api": {"effects": 2, "claims": 0, "stale_refusals": 0, "stale_calls": 0, "duplicates_recognised": 1},
    }


# -- faults ------------------------------------------------------------------------------------------

Fault = Callable[[Evidence], Evidence]


def with_resource(evidence: Evidence, changed: ResourceRecord) -> Evidence:
    return replace(evidence, resources={**evidence.resources, changed.name: changed})


def with_effects(evidence: Evidence, change: Callable[[list[EffectRow]], list[EffectRow]]) -> Evidence:
    file = evidence.resources["file"]
    return with_resource(evidence, replace(file, effects=change(list(file.effects))))


def lower_token_let_in(evidence: Evidence) -> Evidence:
    """F1: the fence was not looked at when n1 came back."""
    file = evidence.resources["file"]
    *rows, last = file.ledger.operations
    late = last._replace(token=FIRST, holder=HOLDERS[FIRST])
    return with_resource(evidence, replace(file, ledger=file.ledger._replace(operations=[*rows, late])))


def stale_repeat_let_in(evidence: Evidence) -> Evidence:
    """F1: n1 came back with what n2 had done meanwhile, and was told that it is done, and not that it is stale."""
    entries = list(evidence.entries)
    for place, entry in enumerate(entries):
        made = decode(entry.data) if entry.kind == EntryKind.OUTBOX else None
        if isinstance(made, Outcome) and made.rows[0].index == INDEXES["c"]:
            entries[place] = entry._replace(data=encode(made._replace(token=FIRST)))
    return replace(evidence, entries=entries)


def two_holders(evidence: Evidence) -> Evidence:
    """F1: another node was let in with the same token."""
    file = evidence.resources["file"]
    *rows, last = file.ledger.operations
    other = last._replace(holder="n3/e5f6/1/79")
    return with_resource(evidence, replace(file, ledger=file.ledger._replace(operations=[*rows, other])))


def effect_twice(evidence: Evidence) -> Evidence:
    """F2: a retry was not recognised, and stands in the application's table again."""
    return with_effects(evidence, lambda rows: [*rows, rows[-1]])


def keyed_twice(evidence: Evidence) -> Evidence:
    """F2 at the API: a key was forgotten."""
    api = evidence.resources["api"]
    return with_resource(evidence, replace(api, calls=[*api.calls, keyed_call("k2", SECOND, 4)]))


def other_payload(evidence: Evidence) -> Evidence:
    """F3: what took effect is not what is committed."""
    return with_effects(evidence, lambda rows: [*rows[:-1], rows[-1]._replace(payload=b'{"cents":5}')])


def never_committed(evidence: Evidence) -> Evidence:
    """F3: an effect of a command that no log holds."""
    api = evidence.resources["api"]
    stray = keyed_call("k2", SECOND, 4)._replace(operation_id="stray", place=99)
    return with_resource(evidence, replace(api, calls=[*api.calls, stray]))


def effect_missing(evidence: Evidence) -> Evidence:
    """F4: recorded as done, and nobody did it."""
    return with_effects(evidence, lambda rows: rows[:-1])


def without_end(evidence: Evidence) -> Evidence:
    """F4: the last outcomes never came into the log."""
    outcomes = [
        entry.index
        for entry in evidence.entries
        if entry.kind == EntryKind.OUTBOX and isinstance(decode(entry.data), Outcome)
    ]
    return replace(evidence, entries=evidence.entries[: outcomes[-1] - 1])


def another_led(evidence: Evidence) -> Evidence:
    """F5: the token was used by a node that did not lead that term."""
    return replace(evidence, leaders={1: ["n1"], 2: ["n3"]})


def nobody_led(evidence: Evidence) -> Evidence:
    return replace(evidence, leaders={1: ["n1"]})


def two_led(evidence: Evidence) -> Evidence:
    return replace(evidence, leaders={1: ["n1"], 2: ["n2", "n3"]})


def beside_the_fence(evidence: Evidence) -> Evidence:
    """F5: an effect of which the fence knows nothing."""
    file = evidence.resources["file"]
    return with_resource(evidence, replace(file, ledger=file.ledger._replace(operations=file.ledger.operations[:-1])))


def lane_overtaken(evidence: Evidence) -> Evidence:
    """F6: b and c of one lane, c first."""
    return with_effects(evidence, lambda rows: [rows[0], rows[2], rows[1], *rows[3:]])


def keyed_lane_overtaken(evidence: Evidence) -> Evidence:
    api = evidence.resources["api"]
    return with_resource(evidence, replace(api, calls=[api.calls[2], *api.calls[:2]]))


def other_answer_to_a_repeat(evidence: Evidence) -> Evidence:
    """F7: the API gave the second call of k1 an answer of its own."""
    api = evidence.resources["api"]
    first, again, last = api.calls
    return with_resource(evidence, replace(api, calls=[first, again._replace(result=last.result), last]))


def other_result_on_record(evidence: Evidence) -> Evidence:
    """F7: n2 was told something else about b, which n1 had done, than what n1 was told."""
    entries = list(evidence.entries)
    for place, entry in enumerate(entries):
        made = decode(entry.data) if entry.kind == EntryKind.OUTBOX else None
        if isinstance(made, Outcome) and made.rows[0].index == INDEXES["b"]:
            told = made._replace(rows=[made.rows[0]._replace(result=b'{"rows":0}')])
            entries[place] = entry._replace(data=encode(told))
    return replace(evidence, entries=entries)


def client_told_otherwise(evidence: Evidence) -> Evidence:
    return replace(evidence, answers={**evidence.answers, "a": ("succeeded", b'{"rows":2}')})


def fence_row_deleted(evidence: Evidence) -> Evidence:
    """F8: the fence did not outlive its server."""
    file = evidence.resources["file"]
    return with_resource(evidence, replace(file, ledger=file.ledger._replace(fences=[])))


def fence_went_back(evidence: Evidence) -> Evidence:
    """F8: after a restart it was read lower than before, though it rose again later."""
    return replace(evidence, samples=[*evidence.samples, FenceSample("file", FIRST, FIRST)])


def fence_not_stored(evidence: Evidence) -> Evidence:
    """F8: a leader was told that it holds the fence, and the file had not got it."""
    return replace(evidence, samples=[FenceSample("file", FIRST, SECOND)])


def refused_for_nothing(evidence: Evidence) -> Evidence:
    """F9: the leader itself was called stale."""
    file = evidence.resources["file"]
    refusal = file.ledger.refusals[0]._replace(token=SECOND, holder=HOLDERS[SECOND])
    return with_resource(evidence, replace(file, ledger=file.ledger._replace(refusals=[refusal])))


def refused_before_anybody_came(evidence: Evidence) -> Evidence:
    """F9: n1 was called stale before n2 had claimed."""
    file = evidence.resources["file"]
    claims = file.ledger.claims
    early = file.ledger.refusals[0]._replace(refused_ns=claims[1].claimed_ns - 1)
    return with_resource(evidence, replace(file, ledger=file.ledger._replace(refusals=[early])))


def never_committed_command(evidence: Evidence) -> Evidence:
    command = COMMANDS[0]._replace(operation_id="lost")
    return replace(evidence, commands={**evidence.commands, "lost": command})


def told_of_a_failure(evidence: Evidence) -> Evidence:
    return replace(evidence, answers={**evidence.answers, "d": ("failed", b"")})


def not_told(evidence: Evidence) -> Evidence:
    return replace(evidence, answers={name: each for name, each in evidence.answers.items() if name != "d"})


def logs_disagree(evidence: Evidence) -> Evidence:
    return replace(evidence, disagreements=["n1 and n2 disagree about the committed entry 7"])


def claim_record_lost(evidence: Evidence) -> Evidence:
    file = evidence.resources["file"]
    return with_resource(evidence, replace(file, ledger=file.ledger._replace(claims=file.ledger.claims[:1])))


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        ("F1 token order", lower_token_let_in),
        ("F1 token order", stale_repeat_let_in),
        ("F1 token order", two_holders),
        ("F2 effect once", effect_twice),
        ("F2 effect once", keyed_twice),
        ("F3 effect committed", other_payload),
        ("F3 effect committed", never_committed),
        ("F4 outcome recorded", effect_missing),
        ("F4 outcome recorded", without_end),
        ("F5 token elected", another_led),
        ("F5 token elected", nobody_led),
        ("F5 token elected", two_led),
        ("F5 token elected", beside_the_fence),
        ("F6 lane order", lane_overtaken),
        ("F6 lane order", keyed_lane_overtaken),
        ("F7 first result", other_answer_to_a_repeat),
        ("F7 first result", other_result_on_record),
        ("F7 first result", client_told_otherwise),
        ("F8 mark durable", fence_row_deleted),
        ("F8 mark durable", fence_went_back),
        ("F8 mark durable", fence_not_stored),
        ("F9 stale means higher", refused_for_nothing),
        ("F9 stale means higher", refused_before_anybody_came),
        (ONCE, never_committed_command),
        (ONCE, effect_missing),
        (ONCE, effect_twice),
        (ONCE, told_of_a_failure),
        (ONCE, not_told),
        (LOGS, logs_disagree),
        (AUDIT, claim_record_lost),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_fault_in_the_records_is_found_by_its_check(evidence: Evidence, check: str, fault: Fault) -> None:
    verdict = judge(fault(evidence))
    assert check in verdict.violations, verdict.violations
    assert not verdict.holds
