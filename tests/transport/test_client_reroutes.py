"""What a change of leader costs a client: counted once for each, and no more than it waited."""

from __future__ import annotations

import asyncio

from fencepost.transport.client import Client
from fencepost.transport.client_reroutes import Reroutes

from .world import DEADLINE_S, FakeNode, Ledger, command, done, follow

S = 1_000_000_000


def test_the_time_is_that_between_the_answers_of_two_nodes() -> None:
    found = Reroutes()
    found.answered("n1", 0, 1 * S)
    found.answered("n1", 1 * S, 5 * S)
    assert (found.count, found.longest_s) == (0, 0.0), "whoever is slow is not another node"
    found.answered("n2", 4 * S, 7 * S)
    assert (found.count, found.last_s, found.longest_s) == (1, 2.0, 2.0)
    found.answered("n2", 7 * S, 20 * S)
    # Nobody asked for anything in between: only from the question on.
    found.answered("n1", 30 * S, 31 * S)
    assert (found.count, found.last_s, found.longest_s) == (2, 1.0, 2.0)


async def test_a_client_that_is_sent_to_another_node_counts_one() -> None:
    ledger = Ledger()
    async with (
        FakeNode("n1", ledger=ledger) as old,
        FakeNode("n2", ledger=ledger, script=follow) as new,
        Client([old.address, new.address], timeout_s=DEADLINE_S, sweep_s=0.1) as client,
    ):
        await client.submit(command("a"))
        await client.submit(command("b"))
        assert client.reroutes.count == 0
        old.script, new.script = follow, done
        old.hint = new.address
        loop = asyncio.get_running_loop()
        started = loop.time()
        await asyncio.gather(*(client.submit(command(f"c{number}")) for number in range(5)))
        assert client.reroutes.count == 1
        assert 0 < client.reroutes.longest_s <= loop.time() - started
