"""The conformance suite's world in a folder of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fencepost.raft.effects.resources import file_audit
from fencepost.raft.effects.resources.file import FileEffect, FileResource
from fencepost.raft.effects.resources.ledger import Ledger


class FileSubject:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A folder stands where the file of a negative number would go: after the line was appended.
        for name in ("ledger", "mail"):
            (folder / f"seen-{name}" / "-1").mkdir(parents=True)

    def node(
        self,
        name: str = "ledger",
        cluster_id: str = "cluster",
        effects: dict[str, list[list[str]]] | None = None,
        **options: Any,
    ) -> FileResource:
        credit = [["append", f"{name}.lines", "{operation_id}"], ["write", f"seen-{name}/{{cents}}"]]
        given = {"credit": credit} if effects is None else effects
        return FileResource(
            name,
            self.folder,
            {effect: FileEffect(steps) for effect, steps in given.items()},
            cluster_id=cluster_id,
            **options,
        )

    def world(self, name: str = "ledger") -> list[str]:
        path = self.folder / f"{name}.lines"
        return path.read_text().splitlines() if path.exists() else []

    def ledger(self) -> Ledger:
        parts = [file_audit.read_ledger(self.folder, name) for name in ("ledger", "mail")]
        return joined(parts)


def joined(parts: list[Ledger]) -> Ledger:
    return Ledger(
        [row for part in parts for row in part.fences],
        [row for part in parts for row in part.claims],
        [row for part in parts for row in part.operations],
        [row for part in parts for row in part.refusals],
    )
