"""A life on a real disk, and the judgement of what a crash left of it; the two halves of a proof by others.

The acknowledgements are lines. The first one says which plan is lived and stands for nothing that was
done; of every other one, the number is how many things have become durable.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...raft.core.entry import Entry
from ...raft.core.errors import FencepostError
from ...raft.core.token import FencingToken
from ...storage.disk import RealDisk
from ..sim.quiet import logging_to
from .explore import Explorer, probed, write_on
from .judge import Known, judge, judge_resource, known_after, leftovers, match, opened, refusal
from .life import Life, Resource, little_in_advance
from .plan import Claim, make_plan
from .recording import Image

NODE, LEDGER = "n1", "ledger.db"

_PLAN = re.compile(r"plan seed (\d+) steps (\d+)")
_INSTANCE = re.compile(r"1 open boot 1 instance ([0-9a-f]{32})")


class AcksInvalid(ValueError):
    """These lines are no acknowledgements of a life."""


class Acks(NamedTuple):
    seed: int
    steps: int
    acknowledged: int
    instance_id: str


def live_on(folder: Path, seed: int, steps: int, say: Callable[[str], None], *, threaded: bool) -> None:
    """Live a plan in an empty folder. ``say`` is called with each line, and must have said it when it returns."""
    say(f"plan seed {seed} steps {steps}")
    folder.mkdir(parents=True, exist_ok=True)
    with logging_to(lambda level, event: None), little_in_advance(), Resource(folder / LEDGER) as resource:
        life = Life(
            make_plan(seed, steps),
            RealDisk(),
            folder / NODE,
            lambda count, what: say(f"{count} {what}"),
            resource=resource,
            threaded=threaded,
        )
        life.run()


def read_acks(text: str) -> Acks | None:
    """What the lines say; None if not even the first is whole. Raises AcksInvalid."""
    # The end of the last line may be lost with the process that wrote it: then it was not heard.
    lines = text.split("\n")[:-1]
    if not lines:
        return None
    begun = _PLAN.fullmatch(lines[0])
    if begun is None:
        raise AcksInvalid(f"line 1 names no plan: {lines[0][:80]!r}")
    for number, line in enumerate(lines[1:], start=1):
        if not line.startswith(f"{number} "):
            raise AcksInvalid(f"line {number + 1} is not the acknowledgement {number}: {line[:80]!r}")
    first = _INSTANCE.fullmatch(lines[1]) if len(lines) > 1 else None
    return Acks(int(begun[1]), int(begun[2]), len(lines) - 1, first[1] if first else "")


class Judgement(NamedTuple):
    acknowledged: int
    second_crashes: int
    """States that a crash of the recovery can leave, each of which was judged."""
    problems: list[str]


def judge_folder(folder: Path, acks: Acks | None) -> Judgement:
    """Recover what is left of a life: in memory with a crash at every step of it, then on the disk, twice.

    The folder is left as it is: what is recovered is a copy.
    """
    known = Known(make_plan(0, 1).states[:1]) if acks is None else _known(acks)
    with logging_to(lambda level, event: None), little_in_advance():
        explorer = Explorer()
        explorer.recover(image_of(folder), known, "the recovery")
        explored = explorer.explored()
        with TemporaryDirectory(prefix="fencepost-") as scratch:
            copy = Path(scratch) / "copy"
            if folder.exists():
                shutil.copytree(folder, copy)
            else:
                # Cut off before anything was made.
                copy.mkdir()
            problems = [*explored.problems, *_recover(copy, known)]
    return Judgement(0 if acks is None else acks.acknowledged, explored.judged, problems)


def _known(acks: Acks) -> Known:
    plan = make_plan(acks.seed, acks.steps)
    if acks.acknowledged >= len(plan.states):
        raise AcksInvalid(f"{acks.acknowledged} acknowledgements, and the plan has {len(plan.states) - 1}")
    return known_after(plan, acks.acknowledged, acks.instance_id)


def image_of(folder: Path) -> Image:
    """The node's directory as a disk in memory, at the place where :class:`Explorer` looks for it."""
    found: Image = {"/data": None}
    root = folder / NODE
    for path in [root, *sorted(root.rglob("*"))] if root.exists() else []:
        name = f"/data/n1/{path.relative_to(root)}".removesuffix("/.")
        found[name] = None if path.is_dir() else path.read_bytes()
    return found


def _recover(folder: Path, known: Known) -> list[str]:
    disk, root = RealDisk(), folder / NODE
    try:
        with opened(disk, root, Random("second").randbytes) as found:
            number, problems = match(found, known)
            problems += leftovers(disk, root)
            boot, entries = found.directory.boot, found.entries
        problems += _recover_resource(folder / LEDGER, known, entries)
        if problems:
            return problems
        # Again, after a process that had opened everything and acknowledged nothing; and once more.
        state = known.possible[number]._replace(opened=boot)
        with opened(disk, root) as again:
            _, problems = match(again, Known((state,), again.directory.instance_id))
            after = probed(state._replace(opened=again.directory.boot))
            write_on(again, after, lambda: None)
            last = Known((after,), again.directory.instance_id)
        return problems + judge(disk, root, last)
    except FencepostError as error:
        return [refusal(error)]


def _recover_resource(path: Path, known: Known, entries: list[Entry]) -> list[str]:
    """Open it as a node does, look at it; again, and claim it as the next leader does."""
    problems: list[str] = []
    for _ in range(2):
        with Resource(path):
            pass
        problems += judge_resource(path, known, entries)
    with Resource(path) as resource:
        resource.claim(Claim(FencingToken(1, 1 << 40)))
    return problems
