"""Embedded nodes in this process: proposals, reads, what is told, failing, closing."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fencepost import (
    CommandInvalid,
    ConfigurationError,
    FencepostError,
    Leadership,
    Node,
    NoLeader,
    NotFound,
    OperationIdExpired,
    OperationIdReused,
    OutcomeUnknown,
    Retention,
)
from fencepost.cli.config import OutboxConfiguration
from fencepost.cli.embedding.settings import configuration_of
from tests.waiting import eventually_async

from .support import Add, Counters, Embedded

THREE = ("n1", "n2", "n3")


async def test_once_per_id_on_whatever_node_over_a_change_of_leader_a_restart_and_a_snapshot(tmp_path: Path) -> None:
    async with Embedded(tmp_path, *THREE, snapshot_entries=20, retained_entries=5) as cluster:
        leader, follower = await cluster.leader(), await cluster.follower()
        first = await cluster.nodes[leader].propose(Add("a", 5), id="x")
        assert (first.result, first.replayed) == (5, False)
        other = await cluster.nodes[follower].propose(Add("a", 5), id="x")
        assert (other.result, other.index, other.term, other.replayed) == (5, first.index, first.term, True)
        with pytest.raises(OperationIdReused, match=f"at index {first.index}"):
            await cluster.nodes[follower].propose(Add("a", 6), id="x")

        # Its leader goes away without a word.
        await cluster.stop(leader, hand_over=False)
        after = await cluster.nodes[follower].propose(Add("a", 5), id="x")
        assert (after.result, after.index, after.replayed) == (5, first.index, True)

        # What it has missed comes to it as a snapshot, ids and all, and then it leads itself.
        missed = await cluster.nodes[follower].propose(Add("a", 7), id="y")
        for _ in range(60):
            await cluster.nodes[follower].propose(Add("b", 1))
        await cluster.start(leader)
        node, machine = cluster.nodes[leader], cluster.machines[leader]
        assert await node.read(lambda: machine.values) == {"a": 12, "b": 60}
        assert missed.index not in machine.applied
        await cluster.hand_over(leader)
        late = await node.propose(Add("a", 7), id="y")
        assert (late.result, late.index, late.replayed) == (12, missed.index, True)

        # And all of them from the disk.
        await cluster.stop(*THREE)
        await cluster.start(*THREE)
        with pytest.raises(OperationIdReused):
            await cluster.nodes["n1"].propose(Add("c", 1), id="x")
        assert (await cluster.nodes["n2"].propose(Add("a", 5), id="x")).replayed
        assert await cluster.nodes["n3"].read(lambda: cluster.machines["n3"].values["a"]) == 12


class Plain:
    """Says nothing of its types."""

    def __init__(self) -> None:
        self.commands: list[Any] = []

    def apply(self, index, term, command):  # type: ignore[no-untyped-def]
        self.commands.append(command)
        return {"count": len(self.commands)}

    def snapshot(self) -> Iterable[bytes]:
        return []

    def restore(self, chunks: Iterable[bytes]) -> None: ...


class Json:
    """A codec of the embedder's."""

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


async def test_codecs_and_the_lease_are_the_embedders_choice(tmp_path: Path) -> None:
    settings = Embedded(tmp_path).settings_of("n1")
    plain = Plain()
    async with Node(settings, plain, commands=Json(), results=Json(), lease_reads=True) as node:
        answer = await node.propose({"tuple": (1, 2)}, id="x")
        assert answer.result == {"count": 1}
        assert plain.commands == [{"tuple": [1, 2]}], "as it came out of the codec"
        with pytest.raises(CommandInvalid, match="not JSON serializable"):
            await node.propose(object())
        async with aclosing(node.entries()) as entries:
            assert (await anext(entries)).command == {"tuple": [1, 2]}
        assert await node.read(lambda: 1, consistency="lease") == 1
        assert node._begun.composed.loop.raft.options.lease_reads


async def test_what_is_forgotten_is_not_taken_for_new_where_the_id_tells(tmp_path: Path) -> None:
    cluster = Embedded(tmp_path)
    cluster.retention = Retention(ids=1)
    async with cluster:
        node = cluster.nodes[await cluster.leader()]
        old = "0190a000-0000-7000-8000-000000000001"
        await node.propose(Add("a", 1), id=old)
        await node.propose(Add("a", 1), id="other")
        with pytest.raises(OperationIdExpired):
            await node.propose(Add("a", 1), id=old)
        assert cluster.machines["n1"].values == {"a": 2}


async def test_what_does_not_fit_is_never_sent(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as cluster:
        node = cluster.nodes[await cluster.leader()]
        before = node.status.commit_index
        for wrong in ({"name": "a"}, Add("a", "one"), None):  # type: ignore[arg-type]
            with pytest.raises(CommandInvalid, match="does not fit"):
                await node.propose(wrong)  # type: ignore[arg-type]
        with pytest.raises(CommandInvalid, match="limit"):
            await node.propose(Add("a" * (1 << 20), 1))
        with pytest.raises(CommandInvalid, match="operation id is empty"):
            await node.propose(Add("a", 1), id="")
        assert node.status.commit_index == before


async def test_reads(tmp_path: Path) -> None:
    async with Embedded(tmp_path, *THREE) as cluster:
        leader, follower = await cluster.leader(), await cluster.follower()
        for number in range(20):
            await cluster.nodes[leader].propose(Add("a", 1))
            # What is applied is seen on the other nodes at once.
            for name in THREE:
                value = partial(cluster.machines[name].values.get, "a")
                assert await cluster.nodes[name].read(value) == number + 1
        assert await cluster.nodes[leader].read(lambda: 1, consistency="lease") == 1

        def wrong() -> int:
            raise KeyError("no such name")

        with pytest.raises(KeyError):
            await cluster.nodes[follower].read(wrong)
        with pytest.raises(ConfigurationError, match="fresh"):
            await cluster.nodes[follower].read(lambda: 1, consistency="fresh")

        # Whoever follows a leader and has what that has committed knows how old his state may be.
        async def knows_its_age() -> bool:
            return cluster.nodes[follower].status.age_s is not None

        await eventually_async(knows_its_age, within_s=20, what="how old the state may be")

        # Alone it can confirm nothing, and says so; what it has it gives only if that is asked for.
        await cluster.stop(*[name for name in THREE if name != follower], hand_over=False)
        with pytest.raises(NoLeader, match="no quorum"):
            await cluster.nodes[follower].read(lambda: 1, timeout=0.3)
        stale = cluster.nodes[follower].read(lambda: cluster.machines[follower].values["a"], consistency="stale")
        assert await stale == 20

        async def follows_nobody() -> bool:
            return not cluster.nodes[follower].status.leader

        await eventually_async(follows_nobody, within_s=20, what="the loss of the leader")
        assert cluster.nodes[follower].status.age_s is None, "it follows nobody, and nobody knows"
        with pytest.raises((NoLeader, OutcomeUnknown)):
            await cluster.nodes[follower].propose(Add("a", 1), timeout=0.5)


@pytest.mark.endure
async def test_a_read_waits_for_a_leader(tmp_path: Path) -> None:
    async with Embedded(tmp_path, *THREE) as cluster:
        # Nobody leads yet.
        assert await cluster.nodes["n1"].read(lambda: 7) == 7


async def test_entries_are_followed_from_the_disk_and_as_they_come(tmp_path: Path) -> None:
    async with Embedded(tmp_path, *THREE) as cluster:
        leader, follower = await cluster.leader(), await cluster.follower()
        for number in range(3):
            await cluster.nodes[leader].propose(Add("a", number), id=f"id-{number}")
        seen: list[tuple[str, Add]] = []
        async with aclosing(cluster.nodes[follower].entries()) as entries:
            async for entry in entries:
                assert cluster.machines[follower].applied[len(seen)] == entry.index
                seen.append((entry.operation_id, entry.command))
                if len(seen) == 3:
                    await cluster.nodes[leader].propose(Add("b", 1))
                if len(seen) == 4:
                    break
        assert seen == [("id-0", Add("a", 0)), ("id-1", Add("a", 1)), ("id-2", Add("a", 2)), ("", Add("b", 1))]
        last = cluster.machines[follower].applied[-1]
        async with aclosing(cluster.nodes[follower].entries(last)) as entries:
            assert (await anext(entries)).command == Add("b", 1)


@pytest.mark.endure
async def test_entries_that_were_given_up_are_not_passed_over(tmp_path: Path) -> None:
    async with Embedded(tmp_path, snapshot_entries=10, retained_entries=0, segment_bytes=1 << 16) as cluster:
        node = cluster.nodes[await cluster.leader()]
        for _ in range(3):
            await node.propose(Add("x" * 60_000, 1))
        for _ in range(20):
            await node.propose(Add("a", 1))

        async def refused() -> NotFound | None:
            async with aclosing(node.entries(1)) as entries:
                try:
                    await anext(entries)
                except NotFound as error:
                    return error
            return None

        error = await eventually_async(refused, within_s=20, what="the log given up")
        assert "were given up" in error.message


def knows_everything(node: Node[Add, int]) -> bool:
    """It has applied an entry of its own term, and so all that was committed before."""
    loop = node._begun.composed.loop
    return loop.applier.last_applied >= loop.term_start_index() > 0


async def test_a_new_leader_is_told_of_when_it_knows_everything(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as cluster:
        assert (await cluster.nodes["n1"].led()).leads
        assert knows_everything(cluster.nodes["n1"])


async def test_leadership_is_told_once_it_can_be_acted_on(tmp_path: Path) -> None:
    async with Embedded(tmp_path, *THREE) as cluster:
        leader, follower = await cluster.leader(), await cluster.follower()
        led = await cluster.nodes[leader].led()
        assert led.leads
        assert knows_everything(cluster.nodes[leader])
        assert led.holds()
        assert led.token is not None
        assert (led.token.incarnation, led.token.term) == (1, led.term)
        heard: list[Leadership] = []

        async def follow() -> None:
            async for leadership in cluster.nodes[follower].leadership():
                heard.append(leadership)
                assert not leadership.leads or knows_everything(cluster.nodes[follower])

        following = asyncio.create_task(follow())
        await cluster.hand_over(follower)

        async def leads() -> Leadership | None:
            return next((each for each in heard if each.leads), None)

        new = await eventually_async(leads, within_s=20, what="its own leadership told")
        assert new.term > led.term
        assert new.leader == follower
        assert not led.holds(), "a leadership that has ended never holds again"
        await cluster.stop(follower)
        await following  # It ends with the node.
        assert not new.holds()
        assert not heard[-1].leads


async def test_a_command_that_cannot_be_applied_stops_the_node_and_says_so_everywhere(tmp_path: Path) -> None:
    cluster = Embedded(tmp_path)
    await cluster.start()
    node = cluster.nodes[await cluster.leader()]
    stopped = asyncio.create_task(node.stopped())
    with pytest.raises(OutcomeUnknown):
        async with asyncio.timeout(20):  # At once, and not when its own time is over.
            await node.propose(Add("poison", 1), id="p", timeout=600)
    with pytest.raises(FencepostError, match="cannot take it") as told:
        await stopped
    assert isinstance(told.value.__cause__, RuntimeError)
    assert node.status.role == "stopped"
    for asked in (node.propose(Add("a", 1)), node.read(lambda: 1, consistency="stale")):
        with pytest.raises(FencepostError, match="cannot take it"):
            await asked
    with pytest.raises(FencepostError, match="cannot take it"):
        async for _ in node.leadership():
            pass
    with pytest.raises(FencepostError, match="cannot take it"):
        async for _ in node.entries():
            pass
    with pytest.raises(FencepostError, match="cannot take it"):
        await node.__aexit__(None, None, None)
    # It stands in the log, and a program that can apply it goes on from there.
    async with Embedded.__new__(Mended).over(cluster) as mended:
        node = mended.nodes[await mended.leader()]
        assert (await node.propose(Add("poison", 1), id="p")).replayed


class MendedCounters(Counters):
    def apply(self, index: int, term: int, command: Add) -> int:
        return super().apply(index, term, Add(command.name.removeprefix("poison"), command.by))


class Mended(Embedded):
    """The same folder under a program in which the fault was mended."""

    def over(self, other: Embedded) -> Mended:
        self.__dict__.update(other.__dict__)
        self.nodes, self.machines = {}, {}
        return self

    async def start(self, *names: str) -> None:
        for name in names or self.names:
            machine = self.machines[name] = MendedCounters()
            self.nodes[name] = await Node(self.settings_of(name), machine).__aenter__()


# -- giving up, and closing in the middle -----------------------------------------------------------


async def test_whoever_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    async with Embedded(tmp_path, *THREE) as cluster:
        for name in (await cluster.leader(), await cluster.follower()):
            node = cluster.nodes[name]
            tasks = [asyncio.create_task(node.propose(Add("a", 1), id=f"{name}-{number}")) for number in range(20)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in answers[::2])
            # Given up is not called back: under the same id it is asked what became of it.
            for number in range(20):
                await node.propose(Add("a", 1), id=f"{name}-{number}")
            reading = asyncio.create_task(node.read(lambda: 1))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        leader = await cluster.leader()
        assert await cluster.nodes[leader].read(lambda: cluster.machines[leader].values) == {"a": 40}


@pytest.mark.parametrize("hand_over", [True, pytest.param(False, marks=pytest.mark.endure)])
async def test_closing_in_the_middle_ends_everything_with_the_truth(tmp_path: Path, hand_over: bool) -> None:
    async with Embedded(tmp_path, *THREE) as cluster:
        leader = await cluster.leader()
        node = cluster.nodes[leader]
        tasks = [asyncio.create_task(node.propose(Add("a", 1), id=f"{number}")) for number in range(200)]
        reads = [asyncio.create_task(node.read(lambda: 1)) for _ in range(5)]
        await asyncio.sleep(0)
        await cluster.stop(leader, hand_over=hand_over)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        ends = await asyncio.gather(*reads, return_exceptions=True)
        for answer in (*answers, *ends):
            assert not isinstance(answer, BaseException) or isinstance(answer, FencepostError), repr(answer)
        with pytest.raises(FencepostError, match="closed"):
            await node.propose(Add("a", 1))
        await node.close()  # Again: nothing.

        survivor = await cluster.leader()
        applied = set(await cluster.nodes[survivor].read(lambda: list(cluster.machines[survivor].applied)))
        for number, answer in enumerate(answers):
            again = await cluster.nodes[survivor].propose(Add("a", 1), id=f"{number}")
            if not isinstance(answer, BaseException):
                assert (again.index, again.replayed) == (answer.index, True)
            elif answer.outcome != "unknown":  # type: ignore[attr-defined]
                assert again.index not in applied, "it was said to be certainly not applied"
        assert await cluster.nodes[survivor].read(lambda: cluster.machines[survivor].values) == {"a": 200}


async def test_what_stands_in_the_log_when_a_node_is_closed_is_unknown(tmp_path: Path) -> None:
    async with Embedded(tmp_path, *THREE) as cluster:
        leader = await cluster.leader()
        node = cluster.nodes[leader]
        await node.propose(Add("a", 1))
        await cluster.stop(*[name for name in THREE if name != leader], hand_over=False)
        log = node._begun.composed.loop.raft.log
        before = log.last_index
        tasks = [asyncio.create_task(node.propose(Add("a", 1))) for _ in range(5)]

        async def appended() -> bool:
            return log.last_index == before + 5

        await eventually_async(appended, within_s=20, what="five entries that nobody can commit")
        await cluster.stop(leader, hand_over=False)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [OutcomeUnknown] * 5


@pytest.mark.endure
async def test_a_body_that_raises_closes_the_node_and_keeps_its_error(tmp_path: Path) -> None:
    cluster = Embedded(tmp_path)
    settings = cluster.settings_of("n1")
    with pytest.raises(ZeroDivisionError):
        async with Node(settings, Counters()):
            raise ZeroDivisionError
    # The folder is free again.
    async with Node(settings, Counters()) as node:
        assert (await node.led()).leads


async def test_a_node_that_cannot_be_started_leaves_nothing_open(tmp_path: Path) -> None:
    settings = Embedded(tmp_path).settings_of("n1")
    host, _, port = settings.client.rpartition(":")
    with socket.create_server((host, int(port))), pytest.raises(ConfigurationError, match="cannot listen"):
        await Node(settings, Counters()).__aenter__()
    async with Node(settings, Counters()) as node:
        assert (await node.propose(Add("a", 1))).result == 1


async def test_a_node_is_entered_once_and_needs_a_machine_for_proposals(tmp_path: Path) -> None:
    cluster = Embedded(tmp_path)
    settings = cluster.settings_of("n1")
    node = Node(settings)
    with pytest.raises(ConfigurationError, match="not started"):
        node.status  # noqa: B018 - the access is what is tested
    async with node:
        with pytest.raises(ConfigurationError, match="no state machine"):
            await node.propose("x")
        with pytest.raises(ConfigurationError, match="entered once"):
            await node.__aenter__()
        with pytest.raises(FencepostError, match="n1"):
            await Node(settings).__aenter__()
    with pytest.raises(ConfigurationError, match="names 'n1'"):
        Node(replace(settings, peers={"n1": "127.0.0.1:1"}))
    with pytest.raises(ConfigurationError, match="retention_s and retention_count are 0 or more"):
        Node(replace(settings, retention_s=-1))


def test_what_an_outbox_remembers_is_as_in_a_file_unless_it_is_said(tmp_path: Path) -> None:
    settings = Embedded(tmp_path).settings_of("n1")
    outbox = configuration_of(settings).outbox
    assert outbox == OutboxConfiguration()
    assert (outbox.retention_ns, outbox.retention_count) == (30 * 86_400 * 1_000_000_000, 1_000_000)
    outbox = configuration_of(replace(settings, retention_s=0.5, retention_count=7)).outbox
    assert (outbox.retention_ns, outbox.retention_count) == (500_000_000, 7)


@pytest.mark.endure
async def test_a_node_is_made_from_a_configuration_file_too(tmp_path: Path) -> None:
    peer = Embedded(tmp_path).peers["n1"]
    client = f"127.0.0.1:{int(peer.rpartition(':')[2]) + 100}"
    file = tmp_path / "n1.toml"
    file.write_text(
        f'[cluster]\nid = "c"\n[node]\nid = "n1"\ndata_dir = "n1"\npeer = "{peer}"\nclient = "{client}"\n'
        '[raft]\nheartbeat = "50ms"\nelection_timeout = "300ms"\n'
    )
    counters = Counters()
    async with Node(file, counters) as node:
        assert (await node.propose(Add("a", 2))).result == 2
        assert counters.values == {"a": 2}
