"""How long a log of many small entries takes to open, and how much memory is held then.

    python -m benchmarks.opening DIRECTORY [--windowed]

opens the log that ``benchmarks.storage`` has written in DIRECTORY, in a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import structlog

from fencepost.cli.process import without_collections
from fencepost.raft.core.entry import Entry, EntryKind, HardState
from fencepost.raft.core.events import Persist
from fencepost.storage.identity import DataDirectory
from fencepost.storage.log_store import FileLogStore
from fencepost.storage.recovery import ALL, Window

FIRST_TIME_NS = 1_700_000_000_000_000_000
BATCH = 64
PAYLOAD = bytes(40)
NODES_WINDOW = Window(50_000, 64 << 20)
"""What a node keeps in memory of its log, by default."""


def entries(first: int, count: int, payload: bytes) -> list[Entry]:
    return [Entry(index, 1, EntryKind.OUTBOX, FIRST_TIME_NS, payload) for index in range(first, first + count)]


def open_directory(path: Path) -> DataDirectory:
    return DataDirectory.open(path, cluster_id="bench", node_id="n1", voters=("n1",))


def write_log(path: Path, count: int) -> int:
    """A log of so many small entries; its size on disk, bytes."""
    directory = open_directory(path)
    store, _ = FileLogStore.open(directory)
    store.start(lambda sequence: None, lambda error: None)
    store.append(Persist(1, HardState(1, "n1"), 0, [], 0, None, 0))
    for number, first in enumerate(range(1, count + 1, BATCH), 2):
        made = entries(first, min(BATCH, count + 1 - first), PAYLOAD)
        store.append(Persist(number, None, 0, made, first - 1, None, 0))
    store.close()
    if (failure := store.status().failure) is not None:
        raise failure
    directory.close()
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def recover(path: Path, window: Window) -> dict[str, float]:
    """In a process of its own, so that what the log holds is all that is new in it."""
    gc.collect()
    before = _resident_bytes()
    directory = open_directory(path)
    began, processor = time.perf_counter(), time.process_time()
    with without_collections():
        store, recovered = FileLogStore.open(directory, window=window)
    took, processor = time.perf_counter() - began, time.process_time() - processor
    gc.collect()
    held = _resident_bytes() - before
    found = {"entries": recovered.last_index, "seconds": took, "processor_s": processor, "held_bytes": held}
    store.close()
    directory.close()
    return found


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(directory: Path, count: int, rounds: int) -> dict[str, Any]:
    path = directory / "recovery"
    size = write_log(path, count)
    found = [_recover_elsewhere(path, windowed=True) for _ in range(rounds)]
    whole = _recover_elsewhere(path, windowed=False)
    shutil.rmtree(path)
    seconds = statistics.median(each["seconds"] for each in found)
    return {
        "entries": count,
        "payload_bytes": len(PAYLOAD),
        "log_bytes": size,
        "seconds": seconds,
        "entries_per_s": count / seconds,
        "processor_s": statistics.median(each["processor_s"] for each in found),
        "held_bytes": statistics.median(each["held_bytes"] for each in found),
        "held_bytes_whole": whole["held_bytes"],
    }


def _recover_elsewhere(path: Path, *, windowed: bool) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.opening", str(path), *(["--windowed"] if windowed else [])]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    found: dict[str, float] = json.loads(output)
    return found


def show(found: dict[str, Any]) -> None:
    millions = found["entries"] / 1e6
    held, whole, log = (found[name] / 1e6 / millions for name in ("held_bytes", "held_bytes_whole", "log_bytes"))
    print(
        f"opening a log of {found['entries']:,} entries of {found['payload_bytes']} bytes: {found['seconds']:.2f} s, "
        f"{found['processor_s']:.2f} s of them in the processor; {found['entries_per_s']:,.0f} entries/s"
    )
    print(f"for a million of them: {held:.0f} MB in memory, {whole:.0f} MB if all are kept there; {log:.0f} MB of log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--windowed", action="store_true", help="keep what a node keeps, and not all")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(json.dumps(recover(arguments.directory, NODES_WINDOW if arguments.windowed else ALL)))


if __name__ == "__main__":
    main()
