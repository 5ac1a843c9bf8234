"""Embedded nodes that come and go while clients propose under ids: each is applied once, and every answer is true."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from fencepost import Applied, FencepostError
from tests.waiting import eventually_async

from .support import Add, Embedded

THREE = ("n1", "n2", "n3")


@pytest.mark.endure
@pytest.mark.parametrize("seed", range(6))
async def test_each_id_is_applied_once_whoever_goes(tmp_path: Path, seed: int) -> None:
    """The seed decides who goes when; what the operating system makes of it is its own affair."""
    chance = random.Random(seed)
    answers: dict[str, set[tuple[int, int]]] = {}
    async with Embedded(tmp_path, *THREE, snapshot_entries=200, retained_entries=20) as cluster:
        await cluster.leader()
        stop = asyncio.Event()

        async def client(number: int) -> None:
            mine = random.Random(f"{seed}-{number}")
            count = 0
            while not stop.is_set():
                count += 1
                id = f"{number}-{count}"
                # Until it is answered, and sometimes once more.
                for again in range(mine.randint(1, 2)):
                    answer: Applied[int] | None = None
                    while answer is None:
                        node = cluster.nodes[mine.choice(list(cluster.nodes))]
                        try:
                            answer = await node.propose(Add("a", 1), id=id, timeout=mine.choice([0.2, 2.0, 10.0]))
                        except FencepostError:
                            await asyncio.sleep(0)
                    answers.setdefault(id, set()).add((answer.index, answer.result))
                    assert answer.replayed or not again

        async def more(number: int) -> None:
            wanted = len(answers) + number

            async def look() -> bool:
                for task in clients:
                    if task.done():
                        task.result()
                return len(answers) >= wanted

            await eventually_async(look, within_s=60, what=f"{number} more answers")

        clients = [asyncio.create_task(client(number)) for number in range(6)]
        for _ in range(6):
            going = chance.choice([await cluster.leader(), chance.choice(THREE)])
            await cluster.stop(going, hand_over=chance.random() < 0.5)
            await more(20)
            await cluster.start(going)
            await more(20)
        stop.set()
        await asyncio.gather(*clients)
        assert all(len(each) == 1 for each in answers.values()), "an id was answered in two ways"
        # A sum that went up by one for each: no result was given twice, and none is missing.
        results = Counter(result for each in answers.values() for _, result in each)
        assert sorted(results) == list(range(1, len(answers) + 1))
        for name in THREE:
            value = partial(cluster.machines[name].values.get, "a")
            assert await cluster.nodes[name].read(value) == len(answers)
