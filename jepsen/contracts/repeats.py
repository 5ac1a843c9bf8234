"""Cells about one operation that comes more than once."""

from __future__ import annotations

from .node import Word
from .stage import ALL, DEDUPED, FENCED, LANE, Findings, NotShown, Setting


def one_effect(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        node = stage.node()
        stage.done(node, 1, "a")
        # A fence that lets only greater tokens pass would stop every leader after its first write.
        stage.done(node, 1, "b", 2)
        findings.expect_effects(ALL, stage.effects(), ["a", "b"])


def refused(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        payload = stage.world.refused_payload
        if payload is None:
            raise NotShown("the world has no refused_payload")
        said = stage.run(stage.node(), 1, "a", payload=payload)
        findings.expect_word(ALL, said, "the leader", Word.FAILED)
        findings.expect_effects(ALL, stage.effects(), [])


def same_id_twice(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        node = stage.node()
        first = stage.done(node, 1, "a")
        stage.done(node, 1, "b", 2)
        again = stage.run(node, 1, "a")
        findings.expect_word(DEDUPED, again, "the second time", Word.DONE)
        findings.expect_effects(DEDUPED, stage.effects(), ["a", "b"])
        _expect_first_result(findings, first.result, again.result)


def two_leaders(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        old, new = stage.node(), stage.node()
        first = stage.done(old, 1, "a")
        stage.claim(new, 2)
        again = stage.run(new, 2, "a", number=2)
        findings.expect_word(DEDUPED, again, "the new leader", Word.DONE)
        findings.expect_effects(DEDUPED, stage.effects(), ["a"])
        _expect_first_result(findings, first.result, again.result)


def two_attempts(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        node = stage.node()
        stage.done(node, 1, "a", number=2)
        late = stage.run(node, 1, "a", number=1)
        # A superseded attempt may be refused as well: nobody waits for it.
        findings.expect_word(DEDUPED, late, "the first attempt", Word.DONE, Word.FAILED)
        findings.expect_effects(DEDUPED, stage.effects(), ["a"])


def other_payload(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        node = stage.node()
        stage.done(node, 1, "a")
        other = stage.run(node, 1, "a", payload=stage.world.other_payload)
        findings.expect_word(DEDUPED, other, "the other payload", Word.FAILED)
        findings.expect_effects(DEDUPED, stage.effects(), ["a"])


def lost_outcome(setting: Setting, findings: Findings) -> None:
    """Each leader does it, and dies before what it heard is in the log."""
    with setting.stage() as stage:
        first = stage.done(stage.node(), 1, "a")
        for term in (2, 3, 4):
            node = stage.node()
            stage.claim(node, term)
            said = stage.run(node, term, "a", number=term)
            findings.expect_word(DEDUPED, said, f"the leader of term {term}", Word.DONE)
            _expect_first_result(findings, first.result, said.result)
        findings.expect_effects(DEDUPED, stage.effects(), ["a"])


def out_of_order(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        node = stage.node()
        stage.done(node, 1, "b", 7, lane=LANE)
        late = stage.run(node, 1, "a", 5, lane=LANE)
        findings.expect_word(FENCED, late, "index 5 after index 7 of its lane", Word.FAILED)
        stage.done(node, 1, "c", 6, lane=f"{LANE}-2")
        findings.expect_effects(FENCED, stage.effects(), ["b", "c"])


def _expect_first_result(findings: Findings, first: object, again: object) -> None:
    findings.expect(first == again, FENCED, f"the result of the repeat is {again!r}, and the first one was {first!r}")
