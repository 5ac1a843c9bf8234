"""Questions to nodes, and many submissions through a window."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fencepost.raft.core.errors import (
    CommandInvalid,
    ConfigurationError,
    FencepostError,
    NoEndpoint,
    NoLeader,
    OutcomeUnknown,
)
from fencepost.raft.outbox.codec import Command
from fencepost.raft.ports import Answer, AnswerStatus
from fencepost.transport.client import Client

from .peer_world import until
from .world import DEADLINE_S, Changes, FakeNode, Proxy, answering, command, done, silent, unused_address


def client_of(*addresses: str, timeout_s: float = DEADLINE_S) -> Client:
    return Client(addresses, timeout_s=timeout_s, sweep_s=0.05)


# -- calls ----------------------------------------------------------------------------------------


async def test_a_call_brings_the_body() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        body = await client.call("command.get", {"id": "a", "limit": 3})
        assert body == {"method": "command.get", "parameters": {"id": "a", "limit": 3}, "node_id": "n1"}


async def test_a_call_brings_the_error_of_the_node() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        with pytest.raises(FencepostError, match="failed on purpose") as caught:
            await client.call("fail", {})
        assert caught.value.next_step == "nothing"


async def test_calls_side_by_side_do_not_mix() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        bodies = await asyncio.gather(*(client.call("m", {"n": n}) for n in range(50)))
        assert [body["parameters"]["n"] for body in bodies] == list(range(50))


async def test_a_call_goes_to_the_first_that_answers() -> None:
    dead = await unused_address()
    async with FakeNode() as node, client_of(dead, node.address) as client:
        assert (await client.call("m", {}))["node_id"] == "n1"


async def test_a_call_to_one_endpoint_goes_there_or_nowhere() -> None:
    dead = await unused_address()
    async with FakeNode("n1") as one, FakeNode("n2") as two, client_of(one.address, two.address, dead) as client:
        assert (await client.call("m", {}, endpoint=two.address))["node_id"] == "n2"
        with pytest.raises(NoEndpoint, match="connection refused"):
            await client.call("m", {}, endpoint=dead)
        assert one.calls == []
        with pytest.raises(ConfigurationError):
            await client.call("m", {}, endpoint="nonsense")


async def test_nobody_there_is_said_at_once() -> None:
    addresses = [await unused_address() for _ in range(2)]
    async with client_of(*addresses) as client:
        with pytest.raises(NoEndpoint) as caught:
            await client.call("status", {})
        assert list(caught.value.tried) == [f"{address}  connection refused" for address in addresses]


async def test_a_lost_call_is_asked_again_elsewhere() -> None:
    async with (
        FakeNode("n1") as one,
        FakeNode("n2") as two,
        Proxy(one.address) as proxy,
        client_of(proxy.address, two.address) as client,
    ):
        await client.call("m", {})
        proxy.reset_on_reply = True
        assert (await client.call("m", {"again": True}))["node_id"] == "n2"
        assert ("m", {"again": True}) in one.calls


async def test_a_lost_call_that_changes_something_is_unknown() -> None:
    async with (
        FakeNode("n1") as one,
        FakeNode("n2") as two,
        Proxy(one.address) as proxy,
        client_of(proxy.address, two.address) as client,
    ):
        await client.call("m", {})
        proxy.reset_on_reply = True
        with pytest.raises(OutcomeUnknown, match="may have been carried out"):
            await client.call("transfer", {}, idempotent=False)
        assert two.calls == []


@pytest.mark.parametrize(("idempotent", "error"), [(True, NoEndpoint), (False, OutcomeUnknown)])
async def test_a_call_that_is_not_answered_ends(idempotent: bool, error: type[Exception]) -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        node.answer_calls = False
        with pytest.raises(error, match=r"within 0\.2 s"):
            await client.call("m", {}, timeout_s=0.2, idempotent=idempotent)


async def test_a_call_to_a_stopped_node_ends_by_silence() -> None:
    async with FakeNode() as node, Proxy(node.address) as proxy, client_of(proxy.address) as client:
        await client.call("m", {})
        proxy.frozen = True
        with pytest.raises(NoEndpoint):
            await client.call("m", {}, endpoint=proxy.address)


async def test_a_handshake_that_is_given_up_leaves_no_socket() -> None:
    async with Proxy("127.0.0.1:1") as proxy:
        proxy.hold = True
        async with Client([proxy.address], connect_timeout_s=0.05) as client:
            with pytest.raises(NoEndpoint, match="no answer in time"):
                await client.call("m", {}, endpoint=proxy.address)
            await until(lambda: proxy.connections and not proxy.sides, "the socket is closed")


async def test_the_leader_is_found_by_what_nodes_say() -> None:
    async with FakeNode("n1") as follower, FakeNode("n2") as leader:
        follower.hint = leader.address
        leader.role = "leader"
        async with client_of(follower.address) as client:
            assert (await client.call("m", {}, leader=True))["node_id"] == "n2"


async def test_no_leader_to_call_is_no_leader() -> None:
    async with FakeNode("n1") as one, FakeNode("n2") as two:
        one.hint = two.address  # Which does not lead any more.
        async with client_of(one.address, two.address, timeout_s=0.4) as client:
            with pytest.raises(NoLeader):
                await client.call("m", {}, leader=True)
    async with client_of(await unused_address()) as client:
        with pytest.raises(NoEndpoint):
            await client.call("m", {}, leader=True)


async def test_while_nodes_name_a_leader_that_has_died_the_next_one_is_waited_for() -> None:
    """They are up, and name it until they have missed it: no reason to say that no endpoint could be reached."""
    dead = await unused_address()
    async with FakeNode("n1") as one, FakeNode("n2") as two:
        one.hint = two.hint = dead
        async with client_of(one.address, two.address) as client:
            asked = asyncio.create_task(client.call("m", {}, leader=True))
            await one.changes.until(lambda: len(one.calls) > 2, "asked again and again")
            two.role = "leader"
            assert (await asked)["node_id"] == "n2"


async def test_what_was_never_sent_was_certainly_not_carried_out() -> None:
    async with FakeNode("n1") as node, client_of(node.address) as client:
        with pytest.raises(NoLeader, match="no leader answered"):
            await client.call("m", {}, leader=True, idempotent=False, timeout_s=0.3)
        assert {method for method, _ in node.calls} == {"status"}
        node.role = "leader"
        node.silent_about.add("m")
        with pytest.raises(OutcomeUnknown, match="may have been carried out"):
            await client.call("m", {}, leader=True, idempotent=False, timeout_s=0.3)


async def test_all_are_asked_and_each_answers_for_itself() -> None:
    dead = await unused_address()
    async with FakeNode("n1") as one, FakeNode("n2") as two, client_of(one.address, dead, two.address) as client:
        answers: dict[str, Any] = await client.call_all("m", {})
        assert list(answers) == [one.address, dead, two.address]
        assert [answers[node.address]["node_id"] for node in (one, two)] == ["n1", "n2"]
        assert isinstance(answers[dead], NoEndpoint)


# -- many -----------------------------------------------------------------------------------------


async def test_many_are_submitted_within_the_window() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        most = 0

        def source() -> Iterator[Command]:
            nonlocal most
            for number in range(500):
                most = max(most, number - len(node.ledger.effects))
                yield command(f"op-{number}")

        seen = [(c.operation_id, a) async for c, a in client.submit_many(source(), window=32)]
        assert sorted(name for name, _ in seen) == sorted(f"op-{n}" for n in range(500))
        assert all(isinstance(a, Answer) and a.status == AnswerStatus.DONE for _, a in seen)
        assert 1 < most <= 32


async def test_an_async_source_is_read_while_answers_come() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        answered = Changes()
        taken: list[str] = []

        async def source() -> AsyncIterator[Command]:
            for number in range(5):
                yield command(f"op-{number}")
                # The next one comes only after this one's answer has been handed out.
                await answered.until(lambda number=number: len(taken) > number)  # type: ignore[misc]

        async for c, _ in client.submit_many(source()):
            taken.append(c.operation_id)
            answered.notify()
        assert taken == [f"op-{n}" for n in range(5)]


async def test_a_bad_command_among_many_is_yielded_with_its_error() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        node.once = [done, answering(AnswerStatus.REFUSED, "OPERATION_ID_REUSED")]
        results = {
            c.operation_id: a
            async for c, a in client.submit_many([command("a"), command("b"), command(""), command("c")])
        }
        assert isinstance(results[""], CommandInvalid)
        assert [type(results[name]).__name__ for name in "abc"] == ["Answer", "OperationIdReused", "Answer"]


async def test_an_error_of_the_source_comes_after_what_it_gave() -> None:
    async with FakeNode() as node, client_of(node.address) as client:

        def source() -> Iterator[Command]:
            yield command("a")
            raise ZeroDivisionError("line 2 of the file")

        async def asynchronous() -> AsyncIterator[Command]:
            for found in source():
                yield found

        for commands in (source(), asynchronous()):
            stream = client.submit_many(commands)
            found, _ = await anext(stream)
            assert found.operation_id == "a"
            with pytest.raises(ZeroDivisionError, match="line 2"):
                await anext(stream)


async def test_leaving_early_gives_up_the_rest() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        node.once = [done]
        node.script = silent

        async def endless() -> AsyncIterator[Command]:
            number = 0
            while True:
                yield command(f"op-{number}")
                number += 1

        stream = client.submit_many(endless(), window=8)
        async for found, _ in stream:
            assert found.operation_id == "op-0"
            break
        await stream.aclose()  # type: ignore[attr-defined]
        assert not [request for request in client._engine._table.values() if not request.future.done()]


async def test_no_commands_are_no_answers() -> None:
    async with client_of(await unused_address()) as client:
        assert [x async for x in client.submit_many([])] == []
