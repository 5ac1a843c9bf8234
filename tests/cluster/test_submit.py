"""``fencepost submit`` when something is wrong: the exit code, whether anything was committed, what to do."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.cli.local_cluster import LocalCluster, free_peer_addresses, until
from fencepost.raft.core.errors import FencepostError

from .support import Ran, endpoints, fencepost, read_table, start_fencepost

pytestmark = pytest.mark.servers

CREDIT = ("submit", "ledger", "credit")
JSON = ("-o", "json")


@pytest.fixture
async def cluster(make_cluster: Callable[..., LocalCluster]) -> LocalCluster:
    made = make_cluster()
    made.start()
    await made.ready()
    return made


async def test_what_a_submitter_hears(cluster: LocalCluster, tmp_path: Path) -> None:
    """One cluster for all that needs a sound one: done, replayed, reused, malformed, failed,
    wrong endpoints, interrupted."""

    async def submit(*arguments: str, at: str = "") -> Ran:
        return await fencepost(*CREDIT, *arguments, *JSON, "--endpoints", at or endpoints(cluster), cwd=tmp_path)

    done = await submit('{"cents": 5}', "--id", "one")
    assert (done.code, done.document()["state"], done.document()["replayed"]) == (0, "succeeded", False)
    again = await submit('{"cents":5}', "--id", "one")
    assert (again.code, again.document()["replayed"]) == (0, True)
    assert again.document()["index"] == done.document()["index"]

    reused = await submit('{"cents": 6}', "--id", "one")
    assert reused.code == 6
    assert reused.error()["code"] == "OPERATION_ID_REUSED"
    assert reused.error()["committed"] == "no"
    assert reused.error()["next"]

    for malformed in ('{"cents": 5', "[NaN]", '{"cents": 1, "cents": 2}'):
        refused = await submit(malformed)
        assert (refused.code, refused.error()["code"]) == (2, "COMMAND_INVALID")
        assert refused.error()["committed"] == "no"
        assert refused.stdout == ""

    failed = await submit('{"dollars": 5}', "--id", "failed")
    assert (failed.code, failed.error()["code"], failed.error()["committed"]) == (8, "COMMAND_FAILED", "yes")
    assert failed.document()["state"] == "failed"
    assert "cents" in failed.error()["message"]

    # A follower names the leader; one endpoint of three is enough, whichever it is.
    for number, endpoint in enumerate(cluster.endpoints.values()):
        assert (await submit('{"cents": 5}', "--id", f"by-{number}", at=endpoint)).code == 0
    dead = next(iter(free_peer_addresses(["dead"]).values()))
    assert (await submit('{"cents": 5}', "--id", "past-a-dead-one", at=f"{dead},{endpoints(cluster)}")).code == 0

    # The same operation at two nodes at once, written in two ways: one answer, one effect (S34).
    at_one, at_other = list(cluster.endpoints.values())[:2]
    both = await asyncio.gather(
        submit('{"cents": 5, "to": "a"}', "--id", "twice", at=at_one),
        submit('{"to":"a","cents":5}', "--id", "twice", at=at_other),
    )
    assert [ran.code for ran in both] == [0, 0]
    assert both[0].document()["index"] == both[1].document()["index"]
    assert sorted(ran.document()["replayed"] for ran in both) == [False, True]

    wrong = await submit('{"cents": 5}', "--timeout", "2s", at=dead)
    assert (wrong.code, wrong.error()["code"], wrong.error()["committed"]) == (3, "NO_ENDPOINT", "no")
    assert dead in "".join(wrong.error()["tried"])
    assert "refused" in "".join(wrong.error()["tried"])
    # The peer port speaks, but not to clients.
    peer_port = await submit('{"cents": 5}', "--timeout", "2s", at=cluster.peers["n1"])
    assert peer_port.code != 0
    assert peer_port.error()["committed"] == "no"

    process = await start_fencepost(
        "submit", "ledger", "endless", '{"cents": 1}', "--id", "cut", "--endpoints", endpoints(cluster), cwd=tmp_path
    )
    assert process.stderr is not None
    assert b"operation id cut" in await process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, stderr = await process.communicate()
    assert process.returncode == 130
    assert b"fencepost command show cut" in stderr

    listed = await fencepost("command", "list", *JSON, "--endpoints", endpoints(cluster), cwd=tmp_path)
    names = {each["id"] for each in listed.document()["items"]}
    assert names - {"cut"} == {"one", "failed", "by-0", "by-1", "by-2", "past-a-dead-one", "twice"}
    rows = [row[0] for row in read_table(cluster.folder / "ledger.db", "entries")]
    assert sorted(rows) == sorted(names - {"cut", "failed"})


async def test_no_leader_with_one_node_reachable(cluster: LocalCluster, tmp_path: Path) -> None:
    leader = (await cluster.ready())["node_id"]
    left, *others = (node for node in cluster.nodes if node != leader)
    cluster.kill(leader, *others)
    refused = await fencepost(
        *CREDIT, '{"cents": 1}', "--id", "nobody", "--timeout", "3s", "--endpoints", endpoints(cluster), cwd=tmp_path
    )
    assert refused.code == 4
    assert "error NO_LEADER" in refused.stderr
    assert "nothing was committed" in refused.stderr
    assert "safe to retry" in refused.stderr
    for node in cluster.nodes:
        answer = next(line for line in refused.stderr.splitlines() if cluster.endpoints[node] in line)
        assert ("refused" in answer) == (node != left), answer
    assert "majority" in refused.stderr

    # And with nobody there at all.
    cluster.kill(left)
    nobody = await fencepost(
        *CREDIT, '{"cents": 1}', "--timeout", "1s", "--endpoints", endpoints(cluster), cwd=tmp_path
    )
    assert nobody.code == 3
    assert "nothing was" in nobody.stderr

    cluster.start()
    await cluster.ready()
    found = await fencepost("command", "show", "nobody", "--endpoints", endpoints(cluster), cwd=tmp_path)
    assert found.code == 7


async def test_a_command_whose_answer_does_not_come_is_unknown(cluster: LocalCluster, tmp_path: Path) -> None:
    """Its leader froze after it had taken the command: exit code 5, the id, and what to type."""
    leader = (await cluster.ready())["node_id"]
    slow = await start_fencepost(
        "submit", "ledger", "slow", '{"cents": 1}', "--id", "slow", "--timeout", "2s",
        "--endpoints", cluster.endpoints[leader], cwd=tmp_path,
    )  # fmt: skip
    async with cluster.client() as client:

        async def taken() -> bool:
            try:
                await client.call("command.get", {"id": "slow"}, endpoint=cluster.endpoints[leader])
            except FencepostError:
                return False
            return True

        await until(taken, within_s=20, what="the command in the log")
    cluster.freeze(*cluster.nodes)
    _, stderr = await slow.communicate()
    assert slow.returncode == 5, stderr
    text = stderr.decode()
    assert "error OUTCOME_UNKNOWN" in text
    assert "fencepost command show slow" in text
    cluster.thaw(*cluster.nodes)
    await cluster.ready()
    # The advice is good: the same id tells what became of it.
    again = await fencepost(
        "submit", "ledger", "slow", '{"cents": 1}', "--id", "slow", *JSON, "--endpoints", endpoints(cluster),
        cwd=tmp_path,
    )  # fmt: skip
    assert (again.code, again.document()["replayed"]) == (0, True)
