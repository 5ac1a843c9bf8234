"""The log on this disk, beside what the disk can do at all, in one run.

    python -m benchmarks.storage [--rounds 20] [--seconds 0.2] [--entries 1000000] [--directory DIR] [--json FILE]

**Appending.** Batches of 1, 16 and 256 entries are given to a ``FileLogStore``. Beside it ``os.pwritev``
and ``os.fdatasync`` write the same bytes, record after record, into a file of the same size that was
written in advance. Both take short turns within a round, so that whatever else the machine does falls on
both; figures are medians over the rounds, ratios are medians of the ratios within a round. On a busy
machine the processor time of a batch, of all threads, says more than its rate.

* *one at a time*: the next batch is given when the one before it is durable, so every batch pays for
  two hand-overs between threads. The raw writes are handed to a thread and back in the same way.
* *pipelined*: the store always has one more batch waiting, as under a node that is busy. Every batch is
  still a record and a sync of its own. The raw writes are a loop in one thread: the limit of the device.

**Recovery.** A log of a million small entries is opened, as a node does it: entries a second, and the memory
that is held then, by the window of newest entries that a node keeps, or by all of them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import msgpack
import structlog

from benchmarks import opening
from benchmarks.opening import entries, open_directory
from fencepost.raft.core.entry import Entry, HardState
from fencepost.raft.core.errors import StorageError
from fencepost.raft.core.events import Persist
from fencepost.storage.log_store import FileLogStore
from fencepost.storage.records import encode_record

PAYLOAD = bytes(200)
RAW_FILE_BYTES = 64 << 20
"""The raw writes go round in a file as long as a segment."""
COMPACTION_BATCHES = 1000


class Turn(NamedTuple):
    """What one turn of some seconds wrote."""

    batches: int
    written_bytes: int
    seconds: float
    processor_s: float
    """Of all threads."""

    @property
    def rate(self) -> float:
        return self.batches / self.seconds


# -- the store ----------------------------------------------------------------------------------------


class Store:
    """A log that is written to in batches of one size, each a record and a sync of its own."""

    def __init__(self, path: Path, batch: int) -> None:
        self._batch = batch
        self._directory = open_directory(path)
        self._store, _ = FileLogStore.open(self._directory)
        self._done: SimpleQueue[Turn | int | StorageError] = SimpleQueue()
        self._on_durable: Callable[[int], None] = self._done.put
        self._store.start(lambda sequence: self._on_durable(sequence), self._done.put)
        self._sequence = 0
        self._last_index = 0
        self._ready: deque[list[Entry]] = deque()
        self._batches = 1000
        """In the turn before."""
        self._append(HardState(1, "n1"))
        self._wait()

    def _append(self, hard_state: HardState | None = None) -> None:
        self._sequence += 1
        first, self._last_index = self._last_index + 1, self._last_index + self._batch
        # A node takes a snapshot now and then, and gives up the log before it: it does not grow for ever.
        given_up = max(first - self._batch, 0) if self._sequence % COMPACTION_BATCHES == 0 else 0
        made = self._ready.popleft() if self._ready else entries(first, self._batch, PAYLOAD)
        self._store.append(Persist(self._sequence, hard_state, 0, made, given_up, None, given_up))

    def _wait(self) -> Turn | int:
        outcome = self._done.get(timeout=60)
        if isinstance(outcome, StorageError):
            raise outcome
        return outcome

    def _prepare(self) -> None:
        """Entries for a turn: to make them is the work of whoever uses a log, and not the log's."""
        first = self._last_index + 1 + len(self._ready) * self._batch
        for number in range(self._batches * 5 // 4 - len(self._ready)):
            self._ready.append(entries(first + number * self._batch, self._batch, PAYLOAD))

    def one_at_a_time(self, seconds: float) -> Turn:
        self._prepare()
        syncs, written = self._counters()
        began, processor = (now := time.perf_counter()), time.process_time()
        while now - began < seconds:
            self._append()
            self._wait()
            now = time.perf_counter()
        return self._turn(syncs, written, now - began, processor)

    def pipelined(self, seconds: float) -> Turn:
        """The next batch is queued while the one before it is told to be durable: the writer never waits."""
        self._prepare()
        syncs, written = self._counters()
        began, processor = time.perf_counter(), time.process_time()

        def again(sequence: int) -> None:
            took = time.perf_counter() - began
            if took < seconds:
                self._append()
            else:
                self._done.put(self._turn(syncs, written, took, processor))

        self._on_durable = again
        self._append()
        turn = self._wait()
        self._on_durable = self._done.put
        assert isinstance(turn, Turn)
        return turn

    def _counters(self) -> tuple[int, int]:
        status = self._store.status()
        return status.syncs, status.written_bytes

    def _turn(self, syncs: int, written: int, seconds: float, processor: float) -> Turn:
        now_syncs, now_written = self._counters()
        self._batches = now_syncs - syncs
        return Turn(now_syncs - syncs, now_written - written, seconds, time.process_time() - processor)

    def close(self) -> None:
        self._store.close()
        self._directory.close()


# -- the disk alone -----------------------------------------------------------------------------------


class Raw:
    """The same bytes by ``os.pwritev`` and ``os.fdatasync`` into a file that was written in advance."""

    def __init__(self, path: Path, batch: int) -> None:
        write = Persist(1_000_000, None, 0, entries(1_000_000, batch, PAYLOAD), 0, None, 0)
        body: bytes = msgpack.packb([write])
        self._pieces = encode_record(0, 0, 1, body)
        self._size = sum(map(len, self._pieces))
        self._body_bytes = len(body)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        for offset in range(0, RAW_FILE_BYTES, 1 << 20):
            os.pwrite(self._descriptor, bytes(1 << 20), offset)
        os.fsync(self._descriptor)
        self._offset = 0

    def _write(self) -> None:
        if self._offset + self._size > RAW_FILE_BYTES:
            self._offset = 0
        os.pwritev(self._descriptor, self._pieces, self._offset)
        os.fdatasync(self._descriptor)
        self._offset += self._size

    def one_at_a_time(self, seconds: float) -> Turn:
        """Each write is handed to a thread, and its end handed back."""
        asked: SimpleQueue[bool] = SimpleQueue()
        done: SimpleQueue[bool] = SimpleQueue()

        def work() -> None:
            while asked.get():
                self._write()
                done.put(True)

        thread = Thread(target=work)
        thread.start()
        batches = 0
        began, processor = (now := time.perf_counter()), time.process_time()
        while now - began < seconds:
            asked.put(True)
            done.get()
            batches += 1
            now = time.perf_counter()
        asked.put(False)
        thread.join()
        return Turn(batches, batches * self._body_bytes, now - began, time.process_time() - processor)

    def pipelined(self, seconds: float) -> Turn:
        """One after the other in one thread: what the device can do."""
        found: SimpleQueue[Turn] = SimpleQueue()

        def work() -> None:
            batches = 0
            began, processor = (now := time.perf_counter()), time.process_time()
            while now - began < seconds:
                self._write()
                batches += 1
                now = time.perf_counter()
            found.put(Turn(batches, batches * self._body_bytes, now - began, time.process_time() - processor))

        thread = Thread(target=work)
        thread.start()
        thread.join()
        return found.get()

    def close(self) -> None:
        os.close(self._descriptor)


# -- rounds -------------------------------------------------------------------------------------------

STYLES = {"one at a time": "one_at_a_time", "pipelined": "pipelined"}


def measure_appending(directory: Path, batches: list[int], rounds: int, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for batch in batches:
        home = directory / f"batch-{batch}"
        home.mkdir()
        store, raw = Store(home / "store", batch), Raw(home / "raw", batch)
        for style, method in STYLES.items():
            ours: list[Turn] = []
            theirs: list[Turn] = []
            for _ in range(rounds):
                ours.append(getattr(store, method)(seconds))
                theirs.append(getattr(raw, method)(seconds))
            rows.append(_row(batch, style, ours, theirs))
            print(f"appending: batches of {batch}, {style}: measured", file=sys.stderr)
        store.close()
        raw.close()
        shutil.rmtree(home)
    return rows


def _row(batch: int, style: str, ours: list[Turn], theirs: list[Turn]) -> dict[str, Any]:
    rate = statistics.median(turn.rate for turn in ours)
    return {
        "batch": batch,
        "style": style,
        "batches_per_s": rate,
        "entries_per_s": rate * batch,
        "bytes_per_s": statistics.median(turn.written_bytes / turn.seconds for turn in ours),
        "processor_us": statistics.median(turn.processor_s / turn.batches for turn in ours) * 1e6,
        "raw_processor_us": statistics.median(turn.processor_s / turn.batches for turn in theirs) * 1e6,
        "raw_per_s": statistics.median(turn.rate for turn in theirs),
        "ratio_to_raw": statistics.median(a.rate / b.rate for a, b in zip(ours, theirs, strict=True)),
    }


# -- printing -----------------------------------------------------------------------------------------


def show(report: dict[str, Any]) -> None:
    machine = report["machine"]
    print(f"\n{machine['cores']} cores, {machine['platform']}, Python {machine['python']}; "
          f"entries of {len(PAYLOAD)} bytes, every batch a record and a sync")  # fmt: skip
    print(
        f"{'batch':>5}  {'':<13} {'syncs/s':>8} {'entries/s':>10} {'MB/s':>7} {'raw syncs/s':>11} {'x raw':>6} "
        f"{'us cpu':>7} {'raw':>5}"
    )
    for row in report["appending"]:
        print(
            f"{row['batch']:>5}  {row['style']:<13} {row['batches_per_s']:>8,.0f} {row['entries_per_s']:>10,.0f} "
            f"{row['bytes_per_s'] / 1e6:>7.1f} {row['raw_per_s']:>11,.0f} {row['ratio_to_raw']:>6.2f} "
            f"{row['processor_us']:>7.0f} {row['raw_processor_us']:>5.0f}"
        )
    opening.show(report["recovery"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each turn")
    parser.add_argument("--batches", default="1,16,256", help="entries a batch, comma-separated")
    parser.add_argument("--entries", type=int, default=1_000_000, help="of the log that is opened")
    parser.add_argument("--directory", type=Path, help="on the disk that is to be measured (default: the system's)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    arguments = parser.parse_args()
    batches = [int(number) for number in arguments.batches.split(",")]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-", dir=arguments.directory) as home:
        report = {
            "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
            "appending": measure_appending(Path(home), batches, arguments.rounds, arguments.seconds),
            "recovery": opening.measure(Path(home), arguments.entries, 3),
        }
    show(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
