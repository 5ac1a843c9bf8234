"""Cells in which a node is frozen, or ends, between two steps of its own; each step in turn.

While it stands, a successor does its work on another thread. If the standing node holds a lock, the successor waits or
is turned away; then the node is let go on (or is ended) before that has come to an end, and the successor tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from .node import Node, Said, Word
from .scenes import Scene, each_step, name_step, steps_of
from .stage import ALL, DEDUPED, FENCED, LANE, Findings, NotShown, Setting, Stage, token
from .standing import Aside, Standing
from .steps import Ended


def crash_before(setting: Setting, findings: Findings) -> None:
    _crash(setting, findings, after=False)


def crash_after(setting: Setting, findings: Findings) -> None:
    _crash(setting, findings, after=True)


def _crash(setting: Setting, findings: Findings, *, after: bool) -> None:
    if not steps_of(setting).number:
        return _crash_by_the_world(setting, findings, after=after)
    played = 0
    for scene in each_step(setting, findings):
        if _took_effect(scene) == after:
            played += _end(setting, findings, scene)
    if played:
        findings.note = f"at {played} of its steps"
    elif after:
        _outcome_thrown_away(setting, findings)
        findings.note = "ended when it had answered: between the effect and the answer it has no step"
    else:
        raise NotShown("all of its steps come after the effect")


def _end(setting: Setting, findings: Findings, scene: Scene) -> bool:
    """Whether it could be played: a node that keeps others out has to be ended in fact, and that is not everywhere
    possible."""

    def end() -> None:
        scene.old.stepper.wake(Ended if scene.old.stepper.may_end else None)

    # It stands for good, as one that has ended; really ended only if its locks keep the successor out.
    standing = Standing(end, scene.call, scene.patience_s, setting.bound_s, if_needed=True)
    said, late = standing.while_standing(lambda: _claim_and_run(scene.stage, scene.other, "a"))
    if late.word is not Word.ENDED:
        return False
    findings.expect(said[-1].word is Word.DONE, DEDUPED, f"the successor heard {said[-1]}")
    findings.expect_once(DEDUPED, scene.stage.effects(), "a")
    name_step(findings, scene.place)
    return True


def _took_effect(scene: Scene) -> bool:
    """Whether a node that stands has had its effect. If it keeps others from looking, it has not come to an end."""
    seen = Aside(scene.stage.effects).wait(scene.patience_s)
    return seen is not None and "a" in seen


def _outcome_thrown_away(setting: Setting, findings: Findings) -> None:
    with setting.stage() as stage:
        stage.done(stage.node(), 1, "a")
        said = _claim_and_run(stage, stage.node(), "a")
        findings.expect_word(DEDUPED, said[-1], "the successor", Word.DONE)
        findings.expect_once(DEDUPED, stage.effects(), "a")


def _crash_by_the_world(setting: Setting, findings: Findings, *, after: bool) -> None:
    with setting.stage() as stage:
        node = stage.node()
        stage.claim(node, 1)
        with stage.world.crash_after() if after else stage.world.crash_before():
            stage.run(node, 1, "a")
        seen = stage.effects()
        findings.expect_effects(DEDUPED, seen, ["a"] if after else [])
        said = _claim_and_run(stage, stage.node(), "a")
        findings.expect_word(DEDUPED, said[-1], "the successor", Word.DONE)
        findings.expect_once(DEDUPED, stage.effects(), "a")


def frozen(setting: Setting, findings: Findings) -> None:
    def play(stage: Stage, new: Node, standing: Standing) -> None:
        said, late = standing.while_standing(lambda: [*_claim_and_run(stage, new, "a"), stage.run(new, 2, "b", 2)])
        for each, operation in zip(said[1:], ("a", "b"), strict=False):
            findings.expect(each.word is Word.DONE, DEDUPED, f"the successor heard {each} about {operation}")
        effects = stage.effects()
        findings.expect_once(DEDUPED, effects, "a", "b")
        _expect_truth(findings, late, "a", effects)

    _stand(setting, findings, play)


def frozen_then_newer(setting: Setting, findings: Findings) -> None:
    def play(stage: Stage, new: Node, standing: Standing) -> None:
        said, late = standing.while_standing(lambda: _claim_and_run(stage, new, "b", 2))
        findings.expect(said[-1].word is Word.DONE, FENCED, f"the successor heard {said[-1]} about b")
        effects = stage.effects()
        # Whatever the old leader does takes effect before the new one's first, or not at all.
        findings.expect_effects(FENCED, effects, ["b"], ["a", "b"])
        _expect_truth(findings, late, "a", effects)

    _stand(setting, findings, play)


def hung(setting: Setting, findings: Findings) -> None:
    def play(stage: Stage, same: Node, standing: Standing) -> None:
        said, late = standing.while_standing(
            lambda: [
                stage.run(same, 1, "a", number=2, lane=LANE, holder="n1"),
                stage.run(same, 1, "b", 2, lane=LANE, holder="n1"),
            ]
        )
        for each, operation in zip(said, ("a", "b"), strict=True):
            findings.expect(each.word is Word.DONE, DEDUPED, f"the next attempt heard {each} about {operation}")
        effects = stage.effects()
        findings.expect_once(DEDUPED, effects, "a", "b")
        _expect_truth(findings, late, "a", effects)

    _stand(setting, findings, play, lane=LANE)


def hung_in_lane(setting: Setting, findings: Findings) -> None:
    def play(stage: Stage, same: Node, standing: Standing) -> None:
        said, late = standing.while_standing(lambda: [stage.run(same, 1, "b", 2, lane=LANE, holder="n1")])
        findings.expect(said[-1].word is Word.DONE, FENCED, f"the lane's next heard {said[-1]}")
        effects = stage.effects()
        findings.expect_effects(FENCED, effects, ["b"], ["a", "b"])
        _expect_truth(findings, late, "a", effects)

    _stand(setting, findings, play, lane=LANE)


def query_after_crash(setting: Setting, findings: Findings) -> None:
    if not steps_of(setting).number:
        raise NotShown("the handler has no steps of its own")
    for scene in each_step(setting, findings, ending=True):
        scene.old.stepper.wake(Ended)
        scene.call.wait(setting.bound_s)
        scene.stage.claim(scene.other, 2)
        said = scene.other.query(scene.stage.attempt("a"))
        applied = "a" in scene.stage.effects()
        findings.expect_word(ALL, said, f"who asked ({'' if applied else 'not '}applied)", _truth(applied))
        name_step(findings, scene.place)


def _truth(applied: bool) -> Word:
    return Word.DONE if applied else Word.FAILED


def _expect_truth(findings: Findings, late: Said, operation: str, effects: list[str]) -> None:
    if late.word is Word.DONE:
        findings.expect(operation in effects, DEDUPED, f"who was frozen heard of success, and {operation} never was")


Play = Callable[[Stage, Node, Standing], None]


def _stand(setting: Setting, findings: Findings, play: Play, *, lane: str = "") -> None:
    """Play it once for each step; or once, by the world's own means, where the handler has no steps."""
    steps = steps_of(setting)
    if steps.number:
        for scene in each_step(setting, findings, lane=lane):
            play(
                scene.stage,
                scene.other,
                Standing(scene.old.stepper.wake, scene.call, scene.patience_s, setting.bound_s),
            )
            name_step(findings, scene.place)
        return
    with setting.stage() as stage, ExitStack() as freezing:
        old, other = stage.node(), stage.node()
        stage.claim(old, 1)
        until_it_stands = freezing.enter_context(stage.world.frozen())
        call = old.start(token(1), "n1", stage.attempt("a", lane=lane))
        until_it_stands()
        play(stage, other, Standing(freezing.close, call, steps.patience_s, setting.bound_s))


def _claim_and_run(stage: Stage, node: Node, operation: str, index: int = 1) -> list[Said]:
    return [node.claim(token(2), "n2"), stage.run(node, 2, operation, index, number=2)]
