"""docs/reference.md, made from what the program itself knows: commands, settings, codes, limits, names.

    python -m tests.house.reference        writes it; `make fix` does

`test_reference.py` says that the page in the repository is the one that would be made now.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from importlib import import_module
from types import ModuleType
from typing import Any

import click

import fencepost
from fencepost import testing
from fencepost.cli import client_settings, config, config_file
from fencepost.cli.app import FencepostCommand, _remember
from fencepost.cli.explanations import EXPLANATIONS, describe
from fencepost.cli.main import fencepost as root
from fencepost.cli.proxy.settings import ProxySettings
from fencepost.cli.settings import Setting, format_duration, format_size, settings_of

from . import facts
from .tree import ROOT

PAGE = ROOT / "docs" / "reference.md"


def page() -> str:
    """The whole page."""
    parts = [facts.HEAD, *_commands(), *_configuration(), *_client(), *_exit_codes(), *_errors(), *_json(), *_limits()]
    return "\n".join([*parts, *_names()]).rstrip() + "\n"


# -- markdown ----------------------------------------------------------------------------------------


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    titles = list(titles)
    yield "| " + " | ".join(titles) + " |"
    yield "|" + "--|" * len(titles)
    for row in rows:
        yield "| " + " | ".join(_cell(cell) for cell in row) + " |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


# -- commands ----------------------------------------------------------------------------------------


def commands(group: click.Group, path: str = "fencepost") -> Iterator[tuple[str, click.Command]]:
    """Every command that is no group, with the words to type, in the order of the help."""
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _commands() -> Iterator[str]:
    yield "## Commands\n"
    yield "Global options may stand anywhere on the line, and every command takes them:\n"
    yield from _table(("option", "means"), map(_record, filter(_is_shared, root.params)))
    for path, command in commands(root):
        assert isinstance(command, FencepostCommand), path
        yield f"### {path}\n"
        yield "```text"
        yield from command.examples
        yield "```\n"
        yield _paragraphs(command.help or "")
        arguments = [each for each in command.params if isinstance(each, click.Argument)]
        if arguments:
            words = [each.metavar or str(each.name).upper() for each in arguments]
            yield f"Arguments: {' '.join(map(_code, words))}.\n"
        own = [each for each in command.params if isinstance(each, click.Option) and not _is_shared(each)]
        if own:
            yield from _table(("option", "means"), map(_record, own))


def _is_shared(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.callback is _remember


def _record(parameter: click.Parameter) -> tuple[str, str]:
    """An option in our own words: how click words it differs from version to version."""
    assert isinstance(parameter, click.Option)
    value = ""
    if isinstance(parameter.type, click.Choice):
        value = "|".join(map(str, parameter.type.choices))
    elif not parameter.is_flag:
        value = parameter.metavar or ("N" if isinstance(parameter.type, click.IntRange) else "TEXT")
    text = [parameter.help or ""]
    if isinstance(parameter.type, click.IntRange) and parameter.type.max is not None:
        text.append(f"From {parameter.type.min:,} to {parameter.type.max:,}.")
    if parameter.required:
        text.append("Required.")
    elif parameter.show_default:
        text.append(f"Default: {parameter.default}.")
    return _code(f"{', '.join(parameter.opts)} {value}".strip()), " ".join(text)


def _paragraphs(text: str) -> str:
    parts = inspect.cleandoc(text).replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts) + "\n"


# -- settings ----------------------------------------------------------------------------------------

_KINDS: dict[str, tuple[type, type]] = {
    "sqlite": (config.SqliteResourceConfiguration, config.SqliteEffectConfiguration),
    "postgres": (config.PostgresResourceConfiguration, config.PostgresEffectConfiguration),
    "redis": (config.RedisResourceConfiguration, config.RedisEffectConfiguration),
    "s3": (config.S3ResourceConfiguration, config.S3EffectConfiguration),
    "http": (config.HttpResourceConfiguration, config.HttpEffectConfiguration),
    "file": (config.FileResourceConfiguration, config.FileEffectConfiguration),
    "python": (config.PythonResourceConfiguration, config_file._PythonEffect),
}


def _configuration() -> Iterator[str]:
    yield "## Node configuration\n"
    yield facts.CONFIGURATION
    for name, section in config.SECTIONS.items():
        yield f"### [{name}]\n"
        yield from _settings(section)
    yield "### [peers]\n"
    yield facts.PEERS
    for kind, (resource, effect) in _KINDS.items():
        yield f'### [resources.NAME] with kind = "{kind}"\n'
        yield _paragraphs(resource.__doc__ or "")
        yield from _settings(resource)
        yield f"`[resources.NAME.effects.EFFECT]` of kind {kind}:\n"
        yield from _settings(effect)
    yield "### [proxy]\n"
    yield facts.PROXY
    yield from _settings(ProxySettings)


def _settings(section: type) -> Iterator[str]:
    rows = []
    for key, (_, described) in settings_of(section).items():
        rows.append((_code(key), described.kind.name, _default(described), described.help))
    yield from _table(("key", "kind", "default", "means"), rows)


def _default(described: Setting) -> str:
    if described.required:
        return "required"
    value = described.default
    if described.kind.name == "duration":
        return _code(format_duration(value)) if value else ""
    if described.kind.name == "size":
        return _code(format_size(value))
    if isinstance(value, bool):
        return _code(str(value).lower())
    if isinstance(value, tuple):
        return ", ".join(map(_code, value))
    return _code(str(value)) if value not in (None, "") else ""


def _client() -> Iterator[str]:
    yield "## Client settings\n"
    yield facts.CLIENT
    yield from _settings(client_settings.ClientSettings)


# -- errors ------------------------------------------------------------------------------------------


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    codes: dict[int, list[str]] = {}
    for code in EXPLANATIONS:
        codes.setdefault(describe(code)["exit_code"], []).append(code)
    assert set(codes) <= set(facts.EXIT_CODES), "an exit code that facts.EXIT_CODES does not know"
    rows = [
        (str(number), means, ", ".join(f"[{code}](#{code.lower()})" for code in codes.get(number, [])))
        for number, means in facts.EXIT_CODES.items()
    ]
    yield from _table(("exit code", "means", "error codes"), rows)


def _errors() -> Iterator[str]:
    yield "## Error codes\n"
    yield facts.OUTCOMES
    for code in EXPLANATIONS:
        known = describe(code)
        yield f"### {code}\n"
        yield f"*{known['title']}*: outcome {known['outcome']}, exit code {known['exit_code']}.\n"
        yield known["text"]
        yield f"\n[What to do](operations.md#{code.lower()})\n"


# -- json --------------------------------------------------------------------------------------------


def kinds() -> dict[str, set[str]]:
    """Every document kind that the source of `cli/` names, with the files that do."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for kind in _kinds_of(node):
                found.setdefault(kind, set()).add(path.relative_to(ROOT).as_posix())
    return found


def _kinds_of(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    candidates: list[ast.expr] = [word.value for word in node.keywords if word.arg == "kind"]
    if node.func.attr in ("show", "stream"):
        candidates += node.args[:1]
    for candidate in candidates:
        if isinstance(candidate, ast.Constant) and isinstance(candidate.value, str) and candidate.value[:1].isupper():
            yield candidate.value


def _json() -> Iterator[str]:
    yield "## JSON\n"
    yield facts.JSON
    yield from _table(("kind", "from", "holds"), ((_code(kind), *facts.KINDS[kind]) for kind in facts.KINDS))


# -- limits ------------------------------------------------------------------------------------------


def limit_text(place: str) -> str:
    """The value of `module:NAME` or `module:Class.field`, with its unit as the name says."""
    module_name, _, path = place.partition(":")
    found: Any = import_module(f"fencepost.{module_name}")
    owner, _, name = path.rpartition(".")
    if owner:
        found = getattr(found, owner)
        if isinstance(found, type) and issubclass(found, tuple):
            value = found._field_defaults[name]  # type: ignore[attr-defined]
        else:
            value = next(field.default for field in fields(found) if field.name == name)
            assert value is not MISSING, place
    else:
        name, value = path, getattr(found, path)
    lowered = name.lower()
    if "bytes" in lowered:
        return format_size(value) if value >= 1024 else f"{value} bytes"
    if lowered.endswith("_s"):
        return f"{value:g} s"
    return f"{value:,}"


def _limits() -> Iterator[str]:
    yield "## Limits\n"
    yield "Fixed in this version, unless a key is named.\n"
    for title, rows in facts.LIMITS.items():
        yield f"**{title}**\n"
        yield from _table(
            ("limit", "of what, and what happens beyond it"), ((limit_text(at), what) for at, what in rows)
        )


# -- python ------------------------------------------------------------------------------------------


def _names() -> Iterator[str]:
    yield "## Python names\n"
    yield "All that `fencepost` exports; everything else may change. [From Python](python.md) shows them in use.\n"
    yield from _table(("name", "is"), _documented(fencepost))
    yield "And what `fencepost.testing` exports, for [proving a guarantee](testing.md):\n"
    yield from _table(("name", "is"), _documented(testing))


def _documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name in module.__all__:
        if name.startswith("_"):
            continue
        text = inspect.cleandoc(getattr(module, name).__doc__ or "").split("\n\n")[0]
        yield _code(name), text.replace("``", "`").replace(":class:", "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
