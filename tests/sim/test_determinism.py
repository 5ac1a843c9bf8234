"""One seed is one run: in another process, with other hash seeds, whatever ran before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .short_life import live
from .watching import SECOND, begun

ROOT = Path(__file__).resolve().parents[2]


def elsewhere(seed: int, hash_seed: str) -> subprocess.Popen[str]:
    """The same life in a process of its own, which says its hash."""
    return subprocess.Popen(
        [sys.executable, "-c", f"from tests.sim.short_life import live; print(live({seed}).digest)"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_life_with_every_fault_is_the_same_in_every_process() -> None:
    processes = [elsewhere(5, hash_seed) for hash_seed in ("1", "2")]
    here = live(5)
    heard = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert heard == [here.digest, here.digest]
    # Else runs would be compared in which nothing happens.
    assert here.done >= 20
    assert len(set(here.hashes.values())) == 1
    for count in ("lost", "copied", "kept", "damaged"):
        assert here.counts[count] > 0, count


def test_the_hash_tells_what_differs() -> None:
    digests = []
    for seed, job in ((1, "a"), (1, "a"), (2, "a"), (1, "b")):
        with begun(seed) as world:
            world.client().submit(job)
            world.run_for(SECOND)
            digests.append(world.trace.digest())
    first, again, other_seed, other_job = digests
    assert first == again
    assert len({first, other_seed, other_job}) == 3
