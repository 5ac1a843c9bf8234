"""What is Redis' own: what it promises, effects of several commands that do not half happen, numbers beyond 2^53."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from fencepost.raft.core.errors import ConfigurationError, Outcome, ResourceUnavailable, StaleLeader
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.audit import check_ledger
from fencepost.raft.effects.resources.redis import RedisEffect, RedisResource
from fencepost.raft.ports import AttemptOutcome, AttemptStatus, Fence, Guarantee

from ...servers.cutting import way_to
from ...servers.program import folder_of
from ...servers.redis import RedisServer, redis, redis_program, redis_server
from ...waiting import eventually_async
from .server_subjects import RedisSubject
from .subjects import attempt, attempt_of, token

__all__ = ["redis", "redis_server"]

pytestmark = pytest.mark.servers

SUCCEEDED = AttemptStatus.SUCCEEDED
FAILED = AttemptStatus.FAILED


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """One that a test may stop, and start with other settings."""
    with folder_of(None) as folder:
        server = RedisServer(redis_program(), folder)
        server.start()
        yield server
        server.stop()


async def run(server: RedisServer, effects: dict[str, Any], *attempts: Any, **options: Any) -> list[AttemptOutcome]:
    resource = RedisSubject(server).node(effects=effects, **options)
    try:
        await resource.open()
        return await resource.execute(token(1), "n1", list(attempts))
    finally:
        await resource.close()


# -- what it promises -------------------------------------------------------------------------------------


async def test_it_promises_what_the_server_keeps_and_asks_at_every_claim(redis: RedisServer) -> None:
    resource = RedisSubject(redis).node()
    assert resource.guarantee is Guarantee.KEYED, "nobody was asked yet"
    await resource.open()
    assert (resource.guarantee, resource.guarantee_reason) == (Guarantee.FENCED, "")
    try:
        redis.call("CONFIG", "SET", "appendfsync", "everysec")
        with capture_logs() as logs:
            await resource.claim(token(1), "n1")
        reason = "appendfsync is everysec and not always: a crash loses the last writes"
        assert (resource.guarantee, resource.guarantee_reason) == (Guarantee.KEYED, reason)
        assert [log["reason"] for log in logs if log["event"] == "keyed, not fenced"] == [reason]
        redis.call("CONFIG", "SET", "appendonly", "no")
        await resource.claim(token(1), "n1")
        assert resource.guarantee_reason.startswith("appendonly is no:")
    finally:
        redis.call("CONFIG", "SET", "appendonly", "yes")
        redis.call("CONFIG", "SET", "appendfsync", "always")
    await resource.claim(token(1), "n1")
    assert (resource.guarantee, resource.guarantee_reason) == (Guarantee.FENCED, "")
    await resource.close()


@pytest.mark.parametrize("assumed", [False, True])
async def test_a_server_that_does_not_let_itself_be_asked(redis: RedisServer, assumed: bool) -> None:
    redis.call("ACL", "SETUSER", "worker", "on", ">hunter2", "~*", "+@all", "-config")
    url = redis.url.replace("redis://", "redis://worker:hunter2@")
    try:
        resource = RedisSubject(redis).node(url=url, assume_durable=assumed)
        with capture_logs() as logs:
            await resource.claim(token(1), "n1")
        (outcome,) = await resource.execute(token(1), "n1", [attempt("a")])
        await resource.close()
    finally:
        redis.call("ACL", "DELUSER", "worker")
    assert outcome.status is SUCCEEDED
    assert resource.guarantee is (Guarantee.FENCED if assumed else Guarantee.KEYED)
    assert ("assume_durable" in resource.guarantee_reason) is not assumed
    assert "hunter2" not in f"{logs} {resource.guarantee_reason}"


async def test_the_operators_word_does_not_stand_against_the_servers(redis: RedisServer) -> None:
    resource = RedisSubject(redis).node(assume_durable=True)
    redis.call("CONFIG", "SET", "appendfsync", "no")
    try:
        await resource.open()
    finally:
        redis.call("CONFIG", "SET", "appendfsync", "always")
    assert resource.guarantee is Guarantee.KEYED
    await resource.close()


async def test_a_server_that_evicts_the_fence_is_refused(redis: RedisServer) -> None:
    resource = RedisSubject(redis).node()
    redis.call("CONFIG", "SET", "maxmemory", "100mb")
    redis.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ConfigurationError, match="evicts keys when its memory is full"):
            await resource.open()
    finally:
        redis.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        redis.call("CONFIG", "SET", "maxmemory", "0")
    await resource.open()
    await resource.close()


async def test_a_replica_takes_no_claim(own_server: RedisServer) -> None:
    own_server.call("REPLICAOF", "127.0.0.1", "1")
    resource = RedisSubject(own_server).node()
    with pytest.raises(ResourceUnavailable, match="is a replica"):
        await resource.open()
    await resource.close()


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://worker:hunter2@127.0.0.1:1/0", ResourceUnavailable),
        ("redis://worker:hunter2@127.0.0.1:x/0", ConfigurationError),
        ("http://worker:hunter2@127.0.0.1/0", ConfigurationError),
    ],
)
async def test_a_secret_is_in_no_error_and_no_log(url: str, kind: type[Exception]) -> None:
    resource = RedisResource("ledger", url, {"one": RedisEffect([["INCR", "x"]])}, cluster_id="cluster")
    with capture_logs() as logs, pytest.raises(kind) as caught:
        await resource.open()
    assert "hunter2" not in f"{caught.value} {logs}"


async def test_a_wrong_password_is_the_operators_to_correct(redis: RedisServer) -> None:
    resource = RedisSubject(redis).node(url=redis.url.replace("redis://", "redis://worker:hunter2@"))
    with pytest.raises(ConfigurationError, match="refuses the connection"):
        await resource.open()
    await resource.close()


# -- effects ----------------------------------------------------------------------------------------------

PREPARED = (
    ("SET", "string", "s", "EX", "100000"),
    ("HSET", "hash", "f", "1", "g", "x"),
    ("RPUSH", "list", "b", "c"),
    ("SADD", "set", "m", "n"),
    ("ZADD", "sorted", "1", "m", "2", "n"),
)
FIRST = (
    ["APPEND", "string", "more"],
    ["SET", "string", "other"],
    ["DEL", "string"],
    ["PERSIST", "string"],
    ["INCR", "new"],
    ["HINCRBY", "hash", "f", "5"],
    ["HSET", "hash", "f", "2", "h", "3"],
    ["HDEL", "hash", "f", "g"],
    ["HSET", "new", "f", "1"],
    ["RPUSH", "list", "d", "e"],
    ["LPUSH", "list", "a"],
    ["LPOP", "list"],
    ["RPUSH", "new", "a"],
    ["SADD", "set", "n", "o"],
    ["ZINCRBY", "sorted", "5", "m"],
    ["XADD", "new", "*", "f", "v"],
)


def everything(server: RedisServer) -> dict[str, Any]:
    """Every key outside of fencepost's own, with what it holds and whether it ends."""
    keys = sorted(key for key in server.call("KEYS", "*") if not key.startswith("fencepost:"))
    return {key: (_contents(server, key), server.call("TTL", key) > 0) for key in keys}


def _contents(server: RedisServer, key: str) -> Any:
    # A small set keeps the order in which it was filled, which is nothing that it promises.
    return set(server.call("SMEMBERS", key)) if server.call("TYPE", key) == "set" else server.dump(key)


@pytest.mark.parametrize("first", FIRST, ids=" ".join)
async def test_an_effect_whose_last_command_fails_leaves_nothing(redis: RedisServer, first: list[str]) -> None:
    for words in PREPARED:
        redis.call(*words)
    before = everything(redis)
    # A set is no list: the last command is refused, after the first took effect, twice.
    effects = {"bad": [first, first, ["LPUSH", "set", "x"]], "credit": [first]}
    bad, good = await run(redis, effects, attempt("bad", 1, effect="bad"), attempt("good", 2))
    assert (bad.status, good.status) == (FAILED, SUCCEEDED)
    assert "WRONGTYPE" in bad.error
    after = everything(redis)
    for words in PREPARED:
        redis.call("DEL", words[1])
    redis.call("DEL", "new")
    for words in PREPARED:
        redis.call(*words)
    redis.call(*first)
    if first[0] != "XADD":  # The server makes up the id of an entry.
        assert after == everything(redis)
    assert before != after or first[0] == "PERSIST"


async def test_what_the_commands_answer_is_the_result(redis: RedisServer) -> None:
    effects = {
        "many": [
            ["SET", "a", "{v}"],
            ["INCRBY", "n", "41"],
            ["HGET", "none", "x"],
            ["GET", "a"],
            ["LRANGE", "l", "0", "9"],
        ]
    }
    first, again = await run(
        redis,
        effects,
        attempt_of({"v": "ä"}, "x", effect="many"),
        attempt_of({"v": "ä"}, "x", effect="many"),
    )
    assert first.result == '{"replies":["OK",41,null,"ä",[]]}'.encode()
    assert (again.replayed, again.result) == (True, first.result)


async def test_a_result_that_is_too_large_is_not_kept_and_the_effect_stands(redis: RedisServer) -> None:
    redis.call("SET", "big", "x" * 70_000)
    (outcome,) = await run(redis, {"credit": [["GETSET", "big", "small"]]}, attempt("a"))
    assert (outcome.status, outcome.result) == (SUCCEEDED, b"null")
    assert redis.call("GET", "big") == "small"


@pytest.mark.parametrize(
    ("payload", "says"),
    [({}, "has no 'account'"), ({"account": None}, "'account' is null"), ([1], "no object"), (b"x", "not JSON")],
)
async def test_a_payload_that_does_not_fit_fails_alone(redis: RedisServer, payload: Any, says: str) -> None:
    effects = {"credit": [["INCR", "account:{account}"]]}
    bad, good = await run(redis, effects, attempt_of(payload, "a", 1), attempt_of({"account": 7}, "b", 2))
    assert (bad.status, good.status) == (FAILED, SUCCEEDED)
    assert says in bad.error
    assert redis.call("GET", "account:7") == "1"


async def test_no_payload_reaches_the_keys_of_the_fence(redis: RedisServer) -> None:
    effects = {"credit": [["DEL", "{key}"]]}
    (outcome,) = await run(redis, effects, attempt_of({"key": "fencepost:{ledger}:fence"}, "a"))
    assert outcome.status is FAILED
    assert "one of fencepost's own" in outcome.error


async def test_braces_of_ones_own_are_written_twice(redis: RedisServer) -> None:
    await run(redis, {"credit": [["SET", "{{tag}}:{operation_id}", "{log_index}"]]}, attempt("a", 7))
    assert redis.call("GET", "{tag}:a") == "7"


# -- numbers, order, memory ---------------------------------------------------------------------------------


async def test_tokens_and_indexes_beyond_what_a_float_tells_apart(redis: RedisServer) -> None:
    """A Lua number holds whole numbers up to 2^53: 2^53 and 2^53 + 1 are one there."""
    big = 2**53
    resource = RedisSubject(redis).node()
    await resource.claim(token(big + 1), "n1")
    with pytest.raises(StaleLeader):
        await resource.claim(token(big), "n2")
    first, second = await resource.execute(
        token(big + 1), "n1", [attempt("a", big, lane="k"), attempt("b", big + 1, lane="k")]
    )
    assert (first.status, second.status) == (SUCCEEDED, SUCCEEDED)
    assert await resource.claim(FencingToken(2**63 - 1, 2**63 - 1), "n3") == Fence(token(big + 1), "n1")
    await resource.close()


async def test_operations_are_forgotten_after_a_while_and_that_is_keyed(redis: RedisServer) -> None:
    now = [1_000_000_000_000_000_000]
    resource = RedisSubject(redis).node(forget_after_ns=10_000_000_000, time_ns=lambda: now[0])
    await resource.open()
    assert (resource.guarantee, "forget_after" in resource.guarantee_reason) == (Guarantee.KEYED, True)
    await resource.execute(token(1), "n1", [attempt("a")])
    now[0] += 9_000_000_000
    (kept,) = await resource.execute(token(1), "n1", [attempt("a")])
    now[0] += 2_000_000_000
    (gone,) = await resource.execute(token(1), "n1", [attempt("a")])
    assert (kept.replayed, gone.replayed) == (True, False)
    assert redis.call("HLEN", "fencepost:{ledger}:operations") == 1
    await resource.close()


@pytest.mark.parametrize("lane", ["", "k"])
async def test_what_may_have_been_applied_and_be_forgotten_is_not_done_again(redis: RedisServer, lane: str) -> None:
    now = [1_000_000_000_000_000_000]
    resource = RedisSubject(redis).node(forget_after_ns=10_000_000_000, time_ns=lambda: now[0])
    await resource.open()
    first = attempt("a", 1, lane=lane)
    await resource.execute(token(1), "n1", [first])
    now[0] += 8_000_000_000
    (kept,) = await resource.execute(token(2), "n2", [first._replace(number=2, age_ns=8_000_000_000)])
    now[0] += 3_000_000_000
    (gone,) = await resource.execute(token(2), "n2", [first._replace(number=3, age_ns=11_000_000_000)])
    assert (kept.status, kept.replayed) == (SUCCEEDED, True)
    assert gone.status is AttemptStatus.DOUBT
    await resource.close()


async def test_a_command_that_lacks_words_puts_back_what_went_before_it(redis: RedisServer) -> None:
    """There is nothing of it to take note of, and the script must not end for that between an effect and its record."""
    redis.call("HSET", "hash", "f", "1")
    commands = [["INCR", "count"], ["HSET", "hash"], ["INCR", "other"]]
    (outcome,) = await run(redis, {"credit": commands}, attempt("a"))
    assert (outcome.status, redis.call("GET", "count")) == (FAILED, None)


async def test_a_server_without_room_refuses_before_anything_is_applied(redis: RedisServer) -> None:
    """DEL needs no room and its record does: were the room asked for only then, the effect would be there alone."""
    subject = RedisSubject(redis)
    resource = subject.node(effects={"credit": [["DEL", "victim"]]})
    await resource.claim(token(1), "n1")
    redis.call("SET", "victim", "alive")
    redis.call("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(ResourceUnavailable, match="maxmemory") as caught:
            await resource.execute(token(1), "n1", [attempt("a")])
    finally:
        redis.call("CONFIG", "SET", "maxmemory", "0")
    assert caught.value.outcome is Outcome.RETRY
    assert redis.call("GET", "victim") == "alive"
    (outcome,) = await resource.execute(token(1), "n1", [attempt("a")])
    assert (outcome.status, outcome.replayed) == (SUCCEEDED, False)
    await resource.close()


# -- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivered", [True, False])
async def test_a_lost_answer_is_unknown_and_the_repeat_decides(redis: RedisServer, delivered: bool) -> None:
    subject = RedisSubject(redis)
    async with way_to(redis.port) as way:
        resource = subject.node(url=redis.url.replace(str(redis.port), str(way.port)))
        await resource.claim(token(1), "n1")
        way.cut_at(b"EVALSHA", delivered=delivered)
        with pytest.raises(ResourceUnavailable) as caught:
            await resource.execute(token(1), "n1", [attempt("a")])
        assert (caught.value.outcome, way.cuts) == (Outcome.UNKNOWN, 1)
        (outcome,) = await resource.execute(token(1), "n1", [attempt("a")])
        assert (outcome.status, outcome.replayed) == (SUCCEEDED, delivered)
        assert subject.world() == ["a"]
        await resource.close()


async def test_a_server_that_has_forgotten_everything_is_claimed_before_use(redis: RedisServer) -> None:
    resource = RedisSubject(redis).node()
    await resource.claim(token(2), "n1")
    redis.call("FLUSHALL")
    with pytest.raises(ResourceUnavailable, match="remembers no token at all"):
        await resource.execute(token(2), "n1", [attempt("a")])
    assert await resource.claim(token(2), "n1") is None
    (outcome,) = await resource.execute(token(2), "n1", [attempt("a")])
    assert outcome.status is SUCCEEDED
    await resource.close()


async def test_a_server_that_has_lost_the_script_is_given_it_again(redis: RedisServer) -> None:
    resource = RedisSubject(redis).node()
    await resource.execute(token(1), "n1", [attempt("a")])
    redis.call("SCRIPT", "FLUSH")
    (outcome,) = await resource.execute(token(1), "n1", [attempt("b", 2)])
    assert outcome.status is SUCCEEDED
    await resource.close()


async def test_a_frozen_server_is_given_up_and_used_again_when_it_wakes(own_server: RedisServer) -> None:
    subject = RedisSubject(own_server)
    resource = subject.node(answer_ns=300_000_000, connect_ns=300_000_000)
    await resource.claim(token(1), "n1")
    assert own_server.process is not None
    own_server.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(ResourceUnavailable) as caught:
            await resource.execute(token(1), "n1", [attempt("a")])
    finally:
        own_server.process.send_signal(signal.SIGCONT)
    assert caught.value.outcome is Outcome.UNKNOWN
    (outcome,) = await resource.execute(token(1), "n1", [attempt("a")])
    assert outcome.status is SUCCEEDED
    assert subject.world() == ["a"]
    await resource.close()


async def test_kills_under_load_lose_nothing_and_repeat_nothing(own_server: RedisServer) -> None:
    subject = RedisSubject(own_server)
    resource = subject.node(connect_ns=1_000_000_000)
    await resource.claim(token(1), "n1")
    done: list[int] = []
    troubles: list[ResourceUnavailable] = []

    async def load() -> None:
        for index in range(1, 301):
            while True:
                try:
                    (outcome,) = await resource.execute(token(1), "n1", [attempt(f"a{index}", index, lane="k")])
                    break
                except ResourceUnavailable as error:
                    troubles.append(error)
                    await asyncio.sleep(0)
            assert outcome.status is SUCCEEDED
            done.append(index)

    async def reached(count: int) -> bool:
        return len(done) >= count

    running = asyncio.create_task(load())
    for count in (50, 150):
        await eventually_async(lambda count=count: reached(count), within_s=30, what=f"{count} are done")  # type: ignore[misc]
        await asyncio.to_thread(own_server.stop)
        await asyncio.to_thread(own_server.start)
    await running
    await resource.close()
    assert troubles, "the server was away, and nobody noticed"
    assert subject.world() == [f"a{index}" for index in range(1, 301)]
    assert check_ledger(subject.ledger()) == []
