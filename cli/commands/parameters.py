"""Option types with units, the same as in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..settings import Kind


class SettingType(click.ParamType[Any]):
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
