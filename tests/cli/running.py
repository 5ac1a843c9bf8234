"""Running the command, in this process and in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from fencepost.cli.main import fencepost

SOURCES = Path(__file__).resolve().parents[2] / "src"
PROGRAM = [sys.executable, "-c", "from fencepost.cli.main import main; main()"]


def run(*arguments: str, input: str | bytes | None = None, **environment: str) -> Result:
    """The command in this process, with stdout a pipe."""
    clean = {name: None for name in os.environ if name.startswith("FENCEPOST_")}
    return CliRunner().invoke(fencepost, list(arguments), input=input, env={**clean, **environment})


def run_json(*arguments: str, **keywords: Any) -> tuple[int, Any]:
    """The exit code and the JSON document on stdout."""
    result = run(*arguments, "-o", "json", **keywords)
    return result.exit_code, json.loads(result.stdout) if result.stdout else None


def error_of(result: Result) -> dict[str, Any]:
    """The JSON error on stderr of a command run with -o json."""
    documents = [json.loads(line) for line in result.stderr.splitlines()]
    found: dict[str, Any] = next(document["error"] for document in documents if document["kind"] == "Error")
    return found


def environment(**more: str) -> dict[str, str]:
    """For a process of its own: finds the package, and nothing of the user's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    return {**kept, "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1", **more}


def start(*arguments: str, cwd: Path | None = None, **environment_more: str) -> subprocess.Popen[bytes]:
    """The command as a process, all streams pipes."""
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=cwd,
        env=environment(**environment_more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
