"""The public names: all there, documented, and loaded only when used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fencepost


@pytest.mark.parametrize("name", [name for name in fencepost.__all__ if name != "__version__"])
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(fencepost, name)
    assert value.__name__ == name
    assert value.__doc__, f"{name} says nothing about itself"


def test_the_names_seen_by_type_checkers_are_the_names_given_out() -> None:
    tree = ast.parse(Path(fencepost.__file__).read_text(encoding="utf-8"))
    guarded = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in guarded for node in block.body if isinstance(node, ast.ImportFrom)]
    assert set(fencepost.__all__) - {"__version__"} == {alias.name for node in imports for alias in node.names}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Leader'"):
        fencepost.Leader  # noqa: B018 - the access is what is tested


def test_importing_the_package_brings_in_nothing_else() -> None:
    program = (
        "import sys; before = set(sys.modules); import fencepost;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    foreign = set(output.split()) & {"click", "rich", "uvloop", "msgspec", "msgpack", "asyncio", "structlog"}
    assert not foreign
