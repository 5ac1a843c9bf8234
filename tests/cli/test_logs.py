"""The log of a running node."""

from __future__ import annotations

import json
import subprocess
import sys

from .running import environment

PROGRAM = """
import io, json, sys
real, writes = sys.stdout, []

class Recorder(io.StringIO):
    def isatty(self):
        return sys.argv[1:] == ["terminal"]

    def write(self, text):
        writes.append(text)
        return len(text)

sys.stderr = Recorder()
from fencepost.cli.logs import configure_logging
configure_logging("info", colored=False)
import structlog
structlog.get_logger().info("one", key="value", nothing="")
structlog.get_logger().info("two")
real.write(json.dumps(writes))
"""


def written(*arguments: str) -> list[str]:
    """What each write to stderr held."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: list[str] = json.loads(process.stdout)
    return found


def test_a_line_leaves_in_one_write() -> None:
    """Several nodes may share a terminal or a file: a line and its end must not be told apart."""
    for writes in (written(), written("terminal")):
        assert [(text.count("\n"), text[-1]) for text in writes] == [(1, "\n"), (1, "\n")]


def test_empty_fields_are_for_programs() -> None:
    assert json.loads(written()[0])["nothing"] == ""
    line = written("terminal")[0]
    assert "key=value" in line
    assert "nothing" not in line
