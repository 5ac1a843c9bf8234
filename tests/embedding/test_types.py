"""What a type checker says of an embedder's program: nothing, and the right thing where it is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT

PROGRAM = ROOT / "tests" / "embedding" / "users_file.py"
WRONG = {
    'node.propose(Put("a", 1), id="x")': ('node.propose("a", id="x")', "arg-type"),
    'outbox.submit(send, Mail("a")': ("outbox.submit(send, Sent(1)", "misc"),
    "Node(settings, store, outbox": ("Node(settings, send, outbox", "call-overload"),
    "def apply(self, index: int, term: int, command: Put | Drop)": (
        "def apply(self, index: int, command: Put | Drop)",
        "assignment",
    ),
    "async def send(context: EffectContext, mail: Mail)": (
        "async def send(context: EffectContext, mail: Sent)",
        "arg-type",
    ),
}


def check(tmp_path: Path, *files: Path) -> str:
    """What mypy says with an embedder's settings: strict, and the package found where it is installed."""
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\nstrict = True\npython_version = 3.11\nmypy_path = {ROOT / 'src'}\n"
        "[mypy-fencepost.*]\nfollow_imports = silent\n[mypy-msgpack.*,google_crc32c.*,asyncpg.*]\n"
        "ignore_missing_imports = True\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", str(ROOT / ".mypy_cache" / "users"),
         *map(str, files)],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "MYPYPATH"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_the_program_is_clean_and_each_mistake_in_it_is_found(tmp_path: Path) -> None:
    source = PROGRAM.read_text(encoding="utf-8")
    right = tmp_path / "right.py"
    right.write_text(source)
    files = [right]
    for number, (text, (wrong, _)) in enumerate(WRONG.items()):
        assert text in source
        file = tmp_path / f"wrong_{number}.py"
        file.write_text(source.replace(text, wrong))
        files.append(file)
    said = check(tmp_path, *files)
    assert "right.py" not in said, said
    for number, (_, code) in enumerate(WRONG.values()):
        found = re.findall(rf"^wrong_{number}\.py:\d+: error: .*\[([\w-]+)\]$", said, re.MULTILINE)
        assert code in found, f"wrong_{number}: {said}"
