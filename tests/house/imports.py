"""Who imports whom, read from the source: lazy imports and those for type checkers count as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    importer: str
    """The importing module, dotted, without `fencepost.`: `raft.core.step`."""
    imported: str
    """What it imports, dotted, as written or as a relative import resolves: `storage.disk`, `asyncio`."""
    line: int
    inside: bool
    """Whether `imported` is a module (or a name in a module) of the package."""


def module_name(path: Path, root: Path) -> str:
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def imports_of(source: str, module: str, *, is_package: bool) -> Iterator[Import]:
    """Every import in `source`, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, inside=alias.name.split(".")[0] == "fencepost")
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.level == 0:
                    name = node.module or ""
                    yield Import(module, name, node.lineno, inside=name.split(".")[0] == "fencepost")
                    continue
                base = module.split(".") if is_package else module.split(".")[:-1]
                if node.level > 1:
                    base = base[: len(base) - (node.level - 1)]
                target = [*base, *(node.module.split(".") if node.module else []), alias.name]
                yield Import(module, ".".join(target), node.lineno, inside=True)


# Directions inside the package. A module may always import from its own room.
ROOMS = (
    *("raft.core", "raft.outbox", "raft.node", "raft.effects", "raft.ports", "raft.measures"),
    *("storage", "transport", "cli", "jepsen"),
)
MAY_IMPORT: dict[str, frozenset[str]] = {
    "raft.core": frozenset(),
    "raft.ports": frozenset({"raft.core"}),
    "raft.measures": frozenset(),
    "raft.outbox": frozenset({"raft.core"}),
    "raft.node": frozenset({"raft.outbox", "raft.core", "raft.ports", "raft.measures"}),
    "raft.effects": frozenset({"raft.outbox", "raft.core", "raft.ports", "raft.measures"}),
    "storage": frozenset({"raft.core", "raft.ports"}),
    "transport": frozenset({"raft.core", "raft.ports", "raft.outbox"}),
    "cli": frozenset(ROOMS) - {"jepsen"},
    "jepsen": frozenset(ROOMS),
}
OF_THE_OUTBOX_TRANSPORT_KNOWS = "raft.outbox.codec"
COMMANDS_OF_THE_PROOF = {
    "cli.commands.jepsen": "jepsen.checkers",
    "cli.commands.jepsen_runs": "jepsen.proof",
    "cli.commands.debug": "jepsen.crashes",
}
"""A command that runs a part of the proof reaches up for that part, while it runs: that nothing of it is loaded
before is shown by `tests/cli/test_main.py`."""

# Libraries and modules of Python. Where a room is not named, anything but the last table is allowed.
ALWAYS = frozenset({"__future__"})
CORE_MAY_USE = frozenset({"dataclasses", "enum", "typing", "collections"})
OUTBOX_MAY_USE = CORE_MAY_USE | {
    *("google_crc32c", "hashlib", "json", "msgspec", "msgpack"),
    *("bisect", "functools", "heapq", "itertools", "math", "operator", "struct"),
}
ONLY_IN: dict[str, str] = {"click": "cli", "rich": "cli", "uvloop": "cli", "prometheus_client": "cli"}


def room_of(module: str) -> str | None:
    """The room of a dotted module; None for the front door and for `raft/__init__`."""
    return next((room for room in ROOMS if module == room or module.startswith(f"{room}.")), None)


def complaint(found: Import) -> str | None:
    """Why this import is not allowed; None when it is."""
    room = room_of(found.importer)
    if room is None:
        return None
    if found.inside:
        return _complaint_inside(found, room)
    library = found.imported.split(".")[0]
    if library in ALWAYS:
        return None
    if room == "raft.core" and library not in CORE_MAY_USE:
        return f"the core is pure and may use {', '.join(sorted(CORE_MAY_USE))}; not {found.imported}"
    if room == "raft.outbox" and library not in OUTBOX_MAY_USE:
        return f"the outbox is pure and may not use {found.imported}"
    if library in ONLY_IN and ONLY_IN[library] != room:
        return f"{library} belongs to {ONLY_IN[library]}"
    return None


def _complaint_inside(found: Import, room: str) -> str | None:
    if found.imported.split(".")[0] == "fencepost":
        return "imports inside the package are relative, and nobody inside uses the front door"
    target = room_of(found.imported)
    if target is None:
        return f"{found.imported} is the front door or no room of the house"
    if target == room:
        return None
    reached = COMMANDS_OF_THE_PROOF.get(found.importer)
    if reached is not None and found.imported.startswith(f"{reached}."):
        return None
    if target not in MAY_IMPORT[room]:
        return f"{room} may not import {target}"
    if room == "transport" and target == "raft.outbox" and not found.imported.startswith(OF_THE_OUTBOX_TRANSPORT_KNOWS):
        return f"of the outbox, transport knows {OF_THE_OUTBOX_TRANSPORT_KNOWS} only"
    return None
