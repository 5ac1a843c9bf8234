"""Mappings that never move all of themselves at once.

A dict that outgrows its table copies it while it holds the interpreter: with a million entries that stops every
other thread, and with them the node's loop, for a tenth of a second, and with ten million for a whole one (S40).
Each of these is many dicts of which one at a time outgrows its own.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

from .operation import Operation

ID_PARTS = 128
"""A power of two. With ten million operations each part has eighty thousand."""
INDEX_BITS = 13
"""A part holds the operations of so many (as a power of two) indexes."""


class OperationsById(MutableMapping[str, Operation]):
    """By operation id. Which part an id is in is up to the process; the order is that of the log all the same."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: tuple[dict[str, Operation], ...] = tuple([{} for _ in range(ID_PARTS)])

    def __getitem__(self, operation_id: str) -> Operation:
        return self._parts[hash(operation_id) & (ID_PARTS - 1)][operation_id]

    def get(self, operation_id: str, default: Operation | None = None) -> Operation | None:  # type: ignore[override]
        return self._parts[hash(operation_id) & (ID_PARTS - 1)].get(operation_id, default)

    def __contains__(self, operation_id: object) -> bool:
        return operation_id in self._parts[hash(operation_id) & (ID_PARTS - 1)]

    def __setitem__(self, operation_id: str, operation: Operation) -> None:
        self._parts[hash(operation_id) & (ID_PARTS - 1)][operation_id] = operation

    def __delitem__(self, operation_id: str) -> None:
        del self._parts[hash(operation_id) & (ID_PARTS - 1)][operation_id]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[str]:
        """In log order, for which they are sorted: nothing that is called often does this."""
        items = [item for part in self._parts for item in part.items()]
        items.sort(key=_index_of_item)
        return iter([operation_id for operation_id, _ in items])

    def discard(self) -> None:
        """Empty it an operation at a time."""
        for part in self._parts:
            while part:
                part.popitem()


def _index_of_item(item: tuple[str, Operation]) -> int:
    return item[1].index


class OperationsByIndex(MutableMapping[int, Operation]):
    """By index in the log, in its order as long as they are put in in that order."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[int, dict[int, Operation]] = {}

    def __getitem__(self, index: int) -> Operation:
        part = self._parts.get(index >> INDEX_BITS)
        if part is None:
            raise KeyError(index)
        return part[index]

    def get(self, index: int, default: Operation | None = None) -> Operation | None:  # type: ignore[override]
        part = self._parts.get(index >> INDEX_BITS)
        return default if part is None else part.get(index, default)

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and self.get(index) is not None

    def __setitem__(self, index: int, operation: Operation) -> None:
        part = self._parts.get(index >> INDEX_BITS)
        if part is None:
            part = self._parts[index >> INDEX_BITS] = {}
        part[index] = operation

    def __delitem__(self, index: int) -> None:
        part = self._parts[index >> INDEX_BITS]
        del part[index]
        if not part:  # A dict keeps the room that it had: every part there ever was would stay.
            del self._parts[index >> INDEX_BITS]

    def first(self) -> int:
        """The index that was put in before all others that are there; 0 if there is none."""
        for part in self._parts.values():
            return next(iter(part))
        return 0

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def __iter__(self) -> Iterator[int]:
        return iter([index for part in self._parts.values() for index in part])

    def discard(self) -> None:
        """Empty it a part at a time."""
        while self._parts:
            self._parts.popitem()
