"""What the client commands run with: flag, environment, context, file, default, in that order.

A client file is TOML: a ``[client]`` table, and ``[contexts.NAME]`` tables with the same keys.
``cluster init`` writes one; commands find ``fencepost.toml`` in the working folder, else
``fencepost/config.toml`` in the user's configuration folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..raft.core.errors import ConfigurationError
from .output import FORMATS
from .settings import (
    BOOL,
    DURATION,
    NAME,
    Document,
    Kind,
    choice,
    did_you_mean,
    parse_address,
    setting,
    settings_of,
    show,
)

DEFAULT_ENDPOINTS = ("127.0.0.1:7101", "127.0.0.1:7102", "127.0.0.1:7103")


def _parse_endpoints(value: Any, _folder: Path) -> tuple[str, ...]:
    """A list of addresses, or one text with commas between them."""
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)):
        raise ValueError(f"{show(value)} is not a list of addresses")
    found = tuple(parse_address(part.strip() if isinstance(part, str) else part) for part in listed)
    if not found:
        raise ValueError("no address")
    return tuple(dict.fromkeys(found))


ENDPOINTS = Kind("host:port,host:port,…", _parse_endpoints)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    endpoints: tuple[str, ...] = setting(
        "endpoints", ENDPOINTS, "client addresses of the nodes", default=DEFAULT_ENDPOINTS
    )
    cluster_id: str = setting("cluster_id", NAME, "refuse nodes of any other cluster", default="")
    timeout_ns: int | None = setting("timeout", DURATION, "how long a command may take", default=None)
    output: str = setting("output", choice(*FORMATS), "format of results", default="table")
    time: str = setting("time", choice("relative", "iso"), "how times are shown", default="relative")
    color: str = setting("color", choice("auto", "always", "never"), "colours", default="auto")
    quiet: bool = setting("quiet", BOOL, "no notices", default=False)
    verbose: bool = setting("verbose", BOOL, "more about errors", default=False)
    sources: Mapping[str, str]
    """Where each setting that is not a default came from, for messages."""

    def timeout_s(self, default: float) -> float:
        """Seconds."""
        return default if self.timeout_ns is None else self.timeout_ns / 1e9


def resolve(
    flags: Mapping[str, Any], environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> ClientSettings:
    """Put the settings together. ``flags`` by key, only those that were given.

    Raises :class:`ConfigurationError` naming every value that is wrong and where it came from.
    """
    environment = os.environ if environment is None else environment
    folder = Path() if folder is None else folder
    settings = settings_of(ClientSettings)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    problems: list[str] = []
    layers: list[tuple[str, Mapping[str, Any]]] = [
        ("flag --{key}", flags),
        (
            "environment FENCEPOST_{KEY}",
            {
                key: _plain(environment[f"FENCEPOST_{key.upper()}"], described.kind)
                for key, (_, described) in settings.items()
                if environment.get(f"FENCEPOST_{key.upper()}")
            },
        ),
    ]
    layers += _file_layers(str(flags.get("context") or environment.get("FENCEPOST_CONTEXT") or ""), folder, environment)
    for name, layer in layers:
        for key, (field, described) in settings.items():
            if key not in layer or key in sources:
                continue
            where = name.format(key=key, KEY=key.upper())
            sources[key] = where
            try:
                values[field] = described.kind.parse(layer[key], folder)
            except ValueError as error:
                problems.append(f"{where}: {key}: {error}")
    if problems:
        raise ConfigurationError("settings are wrong; nothing was sent", tried=problems)
    return ClientSettings(**values, sources=sources)


def _plain(raw: str, kind: Kind) -> Any:
    if kind is BOOL:
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(raw.lower(), raw)
    return raw


def _file_layers(context: str, folder: Path, environment: Mapping[str, str]) -> list[tuple[str, Mapping[str, Any]]]:
    """The context and the file, as layers. A context is a name in the file, or a file of its own."""
    layers: list[tuple[str, Mapping[str, Any]]] = []
    as_file = folder / context if context and ("/" in context or context.endswith(".toml")) else None
    if as_file is not None:
        _contexts, client = _read(as_file)
        layers.append((str(as_file), client))
    known: dict[str, Mapping[str, Any]] = {}
    for path in _default_files(folder, environment):
        if not path.is_file():
            continue
        contexts, client = _read(path)
        known = {name: table for name, table in contexts.items() if isinstance(table, dict)}
        if context and as_file is None and context in known:
            layers.append((f"context {context} of {path}", known[context]))
        layers.append((str(path), client))
        break
    if context and as_file is None and context not in known:
        raise ConfigurationError(
            f"no context {context!r}; nothing was sent{did_you_mean(context, known)}",
            tried=[f"contexts of the client file: {', '.join(known) or 'none'}"],
            next_step="give a name from a [contexts.NAME] table, or a file such as --context DIR/fencepost.toml",
        )
    return layers


def _default_files(folder: Path, environment: Mapping[str, str]) -> list[Path]:
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".config")
    return [folder / "fencepost.toml", Path(home) / "fencepost" / "config.toml"]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    document = Document(str(path), text, path.parent)
    document.unknown_keys(document.root, ["client", "contexts"], [])
    client = document.table(document.root, ["client"])
    contexts = document.table(document.root, ["contexts"])
    keys = settings_of(ClientSettings)
    document.unknown_keys(client, keys, ["client"])
    for name in contexts:
        document.unknown_keys(document.table(contexts, ["contexts", name]), keys, ["contexts", name])
    if document.problems:
        raise ConfigurationError(
            f"{path} has problems; nothing was sent", tried=[str(problem) for problem in document.problems]
        )
    return contexts, client
