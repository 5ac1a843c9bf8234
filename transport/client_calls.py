"""Questions to nodes: one, the leader, the first that answers, or all of them.

Seldom and not hot, so they are plain coroutines over the engine's links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ..raft.core.errors import (
    ConfigurationError,
    FencepostError,
    NoEndpoint,
    NoLeader,
    NotLeader,
    OutcomeUnknown,
    TransportError,
)
from .client_engine import Engine
from .client_link import ClientLink, Endpoint, LinkLost

_LEADER_PAUSE_S = 0.1


class _NotReached(Exception):
    """The endpoint has no link and none could be made: the call was certainly not sent."""


def _check_open(engine: Engine) -> None:
    if engine.closed:
        raise TransportError("the client was closed", next_step="open a new one")


async def _link_of(engine: Engine, endpoint: Endpoint) -> ClientLink:
    _check_open(engine)
    if endpoint.link is not None:
        return endpoint.link
    attempt = engine.connect(endpoint)
    # Shared with whoever else waits for the same endpoint: waiting must not cancel it.
    await asyncio.wait({attempt})
    link = endpoint.live_link()
    if link is None:
        _check_open(engine)
        if endpoint.refusal is not None:
            raise endpoint.refusal
        raise _NotReached
    return link


async def _ask(engine: Engine, endpoint: Endpoint, method: str, parameters: dict[str, Any], idempotent: bool) -> Any:
    """One call on one endpoint. Raises _NotReached, LinkLost if idempotent, or the node's error."""
    link = await _link_of(engine, endpoint)
    future = engine.call_on(link, method, parameters)
    try:
        return await future
    except LinkLost as error:
        if idempotent:
            raise
        raise OutcomeUnknown(
            f"{method} may have been carried out: {error.message}",
            tried=[endpoint.line()],
            next_step="fencepost status",
        ) from error
    except asyncio.CancelledError:
        if not idempotent and not engine.closed:
            endpoint.said = f"took {method} and did not answer in time"
        raise


def _out_of_time(method: str, timeout_s: float, tried: Sequence[str], idempotent: bool) -> FencepostError:
    if idempotent:
        return NoEndpoint(
            f"no endpoint answered {method} within {timeout_s:g} s",
            tried=tried,
            next_step="fencepost status, or allow more time",
        )
    return OutcomeUnknown(
        f"{method} may have been carried out: no answer within {timeout_s:g} s",
        tried=tried,
        next_step="fencepost status",
    )


async def call_one(
    engine: Engine, address: str, method: str, parameters: dict[str, Any], timeout_s: float, idempotent: bool
) -> Any:
    endpoint = engine.endpoints.at(address)
    if endpoint is None:
        raise ConfigurationError(f"{address!r} is no address", next_step="write it as host:port")
    try:
        async with asyncio.timeout(timeout_s):
            return await _ask(engine, endpoint, method, parameters, idempotent)
    except TimeoutError as error:
        raise _out_of_time(method, timeout_s, [endpoint.line()], idempotent) from error
    except (_NotReached, LinkLost) as error:
        raise NoEndpoint(
            f"{address} could not be reached: {endpoint.said}",
            tried=[endpoint.line()],
            next_step="start the node, or check the address",
        ) from error


async def call_any(engine: Engine, method: str, parameters: dict[str, Any], timeout_s: float, idempotent: bool) -> Any:
    try:
        async with asyncio.timeout(timeout_s):
            refusal: FencepostError | None = None
            for endpoint in engine.endpoints.rotation():
                try:
                    return await _ask(engine, endpoint, method, parameters, idempotent)
                except (_NotReached, LinkLost):
                    continue
                except FencepostError as error:
                    if error is not endpoint.refusal:
                        raise
                    refusal = error
            if refusal is not None:
                raise type(refusal)(refusal.message, tried=engine.endpoints.tried(), next_step=refusal.next_step)
    except TimeoutError as error:
        raise _out_of_time(method, timeout_s, engine.endpoints.tried(), idempotent) from error
    raise NoEndpoint(
        f"no endpoint could be reached for {method}",
        tried=engine.endpoints.tried(),
        next_step="start a node, or check --endpoints",
    )


async def call_leader(
    engine: Engine, method: str, parameters: dict[str, Any], timeout_s: float, idempotent: bool
) -> Any:
    sent = False
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                reached = False
                for endpoint in engine.endpoints.rotation():
                    try:
                        leader = await _leader_by(engine, endpoint)
                        reached = True
                        if leader is not None:
                            sent = True
                            return await _ask(engine, leader, method, parameters, idempotent)
                    except (_NotReached, LinkLost, NotLeader):
                        sent = False  # Or it was refused, which is as certain.
                if not reached:
                    break
                await asyncio.sleep(_LEADER_PAUSE_S)
    except TimeoutError as error:
        if sent and not idempotent:
            raise _out_of_time(method, timeout_s, engine.endpoints.tried(), idempotent) from error
        raise NoLeader(
            f"no leader answered {method} within {timeout_s:g} s",
            tried=engine.endpoints.tried(),
            next_step="fencepost status",
        ) from error
    raise NoEndpoint(
        f"no endpoint could be reached for {method}",
        tried=engine.endpoints.tried(),
        next_step="start a node, or check --endpoints",
    )


async def _leader_by(engine: Engine, endpoint: Endpoint) -> Endpoint | None:
    """The leader, if ``endpoint`` is it or names it. The one named judges for itself."""
    status = await _ask(engine, endpoint, "status", {}, True)
    if not isinstance(status, dict):
        return None
    if status.get("role") == "leader":
        return endpoint
    named = status.get("leader_client_address")
    if not isinstance(named, str) or not named:
        return None
    leader = engine.endpoints.at(named)
    if leader is None or leader is endpoint:
        return None
    try:
        confirmed = await _ask(engine, leader, "status", {}, True)
    except (_NotReached, LinkLost):
        return None  # Whoever names it is up, and will name another one.
    return leader if isinstance(confirmed, dict) and confirmed.get("role") == "leader" else None


async def call_each(
    engine: Engine, method: str, parameters: dict[str, Any], timeout_s: float
) -> dict[str, Any | FencepostError]:
    async def ask(address: str) -> Any | FencepostError:
        try:
            return await call_one(engine, address, method, parameters, timeout_s, True)
        except FencepostError as error:
            return error

    listed = [endpoint.address for endpoint in engine.endpoints if endpoint.listed]
    answers = await asyncio.gather(*(ask(address) for address in listed))
    return dict(zip(listed, answers, strict=True))
