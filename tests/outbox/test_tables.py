"""The tables of operations are what dicts are, in parts of which none is large."""

from __future__ import annotations

import random

import pytest

from fencepost.raft.outbox.operation import Operation
from fencepost.raft.outbox.tables import ID_PARTS, INDEX_BITS, OperationsById, OperationsByIndex

MANY = 30_000


def operation(index: int) -> Operation:
    return Operation(f"op{index}", "ledger", "credit", "", b"", b"", index, 1, 0)


@pytest.mark.parametrize("seed", range(5))
def test_they_are_what_a_dict_is(seed: int) -> None:
    chance = random.Random(seed)
    by_id, ids = OperationsById(), dict[str, Operation]()
    by_index, indexes = OperationsByIndex(), dict[int, Operation]()
    for index in range(1, 400):
        index *= 1 << (INDEX_BITS - 6)
        each = operation(index)
        by_id[each.operation_id] = ids[each.operation_id] = each
        by_index[index] = indexes[index] = each
        if chance.random() < 0.3:
            gone = chance.choice(list(ids))
            del by_index[ids[gone].index], indexes[ids[gone].index]
            del by_id[gone], ids[gone]
        asked = chance.randint(1, index)
        assert by_index.get(asked) is indexes.get(asked)
        assert (asked in by_index) is (asked in indexes)
        assert by_id.get(f"op{asked}") is ids.get(f"op{asked}")
        assert (f"op{asked}" in by_id) is (f"op{asked}" in ids)
        assert (len(by_id), len(by_index)) == (len(ids), len(indexes))
    assert list(by_id.items()) == list(ids.items())
    assert list(by_index.items()) == list(indexes.items())
    assert by_id == ids
    assert by_index == indexes
    for missing in (0, 1, 1 << 60):
        with pytest.raises(KeyError):
            by_index[missing]
    with pytest.raises(KeyError):
        by_id["none"]
    by_id.discard()
    by_index.discard()
    assert not by_id
    assert not by_index


def test_no_part_of_them_is_large() -> None:
    """To outgrow its table a dict copies all of itself, and stops the node's loop for as long as that takes."""
    by_id, by_index = OperationsById(), OperationsByIndex()
    for index in range(1, MANY):
        each = operation(index)
        by_id[each.operation_id] = by_index[index] = each
    assert max(map(len, by_id._parts)) < 2 * MANY / ID_PARTS
    assert max(map(len, by_index._parts.values())) <= 1 << INDEX_BITS


def test_a_part_that_is_empty_is_gone() -> None:
    """An emptied dict keeps its room: over years of forgetting all that there ever was would stay."""
    by_index = OperationsByIndex()
    kept = operation(5 << INDEX_BITS)
    by_index[kept.index] = kept
    for index in range(1, 10 << INDEX_BITS, 100):
        by_index[index] = operation(index)
        if index > 1000:
            del by_index[index - 1000]
    assert len(by_index._parts) <= 2 + 1, "what is remembered, and one that nobody forgets"
    assert by_index[kept.index] is kept
