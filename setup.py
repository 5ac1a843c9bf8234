"""Everything about the build is in pyproject.toml; this file only refuses a checkout that cannot be built.

Where git could not make symbolic links, each link in src/fencepost is a small text file. setuptools
would not mind: it would find no packages behind them and build a wheel with nothing in it.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import setup

if Path(__file__).resolve().parent.joinpath("src", "fencepost", "raft").is_file():
    raise SystemExit(
        "this checkout has no symbolic links (src/fencepost/raft is a text file): "
        "run `git config core.symlinks true` and `git checkout -- src`, or install the published wheel"
    )

setup()
