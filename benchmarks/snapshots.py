"""What snapshots of a large state cost the nodes that take, send and receive them.

    python -m benchmarks.snapshots [--records 1000000] [--json FILE]

Real node processes on loopback, with real files, each started over one snapshot of so many operations. First
one node alone: it takes another snapshot while a load process submits. Then two nodes, of which the second one
is empty: it receives the snapshot, reads it in, and goes on with the log.

*Longest lag* is how late the node's loop came to what it had to do at a given moment: by the watchdog of the
node itself, which ``fencepost status`` shows and which looks once a heartbeat, and by a second one that looks
every millisecond. The bound is half a heartbeat. A machine with more to do than processors makes every loop late,
whatever runs in it. So two more figures stand beside it: how much the process itself computed at most, on all its
threads, while its loop waited; and how late a process was meanwhile that had nothing to do at all. Memory is the
process's resident set: what the state takes, and the most that came on top. Nothing here fails by a figure: it
prints what it measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop

from fencepost.cli.compose import ComposedNode
from fencepost.cli.config_file import load
from fencepost.cli.local_cluster import free_peer_addresses
from fencepost.cli.logs import configure_logging
from fencepost.cli.process import settle_process, without_collections
from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind, Snapshot
from fencepost.raft.core.token import FencingToken
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.plainlog import PlainLog
from fencepost.raft.outbox.codec import Command, Dispatch, DispatchRow, Outcome, OutcomeRow, encode
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.storage.identity import DataDirectory
from fencepost.storage.snapshots import FileSnapshotStore

CLUSTER = "bench"
BATCH = 512
HEARTBEAT_MS = 100.0
BOUND_MS = HEARTBEAT_MS / 2
PROBE_S = 0.001
SUBMITTERS = 16
PAYLOAD = b'{"account":"acct-0001","cents":12345,"memo":"' + b"x" * 60 + b'"}'

_CONFIGURATION = """
[cluster]
id = "bench"
[node]
id = "{node}"
data_dir = "{folder}/{node}"
peer = "{peer}"
client = "{client}"
log_level = "warning"
[peers]
{peers}
[snapshots]
entries = {entries}
payload = "0B"
[resources.ledger]
kind = "sqlite"
path = "{folder}/ledger.db"
schema = "CREATE TABLE IF NOT EXISTS entries(account TEXT NOT NULL, cents INTEGER NOT NULL)"
[resources.ledger.effects.credit]
sql = "INSERT INTO entries(account, cents) VALUES (:account, :cents)"
"""


# -- the state ----------------------------------------------------------------------------------------


def filled(records: int) -> OutboxMachine:
    """A machine with so many operations, all of them done: each was committed, dispatched and has its outcome."""
    machine = OutboxMachine()
    token = FencingToken(1, 1)
    index = 0

    def apply(data: bytes) -> Any:
        nonlocal index
        index += 1
        return machine.apply(Entry(index, 1, EntryKind.OUTBOX, 1_700_000_000_000_000_000 + index, data))

    for start in range(0, records, BATCH):
        names = [f"0198f3b2-7c4e-7000-8000-{number:012d}" for number in range(start, min(start + BATCH, records))]
        first = index + 1
        for name in names:
            apply(encode(Command(name, "ledger", "credit", "", PAYLOAD)))
        rows = range(first, first + len(names))
        apply(encode(Dispatch("ledger", token, [DispatchRow(row, 1) for row in rows])))
        apply(encode(Outcome("ledger", token, [OutcomeRow(row, 1, 0, b'{"rows":1}', "", 0) for row in rows])))
    return machine


def fill(path: Path, records: int) -> None:
    """Write the data directory of a node that has nothing but a snapshot. Prints its size in bytes."""
    gc.disable()
    configuration = load(path)
    machine = filled(records)
    applier = Applier({EntryKind.OUTBOX: machine, EntryKind.EMBEDDED: PlainLog()})
    applier.last_applied = machine.last_applied
    directory = DataDirectory.open(
        configuration.node.data_dir, cluster_id=CLUSTER, node_id=configuration.node.id, voters=configuration.voters
    )
    label = Snapshot(machine.last_applied, 1, machine.cluster_time_ns, Configuration(configuration.voters), 0)
    written = FileSnapshotStore.open(directory).write(label, applier.capture())
    directory.close()
    _say(bytes=written.size_bytes)


# -- one node -----------------------------------------------------------------------------------------


def resident_bytes(process: str = "self") -> int:
    return _status_bytes(process, "VmRSS:")


def peak_bytes(process: str = "self") -> int:
    return _status_bytes(process, "VmHWM:")


def _status_bytes(process: str, name: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


class Bystander:
    """A thread of a process that does nothing else: how late it wakes is what the machine does to everybody."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            due = time.monotonic() + PROBE_S
            time.sleep(PROBE_S)  # What is measured is how late a sleep ends where nothing else is done.
            self.longest_ms = max(self.longest_ms, (time.monotonic() - due) * 1e3)


class Probe:
    """The second watchdog: how late a callback comes that is due every millisecond."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self.computed_ms = 0.0
        """The most that this process computed while its loop waited."""
        self._loop = asyncio.get_running_loop()
        self._due = self._computed = 0.0
        self._arm()

    def _arm(self) -> None:
        self._computed = time.process_time()
        self._due = self._loop.time() + PROBE_S
        self._loop.call_at(self._due, self._fired)

    def _fired(self) -> None:
        late_ms = (self._loop.time() - self._due) * 1e3
        self.longest_ms = max(self.longest_ms, late_ms)
        self.computed_ms = max(self.computed_ms, (time.process_time() - self._computed) * 1e3)
        self._arm()


async def serve(path: Path) -> None:
    """Be one node, as ``fencepost serve`` is, and say what happens to its snapshots. Ends with its input."""
    before = resident_bytes()
    began = time.monotonic()
    node = ComposedNode(load(path), while_loading=without_collections)
    settle_process()
    await node.start()
    loop, keeper = node.loop, node.loop.snapshots
    assert keeper is not None
    _say(event="started", seconds=time.monotonic() - began, state_bytes=resident_bytes() - before)
    probe = Probe()
    phase: dict[str, Any] = {}

    def begin(*_: Any) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # The peak counts from here.
        loop._timer.longest_lag_ns = 0
        probe.longest_ms = probe.computed_ms = 0.0
        phase.update(at=time.monotonic(), resident=resident_bytes())

    def end(event: str) -> None:
        if phase:
            _say(
                event=event,
                seconds=time.monotonic() - phase["at"],
                watchdog_ms=loop.longest_lag_ns / 1e6,
                probe_ms=probe.longest_ms,
                computed_ms=probe.computed_ms,
                extra_bytes=peak_bytes() - phase["resident"],
                kept_bytes=resident_bytes() - phase["resident"],
            )
            phase.clear()

    # The keeper is the product's own; it is only listened to, so that no hook for a benchmark stands in it.
    keeper.take = _first(begin, keeper.take)  # type: ignore[method-assign]
    keeper._taken = _then(keeper._taken, lambda: end("taken"))  # type: ignore[method-assign]
    keeper.store = _first(lambda part: begin() if part.offset == 0 else None, keeper.store)  # type: ignore[method-assign]
    keeper._discarded = _then(keeper._discarded, lambda: end("received"))  # type: ignore[method-assign]
    reader = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    stopping = asyncio.ensure_future(reader)
    await asyncio.wait((stopping, loop.failed), return_when=asyncio.FIRST_COMPLETED)
    await node.close()


def _first(before: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    def both(*arguments: Any) -> Any:
        before(*arguments)
        return call(*arguments)

    return both


def _then(call: Callable[..., Any], after: Callable[[], Any]) -> Callable[..., Any]:
    def both(*arguments: Any) -> None:
        call(*arguments)
        after()

    return both


def _say(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


# -- the whole ----------------------------------------------------------------------------------------


class Node:
    """One node's process, and what it says."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.snapshots", "--serve", str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self, event: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found: dict[str, Any] = json.loads(line)
            if found.get("event") == event:
                return found
        raise RuntimeError(f"the node ended before it was {event}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait()


def write_configurations(folder: Path, names: list[str], entries: int) -> dict[str, Path]:
    addresses = free_peer_addresses(names)
    paths = {}
    for name in names:
        host, _, port = addresses[name].rpartition(":")
        peers = "\n".join(f'{peer} = "{address}"' for peer, address in addresses.items() if peer != name)
        text = _CONFIGURATION.format(
            node=name,
            folder=folder,
            peer=addresses[name],
            client=f"{host}:{int(port) + 100}",
            peers=peers,
            entries=entries,
        )
        paths[name] = folder / f"{name}.toml"
        paths[name].write_text(text)
    return paths


@contextlib.contextmanager
def load_on(path: Path) -> Iterator[None]:
    """A process that submits as long as the block lasts."""
    client = load(path).node.client
    command = [sys.executable, "-m", "benchmarks.load", "done", str(SUBMITTERS), "3600", "200", client]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def run_fill(path: Path, records: int) -> int:
    command = [sys.executable, "-m", "benchmarks.snapshots", "--fill", str(path), "--records", str(records)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(json.loads(output)["bytes"])


def measure_taking(folder: Path, records: int) -> dict[str, Any]:
    """One node, under load, takes a snapshot."""
    path = write_configurations(folder, ["n1"], entries=2000)["n1"]
    size = run_fill(path, records)
    node = Node(path)
    try:
        started = node.hear("started")
        bystander = Bystander()
        with load_on(path):
            taken = node.hear("taken")
        taken["bystander_ms"] = bystander.longest_ms
    finally:
        node.close()
    return {"snapshot_bytes": size, "started": started, "taken": taken}


def measure_receiving(folder: Path, records: int) -> dict[str, Any]:
    """Two nodes under load, of which one has to be sent the snapshot first."""
    paths = write_configurations(folder, ["n1", "n2"], entries=0)
    run_fill(paths["n1"], records)
    first = Node(paths["n1"])
    try:
        first.hear("started")
        second = Node(paths["n2"])
        try:
            bystander = Bystander()
            with load_on(paths["n1"]):
                received = second.hear("received")
            received["bystander_ms"] = bystander.longest_ms
        finally:
            second.close()
    finally:
        first.close()
    # It had no state before, so what it has now is no memory on top.
    received["extra_bytes"] -= received["kept_bytes"]
    return received


def show(figures: dict[str, Any], records: int) -> None:
    started, taken, received = figures["started"], figures["taken"], figures["received"]
    megabyte = 1 << 20
    print(
        f"state of {records:,} operations: {started['state_bytes'] / megabyte:,.0f} MiB of memory, "
        f"{figures['snapshot_bytes'] / megabyte:,.0f} MiB as a snapshot; read in at the start in "
        f"{started['seconds']:.1f} s"
    )
    for name, each in (("taken under load", taken), ("received and restored", received)):
        print(
            f"{name:22} {each['seconds']:6.1f} s   longest lag {each['watchdog_ms']:5.1f} ms by the node's watchdog, "
            f"{each['probe_ms']:5.1f} ms by the finer one: {verdict(each)} {BOUND_MS:.0f} ms   "
            f"computed meanwhile {each['computed_ms']:.1f} ms, an idle process late by {each['bystander_ms']:.1f} ms   "
            f"memory on top {max(0, each['extra_bytes']) / megabyte:,.0f} MiB"
        )


def verdict(each: dict[str, Any]) -> str:
    if max(each["watchdog_ms"], each["probe_ms"]) <= BOUND_MS:
        return "within"
    return "above" if each["bystander_ms"] < BOUND_MS / 2 else "the machine is too busy to tell whether it is within"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, default=None, help="write the figures there")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve or arguments.fill:
        configure_logging("warning", colored=False)
    if arguments.serve:
        uvloop.run(serve(arguments.serve))
        return
    if arguments.fill:
        fill(arguments.fill, arguments.records)
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as first, tempfile.TemporaryDirectory() as second:
        figures = measure_taking(Path(first), arguments.records)
        figures["received"] = measure_receiving(Path(second), arguments.records)
    show(figures, arguments.records)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
