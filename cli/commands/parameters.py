"""Option types with units, the same as in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..settings import Kind

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic only in newer versions of click


class SettingType(_ParamType):
    """A click type from a kind of setting: durations become nanoseconds, sizes bytes."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.name = kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.kind.parse(value, Path())
        except ValueError as error:
            self.fail(str(error), param, ctx)
