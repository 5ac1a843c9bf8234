"""Cells that need a means of the world's, or a query."""

from __future__ import annotations

from .node import Node, Word
from .scenes import Scene, each_step, name_step, steps_of
from .stage import ALL, DEDUPED, Findings, Setting, Stage
from .world import NotShown


def lost_answer(setting: Setting, findings: Findings) -> None:
    """Whoever calls a lost answer a refusal is tried again, or failed for good, with the effect in the world.

    By the world's own means if it has one. If not, the handler gets the error of a lost connection at each of its
    steps, which is the same to it.
    """
    try:
        with setting.stage() as stage:
            node, new = stage.node(), stage.node()
            stage.claim(node, 1)
            with stage.world.lost_answer():
                said = stage.run(node, 1, "a")
            findings.expect_word(ALL, said, "the leader whose answer was lost", Word.UNKNOWN, Word.DONE, Word.SILENT)
            findings.expect_once(ALL, stage.effects(), "a")
            _again(stage, new, findings)
    except NotShown as error:
        if not steps_of(setting).number:
            raise NotShown(f"{error}, and the handler has no steps of its own") from None
        for scene in each_step(setting, findings, ending=True):
            _fail(setting, findings, scene)


def _fail(setting: Setting, findings: Findings, scene: Scene) -> None:
    scene.old.stepper.wake(ConnectionResetError)
    said = scene.call.wait(setting.bound_s)
    effects = scene.stage.effects()
    definite = said.word in (Word.FAILED, Word.RETRY)
    findings.expect(not (definite and effects), ALL, f"the leader that lost its connection heard {said}: {effects}")
    findings.expect(said.word is not Word.DONE or "a" in effects, ALL, f"it heard {said}, and a never took effect")
    findings.expect(effects.count("a") <= 1, ALL, f"a took effect {effects.count('a')} times")
    _again(scene.stage, scene.other, findings)
    name_step(findings, scene.place)


def _again(stage: Stage, new: Node, findings: Findings) -> None:
    stage.claim(new, 2)
    said = stage.run(new, 2, "a", number=2)
    findings.expect_word(DEDUPED, said, "its successor", Word.DONE)
    findings.expect_once(DEDUPED, stage.effects(), "a")


def query(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        old, new = stage.node(), stage.node()
        stage.claim(old, 1)
        stage.done(old, 1, "a")
        stage.claim(new, 2)
        known = new.query(stage.attempt("a"))
        findings.expect_word(ALL, known, "who asked about what was applied", Word.DONE)
        unheard = new.query(stage.attempt("b", 2))
        findings.expect_word(ALL, unheard, "who asked about what nobody sent", Word.FAILED)
        if stage.world.refused_payload is not None:
            payload = stage.world.refused_payload
            stage.run(new, 2, "c", 3, payload=payload)
            refused = new.query(stage.attempt("c", 3, payload=payload))
            findings.expect_word(ALL, refused, "who asked about what was refused", Word.FAILED)
        findings.expect(stage.effects() == ["a"], ALL, "asking had an effect of its own")
