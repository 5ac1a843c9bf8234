"""``fencepost debug storage-workload`` and ``storage-recover``: a life on a real disk, cut off, and the judgement."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.jepsen.crashes.real import AcksInvalid, live_on, read_acks

from ..cli.running import PROGRAM, environment, run, run_json

SEED, STEPS = 5, 14


@pytest.fixture
def life(tmp_path: Path) -> tuple[Path, Path]:
    """A life that came to its end, and its acknowledgements."""
    folder, acks = tmp_path / "life", tmp_path / "acks"
    with acks.open("w") as file:
        live_on(folder, SEED, STEPS, lambda line: print(line, file=file), threaded=False)
    return folder, acks


def judged(folder: Path, acks: Path) -> tuple[int, dict[str, object]]:
    code, document = run_json("debug", "storage-recover", os.fspath(folder), "--acks", os.fspath(acks))
    return code, document


def contents(folder: Path) -> dict[str, bytes]:
    return {os.fspath(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_whole_life_is_found_whole_and_left_as_it_is(life: tuple[Path, Path]) -> None:
    folder, acks = life
    before = contents(folder)
    code, document = judged(folder, acks)
    assert (code, document["verdict"], document["problems"]) == (0, "ok", [])
    assert document["acknowledged"] == len(acks.read_text().splitlines()) - 1
    assert document["second_crashes"]
    assert contents(folder) == before


def test_the_same_seed_is_the_same_life(tmp_path: Path) -> None:
    told: list[list[str]] = []
    for name in ("one", "two"):
        lines: list[str] = []
        live_on(tmp_path / name, SEED, STEPS, lines.append, threaded=name == "two")
        told.append(lines)
    assert told[0] == told[1]
    assert told[0][0] == f"plan seed {SEED} steps {STEPS}"


def test_what_was_acknowledged_and_is_gone_is_missed(life: tuple[Path, Path]) -> None:
    folder, acks = life
    lines = acks.read_text().splitlines(keepends=True)
    # More than there is: as if the end of the life had been lost.
    shorter = folder.with_name("shorter")
    live_on(shorter, SEED, STEPS - 4, lambda line: None, threaded=False)
    code, document = judged(shorter, acks)
    assert (code, document["verdict"]) == (8, "bad")
    # Less than there is: what was never begun is there.
    acks.write_text("".join(lines[:4]))
    code, document = judged(folder, acks)
    assert (code, document["verdict"]) == (8, "bad")
    assert document["problems"]


def test_an_effect_that_is_gone_from_the_resource_is_missed(life: tuple[Path, Path]) -> None:
    folder, acks = life
    assert "executed" in acks.read_text()
    (folder / "ledger.db").unlink()
    code, document = judged(folder, acks)
    assert code == 8
    assert "took effect" in str(document["problems"])


def test_a_directory_that_does_not_open_is_bad(life: tuple[Path, Path]) -> None:
    folder, acks = life
    (folder / "n1" / "identity").unlink()
    code, document = judged(folder, acks)
    assert code == 8
    assert "it does not open: " in str(document["problems"])


def test_lines_that_are_no_acknowledgements_are_refused(life: tuple[Path, Path]) -> None:
    folder, acks = life
    lines = acks.read_text()
    for text in ("1 open\n", lines.replace("\n3 ", "\n4 "), lines + "".join(f"{n} write 1\n" for n in range(90))):
        acks.write_text(text)
        assert run("debug", "storage-recover", os.fspath(folder), "--acks", os.fspath(acks)).exit_code == 2
    with pytest.raises(AcksInvalid, match="line 1 names no plan"):
        read_acks("hello\n")
    found = read_acks(f"plan seed 1 steps 2\n1 open boot 1 instance {'ab' * 16}\n2 wri")
    assert found is not None
    assert (found.acknowledged, found.instance_id) == (1, "ab" * 16)


def test_a_workload_begins_in_an_empty_place(life: tuple[Path, Path]) -> None:
    result = run("debug", "storage-workload", os.fspath(life[0]), "--seed", "1")
    assert result.exit_code == 2
    assert "not an empty directory" in result.stderr


def test_s13_a_workload_that_is_killed_behind_any_line_is_recovered(tmp_path: Path) -> None:
    """The line is heard, so the thing is durable: for a kill that is little, for what it has begun behind it more."""
    for count in (1, 4, 9):
        folder, acks = tmp_path / f"{count}", tmp_path / f"{count}.acks"
        command = [*PROGRAM, "debug", "storage-workload", os.fspath(folder), "--seed", "5", "--steps", "40", "--thread"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
            assert process.stdout is not None
            heard = b"".join(process.stdout.readline() for _ in range(count))
            process.send_signal(signal.SIGKILL)
            heard += process.stdout.read()
        acks.write_bytes(heard)
        code, document = judged(folder, acks)
        assert code == 0, document


# -- with a tool that makes every state from the system calls ------------------------------------------


@pytest.mark.endure
@pytest.mark.parametrize("seed", [1, 2])
def test_s14_what_a_tool_makes_of_the_system_calls_is_recovered(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """States by another hand: a program that knows nothing of ours makes them from a trace of its calls."""
    tool = os.environ.get("FENCEPOST_CRASHSTATES", "")
    if not tool:
        pytest.skip("FENCEPOST_CRASHSTATES names no tool that enumerates the states a crash can leave")
    if shutil.which("strace") is None:
        pytest.skip("there is no strace here: apt-get install strace")
    place = tmp_path / "life"
    workload = [*PROGRAM, "debug", "storage-workload", os.fspath(place), "--seed", str(seed), "--steps", "12"]
    check = f"{shlex.join([*PROGRAM, 'debug', 'storage-recover'])} {{dir}} --acks {{acks}}"
    command = [sys.executable, tool, "--dir", os.fspath(place), "--every", "29", "--check", check, "--", *workload]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    with capsys.disabled():
        print(f"\nseed {seed}: {ran.stdout.strip()}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "states checked" in ran.stdout
    assert ", 0 bad" in ran.stdout
