"""README and docs are run: every console and python block, in order, one scratch folder a page."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .documents import RUN, SHOWN, Block, Command, blocks, commands, matches
from .tree import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGE_TIMEOUT_S = 120

_ADDRESS = re.compile(r"127\.0\.0\.1:(\d+)")
_MARK = "\x1e"
"""Separates the output of one command from the next; no program prints it."""


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def runs(block: Block) -> bool:
    return block.language in RUN and not block.not_executed


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_block_has_a_language_and_every_omission_a_reason(page: Path) -> None:
    for block in blocks(page, ROOT):
        place = f"{block.page}:{block.line}"
        assert block.language in RUN | SHOWN, f"{place}: language {block.language!r}; say text if it is only to be read"
        assert not block.not_executed or len(block.not_executed) > 15, f"{place}: say why it is not executed"
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "jsonl":
            for line in block.text.splitlines():
                json.loads(line)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page_id(page)} links to {target}"


class Script:
    """One page as one bash session, so that variables and background processes last as for a reader."""

    def __init__(self, page: Path, scratch: Path) -> None:
        self.scratch = scratch
        self.commands: list[tuple[str, Command]] = []
        found = list(blocks(page, ROOT))
        # Two pages, or two people on one machine, may not fight for a port that a page names. All are
        # moved by one distance, because `cluster init` takes client ports 100 above peer ports.
        named = {int(port) for block in found for port in _ADDRESS.findall(block.text)}
        self.distance = free_distance({near for port in named for near in (port, port + 100)})
        self.lines = ["exec 2>&1"]
        for number, block in enumerate(found):
            self._take(number, block)

    def _take(self, number: int, block: Block) -> None:
        place = f"{block.page}:{block.line}"
        if block.file and not block.not_executed:
            path = (self.scratch / block.file).resolve()
            assert path.is_relative_to(self.scratch.resolve()), place
            # Written when the page comes to it, as a reader would.
            source = self.scratch / f".block-{number}"
            source.write_text(self.outward(block.text), encoding="utf-8")
            self.lines.append(f"mkdir -p '{path.parent}' && cp '{source}' '{path}'")
        elif runs(block) and block.language == "console":
            for command in commands(block):
                self._add(place, command)
        elif runs(block):
            program = self.scratch / f".block-{number}.py"
            program.write_text(self.outward(block.text), encoding="utf-8")
            self._add(place, Command(f"python '{program}'", "", 0))

    def _add(self, place: str, command: Command) -> None:
        number = len(self.commands)
        line = self.outward(command.line)
        if line.rstrip().endswith("&"):
            # What stays behind would otherwise print into the output of what follows.
            line = f"{line.rstrip()[:-1]} >'.job-{number}.log' 2>&1 &"
        self.commands.append((place, command))
        self.lines += [line, f"printf '{_MARK}%d{_MARK}' $?"]

    def outward(self, text: str) -> str:
        return _ADDRESS.sub(lambda found: f"127.0.0.1:{int(found[1]) + self.distance}", text)

    def inward(self, text: str) -> str:
        return _ADDRESS.sub(lambda found: f"127.0.0.1:{int(found[1]) - self.distance}", text)

    def run(self) -> Iterator[tuple[str, Command, str, int]]:
        """Run all of it; then one (place, command, output, status) for each that was reached."""
        programs = self.scratch / ".bin"
        programs.mkdir()
        for name, start in (("fencepost", "-c 'from fencepost.cli.main import main; main()'"), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {start} "$@"\n')
            (programs / name).chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": str(self.scratch),
            "COLUMNS": "120",
            "PYTHONWARNINGS": "error",
        }
        transcript = self.scratch / ".transcript"
        # A file and not a pipe: a process left in the background may hold it open for ever.
        with transcript.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-c", "\n".join(self.lines)],
                cwd=self.scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            # Should it take too long, the caller finds commands that were not reached.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=PAGE_TIMEOUT_S)
        finally:
            end_session(process.pid)
            process.wait()
        printed = transcript.read_text(encoding="utf-8", errors="replace")
        answers = printed.split(_MARK)
        reached = zip(answers[0::2], answers[1::2], strict=False)
        for (place, command), (output, status) in zip(self.commands, reached, strict=False):
            yield place, command, self.inward(output), int(status)


def end_session(leader: int) -> None:
    """Kill what a page left in the background; it has our session's process group."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def free_distance(ports: set[int]) -> int:
    """How far to move `ports` so that all of them are free a moment ago, below the ephemeral ones."""
    for distance in random.SystemRandom().sample(range(10_000, 25_000, 10), 50):
        with contextlib.ExitStack() as held:
            try:
                for port in ports:
                    held.enter_context(socket.create_server(("127.0.0.1", port + distance)))
            except OSError:
                continue
            return distance
    raise AssertionError(f"no room to move {sorted(ports)} to")


LONG = {"docs/disaster.md", "docs/operations.md"}
"""They start clusters again and again."""


def _page(page: Path) -> Any:
    return pytest.param(page, marks=[pytest.mark.endure] if page_id(page) in LONG else [])


@pytest.mark.servers
@pytest.mark.parametrize("page", [_page(page) for page in PAGES if any(map(runs, blocks(page, ROOT)))], ids=page_id)
def test_the_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    script = Script(page, tmp_path)
    ran = 0
    for place, command, output, status in script.run():
        ran += 1
        said = f"{place}: $ {command.line}\n{output}"
        assert status == command.exits, f"{said}\nexited with {status} and not {command.exits}"
        assert matches(command.expected, output), f"{said}\nis not what the page shows:\n{command.expected}"
    unreached = [command.line for _, command in script.commands[ran:]]
    assert not unreached, f"not reached within {PAGE_TIMEOUT_S} s: {unreached}"


PAGE = """\
Text.

<!-- file: greet.py -->
```python
print("listening on 127.0.0.1:7101")
```

```console
$ python greet.py
listening on 127.0.0.1:7101
$ x=3; sleep 60 &
$ echo $x \\
> and more
3 and ...
```

<!-- exits: 4 -->
```console
$ (exit 4)
```

<!-- not executed: it would format the disk of the reader -->
```console
$ false
```
"""


def written(tmp_path: Path, text: str) -> Path:
    page = ROOT / "docs" / "index.md"  # any page: only its name is used
    copy = tmp_path / "docs" / page.name
    copy.parent.mkdir()
    copy.write_text(text)
    return copy


def outcomes(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    page = written(tmp_path, text)
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return [
        (status == command.exits, matches(command.expected, output))
        for _, command, output, status in Script(page, scratch).run()
    ]


def test_a_page_that_tells_the_truth_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcomes(tmp_path, PAGE, monkeypatch) == [(True, True)] * 4


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [("$ (exit 4)", "$ (exit 5)", 3), ("3 and ...", "4 and ...", 2), ("\nlistening", "\nlistens", 0)],
)
def test_a_page_that_does_not_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, wrong: int
) -> None:
    assert old in PAGE
    found = outcomes(tmp_path, PAGE.replace(old, new), monkeypatch)
    assert [place for place, good in enumerate(found) if good != (True, True)] == [wrong]
