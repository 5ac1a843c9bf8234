"""A process that is one node's alone: its settings, its signals, its end."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ..raft.core.errors import FencepostError
from .compose import ComposedNode
from .config import NodeConfiguration
from .parts import Parts, own_thread


async def run_node(configuration: NodeConfiguration) -> int:
    """Run one node until SIGTERM or SIGINT, or until it fails. Returns the process's exit code.

    Settings of the whole process are made here and nowhere else: it is this node's alone.
    Raises ConfigurationError or StorageError when the node cannot even start.
    """
    loop = asyncio.get_running_loop()
    # Effects run on another loop of the same kind: most of what one exchange with a server costs is the loop's.
    parts = Parts(runtime=partial(own_thread, new_loop=type(loop)))
    node = ComposedNode(configuration, parts=parts, while_loading=without_collections)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        # Before anything is served: with a million operations it takes a second.
        settle_process()
        await node.start()
        stopping = loop.create_task(stop.wait())
        await asyncio.wait((stopping, node.loop.failed), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if node.loop.failed.done():
            error = node.loop.failed.result()
            return error.exit_code if isinstance(error, FencepostError) else 1
        await node.drain()
        return 0
    finally:
        await node.close()


def settle_process() -> None:
    """Settings of the whole process, once all of a node is made.

    What was made so far lives as long as the process: keep full collections from walking it, and make them
    rarer. A collection stops the loop for as long as it lasts (S40). And the log's thread needs the interpreter
    twice a write, while a turn of the node's loop may hold it for milliseconds. Measured: half of the default's
    time per durable batch while the loop is busy.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 1000)
    sys.setswitchinterval(0.0005)


@contextmanager
def without_collections() -> Iterator[None]:
    """While a state is loaded hundreds of thousands of objects are made that all stay. To look for garbage among
    them stops the loop, measured: for 60 ms at a time, and finds none (S40)."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
