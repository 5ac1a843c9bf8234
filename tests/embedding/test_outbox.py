"""Typed effects of an embedder: what goes in, where handlers run, what comes back."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest

from fencepost import (
    ClaimContext,
    CommandFailed,
    CommandInvalid,
    Committed,
    ConfigurationError,
    EffectContext,
    FencepostError,
    FencingToken,
    Node,
    OperationIdReused,
    Outbox,
    OutcomeUnknown,
    ResultLost,
    Retry,
)
from fencepost.raft.outbox.codec import Command
from tests.waiting import eventually_async

from .support import Embedded, Mail, Post, Sent, mailing


class Row(TypedDict):
    name: str
    count: int


class Item(msgspec.Struct):
    price: float
    tags: list[str] = []


@dataclass
class Order:
    items: list[Item]
    by_day: dict[int, str] = field(default_factory=dict)
    raw: bytes = b""


def everything(seen: list[Any]) -> tuple[Outbox, dict[str, Any]]:
    outbox = Outbox()
    outbox.handlers("any", guarantee="keyed", retry=Retry(max_attempts=2, backoff_s=0.001))

    @outbox.effect("row", resource="any", payload=Row)
    async def row(context: EffectContext, payload: Row) -> Row:
        seen.append(payload)
        return {"name": payload["name"], "count": payload["count"] + 1}

    @outbox.effect("order", resource="any", payload=Order)
    def order(context: EffectContext, payload: Order) -> Order:
        seen.append((payload, context))
        return payload

    @outbox.effect("nothing", resource="any", payload=int)
    async def nothing(context: EffectContext, payload: int) -> None:
        seen.append(threading.current_thread().name)

    @outbox.effect("odd", resource="any", payload=str)
    async def odd(context: EffectContext, payload: str) -> int:
        return payload if payload != "object" else object()  # type: ignore[return-value]

    @outbox.effect("once", resource="any", payload=str, retry=Retry(max_attempts=1), timeout=0.05)
    async def once(context: EffectContext, payload: str) -> None:
        seen.append(context.attempt)
        await asyncio.Event().wait()

    return outbox, {"row": row, "order": order, "nothing": nothing, "odd": odd, "once": once}


async def test_types_make_the_round_trip(tmp_path: Path) -> None:
    seen: list[Any] = []
    outbox, effects = everything(seen)
    async with Embedded(tmp_path, make=lambda: outbox) as cluster:
        await cluster.leader()
        handle = await outbox.submit(effects["row"], Row(name="a", count=1), id="row-1", lane="l")
        assert handle.operation_id == "row-1"
        assert await handle.result() == {"name": "a", "count": 2}

        order = Order([Item(1.5, ["x"]), Item(2)], {7: "sunday"}, b"\x00\xff")
        handle = await outbox.submit(effects["order"], order, lane="orders")
        committed = await handle.committed()
        result = await handle.result()
        assert result == order
        assert isinstance(result.items[0], Item)
        got, context = seen[-1]
        assert got == order
        assert (context.operation_id, context.index, context.attempt) == (handle.operation_id, committed.index, 1)
        assert context.token == FencingToken(1, context.entry_term)
        assert (context.effect, context.lane) == ("order", "orders")
        assert handle.operation_id[14] == "7", "it carries its time"

        assert await (await outbox.submit(effects["nothing"], 5)).result() is None
        assert seen[-1] == "fencepost-effects"
        assert "Order" in repr(effects["order"].payload)

        for odd in ("text", "object"):
            with pytest.raises(ResultLost, match="succeeded"):
                await (await outbox.submit(effects["odd"], odd)).result()

        # Its own policy and its own timeout: one attempt, without an answer, so nobody knows.
        before = len(seen)
        with pytest.raises(OutcomeUnknown, match="in doubt"):
            await (await outbox.submit(effects["once"], "x")).result()
        assert seen[before:] == [1]


@pytest.mark.parametrize(
    ("effect", "payload", "why"),
    [
        ("row", {"name": "a"}, "missing required field `count`"),
        ("row", {"name": "a", "count": "1"}, "Expected `int`, got `str`"),
        ("order", {"items": []}, "it is a dict"),
        ("order", Order([Item(float("nan"))]), "JSON"),
        ("order", Order([Item("free")]), "Expected `float`"),  # type: ignore[arg-type]
        ("nothing", 1.5, "it is a float"),
        ("nothing", None, "it is a NoneType"),
    ],
)
async def test_a_payload_that_does_not_fit_is_refused_before_anything_is_sent(
    effect: str, payload: Any, why: str
) -> None:
    _, effects = everything([])
    with pytest.raises(CommandInvalid, match=f"payload of effect '{effect}' does not fit") as refused:
        effects[effect].encode(payload)
    assert why in refused.value.message


def test_a_payload_may_be_of_a_type_that_only_the_caller_knows() -> None:
    @dataclass
    class Local:
        name: str

    @dataclass
    class Back:
        name: str

    outbox = Outbox()
    outbox.handlers("any", guarantee="keyed")

    @outbox.effect("local", resource="any", payload=Local)
    def local(context: EffectContext, payload: Local) -> Sent:
        return Sent(payload.name, 1)

    assert local.encode(Local("a")) == b'{"name":"a"}'
    assert local.decode_result(b'{"attempt":1,"text":"a"}') == Sent("a", 1)
    with pytest.raises(ConfigurationError, match=r"what .* says it returns cannot be read"):

        @outbox.effect("back", resource="any", payload=Local)
        def back(context: EffectContext, payload: Local) -> Back:
            return Back(payload.name)


def test_equal_payloads_are_equal_bytes() -> None:
    _, effects = everything([])
    assert effects["row"].encode({"count": 1, "name": "a"}) == effects["row"].encode({"name": "a", "count": 1})


async def test_once_over_nodes_and_leaders(tmp_path: Path) -> None:
    post = Post()
    effects: dict[str, Any] = {}

    def make() -> Outbox:
        outbox, send = mailing(post)
        effects[str(id(outbox))] = send
        return outbox

    names = ("n1", "n2", "n3")
    async with Embedded(tmp_path, *names, make=make) as cluster:

        def sender(name: str) -> tuple[Outbox, Any]:
            return cluster.outboxes[name], effects[str(id(cluster.outboxes[name]))]

        leader, follower = await cluster.leader(), await cluster.follower()
        # Held until its leader is gone: the successor sends it under the same key.
        outbox, send = sender(follower)
        handle = await outbox.submit(send, Mail("held", 5), id="m")
        await handle.committed()
        waiting = asyncio.create_task(handle.result())

        async def begun() -> bool:
            return bool(post.calls)

        await eventually_async(begun, within_s=20, what="the first attempt")
        await cluster.nodes.pop(leader).close(hand_over=False)
        post.gate.set()
        sent = await waiting
        assert (sent.text, sent.attempt) == ("held 5", 2)
        assert post.calls == [("m", 1), ("m", 2)]
        assert list(post.sent) == ["m"]
        for name in cluster.nodes:
            outbox, send = sender(name)
            again = await outbox.submit(send, Mail("held", 5), id="m")
            assert (await again.committed()).replayed
            assert await again.result() == sent
            reused = await outbox.submit(send, Mail("held", 6), id="m")
            with pytest.raises(OperationIdReused):
                await reused.committed()
        assert len(post.calls) == 2


async def test_failures_say_what_became_of_it(tmp_path: Path) -> None:
    post = Post()
    outbox, send = mailing(post)
    async with Embedded(tmp_path, make=lambda: outbox) as cluster:
        await cluster.leader()
        with pytest.raises(CommandFailed, match="no such address"):
            await (await outbox.submit(send, Mail("nobody", 1))).result()
        assert await (await outbox.submit(send, Mail("slow", 1))).result() == Sent("slow 1", 3)
        handle = await outbox.submit(send, Mail("held", 1), id="h")
        await handle.committed()
        with pytest.raises(OutcomeUnknown, match="h may have been executed"):
            await handle.result(timeout=0.1)
        post.gate.set()
        assert (await handle.result()).text == "held 1"
        # What another version submitted and this one cannot read is put off and never failed for it at once.
        node = cluster.nodes["n1"]._alive
        await node.submissions.submit(Command("old", "mail", "send", "", b'{"to":5}'), 1, None)  # type: ignore[arg-type]
        machine = node.composed.machine

        async def retried() -> bool:
            return machine.operations["old"].attempt > 1

        await eventually_async(retried, within_s=20, what="another attempt")
        assert machine.operations["old"].history[2].note.startswith("its payload does not fit Mail on this node")


def _given(outbox: Outbox) -> Outbox:
    return outbox


@pytest.fixture
def elsewhere() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs on a thread of the embedder's."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="embedders-own")
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def test_handlers_run_where_the_embedder_says(tmp_path: Path, elsewhere: asyncio.AbstractEventLoop) -> None:
    here = threading.current_thread().name
    choices: list[tuple[Any, str]] = [
        ("own", "fencepost-effects"),
        ("node", here),
        (asyncio.get_running_loop(), here),
        (elsewhere, "embedders-own"),
    ]
    for number, (choice, thread) in enumerate(choices):
        post = Post()
        outbox, send = mailing(post, handlers_on=choice)
        async with Embedded(tmp_path / str(number), make=partial(_given, outbox)) as cluster:
            await cluster.leader()
            assert (await (await outbox.submit(send, Mail("a", 1))).result()).text == "a 1"
            assert post.threads == {thread}
    with pytest.raises(ConfigurationError, match="handlers_on='thread'"):
        Outbox(handlers_on="thread")  # type: ignore[arg-type]


async def test_a_handler_that_blocks_holds_up_no_node(tmp_path: Path, elsewhere: asyncio.AbstractEventLoop) -> None:
    """It blocks its loop until the node, on its own, has done something else."""
    for number, choice in enumerate(("own", elsewhere)):
        post = Post()
        outbox, send = mailing(post, handlers_on=choice)
        async with Embedded(tmp_path / str(number), make=partial(_given, outbox)) as cluster:
            node = cluster.nodes[await cluster.leader()]
            term = node.status.term
            handle = await outbox.submit(send, Mail("held", 1))
            await handle.committed()
            loop = node._alive.composed.loop
            until = loop.now() + 2 * loop.raft.options.election_timeout

            async def long_enough(until: int = until, loop: Any = loop) -> bool:
                return bool(loop.now() > until)

            await eventually_async(long_enough, within_s=20, what="two election timeouts")
            assert await node.read(lambda: 1) == 1
            assert (node.status.role, node.status.term) == ("leader", term)
            post.gate.set()
            assert (await handle.result()).text == "held 1"


async def test_resources_of_any_kind_are_attached(tmp_path: Path) -> None:
    outbox = Outbox()
    outbox.sqlite(
        "ledger",
        tmp_path / "ledger.db",
        schema="CREATE TABLE IF NOT EXISTS entries(account TEXT, cents INTEGER)",
        effects={"credit": "INSERT INTO entries(account, cents) VALUES (:account, :cents)"},
    )
    credit = outbox.declare("credit", resource="ledger", payload=dict[str, Any], result=dict[str, int])
    async with Embedded(tmp_path, make=lambda: outbox) as cluster:
        node = cluster.nodes[await cluster.leader()]
        handle = await outbox.submit(credit, {"account": "alice", "cents": 5})
        assert await handle.result() == {"rows": 1}
        assert node.status.resources == {"ledger": "active"}
        assert node.status.ready
    with sqlite3.connect(tmp_path / "ledger.db") as database:
        assert database.execute("SELECT account, cents FROM entries").fetchall() == [("alice", 5)]
    database.close()


@pytest.mark.endure
async def test_resources_of_a_file_are_served_too(tmp_path: Path) -> None:
    cluster = Embedded(tmp_path)
    peer = cluster.peers["n1"]
    file = tmp_path / "n1.toml"
    file.write_text(
        f'[cluster]\nid = "c"\n[node]\nid = "n1"\ndata_dir = "n1"\npeer = "{peer}"\n'
        f'client = "127.0.0.1:{int(peer.rpartition(":")[2]) + 100}"\n[raft]\nheartbeat = "50ms"\n'
        'election_timeout = "300ms"\n[resources.ledger]\nkind = "sqlite"\npath = "l.db"\n'
        'schema = "CREATE TABLE IF NOT EXISTS e(c INTEGER)"\n'
        '[resources.ledger.effects.credit]\nsql = "INSERT INTO e(c) VALUES (:c)"\n'
    )
    post = Post()
    outbox, send = mailing(post)
    credit = outbox.declare("credit", resource="ledger", payload=dict[str, int])
    async with Node(file, outbox=outbox) as node:
        assert await (await outbox.submit(credit, {"c": 1})).result() == {"rows": 1}
        assert await (await outbox.submit(send, Mail("a", 1))).result() == Sent("a 1", 1)
        assert sorted(node.status.resources) == ["ledger", "mail"]
    twice = Outbox()
    twice.sqlite("ledger", tmp_path / "l.db", effects={"credit": "SELECT 1"})
    with pytest.raises(ConfigurationError, match="defined in"):
        await Node(file, outbox=twice).__aenter__()


def test_what_is_defined_wrongly_is_refused_at_once() -> None:
    outbox = Outbox()
    with pytest.raises(ConfigurationError, match="no resource 'mail' of handlers"):
        outbox.effect("send", resource="mail", payload=Mail)
    with pytest.raises(ConfigurationError, match="naked"):
        outbox.handlers("printer", guarantee="naked")
    with pytest.raises(ConfigurationError, match="guarantee 'exactly-once'"):
        outbox.handlers("mail", guarantee="exactly-once")
    outbox, _ = mailing(Post())
    with pytest.raises(ConfigurationError, match="defined twice"):
        outbox.handlers("mail", guarantee="keyed")
    with pytest.raises(ConfigurationError, match="defined twice"):
        outbox.declare("send", resource="mail", payload=Mail)
    with pytest.raises(ConfigurationError, match="do not pass through JSON"):
        outbox.declare("other", resource="mail", payload=Mail | Sent)  # type: ignore[arg-type]


def test_a_claim_belongs_to_a_fenced_resource_of_handlers() -> None:
    outbox = Outbox()
    outbox.handlers("keyed", guarantee="keyed")
    outbox.handlers("mail", guarantee="fenced")
    for wrong in ("keyed", "nothing"):
        with pytest.raises(ConfigurationError, match=f"no fenced resource '{wrong}'"):
            outbox.claim(resource=wrong)
    before = outbox.described()
    outbox.claim(resource="mail")(lambda context: None)
    with pytest.raises(ConfigurationError, match="defined twice"):
        outbox.claim(resource="mail")(lambda context: None)
    assert outbox.described() != before, "nodes with and without it are told apart"


async def test_a_claim_is_told_before_the_first_effect(tmp_path: Path) -> None:
    told: list[tuple[str, FencingToken, str, str]] = []

    outbox = Outbox()
    outbox.handlers("mail", guarantee="fenced")

    @outbox.claim(resource="mail")
    async def claim(context: ClaimContext) -> None:
        told.append(("claim", context.token, context.holder, context.cluster_id))

    @outbox.effect("send", resource="mail", payload=int)
    async def send(context: EffectContext, payload: int) -> None:
        told.append(("send", context.token, context.holder, context.cluster_id))

    async with Embedded(tmp_path, make=lambda: outbox) as cluster:
        await cluster.leader()
        await (await outbox.submit(send, 1)).result()
    claimed, sent = told
    assert (claimed[0], sent[0]) == ("claim", "send")
    assert claimed[1:] == sent[1:]
    assert (claimed[1].incarnation, claimed[3]) == (1, "embedded")


@pytest.mark.endure
async def test_an_outbox_belongs_to_one_node_at_a_time(tmp_path: Path) -> None:
    outbox, send = mailing(Post())
    _, stranger = mailing(Post())
    with pytest.raises(FencepostError, match="no node that runs"):
        await outbox.submit(send, Mail("a", 1))
    async with Embedded(tmp_path / "1", make=lambda: outbox) as cluster:
        await cluster.leader()
        with pytest.raises(ConfigurationError, match="another outbox"):
            await outbox.submit(stranger, Mail("a", 1))
        with pytest.raises(ConfigurationError, match="another node"):
            await Embedded(tmp_path / "2", make=lambda: outbox).start()
        with pytest.raises(ConfigurationError, match="in use"):
            outbox.handlers("late", guarantee="keyed")
        assert await (await outbox.submit(send, Mail("a", 1))).result() == Sent("a 1", 1)
        handle = await outbox.submit(send, Mail("b", 1))
        await cluster.stop("n1")
        # On its way when the node was closed: it ends, and says what is known of it.
        (end,) = await asyncio.gather(handle.committed(), return_exceptions=True)
        assert isinstance(end, Committed) or (isinstance(end, FencepostError) and end.outcome in ("unknown", "retry"))
    async with Embedded(tmp_path / "1", make=lambda: outbox) as cluster:
        await cluster.leader()
        assert (await (await outbox.submit(send, Mail("a", 2), id="again")).result()).text == "a 2"


def test_nodes_with_other_definitions_are_told_apart() -> None:
    def described(payload: Any) -> Any:
        outbox = Outbox()
        outbox.handlers("mail", guarantee="keyed")
        outbox.declare("send", resource="mail", payload=payload)
        return outbox.described()

    assert described(Mail) == described(Mail)
    assert described(Mail) != described(Row)
