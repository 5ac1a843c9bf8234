"""A payments service of three processes, each of which is a web server and a node.

uvicorn would do as well:  python service.py n1        (n1, n2, n3)
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from fencepost import (
    CommandFailed,
    CommandInvalid,
    EffectContext,
    FencepostError,
    Node,
    NodeSettings,
    OperationIdReused,
    Outbox,
    Outcome,
    Permanent,
    Retry,
)

PEERS = {"n1": "127.0.0.1:7021", "n2": "127.0.0.1:7022", "n3": "127.0.0.1:7023"}
CLIENTS = {"n1": "127.0.0.1:7121", "n2": "127.0.0.1:7122", "n3": "127.0.0.1:7123"}
WEB = {"n1": "127.0.0.1:7321", "n2": "127.0.0.1:7322", "n3": "127.0.0.1:7323"}
PROVIDER = "provider.db"
"""Stands for a payment provider on the internet that recognises a key it has seen."""


@dataclass
class Payment:
    account: str
    cents: int


@dataclass
class Receipt:
    number: int
    attempt: int


outbox = Outbox()
outbox.handlers("provider", guarantee="keyed", retry=Retry(backoff_s=0.05))


@outbox.effect("capture", resource="provider", payload=Payment, timeout=5)
def capture(context: EffectContext, payment: Payment) -> Receipt:
    """A plain function, so it may block: it runs on a thread of the resource, never on the node's loop."""
    if payment.cents <= 0:
        raise Permanent(f"{payment.cents} cents cannot be paid")
    with closing(sqlite3.connect(PROVIDER, timeout=5)) as provider, provider:
        provider.execute("CREATE TABLE IF NOT EXISTS captures(key TEXT PRIMARY KEY, account TEXT, cents INTEGER)")
        provider.execute(
            "INSERT INTO captures VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (context.operation_id, payment.account, payment.cents),
        )
        (number,) = provider.execute("SELECT rowid FROM captures WHERE key = ?", (context.operation_id,)).fetchone()
    return Receipt(number, context.attempt)


async def pay(request: Request) -> JSONResponse:
    """``POST /payments`` on any node. The Idempotency-Key is the operation id: once, however often it is sent."""
    key = request.headers.get("idempotency-key", "")
    if not key:
        return JSONResponse({"error": "Idempotency-Key is missing"}, 400)
    try:
        body = await request.json()
        payment = Payment(body["account"], body["cents"])
        handle = await outbox.submit(capture, payment, id=key, lane=payment.account)
        receipt = await handle.result(timeout=10)
    except (ValueError, KeyError, CommandInvalid) as error:
        return JSONResponse({"error": str(error)}, 400)
    except (OperationIdReused, CommandFailed) as error:
        return JSONResponse({"error": error.message}, 422)
    except FencepostError as error:
        # Either certainly not (retry), or nobody knows yet: the same key is safe in any case.
        again = 503 if error.outcome is Outcome.RETRY else 504
        return JSONResponse(error.as_dict(), again, headers={"Retry-After": "1"})
    return JSONResponse({"payment": key, **asdict(receipt)}, 201)


async def status(request: Request) -> JSONResponse:
    found = request.state.node.status
    return JSONResponse(
        {"node": found.node_id, "role": found.role, "leader": found.leader}, 200 if found.ready else 503
    )


def application(name: str) -> Starlette:
    settings = NodeSettings(
        cluster_id="payments",
        node_id=name,
        data_dir=name,
        peer=PEERS[name],
        client=CLIENTS[name],
        peers={peer: address for peer, address in PEERS.items() if peer != name},
        heartbeat_s=0.05,
        election_timeout_s=0.4,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
        async with Node(settings, outbox=outbox) as node:
            yield {"node": node}

    return Starlette(routes=[Route("/payments", pay, methods=["POST"]), Route("/status", status)], lifespan=lifespan)


if __name__ == "__main__":
    host, _, port = WEB[sys.argv[1]].rpartition(":")
    uvicorn.run(application(sys.argv[1]), host=host, port=int(port), log_level="warning")
