"""Reading TOML into frozen dataclasses: units, "did you mean", and every problem in one go.

A dataclass field made by :func:`setting` is the one place that knows a setting: its key in the file,
its kind (and with it the environment variable and the ``--set`` flag), its default and its help.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_DURATION_UNITS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_SIZE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


# -- kinds ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """One kind of value. ``parse`` takes what TOML gave and the folder of the file, and raises
    ValueError with a sentence that continues "key: "."""

    name: str
    parse: Callable[[Any, Path], Any]
    text: bool = True
    """Whether an override (environment, flag) is taken as a string rather than as a TOML value."""


def parse_duration(value: Any) -> int:
    """A duration with its unit, such as ``"150ms"``, in nanoseconds. Raises ValueError."""
    return _with_unit(value, _DURATION_UNITS, "a duration", '"150ms", "2s"')


def parse_size(value: Any) -> int:
    """A size with its unit, such as ``"64MiB"``, in bytes. Raises ValueError."""
    return _with_unit(value, _SIZE_UNITS, "a size", '"64MiB", "16KiB"')


def _with_unit(value: Any, units: Mapping[str, int], what: str, examples: str) -> int:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"{value} has no unit; write {what} such as {examples}")
    found = _NUMBER_AND_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{show(value)} is not {what} such as {examples}")
    number, unit = found.groups()
    if unit not in units:
        raise ValueError(f"unknown unit {unit!r}; the units are {', '.join(units)}")
    return round(float(number) * units[unit]) if "." in number else int(number) * units[unit]


def format_duration(ns: int) -> str:
    """The shortest exact form that :func:`parse_duration` reads back."""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        if ns and ns % _DURATION_UNITS[unit] == 0:
            return f"{ns // _DURATION_UNITS[unit]}{unit}"
    return f"{ns}ns"


def format_size(size: int) -> str:
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return f"{size}B"


def parse_address(value: Any) -> str:
    """``host:port``, with brackets around an IPv6 host. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f'{show(value)} is not an address such as "127.0.0.1:7001"')
    host, colon, port = value.rpartition(":")
    if not colon or not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise ValueError(f'{show(value)} is not an address such as "127.0.0.1:7001" or "[::1]:7001"')
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError(f"port {port!r} of {show(value)} is not a number from 1 to 65535")
    return value


def parse_name(value: Any) -> str:
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise ValueError(f"{show(value)} is not a name: letters, digits, '_', '.', '-', at most 64 of them")
    return value


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{show(value)} is not a text")
    return value


def _parse_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{show(value)} is not true or false")
    return value


def _parse_path(value: Any, folder: Path) -> Path:
    return folder / Path(_parse_text(value)).expanduser()


def _parse_sql(value: Any, folder: Path) -> str:
    """SQL text, or ``@file`` relative to the configuration file."""
    text = _parse_text(value)
    if not text.startswith("@"):
        return text
    path = folder / text[1:]
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _duration_value(value: Any, _folder: Path) -> int:
    found = parse_duration(value)
    if found == 0:
        raise ValueError("must be longer than 0")
    return found


def count(low: int, high: int) -> Kind:
    """A whole number from ``low`` to ``high``."""

    def parse(value: Any, _folder: Path) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{show(value)} is not a whole number")
        if not low <= value <= high:
            raise ValueError(f"{value} is not from {low} to {high}")
        return value

    return Kind("whole number", parse, text=False)


def size(low: int, high: int) -> Kind:
    """A size in bytes from ``low`` to ``high``."""

    def parse(value: Any, _folder: Path) -> int:
        found = parse_size(value)
        if not low <= found <= high:
            raise ValueError(f"{show(value)} is not from {format_size(low)} to {format_size(high)}")
        return found

    return Kind("size", parse)


def choice(*values: str) -> Kind:
    def parse(value: Any, _folder: Path) -> str:
        if value not in values:
            raise ValueError(f"{show(value)} is not one of {', '.join(values)}{did_you_mean(str(value), values)}")
        return str(value)

    return Kind("one of " + ", ".join(values), parse)


TEXT = Kind("text", lambda value, _folder: _parse_text(value))
NAME = Kind("name", lambda value, _folder: parse_name(value))
ADDRESS = Kind("host:port", lambda value, _folder: parse_address(value))
DURATION = Kind("duration", _duration_value)
PAUSE = Kind("duration", lambda value, _folder: parse_duration(value))
BOOL = Kind("true or false", lambda value, _folder: _parse_bool(value), text=False)
PATH = Kind("path", _parse_path)
SQL = Kind("SQL text or @file", _parse_sql)


# -- fields -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What a dataclass field knows about itself."""

    key: str
    kind: Kind
    help: str
    required: bool
    default: Any


def setting(key: str, kind: Kind, help: str, **default: Any) -> Any:
    """A dataclass field that is a setting. ``default=`` is the value as code sees it; without one
    the setting is required. Returns Any, as ``dataclasses.field`` does for type checkers."""
    required = "default" not in default
    described = Setting(key, kind, help, required, default.get("default"))
    if required:
        return dataclasses.field(metadata={"setting": described})
    return dataclasses.field(default=default["default"], metadata={"setting": described})


def settings_of(section: type) -> dict[str, tuple[str, Setting]]:
    """By key in the file: the dataclass field's name and its setting."""
    found: dict[str, tuple[str, Setting]] = {}
    for field in dataclasses.fields(section):
        described = field.metadata.get("setting")
        if described is not None:
            found[described.key] = (field.name, described)
    return found


# -- problems ---------------------------------------------------------------------------------------


def show(value: Any) -> str:
    """A value as the reader typed it, short."""
    text = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True)
class Problem:
    where: str
    """File and line, or the name of the flag or environment variable."""
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: {self.text}" if self.key else f"{self.where}: {self.text}"


class Document:
    """A TOML file under reading: its tables, where its keys stand, and what is wrong with it."""

    def __init__(self, name: str, text: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.problems: list[Problem] = []
        self._lines = _lines_of_keys(text)
        self.root: dict[str, Any] = {}
        try:
            self.root = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            self.problems.append(Problem(name, "", f"not TOML: {error}"))

    def where(self, path: Sequence[str]) -> str:
        for end in range(len(path), 0, -1):
            line = self._lines.get(tuple(path[:end]))
            if line is not None:
                return f"{self.name}:{line}"
        return self.name

    def problem(self, path: Sequence[str], text: str, where: str = "") -> None:
        self.problems.append(Problem(where or self.where(path), ".".join(path), text))

    def table(self, parent: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
        """The table at ``path``, whose last part is a key of ``parent``; empty when missing."""
        value = parent.get(path[-1], {})
        if isinstance(value, dict):
            return value
        self.problem(path, f"must be a table: [{'.'.join(path)}]")
        return {}

    def unknown_keys(self, table: Mapping[str, Any], known: Iterable[str], path: Sequence[str]) -> None:
        known = list(known)
        for key in table:
            if key not in known:
                what = "unknown section" if not path and isinstance(table[key], dict) else "unknown key"
                self.problem([*path, key], what + did_you_mean(key, known))

    def section(
        self,
        section: type[T],
        table: Mapping[str, Any],
        path: Sequence[str],
        *,
        overrides: Mapping[str, tuple[str, str]] | None = None,
        also: Iterable[str] = (),
        **given: Any,
    ) -> T | None:
        """``table`` as a ``section``, or None when something it needs is missing or wrong.

        ``overrides`` are raw strings by key, each with the name of the flag or variable it came
        from. ``also`` are keys that the caller reads. ``given`` are fields that no key fills.
        """
        settings = settings_of(section)
        self.unknown_keys(table, [*settings, *also], path)
        values = dict(given)
        before = len(self.problems)
        for key, (field, described) in settings.items():
            where = ""
            if overrides is not None and key in overrides:
                where, raw = overrides[key]
                value: Any = raw if described.kind.text else _toml_value(raw)
                folder = Path()
            elif key in table:
                value, folder = table[key], self.folder
            else:
                if described.required:
                    self.problem([*path, key], f"missing: {described.help}")
                continue
            try:
                values[field] = described.kind.parse(value, folder)
            except ValueError as error:
                self.problem([*path, key], str(error), where)
        return section(**values) if len(self.problems) == before or _complete(section, values) else None


def _complete(section: type, values: Mapping[str, Any]) -> bool:
    return all(name in values for name, described in settings_of(section).values() if described.required)


def _toml_value(raw: str) -> Any:
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw


_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_KEY = re.compile(r"\s*([A-Za-z0-9_\"'.-]+)\s*=")


def _lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """Where each table and key stands: good enough for messages (a key inside a multi-line string
    may be mistaken for one, which only ever points at a wrong line)."""
    found: dict[tuple[str, ...], int] = {}
    section: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.fullmatch(line)
        if header is not None:
            section = _parts(header.group(1))
            found.setdefault(section, number)
            continue
        key = _KEY.match(line)
        if key is not None:
            found.setdefault((*section, *_parts(key.group(1))), number)
    return found


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
