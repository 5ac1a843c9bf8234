"""Faults planted in the running core: one line of a function is replaced, in place, for one test."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any


@contextmanager
def planted(function: Callable[..., Any], line: str, fault: str) -> Iterator[None]:
    """Replace ``line`` of ``function`` by ``fault`` while the block runs.

    The code object is exchanged, not the name: who imported the function by name gets the fault too.
    Raises AssertionError if ``line`` is not exactly one place of the function: the list is stale then.
    """
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(line) == 1, f"{function.__qualname__} has {source.count(line)} times {line!r}"
    code = compile(
        "from __future__ import annotations\n" + source.replace(line, fault), f"planted in {function.__name__}", "exec"
    )
    name = function.__name__
    scope = dict(vars(sys.modules[function.__module__]))
    exec(code, scope)  # The source is the core's own with one line changed.
    made = scope[name]
    assert isinstance(made, FunctionType)
    original: CodeType = function.__code__
    function.__code__ = made.__code__
    try:
        yield
    finally:
        function.__code__ = original
