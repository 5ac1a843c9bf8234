"""The programs of `examples/`, in a folder of their own and at addresses that are free."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.house.test_docs import free_distance
from tests.house.tree import ROOT

_PORT = re.compile(r"127\.0\.0\.1:(\d+)")


def copied(name: str, folder: Path) -> Path:
    """A copy of `examples/NAME` in `folder`, with every address moved by one distance."""
    place = folder / name
    shutil.copytree(ROOT / "examples" / name, place)
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(place.glob("*.py"))}
    distance = free_distance({int(port) for text in sources.values() for port in _PORT.findall(text)})
    for path, text in sources.items():
        path.write_text(_PORT.sub(lambda found: f"127.0.0.1:{int(found[1]) + distance}", text), encoding="utf-8")
    return place


def module(path: Path) -> ModuleType:
    """The program as a module, a new one at each call."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # Its annotations are looked up there.
    spec.loader.exec_module(made)
    return made


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Processes]:
    processes = Processes(folder)
    try:
        yield processes
    finally:
        processes.end()


class Processes:
    """Processes of one test, each with its output in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_name: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.by_name[name] = subprocess.Popen(
                [sys.executable, *arguments], cwd=self.folder, env=environment(), stdout=out, stderr=out
            )

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def kill(self, name: str) -> None:
        process = self.by_name.pop(name)
        process.kill()
        process.wait()

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text(encoding="utf-8")

    def end(self) -> None:
        for process in self.by_name.values():
            process.terminate()
        for process in self.by_name.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
