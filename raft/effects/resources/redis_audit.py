"""Reads the ledger of a Redis resource, for :func:`.audit.check_ledger`."""

from __future__ import annotations

from typing import Any

from ...core.errors import CheckFailed
from .ledger import AcceptedOperation, ClaimRecord, Ledger, Refusal, StoredFence
from .redis_script import KEYS, key_prefix, token_of, unpack


async def read_ledger(url: str, resource: str) -> Ledger:
    """Everything that the server holds about ``resource``, read in one step; nothing is written.

    Raises :class:`CheckFailed` if the server cannot be read.
    """
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    fence, operations, _, claims, refusals, *_ = (key_prefix(resource) + key for key in KEYS)
    try:
        async with Redis.from_url(url, socket_timeout=60) as server, server.pipeline(transaction=True) as pipe:
            pipe.hmget(fence, "cluster", "token", "holder")
            pipe.lrange(claims, 0, -1)
            pipe.hgetall(operations)
            pipe.lrange(refusals, 0, -1)
            stored, claimed, applied, refused = await pipe.execute()
    except (RedisError, OSError) as error:
        raise CheckFailed(
            f"the server cannot be read as a ledger: {error}", next_step="check the address and the rights"
        ) from error
    return Ledger(
        fences=[]
        if stored[0] is None
        else [StoredFence(resource, _text(stored[0]), token_of(stored[1]), _text(stored[2]))],
        claims=[_claim(place, resource, unpack(each)) for place, each in enumerate(claimed, 1)],
        operations=sorted(_operation(resource, key, unpack(each)) for key, each in applied.items()),
        refusals=[_refusal(place, resource, unpack(each)) for place, each in enumerate(refused, 1)],
    )


def _claim(place: int, resource: str, row: list[Any]) -> ClaimRecord:
    token, holder, accepted_before, now = row
    return ClaimRecord(place, resource, token_of(token), _text(holder), accepted_before, int(now))


def _operation(resource: str, operation_id: bytes, row: list[Any]) -> AcceptedOperation:
    accepted, digest, effect, lane, index, token, holder, number, now, result = row
    return AcceptedOperation(
        accepted,
        resource,
        _text(operation_id),
        _text(effect),
        _text(lane),
        int(index),
        token_of(token),
        _text(holder),
        number,
        digest,
        result,
        int(now),
    )


def _refusal(place: int, resource: str, row: list[Any]) -> Refusal:
    now, token, holder, stored, stored_holder, operations, reason = row
    return Refusal(
        place,
        resource,
        int(now),
        token_of(token),
        _text(holder),
        token_of(stored),
        _text(stored_holder),
        [_text(each) for each in operations],
        _text(reason),
    )


def _text(value: bytes) -> str:
    return value.decode()
