"""What to type next when a majority is missing: which nodes are down, and how to start one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..raft.core.errors import FencepostError

_DOWN = ("connection refused", "no answer")


def advise(error: FencepostError, endpoints: Sequence[str], folders: Iterable[Path]) -> None:
    """Put the missing majority into ``error.next_step``, if that is what its lines say.

    ``folders`` are where the configuration files of the nodes may lie; the one of a node that is
    down is named. Nothing changes when enough nodes answer: then the cause is another.
    """
    said = dict(line.split("  ", 1) for line in error.tried if "  " in line)
    down = [address for address in endpoints if said.get(address, "").startswith(_DOWN)]
    need = len(endpoints) // 2 + 1
    if not down or len(endpoints) - len(down) >= need:
        return
    file = next(iter(_files_of(down, folders)), None)
    some = f"{len(down)} of {len(endpoints)} endpoints do not answer"
    majority = f" and a majority needs {need}" if len(endpoints) > 1 else ""
    error.next_step = f"{some}{majority}. Start one:  fencepost node start --config {file or 'FILE'}"


def _files_of(addresses: Sequence[str], folders: Iterable[Path]) -> Iterable[Path]:
    """Configuration files of nodes whose client address is one of these."""
    for folder in folders:
        for path in sorted(folder.glob("*.toml")):
            try:
                node = tomllib.loads(path.read_text(encoding="utf-8")).get("node")
            except (OSError, ValueError):
                continue
            if isinstance(node, dict) and node.get("client") in addresses:
                yield path
