"""Cells about the fence: who is let through, and who hears that he is not."""

from __future__ import annotations

from .node import Word
from .stage import DEDUPED, FENCED, Findings, Setting, token


def stale_after_newer(setting: Setting, findings: Findings) -> None:
    """S48: 1 writes, 2 writes, 1 is refused, 3 is let through."""
    with setting.stage() as stage:
        old, new = stage.node(), stage.node()
        stage.done(old, 1, "a")
        stage.done(new, 2, "b", 2)
        late = stage.run(old, 1, "c", 3)
        findings.expect_word(FENCED, late, "token 1.1 after 1.2", Word.STALE)
        stage.done(new, 3, "d", 4)
        # Only once the fence has been at 3: a fence that remembers the first write alone stands at 1 or 2.
        between = stage.run(old, 2, "e", 5)
        findings.expect_word(FENCED, between, "token 1.2 after 1.3", Word.STALE)
        findings.expect_effects(FENCED, stage.effects(), ["a", "b", "d"])


def stale_asks(setting: Setting, findings: Findings) -> None:
    """The fence is asked before the repeat: a stale leader that is told of success goes on."""
    with setting.stage() as stage:
        old, new = stage.node(), stage.node()
        stage.done(old, 1, "a")
        stage.done(new, 2, "b", 2)
        findings.expect_word(FENCED, stage.run(old, 1, "a"), "a stale leader that asks about a", Word.STALE)
        findings.expect_word(FENCED, stage.run(old, 1, "b", 2), "a stale leader that asks about b", Word.STALE)
        findings.expect_effects(FENCED, stage.effects(), ["a", "b"])


def stale_repeats(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        old, new = stage.node(), stage.node()
        stage.claim(old, 1)
        stage.claim(new, 2)
        stage.done(new, 2, "a")
        stage.run(old, 1, "a")
        findings.expect_effects(DEDUPED, stage.effects(), ["a"])


def incarnation(setting: Setting, findings: Findings) -> None:
    """A restored cluster begins its terms anew."""
    with setting.stage() as stage:
        before, after = stage.node(), stage.node()
        stage.done(before, 9, "a")
        said = after.execute(token(1, 2), "n1", stage.attempt("b", 2))
        findings.expect_word(FENCED, said, "token 2.1 after 1.9", Word.DONE)
        late = stage.run(before, 10, "c", 3)
        findings.expect_word(FENCED, late, "token 1.10 after 2.1", Word.STALE)
        findings.expect_effects(FENCED, stage.effects(), ["a", "b"])


def claim_then_stale(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        old, new = stage.node(), stage.node()
        stage.claim(old, 1)
        stage.done(old, 1, "a")
        stage.claim(new, 2)
        late = stage.run(old, 1, "b", 2)
        findings.expect_word(FENCED, late, "token 1.1 after the claim of 1.2", Word.STALE)
        again = old.claim(token(1), "n1")
        findings.expect_word(FENCED, again, "the claim of 1.1 after that of 1.2", Word.STALE)
        findings.expect_effects(FENCED, stage.effects(), ["a"])


def equal_token(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        mine, other = stage.node(), stage.node()
        stage.claim(mine, 4, "n1")
        findings.expect_word(FENCED, other.claim(token(4), "n2"), "the claim of the other holder", Word.DUPLICATE)
        said = stage.run(other, 4, "a", holder="n2")
        findings.expect_word(FENCED, said, "the write of the other holder", Word.DUPLICATE)
        stage.done(mine, 4, "b", 2, holder="n1")
        findings.expect_effects(FENCED, stage.effects(), ["b"])


def wrong_cluster(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        foreign = stage.node(stage.world.foreign)
        own = stage.node()
        stage.claim(own, 5)
        for term in (1, 5, 9):
            claimed = foreign.claim(token(term), "n5")
            findings.expect_word(FENCED, claimed, f"a foreign claim of 1.{term}", Word.WRONG_CLUSTER)
            wrote = stage.run(foreign, term, "a", holder="n5")
            findings.expect_word(FENCED, wrote, f"a foreign write under 1.{term}", Word.WRONG_CLUSTER)
        stage.done(own, 5, "b", 2)
        findings.expect_effects(FENCED, stage.effects(), ["b"])


def old_copy(setting: Setting, findings: Findings) -> None:
    """The fence lives in the data, so a copy brings an old fence back, beneath leaders that are at work."""
    with setting.stage() as stage:
        old, new = stage.node(), stage.node()
        stage.claim(old, 1)
        stage.done(old, 1, "a")
        copy = stage.world.save()
        stage.claim(new, 2)
        stage.done(new, 2, "b", 2)
        stage.world.restore(copy)
        unclaimed = stage.run(new, 2, "c", 3)
        findings.expect(
            unclaimed.word is not Word.DONE, FENCED, "the leader wrote to the old copy without claiming it again"
        )
        findings.expect_effects(FENCED, stage.effects(), ["a"])
        stage.claim(new, 2)
        stage.done(new, 2, "d", 4)
        late = stage.run(old, 1, "e", 5)
        findings.expect_word(FENCED, late, "the older leader, after the copy was claimed", Word.STALE)
        findings.expect_effects(FENCED, stage.effects(), ["a", "d"])
