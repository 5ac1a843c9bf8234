"""The log of a running node."""

from __future__ import annotations

import subprocess
import sys

from .running import environment

PROGRAM = """
import io, sys
real, writes = sys.stdout, []

class Recorder(io.StringIO):
    def write(self, text):
        writes.append(text)
        return len(text)

sys.stderr = Recorder()
from fencepost.cli.logs import configure_logging
configure_logging("info", colored=False)
import structlog
structlog.get_logger().info("one", key="value")
structlog.get_logger().info("two")
real.write("".join(f"{text.count(chr(10))}{text[-1:] == chr(10)}" for text in writes))
"""


def test_a_line_leaves_in_one_write() -> None:
    """Several nodes may share a terminal or a file: a line and its end must not be told apart."""
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment(), capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert said == "1True1True"
