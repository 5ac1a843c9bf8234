"""A cluster of real node processes on this machine, for the demo, tests and benchmarks.

Each node is one operating system process started from its own TOML file, as a person would start it
in a shell; what happens to it is what the operating system can do to a process: SIGKILL, SIGTERM,
SIGSTOP, SIGCONT. No process outlives this one, whatever ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ..raft.core.errors import CheckFailed, ConfigurationError, FencepostError
from ..transport.client import Client
from .commands.cluster import CLIENT_PORT_OFFSET, client_address, node_tables, write_cluster

T = TypeVar("T")
Status = dict[str, Any]
"""What a node answers to the call ``status``."""

POLL_S = 0.02
QUESTION_TIMEOUT_S = 0.5
"""How long one node may take to say how it stands; a stopped one never does."""
GRACE_S = 10.0
"""How long a node may take to end after SIGTERM before it is killed at the end of everything."""
_PORTS = range(20_000, 29_800)
"""Below the ports that the operating system hands out by itself, so that no connection takes one."""


def node_command(prelude: str = "") -> tuple[str, ...]:
    """The command that runs ``fencepost`` in a process of its own, tied to the life of this one.

    ``prelude`` is Python that the process runs first; tests plant faults with it. ``-P`` keeps the
    working folder off the import path.
    """
    source = (
        "from fencepost.cli.local_cluster import end_with_parent\n"
        f"end_with_parent({os.getpid()})\n"
        f"{prelude}\n"
        "from fencepost.cli.main import main\n"
        "main()\n"
    )
    return (sys.executable, "-P", "-c", source)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process ``parent``, which started it, ends (Linux).

    Stopped processes are killed as well. Elsewhere the parent's own clean-up has to do.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # It ended before the line above.
            os._exit(128 + signal.SIGKILL)


def _source() -> str:
    """The folder this package was imported from: every process of a cluster runs the same source."""
    front_door = sys.modules[__name__.partition(".")[0]].__file__
    assert front_door is not None
    return str(Path(front_door).absolute().parents[1])


def free_peer_addresses(
    nodes: Sequence[str], randomness: random.Random | None = None, *, reserved: contextlib.ExitStack | None = None
) -> dict[str, str]:
    """Loopback addresses by node id. Of each, the port and the client port that belongs to it are free.

    Until ``reserved`` closes they are this caller's: whoever else looks here for free ones, in whatever process, passes
    them by, and only a server that is told to use them listens there.
    """
    candidates = (randomness or random.SystemRandom()).sample(_PORTS, len(_PORTS))
    found: dict[str, str] = {}
    with contextlib.ExitStack() as held:
        for node in nodes:
            while not _hold(reserved or held, port := candidates.pop()):
                if not candidates:
                    raise ConfigurationError("no free ports on 127.0.0.1")
            found[node] = f"127.0.0.1:{port}"
    return found


def _hold(held: contextlib.ExitStack, port: int) -> bool:
    """Bind a port and the client port that goes with it until ``held`` closes, if both are free."""
    with contextlib.ExitStack() as trial:
        for each in (port, port + CLIENT_PORT_OFFSET):
            listener = trial.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", each))  # Alone: fails beside any other socket there.
            except OSError:
                return False
            # From now on a server can bind the port too, since nobody listens here and both allow it (socket(7)).
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.push(trial.pop_all())
    return True


async def until(look: Callable[[], Awaitable[T | None]], *, within_s: float, what: str) -> T:
    """Look again and again until ``look`` returns something true, and return it.

    Raises CheckFailed naming ``what``: another process gives no event that could be awaited.
    """
    deadline = time.monotonic() + within_s
    while True:
        found = await look()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise CheckFailed(f"{what}: not within {within_s:g} s")
        await asyncio.sleep(POLL_S)


class LocalCluster:
    """Nodes by id. An async context manager: leaving it kills every process that is left.

    ``definitions`` is TOML put at the end of every node's file (resources, ``[raft]``, …); relative
    paths in it are relative to ``folder``. ``commands`` gives single nodes another command than
    ``command``, which is the beginning of a command line like :func:`node_command`'s.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: Sequence[str] = ("n1", "n2", "n3"),
        definitions: str = "",
        cluster_id: str = "",
        command: Sequence[str] | None = None,
        commands: Mapping[str, Sequence[str]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.nodes = tuple(nodes)
        self.cluster_id = cluster_id or f"c-{uuid.uuid4().hex[:12]}"
        self._reserved = contextlib.ExitStack()
        weakref.finalize(self, self._reserved.close)
        self.peers = free_peer_addresses(self.nodes, reserved=self._reserved)
        self.endpoints = {node: client_address(peer) for node, peer in self.peers.items()}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        """The latest process of each node that was started, running or ended."""
        self.commands = {node: tuple((commands or {}).get(node) or command or node_command()) for node in self.nodes}
        self._definitions = definitions
        # What configures this process must not configure the nodes; and they run the same source.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("FENCEPOST_")}
        self.environment = {**inherited, "PYTHONPATH": _source(), **(environment or {})}
        self._questions = Client(list(self.endpoints.values()), timeout_s=QUESTION_TIMEOUT_S)
        write_cluster(folder, self.peers, cluster_id=self.cluster_id, definitions="\n" + definitions)

    async def __aenter__(self) -> LocalCluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()
        await self._questions.close()

    def prepare(self, node: str, *, incarnation: int = 1) -> str:
        """Write the file of one more node, which waits to be added once it is started: its peer address."""
        peer = free_peer_addresses([node], reserved=self._reserved)[node]
        own = node_tables(
            self.cluster_id, node, peer, client_address(peer), self.peers, join=True, incarnation=incarnation
        )
        (self.folder / f"{node}.toml").write_text(f"{own}\n{self._definitions}", encoding="utf-8")
        self.nodes = (*self.nodes, node)
        self.peers[node], self.endpoints[node] = peer, client_address(peer)
        self.commands[node] = next(iter(self.commands.values()))
        return peer

    # -- processes ----------------------------------------------------------------------------------

    def start(self, *nodes: str) -> None:
        """Start these nodes, or all, without waiting for anything. Their logs go on in the same files."""
        for node in nodes or self.nodes:
            before = self.processes.get(node)
            if before is not None and before.poll() is None:
                raise AssertionError(f"{node} runs already, as process {before.pid}")
            with self.log_path(node).open("ab") as log:
                self.processes[node] = subprocess.Popen(
                    [*self.commands[node], "node", "start", "--config", str(self.folder / f"{node}.toml")],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.environment,
                    # A group of its own: Ctrl-C in a terminal is for whoever runs the cluster.
                    process_group=0,
                )

    def last_line(self, node: str) -> str:
        """Of the node's log; empty if it has none."""
        lines = self.log_path(node).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else ""

    def signal(self, number: signal.Signals, *nodes: str) -> None:
        for node in nodes:
            self.processes[node].send_signal(number)

    def kill(self, *nodes: str) -> None:
        """SIGKILL, and gone when this returns."""
        self.signal(signal.SIGKILL, *nodes)
        for node in nodes:
            self.processes[node].wait()

    def freeze(self, *nodes: str) -> None:
        """SIGSTOP: the process neither runs nor ends, and its connections stay open."""
        self.signal(signal.SIGSTOP, *nodes)

    def thaw(self, *nodes: str) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT, *nodes)

    def kill_all(self) -> None:
        """End every process at once. Whatever happened before."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    def running(self) -> list[str]:
        return [node for node, process in self.processes.items() if process.poll() is None]

    async def exit_code(self, node: str, *, within_s: float) -> int:
        """Wait for a process to end: its exit code, or minus the number of the signal that ended it."""
        process = self.processes[node]

        async def ended() -> tuple[int] | None:
            code = process.poll()
            return None if code is None else (code,)

        return (await until(ended, within_s=within_s, what=f"end of node {node}"))[0]

    async def stop(self, *nodes: str, within_s: float = GRACE_S) -> dict[str, int]:
        """SIGTERM these nodes, or all that run, and wait: exit code by node."""
        chosen = nodes or self.running()
        self.signal(signal.SIGTERM, *chosen)
        return {node: await self.exit_code(node, within_s=within_s) for node in chosen}

    # -- questions ----------------------------------------------------------------------------------

    def client(self, *, timeout_s: float = 30.0) -> Client:
        """A new client of the whole cluster."""
        return Client(list(self.endpoints.values()), cluster_id=self.cluster_id, timeout_s=timeout_s)

    async def call(self, node: str, method: str, parameters: dict[str, Any] | None = None) -> Any:
        """Ask one node. Raises the node's error, or NoEndpoint if it does not answer."""
        return await self._questions.call(method, parameters or {}, endpoint=self.endpoints[node])

    async def status(self, node: str) -> Status | None:
        """What a node says of itself; None if it does not answer."""
        process = self.processes.get(node)
        if process is None or process.poll() is not None:
            return None
        try:
            found: Status = await self.call(node, "status")
        except FencepostError:
            return None
        return found if found["pid"] == process.pid else None

    async def statuses(self) -> dict[str, Status]:
        """What each node that answers says of itself."""
        found = await asyncio.gather(*(self.status(node) for node in self.nodes))
        return {node: status for node, status in zip(self.nodes, found, strict=True) if status is not None}

    async def leader(self, *, within_s: float = 30.0, besides: Sequence[str] = ()) -> Status:
        """Wait for a leader that a quorum follows, and that is none of ``besides``: its status."""

        async def look() -> Status | None:
            found = await self.statuses()
            leading = [status for node, status in found.items() if node not in besides and status["confirmed"]]
            return max(leading, key=lambda status: int(status["term"]), default=None)

        return await self._wait(look, within_s, "a leader")

    async def ready(self, *, within_s: float = 30.0, besides: Sequence[str] = ()) -> Status:
        """Wait for a leader at which every resource is active: its status."""

        async def look() -> Status | None:
            status = await self.leader(within_s=within_s, besides=besides)
            resources = status["resources"].values()
            return status if all(resource["activation"] == "active" for resource in resources) else None

        return await self._wait(look, within_s, "a leader with every resource active")

    async def caught_up(self, index: int, *nodes: str, within_s: float = 30.0) -> None:
        """Wait until these nodes, or all, have applied everything up to ``index``."""

        async def look() -> bool:
            found = await self.statuses()
            return all(node in found and found[node]["applied_index"] >= index for node in nodes or self.nodes)

        await self._wait(look, within_s, f"index {index} applied")

    async def _wait(self, look: Callable[[], Awaitable[T | None]], within_s: float, what: str) -> T:
        try:
            return await until(look, within_s=within_s, what=what)
        except CheckFailed as error:
            raise CheckFailed(error.message, tried=self._how_they_stand()) from None

    def _how_they_stand(self) -> list[str]:
        """A line for each node, for whoever has to find out why nothing happens."""
        lines = []
        for node in self.nodes:
            process = self.processes.get(node)
            code = None if process is None else process.poll()
            stands = "never started" if process is None else "runs" if code is None else f"ended with {code}"
            log = self.log_path(node).read_text(errors="replace").splitlines() if process is not None else []
            lines.append(f"{node} {stands}; last line of {self.log_path(node)}: {log[-1] if log else '(empty)'}")
        return lines

    # -- logs ---------------------------------------------------------------------------------------

    def log_path(self, node: str) -> Path:
        return self.folder / f"{node}.log"

    def data_path(self, node: str) -> Path:
        """The node's data directory, as cluster init has it."""
        return self.folder / node

    def log_lines(self, node: str) -> list[dict[str, Any]]:
        return read_log_lines(self.log_path(node))


def read_log_lines(path: Path) -> list[dict[str, Any]]:
    """A node's log: its JSON lines. What is none (a stack trace of the interpreter) becomes ``{"event": line}``."""
    found: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        found.append(row if isinstance(row, dict) else {"event": line})
    return found
