"""Faults planted in running code: one line of a function is replaced, in place, while a block runs."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any


class NotPlanted(AssertionError):
    """The line is not exactly one place of the function: whoever names it has not kept up with the code."""


@contextmanager
def planted(function: Callable[..., Any], line: str, fault: str) -> Iterator[None]:
    """Replace ``line`` of ``function`` by ``fault`` while the block runs.

    The code object is exchanged, not the name: who imported the function by name gets the fault too.
    Of a property name its ``fget``, of a class method its ``__func__``. Raises :class:`NotPlanted`.
    """
    if not isinstance(function, FunctionType):
        raise NotPlanted(f"{function!r} is no function")
    made = _made(function, line, fault)
    original: CodeType = function.__code__
    function.__code__ = made.__code__
    try:
        yield
    finally:
        function.__code__ = original


def _made(function: FunctionType, line: str, fault: str) -> FunctionType:
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(line) != 1:
        raise NotPlanted(f"{function.__qualname__} has {source.count(line)} times {line!r}")
    text = "from __future__ import annotations\n" + source.replace(line, fault)
    scope = dict(vars(sys.modules[function.__module__]))
    exec(compile(text, f"planted in {function.__name__}", "exec"), scope)  # Its own source with one line changed.
    made = scope[function.__name__]
    made = getattr(made, "fget", None) or getattr(made, "__func__", None) or made
    # A context manager or a cached function stands in front of the one that was written.
    made = inspect.unwrap(made)
    if not isinstance(made, FunctionType):
        raise NotPlanted(f"{function.__qualname__} is decorated in a way that hides its code")
    return made
