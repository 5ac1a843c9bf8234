"""The client's promises, each on real sockets (concepts: The four answers; scenario S32)."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import AsyncExitStack

import pytest

from fencepost.raft.core.errors import (
    Busy,
    CommandInvalid,
    ConfigurationError,
    FencepostError,
    HandshakeRefused,
    LeadershipLost,
    NoEndpoint,
    NoLeader,
    OperationIdReused,
    Outcome,
    OutcomeUnknown,
    TransportError,
)
from fencepost.raft.outbox.codec import encode
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import Answer, AnswerStatus, Connection, SubmitRequest, Wait
from fencepost.transport.client import Client
from fencepost.transport.client_engine import Engine
from fencepost.transport.client_requests import last_leader_of

from .world import (
    DEADLINE_S,
    FakeNode,
    Ledger,
    Proxy,
    answering,
    command,
    done,
    follow,
    silent,
    unused_address,
)

BUSY = answering(AnswerStatus.RETRY, "BUSY")
LOST = answering(AnswerStatus.RETRY, "LEADERSHIP_LOST")
UNKNOWN = answering(AnswerStatus.UNKNOWN, "OUTCOME_UNKNOWN", "the disk failed")


def client_of(*addresses: str, timeout_s: float = DEADLINE_S, sweep_s: float = 0.1) -> Client:
    return Client(addresses, timeout_s=timeout_s, sweep_s=sweep_s)


# -- done and refused -----------------------------------------------------------------------------


async def test_a_submission_is_answered() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        answer = await client.submit(command("a"), wait=Wait.COMMITTED)
        assert (answer.status, answer.index, answer.term, answer.replayed) == (AnswerStatus.DONE, 1, 9, False)
        assert (await client.submit(command("a"))).replayed
        [first, second] = node.submissions
        assert first.data == second.data == encode(command("a"))
        assert [first.wait, second.wait] == [Wait.COMMITTED, Wait.DONE]


async def test_what_is_asked_in_one_turn_leaves_in_one_frame() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        await client.call("status", {})
        answers = await asyncio.gather(*(client.submit(command(f"op-{n}")) for n in range(100)))
        assert [answer.index for answer in answers] == list(range(1, 101))
        assert [len(frame) for frame in node.frames] == [100]


async def test_large_payloads_leave_in_several_frames() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        payload = b"x" * (1 << 20)
        await asyncio.gather(*(client.submit(command(f"op-{n}", payload)) for n in range(10)))
        assert sorted(node.ledger.effects) == [f"op-{n}" for n in range(10)]
        assert 1 < len(node.frames) <= 6


async def test_a_failed_command_is_an_answer() -> None:
    script = answering(AnswerStatus.DONE, "COMMAND_FAILED", "no such account")
    async with FakeNode(script=script) as node, client_of(node.address) as client:
        answer = await client.submit(command())
        assert (answer.code, answer.detail) == ("COMMAND_FAILED", "no such account")


async def test_a_refusal_is_the_error_of_its_code() -> None:
    script = answering(AnswerStatus.REFUSED, "OPERATION_ID_REUSED", "op-1 was used with another payload")
    async with FakeNode(script=script) as node, client_of(node.address) as client:
        with pytest.raises(OperationIdReused, match="another payload") as caught:
            await client.submit(command())
        assert caught.value.outcome is Outcome.REFUSED
        assert node.address in caught.value.tried[0]
        assert caught.value.next_step == "fencepost command show op-1"


async def test_an_unknown_refusal_is_still_a_refusal() -> None:
    script = answering(AnswerStatus.REFUSED, "FROM_THE_FUTURE")
    async with FakeNode(script=script) as node, client_of(node.address) as client:
        with pytest.raises(FencepostError, match="FROM_THE_FUTURE") as caught:
            await client.submit(command())
        assert caught.value.outcome is Outcome.REFUSED


async def test_a_malformed_command_is_refused_without_a_connection() -> None:
    async with client_of(await unused_address()) as client:
        with pytest.raises(CommandInvalid):
            await client.submit(command(""))


# -- finding the leader ---------------------------------------------------------------------------


async def test_the_hint_is_followed_and_remembered() -> None:
    async with FakeNode("n1", script=follow) as follower, FakeNode("n2", ledger=follower.ledger) as leader:
        follower.hint = leader.address
        async with client_of(follower.address) as client:  # The leader's address is learned, not given.
            for number in range(3):
                await client.submit(command(f"op-{number}"))
            assert leader.address in client.endpoints
        assert len(follower.submissions) == 1
        assert [r.data for r in leader.submissions] == [encode(command(f"op-{n}")) for n in range(3)]


async def test_without_a_hint_the_others_are_asked() -> None:
    async with AsyncExitStack() as stack:
        ledger = Ledger()
        nodes = [
            await stack.enter_async_context(FakeNode(f"n{n}", ledger=ledger, script=script))
            for n, script in enumerate([follow, follow, done], start=1)
        ]
        client = await stack.enter_async_context(client_of(*(node.address for node in nodes)))
        await client.submit(command())
        assert ledger.effects == ["op-1"]


async def test_an_election_is_waited_out() -> None:
    async with FakeNode(script=follow) as node, client_of(node.address) as client:
        asked = asyncio.ensure_future(client.submit(command()))
        await node.changes.until(lambda: len(node.frames) >= 3)
        node.script = done
        assert (await asked).status == AnswerStatus.DONE


async def test_nodes_that_name_one_another_are_not_stormed() -> None:
    async with FakeNode("n1", script=follow) as one, FakeNode("n2", script=follow) as two:
        one.hint, two.hint = two.address, one.address
        async with client_of(one.address, two.address, timeout_s=1.0) as client:
            with pytest.raises(NoLeader):
                await client.submit(command())
        # At least 50 ms lie between two tries, but for the first ones.
        assert 3 <= len(one.frames) + len(two.frames) <= 30


async def test_no_leader_says_what_each_endpoint_answered() -> None:
    dead = await unused_address()
    async with FakeNode("n1", script=follow) as one, FakeNode("n2", script=follow) as two:
        two.leader = "n3"
        async with client_of(one.address, two.address, dead, timeout_s=2.0) as client:
            with pytest.raises(NoLeader, match="nothing was committed") as caught:
                await client.submit(command())
        assert caught.value.outcome is Outcome.RETRY
        assert len(caught.value.tried) == 3
        assert f"{one.address}  up, follower in term 9, no leader known" in caught.value.tried
        assert f"{two.address}  up, follower in term 9, leader n3" in caught.value.tried
        assert f"{dead}  connection refused" in caught.value.tried


async def test_what_is_certain_is_not_made_uncertain_by_a_last_try() -> None:
    class Impatient:
        def between(self, low: int, high: int) -> int:
            return low

    # It tries again every 10 ms, so that a last try would surely be made.
    async with FakeNode(script=BUSY) as node, Client([node.address], randomness=Impatient()) as client:
        # Until shortly before the deadline it is BUSY; then a node that takes it and never answers.
        started = asyncio.get_running_loop().time()

        def later(node: FakeNode, connection: Connection, request: SubmitRequest) -> Answer | None:
            late = asyncio.get_running_loop().time() - started > 0.9
            return (silent if late else BUSY)(node, connection, request)

        node.script = later
        with pytest.raises(Busy):
            await client.submit(command(), timeout_s=1.0)


async def test_nobody_there_is_no_endpoint() -> None:
    addresses = [await unused_address() for _ in range(3)]
    async with client_of(*addresses, timeout_s=0.5) as client:
        with pytest.raises(NoEndpoint, match="nothing was committed") as caught:
            await client.submit(command())
        assert list(caught.value.tried) == [f"{address}  connection refused" for address in addresses]
        assert caught.value.exit_code == 3


async def test_nobody_there_may_be_said_before_the_timeout() -> None:
    async with Client([await unused_address()], sweep_s=0.02, unreachable_after_s=0.1) as client:
        # Its timeout is half a minute, longer than any test waits.
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(NoEndpoint, match=r"for 0\.1 s"):
                await client.submit(command())


async def test_a_name_that_does_not_resolve_is_an_endpoint_that_is_down() -> None:
    async with FakeNode() as node, client_of("no-such-host.invalid:7101", node.address) as client:
        assert (await client.submit(command())).index == 1


async def test_a_node_that_comes_back_is_used_again() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        await client.submit(command("a"))
        address = node.address
        await node.listener.close()
        asked = asyncio.ensure_future(client.submit(command("b")))
        node.listener = node.make_listener(address)
        await node.listener.start()
        assert (await asked).index == 2


# -- busy, lost, unknown --------------------------------------------------------------------------


@pytest.mark.parametrize("script", [BUSY, LOST, UNKNOWN])
async def test_what_may_be_tried_again_is_tried_again_with_the_same_id(script: object) -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        node.once = [script, script]  # type: ignore[list-item]
        answer = await client.submit(command())
        assert answer.status == AnswerStatus.DONE
        assert {request.data for request in node.submissions} == {encode(command())}
        assert len(node.submissions) == 3


@pytest.mark.parametrize(
    ("script", "error", "outcome"),
    [
        (BUSY, Busy, Outcome.RETRY),
        (LOST, LeadershipLost, Outcome.RETRY),
        (UNKNOWN, OutcomeUnknown, Outcome.UNKNOWN),
        (silent, OutcomeUnknown, Outcome.UNKNOWN),
    ],
)
async def test_the_deadline_says_what_is_known(script: object, error: type[Exception], outcome: Outcome) -> None:
    async with FakeNode(script=script) as node, client_of(node.address, timeout_s=0.4) as client:  # type: ignore[arg-type]
        with pytest.raises(error) as caught:
            await client.submit(command())
        assert caught.value.outcome is outcome  # type: ignore[attr-defined]
        assert caught.value.tried  # type: ignore[attr-defined]


async def test_once_unknown_a_later_no_does_not_make_it_certain() -> None:
    async with FakeNode(script=follow) as node, client_of(node.address, timeout_s=0.6) as client:
        node.once = [UNKNOWN]
        with pytest.raises(OutcomeUnknown) as caught:
            await client.submit(command("op-7"))
        assert len(node.submissions) > 1
        assert caught.value.next_step == "fencepost command show op-7"
        assert caught.value.exit_code == 5


async def test_a_command_in_doubt_is_told_at_once() -> None:
    """The leader knows that nobody knows; the client neither asks again nor waits out its deadline."""

    def in_doubt(node: FakeNode, connection: Connection, request: SubmitRequest) -> Answer:
        state = OperationState.IN_DOUBT.value
        return Answer(
            request.request_id, int(AnswerStatus.UNKNOWN), 7, 9, False, state, b"", "OUTCOME_UNKNOWN", "doubt"
        )

    async with FakeNode(script=in_doubt) as node, client_of(node.address) as client:
        with pytest.raises(OutcomeUnknown, match="doubt"):
            await client.submit(command("op-7"))
        assert len(node.submissions) == 1


async def test_a_node_that_does_not_know_is_not_asked_for_ever() -> None:
    """A node that was cut off holds the running command and joins whoever asks for it, but hears no
    outcome. Another node leads, and knows."""
    async with FakeNode("n1", script=UNKNOWN) as cut_off, FakeNode("n2", ledger=cut_off.ledger) as leader:
        async with client_of(cut_off.address, leader.address, timeout_s=5.0) as client:
            assert (await client.submit(command())).status == AnswerStatus.DONE
        assert len(cut_off.submissions) == 1


@pytest.mark.parametrize("operation_id", ["order 7; reboot", "it's", "$(id)"])
async def test_the_command_to_type_next_can_be_typed_as_it_stands(operation_id: str) -> None:
    async with FakeNode(script=UNKNOWN) as node, client_of(node.address, timeout_s=0.3) as client:
        with pytest.raises(OutcomeUnknown) as caught:
            await client.submit(command(operation_id))
        assert shlex.split(caught.value.next_step) == ["fencepost", "command", "show", operation_id]


async def test_timeouts_of_different_lengths_are_kept_apart() -> None:
    # A sweep an hour from now: only the shorter deadline can bring it forward.
    async with FakeNode(script=silent) as node, client_of(node.address, sweep_s=3600.0) as client:
        long = asyncio.ensure_future(client.submit(command("long"), timeout_s=3600.0))
        await node.changes.until(lambda: node.frames)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(OutcomeUnknown):
                await client.submit(command("short"), timeout_s=0.05)
        assert not long.done()
        long.cancel()


# -- lost replies (S32) ---------------------------------------------------------------------------


async def test_a_lost_reply_is_asked_for_again_and_executed_once() -> None:
    async with FakeNode() as node, Proxy(node.address) as proxy, client_of(proxy.address) as client:
        await client.submit(command("before"))
        proxy.reset_on_reply = True
        answer = await client.submit(command("op-1"))
        assert answer.replayed
        assert node.ledger.effects == ["before", "op-1"]
        assert [request.data for request in node.submissions[1:]] == [encode(command("op-1"))] * 2


async def test_after_a_lost_reply_a_later_no_does_not_make_it_certain() -> None:
    """The dangerous lie: "not committed, safe to retry" about a command that was executed."""
    async with FakeNode() as node, Proxy(node.address) as proxy, client_of(proxy.address, timeout_s=0.6) as client:
        await client.call("status", {})
        node.once, node.script = [done], follow
        proxy.reset_on_reply = True
        with pytest.raises(OutcomeUnknown):
            await client.submit(command())
        assert node.ledger.effects == ["op-1"]
        assert len(node.submissions) > 1


async def test_a_proposal_whose_reply_is_lost_is_unknown_and_not_repeated() -> None:
    async with FakeNode() as node, Proxy(node.address) as proxy, client_of(proxy.address) as client:
        assert (await client.propose(b"first")).status == AnswerStatus.DONE
        proxy.reset_on_reply = True
        with pytest.raises(OutcomeUnknown, match="may have been committed"):
            await client.propose(b"second")
        assert (await client.propose(b"third")).status == AnswerStatus.DONE
        assert node.proposals == [b"first", b"second", b"third"]


@pytest.mark.parametrize(("script", "tries"), [(BUSY, 2), (LOST, 2)])
async def test_a_proposal_that_was_certainly_not_appended_is_tried_again(script: object, tries: int) -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        node.once = [script]  # type: ignore[list-item]
        assert (await client.propose(b"p")).status == AnswerStatus.DONE
        assert node.proposals == [b"p"] * tries


async def test_a_proposal_of_unknown_outcome_ends_at_once() -> None:
    async with FakeNode() as node, client_of(node.address) as client:
        node.once = [UNKNOWN]
        with pytest.raises(OutcomeUnknown):
            await client.propose(b"p")
        assert node.proposals == [b"p"]


async def test_when_every_reply_is_lost_the_outcome_is_unknown() -> None:
    async with FakeNode() as node, Proxy(node.address) as proxy, client_of(proxy.address, timeout_s=0.5) as client:
        await client.call("status", {})
        proxy.reset_on_reply = True
        asked = asyncio.ensure_future(client.submit(command()))
        await node.changes.until(lambda: node.frames)
        proxy.frozen = True
        with pytest.raises(OutcomeUnknown, match="operation op-1 may have been executed"):
            await asked
        assert node.ledger.effects == ["op-1"]


# -- a stopped leader -----------------------------------------------------------------------------


async def test_a_stopped_leader_is_left_although_its_sockets_stay_open() -> None:
    ledger = Ledger()
    async with (
        FakeNode("n1", ledger=ledger) as old,
        FakeNode("n2", ledger=ledger, script=follow) as new,
        Proxy(old.address) as proxy,
        client_of(proxy.address, new.address) as client,
    ):
        await client.submit(command("before"))
        proxy.frozen = True
        new.hint = proxy.address  # It has not noticed yet, and names the one that is stopped.
        asked = [asyncio.ensure_future(client.submit(command(f"op-{n}"))) for n in range(10)]
        await new.changes.until(lambda: len(new.frames) >= 2, "the other node is asked")
        new.script = done
        await asyncio.gather(*asked)
        assert len(new.submissions) >= 20
        assert sorted(ledger.effects) == sorted(["before", *(f"op-{n}" for n in range(10))])


async def test_a_slow_answer_is_no_silence() -> None:
    async with FakeNode(script=silent) as node, client_of(node.address, sweep_s=0.02) as client:
        asked = asyncio.ensure_future(client.submit(command(), timeout_s=0.5))
        with pytest.raises(OutcomeUnknown, match="has not answered within"):
            await asked
        # Pings were answered all the while: one connection, one frame.
        assert len(node.frames) == 1
        assert node.gone == []


async def test_an_endpoint_that_takes_the_connection_and_says_nothing_does_not_hold_up_the_others() -> None:
    async with FakeNode() as node, Proxy(node.address) as proxy:
        proxy.frozen = True
        # The connect itself would take an hour to fail: the other endpoint is tried beside it.
        async with Client([proxy.address, node.address], connect_timeout_s=3600.0) as client:
            assert (await client.submit(command())).index == 1


# -- ends -----------------------------------------------------------------------------------------


async def test_cancelling_one_submitter_leaves_the_others() -> None:
    async with FakeNode(script=silent) as node, client_of(node.address) as client:
        first = asyncio.ensure_future(client.submit(command("a")))
        await node.changes.until(lambda: node.frames)
        first.cancel()
        node.script = done
        assert (await client.submit(command("b"))).index == 2
        await asyncio.wait({first})
        assert first.cancelled()


async def test_nothing_is_left_in_the_table() -> None:
    async with FakeNode() as node, client_of(node.address, sweep_s=0.01) as client:
        node.once = [silent, BUSY, UNKNOWN]
        cancelled = asyncio.ensure_future(client.submit(command("x")))
        await node.changes.until(lambda: node.frames)
        cancelled.cancel()
        await asyncio.gather(*(client.submit(command(f"op-{n}")) for n in range(50)))
        engine = client._engine
        assert set(engine._table) <= {1}
        assert not engine._waiting
        assert not engine._delayed


async def test_one_sweep_serves_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = 0
    sweep = Engine._sweep

    def counted(engine: Engine) -> None:
        nonlocal sweeps
        sweeps += 1
        sweep(engine)

    monkeypatch.setattr(Engine, "_sweep", counted)
    async with FakeNode(script=follow) as node, client_of(node.address, timeout_s=0.5, sweep_s=0.02) as client:
        with pytest.raises(NoLeader):
            await client.submit(command())
        assert node.calls
    # A timer never fires early, so there cannot be more, but for the one that a deadline brings forward.
    assert 3 <= sweeps <= 0.5 / 0.02 + 2


async def test_closing_ends_every_request() -> None:
    async with FakeNode(script=silent) as node:
        client = client_of(node.address)
        sent = asyncio.ensure_future(client.submit(command("sent")))
        await node.changes.until(lambda: node.frames)
        unsent = asyncio.ensure_future(client.submit(command("unsent")))
        await asyncio.sleep(0)
        async with asyncio.timeout(DEADLINE_S):
            await client.close()
            await client.close()
        with pytest.raises(OutcomeUnknown, match="closed before the answer"):
            await sent
        with pytest.raises((TransportError, OutcomeUnknown)):
            await unsent
        with pytest.raises(TransportError, match="closed"):
            await client.submit(command())
        await node.changes.until(lambda: node.gone)


async def test_closing_while_connecting_does_not_hang() -> None:
    async with FakeNode() as node, Proxy(node.address) as proxy:
        proxy.frozen = True
        client = client_of(proxy.address)
        asked = asyncio.ensure_future(client.submit(command()))
        await proxy.changes.until(lambda: proxy.connections)
        async with asyncio.timeout(DEADLINE_S):
            await client.close()
        with pytest.raises(TransportError) as caught:
            await asked
        assert caught.value.outcome is Outcome.RETRY


# -- refused at the door --------------------------------------------------------------------------


async def test_another_cluster_is_refused_at_once() -> None:
    async with FakeNode() as node, Client([node.address], cluster_id="cluster-b") as client:
        with pytest.raises(HandshakeRefused, match="cluster-b"):
            await client.submit(command())
        with pytest.raises(HandshakeRefused, match="cluster-b"):
            await client.call("status", {})
        assert node.frames == []


@pytest.mark.parametrize("addresses", [[], ["nonsense"], ["host:port"], ["::1:7101"], ["host:99999"]])
def test_addresses_that_are_none(addresses: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        Client(addresses)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ({"node": "n2", "heard_s_ago": 8.2}, "last leader n2 8 s ago"),
        (None, "no leader known"),
        ("n2", "no leader known"),
        ({"node": "n2"}, "no leader known"),
        ({"node": "n2", "heard_s_ago": "long"}, "no leader known"),
    ],
)
def test_the_last_leader_is_named_where_it_is_known(last: object, said: str) -> None:
    assert last_leader_of({"last_leader": last}) == said
