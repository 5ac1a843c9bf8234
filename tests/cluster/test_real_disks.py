"""Disks that really fail, under real nodes: full, broken once, lying afterwards, and processes that end in a write.

They need what not every machine gives: root for file systems of their own, strace for calls that fail. Each
test says what it lacks.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fencepost.cli.local_cluster import LocalCluster
from fencepost.raft.core.entry import Entry
from fencepost.raft.core.errors import FencepostError, Outcome, StorageError
from fencepost.raft.core.events import Persist
from fencepost.raft.outbox.codec import Command
from fencepost.storage.disk import RealDisk
from fencepost.storage.identity import DataDirectory
from fencepost.storage.log_store import FileLogStore
from fencepost.storage.reader import read_log

from ..cli.running import PROGRAM, environment
from ..storage.world import entries
from .support import Load, audit, credit, endless, unfinished

pytestmark = [pytest.mark.servers, pytest.mark.endure]

WRITES = "pwritev,pwritev2"
"""One or the other, as the C library has it."""

BYTES = 60_000
"""Of a payload that fills a small disk."""


# -- what the machine must give -----------------------------------------------------------------------


class Mounts:
    """File systems of their own, gone after the test."""

    def __init__(self) -> None:
        self._made: list[Path] = []

    def mount(self, place: Path, *arguments: str) -> None:
        """Skips the test where nothing can be mounted."""
        place.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(["mount", *arguments, os.fspath(place)], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"no file system can be mounted here (it takes root): {made.stderr.strip()}")
        self._made.append(place)

    def unmount(self, place: Path) -> None:
        self._made.remove(place)
        subprocess.run(["umount", os.fspath(place)], check=True)

    def unmount_all(self) -> None:
        for place in reversed(list(self._made)):
            self.unmount(place)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    if sys.platform != "linux":
        pytest.skip("file systems of their own are made with Linux's mount")
    made = Mounts()
    yield made
    made.unmount_all()


def strace() -> str:
    """Skips the test where there is none, or where it may not look at other processes."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("there is no strace here: apt-get install strace")
    return found


@asynccontextmanager
async def injected(process: int, *faults: str) -> AsyncIterator[None]:
    """From here on these system calls of a process fail, or kill it, as strace's `inject=` says."""
    chosen = [part for fault in faults for part in ("-e", f"inject={fault}")]
    calls = ",".join(fault.partition(":")[0] for fault in faults)
    command = [strace(), "-f", "-p", str(process), "-e", f"trace={calls}", *chosen]
    tracer = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert tracer.stderr is not None
    drained = None
    try:
        line = await tracer.stderr.readline()
        if b"attached" not in line:
            pytest.skip(f"strace may not attach to a process here (it takes root): {line.decode().strip()}")
        drained = asyncio.create_task(tracer.stderr.read())
        yield
    finally:
        with suppress(ProcessLookupError):
            tracer.send_signal(signal.SIGTERM)
        await tracer.wait()
        if drained is not None:
            await drained


# -- failing syncs ------------------------------------------------------------------------------------


async def test_s12_a_leader_whose_sync_fails_ends_and_another_leads(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster()
    cluster.start()
    leader = (await cluster.ready())["node_id"]
    async with cluster.client(timeout_s=60) as client:
        async with Load(client, [credit(f"op-{n}", "paced") for n in range(300)]) as load:
            await load.answered(30)
            async with injected(cluster.processes[leader].pid, "fdatasync:error=EIO:when=3"):
                # Only the third one fails: the fourth would succeed, and must not be tried.
                assert await cluster.exit_code(leader, within_s=20) == 1
            successor = await cluster.ready(besides=[leader], within_s=20)
            assert successor["node_id"] != leader
            await load.finished()
        assert load.errors == {}
        failed = [line for line in cluster.log_lines(leader) if line["event"] == "log_failed"]
        assert [line["code"] for line in failed] == ["STORAGE_FAILED"]
        # The file decides what exists, and not what the process believed.
        cluster.start(leader)
        await cluster.caught_up((await cluster.ready())["commit_index"], leader)
    await cluster.stop()
    found = audit(cluster, load.answers)
    assert found.problems == []
    assert unfinished(found.machine) == []


async def test_s12_who_waited_for_the_failed_sync_hears_that_it_is_unknown(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(nodes=["n1"])
    cluster.start()
    await cluster.ready()
    async with cluster.client(timeout_s=3) as client:
        assert (await client.submit(credit("before"))).state == "succeeded"
        async with injected(cluster.processes["n1"].pid, "fdatasync:error=EIO:when=1"):
            with pytest.raises(FencepostError) as answer:
                await client.submit(credit("during"))
            assert answer.value.outcome is Outcome.UNKNOWN
            assert await cluster.exit_code("n1", within_s=20) == 1
        cluster.start()
        await cluster.ready()
        assert (await client.submit(credit("during"), timeout_s=30)).state == "succeeded"
    await cluster.stop()
    assert audit(cluster, ["before", "during"]).problems == []


# -- ends in the middle of a call -----------------------------------------------------------------------


@pytest.mark.parametrize("call", ["fdatasync", WRITES])
async def test_s13_a_leader_that_is_killed_in_the_nth_call_loses_nothing(
    call: str, make_cluster: Callable[..., LocalCluster]
) -> None:
    cluster = make_cluster()
    cluster.start()
    async with (
        cluster.client(timeout_s=120) as client,
        Load(client, endless()) as load,
    ):
        for nth in (1, 2, 3, 7, 20):
            leader = (await cluster.ready())["node_id"]
            async with injected(cluster.processes[leader].pid, f"{call}:signal=KILL:when={nth}"):
                assert await cluster.exit_code(leader, within_s=30) == -signal.SIGKILL
            cluster.start(leader)
        await cluster.ready()
        await load.answered(len(load.answers) + 50)
        assert load.errors == {}
    await cluster.stop()
    assert audit(cluster, load.answers).problems == []


@pytest.mark.parametrize("call", [WRITES, "fdatasync", "fsync", "rename"])
def test_s14_a_workload_that_is_killed_in_the_nth_call_is_recovered(call: str, tmp_path: Path) -> None:
    """A life on a real disk, in a process of its own for each place where it ends."""
    tracer, killed = strace(), 0
    for nth in (1, 2, 3, 5, 8, 13, 21, 34):
        folder, acks = tmp_path / f"{nth}", tmp_path / f"{nth}.acks"
        fault = f"inject={call}:signal=KILL:when={nth}"
        command = [
            *(tracer, "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}", "-e", fault),
            *(*PROGRAM, "debug", "storage-workload", os.fspath(folder), "--seed", "3", "--thread"),
        ]
        with acks.open("wb") as lines:
            code = subprocess.run(command, stdout=lines, env=environment(), check=False).returncode
        # strace ends in the way that its process did.
        assert code in (0, -signal.SIGKILL, 128 + signal.SIGKILL), code
        killed += code != 0
        judged = subprocess.run(
            [*PROGRAM, "debug", "storage-recover", os.fspath(folder), "--acks", os.fspath(acks)],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert judged.returncode == 0, (nth, judged.stdout, judged.stderr)
        if code == 0:
            break
    # Calls are counted thread by thread, so a later one may not come any more.
    assert killed >= 3


# -- full ---------------------------------------------------------------------------------------------


def large(name: str) -> Command:
    return Command(name, "ledger", "paced", "", b'{"cents": 1, "note": "%s"}' % (b"x" * BYTES))


async def test_s11_a_node_on_a_full_disk_ends_and_heals_when_there_is_space(
    mounts: Mounts, make_cluster: Callable[..., LocalCluster]
) -> None:
    cluster = make_cluster()
    place = cluster.data_path("n3")
    # Of all names, this one is no stranger in a data directory.
    ballast = place / "lost+found"
    mounts.mount(place, "-t", "tmpfs", "-o", "size=40m", "tmpfs")
    cluster.start()
    await cluster.ready()
    async with cluster.client(timeout_s=120) as client:
        async with Load(client, (large(f"op-{n}") for n in range(150))) as load:
            await load.answered(5)
            fill_up(ballast)
            assert await cluster.exit_code("n3", within_s=60) == 1
            failed = [line for line in cluster.log_lines("n3") if line["event"] == "log_failed"]
            assert [line["code"] for line in failed] == ["STORAGE_FULL"]
            # The others go on; and without a free byte it says what is wrong, and changes nothing.
            await load.answered(len(load.answers) + 10)
            said = len(cluster.log_path("n3").read_text())
            cluster.start("n3")
            assert await cluster.exit_code("n3", within_s=30) == 1
            assert "STORAGE_FULL" in cluster.log_path("n3").read_text()[said:]
            await load.finished()
        assert load.errors == {}
        ballast.unlink()
        cluster.start("n3")
        await cluster.caught_up((await cluster.ready())["commit_index"], "n3")
    await cluster.stop()
    found = audit(cluster, load.answers)
    assert found.problems == []
    assert unfinished(found.machine) == []


def fill_up(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)) == 4096:
            pass


# -- a disk that fails once -------------------------------------------------------------------------------


def test_s12_a_sync_that_fails_once_and_then_succeeds_is_not_believed(mounts: Mounts, tmp_path: Path) -> None:
    """An ext4 image on a memory file system that is full: what is written back to it is lost, once."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4 here: apt-get install e2fsprogs")
    below, place = tmp_path / "below", tmp_path / "place"
    mounts.mount(below, "-t", "tmpfs", "-o", "size=24m", "tmpfs")
    image = below / "image"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    # Without a journal: its own failure would end the file system before the data's is seen.
    command = ["mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0", os.fspath(image)]
    subprocess.run(command, check=True, capture_output=True)
    mounts.mount(place, "-o", "loop,errors=continue", os.fspath(image))
    directory, store, failures = open_store(place)
    acknowledged = 0
    ballast = below / "ballast"
    while not failures and acknowledged < 400:
        if acknowledged == 5:
            fill_up(ballast)
        acknowledged = write_one(store, acknowledged, failures)
    # EIO or ENOSPC, as the system has it: a sync that failed is the last one either way.
    assert len(failures) == 1
    assert "syncing" in failures[0].message
    assert 5 <= acknowledged < 400
    # The trap: the very same file can be synced now, and what it was asked to keep is gone.
    segment = max((place / "n1" / "log").glob("*.log"))
    with segment.open("r+b", buffering=0) as file:
        os.fdatasync(file.fileno())
    assert not store.step(), "a failed store does nothing more"
    store.close()
    directory.close()
    ballast.unlink()
    held = read_again(place, acknowledged)
    mounts.unmount(place)
    mounts.mount(place, "-o", "loop", os.fspath(image))
    # What the first start found is there when nothing of the cache is left.
    assert read_log(place / "n1").entries == held


def open_there(place: Path) -> DataDirectory:
    return DataDirectory.open(
        place / "n1", cluster_id="c1", node_id="n1", voters=("n1",), disk=RealDisk(), reserve_bytes=0
    )


def open_store(place: Path) -> tuple[DataDirectory, FileLogStore, list[StorageError]]:
    directory = open_there(place)
    store, _ = FileLogStore.open(directory, segment_bytes=64 << 20)
    failures: list[StorageError] = []
    store.start_stepped(lambda sequence: None, failures.append)
    return directory, store, failures


def write_one(store: FileLogStore, acknowledged: int, failures: list[StorageError]) -> int:
    index = acknowledged + 1
    store.append(Persist(index, None, 0, entries(index, index, size=BYTES), 0))
    store.step()
    return acknowledged if failures else index


def read_again(place: Path, acknowledged: int) -> list[Entry]:
    """Start again: everything acknowledged is there, and of what was under way all or nothing."""
    directory = open_there(place)
    store, recovered = FileLogStore.open(directory, segment_bytes=64 << 20)
    store.close()
    directory.close()
    assert len(recovered.entries) in (acknowledged, acknowledged + 1)
    assert recovered.entries == entries(1, len(recovered.entries), size=BYTES)
    return list(recovered.entries)
