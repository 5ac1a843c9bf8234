"""The disk: what is synced, what is read back, what is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....storage import chain, log_store, records, recovery, statefiles
from ....storage.entry_reader import EntryIndex, EntryReader
from ....storage.log_store import FileLogStore
from ....storage.recovery import Replay
from ....storage.segments import ActiveSegment
from ....storage.snapshot_files import Draft
from ....storage.tail import LogTail
from .mutant import Mutant


def _mutant(name: str, function: Callable[..., Any], line: str, fault: str) -> Mutant:
    return Mutant(name, "storage", function, line, fault)


MUTANTS = (
    _mutant("a record is not synced", ActiveSegment.append, "self._file.sync_data()", "pass"),
    _mutant(
        "a failed sync is taken for done",
        ActiveSegment.append,
        "raise disk_failure(error, doing, self.path) from error",
        "written = sum(map(len, record))",
    ),
    _mutant(
        "term and vote are not read back",
        Replay._hard_state,
        "self.standing.hard_state = HardState(term, voted_for)",
        "self.standing.hard_state = HardState(term, '')",
    ),
    _mutant("a truncation is not read back", Replay._write, "self._truncate(truncate_from)", "pass"),
    _mutant("damage is taken for a torn write", recovery._judge_damage, "if following is not None:", "if False:"),
    _mutant(
        "the checksum of a body is not compared",
        records.record_at,
        "if len(padded) != end - start or google_crc32c.value(padded) != header.body_check:",
        "if len(padded) != end - start:",
    ),
    _mutant(
        "a new segment is not named in the manifest",
        chain.roll,
        "    room.spend(lambda: write_manifest(disk, directory, header.instance, Manifest(first, header.number)))\n",
        "",
    ),
    _mutant("a name is not synced", statefiles.write_state, "disk.sync_directory(path.parent)", "pass"),
    _mutant("a failed sync is forgotten", FileLogStore._fail, "self._failure = error", "return"),
    _mutant("the cache is believed after a failed sync", log_store._settle, "file.drop_cache()", "pass"),
    _mutant(
        "a segment too many is deleted",
        LogTail._trim,
        "first = self._standing.first_needed()",
        "first = min(self._standing.first_needed() + 1, self.segment.header.number)",
    ),
    _mutant("a read-back begins one too early", EntryReader._entries, "index = start", "index = max(start - 1, 1)"),
    _mutant(
        "what a truncation has deleted is read back",
        EntryIndex.note,
        "if truncate_from or reset_to:",
        "if reset_to:",
    ),
    _mutant("a snapshot is not synced before it gets its name", Draft.publish, "self._file.sync()", "pass"),
)
