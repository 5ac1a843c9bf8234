"""A node that stands before one of its own steps, for each step in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from .node import Call, Node, Word
from .stage import Broken, Findings, NotShown, Setting, Stage, token


class Scene(NamedTuple):
    """A fresh world, with the leader of term 1 standing before one of its steps in an attempt of ``a``."""

    stage: Stage
    old: Node
    other: Node
    """Opened before that: a new node does not wait for a frozen one in order to start."""
    call: Call
    place: str
    patience_s: float
    """How long others may take while it stands: many times what an attempt takes when nothing is in its way."""


class Steps(NamedTuple):
    number: int
    """How many steps one attempt has; 0: none of it is in lines that can be stopped at."""
    patience_s: float


def steps_of(setting: Setting) -> Steps:
    """Found out in a world of its own. Raises :class:`Broken`."""
    with setting.stage() as stage:
        node = stage.node()
        stage.claim(node, 1)
        began = time.monotonic()
        said = node.start_and_stop(token(1), "n1", stage.attempt("a"), 0).wait(setting.bound_s)
        took_s = time.monotonic() - began
        node.stepper.disarm()
        if said.word is not Word.DONE:
            raise Broken(f"a did not succeed where nothing was wrong: {said}")
        return Steps(node.stepper.steps, min(setting.bound_s, max(setting.patience_s, 10 * took_s)))


def each_step(setting: Setting, findings: Findings, *, lane: str = "", ending: bool = False) -> Iterator[Scene]:
    """With ``ending``, only where it can be ended. Raises :class:`NotShown` if it never came to stand anywhere."""
    total, patience_s = steps_of(setting)
    chosen = [setting.only_step] if setting.only_step else _spread(total, setting.steps_max)
    played = 0
    for step in chosen:
        with setting.stage() as stage:
            old, other = stage.node(), stage.node()
            stage.claim(old, 1)
            call = old.start_and_stop(token(1), "n1", stage.attempt("a", lane=lane), step)
            # How many steps there are may differ by a few from one time to the next.
            if old.stepper.stopped and (old.stepper.may_end or not ending):
                played += 1
                yield Scene(stage, old, other, call, f"@{step} ({old.stepper.place})", patience_s)
    findings.note = f"at each of {total} steps" if played == total else f"at {played} of {total} steps"
    if not played:
        raise NotShown(f"it came to an end before it stood at any of its {total} steps")


def _spread(total: int, most: int) -> list[int]:
    """``most`` of 1 … ``total``, the first and the last among them; all of them if ``most`` is 0."""
    if not most or total <= most:
        return list(range(1, total + 1))
    if most == 1:
        return [1 + total // 2]
    return sorted({1 + round(place * (total - 1) / (most - 1)) for place in range(most)})


def name_step(findings: Findings, place: str) -> None:
    """Say of what was found since the last step where the node stood."""
    findings.wrong[:] = [
        (guarantees, text if text.startswith("@") else f"{place}: {text}") for guarantees, text in findings.wrong
    ]
