"""A proxy as a process: its parts put together, run until a signal."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping

import structlog

from ...raft.effects.resources.http_client import HttpClient
from ...transport.http_server import HttpServer
from .forwarding import FencedProxy
from .marks import Marks
from .settings import ProxySettings

_LOG = structlog.get_logger("fencepost.proxy")


async def run_proxy(settings: ProxySettings, environment: Mapping[str, str]) -> int:
    """Serve until SIGTERM or SIGINT. The exit code. Raises :class:`ConfigurationError` when it cannot start."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    marks = Marks(
        settings.fence,
        resource=settings.resource,
        cluster=settings.cluster,
        upstream=settings.upstream,
        mode=settings.mode,
        now_ns=time.time_ns(),
    )
    client = HttpClient(
        settings.resource,
        "http",
        settings.upstream,
        connect_ns=settings.connect_timeout_ns,
        answer_ns=settings.answer_timeout_ns,
        connections=100,
        body_bytes_max=settings.answer_bytes_max,
    )
    proxy = FencedProxy(
        marks,
        client,
        upstream=settings.upstream,
        upstream_keyed=settings.upstream_keyed,
        horizon_ns=settings.horizon_ns,
        answer_bytes_max=settings.answer_bytes_max,
        authorization=environment.get(settings.authorization_env, "") if settings.authorization_env else "",
    )
    server = HttpServer(settings.listen, proxy, body_bytes_max=settings.body_bytes_max)
    try:
        client.open()
        await server.start()
        _LOG.info(
            "proxy started",
            listen=server.address,
            upstream=settings.upstream,
            mode=marks.mode.value,
            left_in_doubt=marks.left_in_doubt,
        )
        if server.exposed:
            _LOG.warning("proxy can be reached from other machines: who reaches it may claim", listen=server.address)
        await stop.wait()
        await proxy.drain((settings.connect_timeout_ns + settings.answer_timeout_ns) / 1e9)
        return 0
    finally:
        await server.close()
        await proxy.close()
