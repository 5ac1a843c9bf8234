"""What a sequential object has to say for the search: its state, and what an operation does to it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Protocol

from ..operation import Operation


class Impossible(Enum):
    """The type of :data:`IMPOSSIBLE`."""

    IMPOSSIBLE = "impossible"


IMPOSSIBLE = Impossible.IMPOSSIBLE
"""In this state the object cannot have given that answer. (Not None: a register may well hold null.)"""


class Model(Protocol):
    """A deterministic object at one key. Pure: a state never changes, a step gives another one.

    Operations come frozen (``values.freeze``); those whose answer is not known (INFO, DONE) are
    stepped without comparing it.
    """

    @property
    def name(self) -> str: ...

    @property
    def operations(self) -> frozenset[str]:
        """The names (``Operation.op``) that it knows."""
        ...

    @property
    def initial(self) -> Hashable: ...

    def step(self, state: Hashable, operation: Operation) -> Hashable:
        """The state after ``operation``, or :data:`IMPOSSIBLE`."""
        ...

    def observes(self, operation: Operation) -> bool:
        """Whether it leaves **every** state in which it is possible as it was: a read, a cas that did not
        hold. The search places such an operation as soon as it fits and never elsewhere."""
        ...

    def complaint(self, operation: Operation) -> str:
        """Why an operation, not frozen, is none of this object; empty when it is one."""
        ...

    def narrowed(self, operations: Sequence[Operation]) -> tuple[Model, Sequence[Operation]]:
        """The same question, smaller: a model and operations, one for each of ``operations`` (frozen, of one
        key, all of them), that have the same orders as answers. What nobody can tell apart is made one, and
        what leads nowhere is seen sooner. May be model and operations as they are."""
        ...

    def shown(self, state: Hashable) -> object:
        """The state as a JSON value, for explanations."""
        ...

    def remarks(self, operations: Sequence[Operation]) -> list[str]:
        """What is wrong with the operations of one key (not frozen), in words, as far as it can be seen without
        a search. Each remark is a proof that the history is illegal."""
        ...
