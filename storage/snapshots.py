"""The ``SnapshotStore`` port on files: written aside, synced, named; the newest few are kept (S14).

A snapshot takes the place of the log before it, so what is true of the log is true of it. What is not
whole has no name. A named one that is not whole is damage, and the node refuses to start rather than
go on from an older one: the log between the two may be gone, and that a node *had* what it lost is the
one thing that nobody else knows (S10, S21).

The older ones are kept for those who are still reading them, and for people; nothing falls back to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import google_crc32c
import structlog

from ..raft.core.entry import Snapshot
from ..raft.core.errors import NotFound, StorageError, StorageFull
from .disk import Disk
from .failures import corrupt_file, disk_failure
from .formatting import is_directory, names_in
from .identity import DataDirectory
from .recovery import Recovered
from .segments import clear_temporaries
from .snapshot_files import Draft, Owner, SnapshotFile, read_header, read_part, snapshot_place
from .statefiles import TEMPORARY

_log = structlog.get_logger("fencepost.storage")

KEPT = 2
"""How many stay unless more are asked for: the newest, and the one that peers may still be reading. It must not be
less (``ports.SnapshotStore.write``)."""

READ_BYTES = 1 << 20
"""How much is read at a time."""

WRITING = "writing" + TEMPORARY
RECEIVING = "receiving" + TEMPORARY


class FileSnapshotStore:
    """:class:`~fencepost.raft.ports.SnapshotStore` in a data directory. One call at a time, but for ``newest``.

    A failed write or sync is latched and raised by every later call that would write. A full disk is
    not: what did not fit is gone without a trace, and may be tried again.
    """

    def __init__(
        self, disk: Disk, folder: Path, owner: Owner, newest: SnapshotFile | None, *, kept: int = KEPT
    ) -> None:
        if kept < KEPT:
            raise ValueError(f"{kept} snapshots kept, and whoever sends one rests on {KEPT}")
        self._kept = kept
        self._disk = disk
        self._folder = folder
        self._owner = owner
        self._newest = newest
        # By label, what can be read: what this process found or made, and did not delete.
        self._files = {} if newest is None else {newest.label: newest}
        self._receiving: Draft | None = None
        self._failure: StorageError | None = None

    @classmethod
    def open(cls, directory: DataDirectory, *, kept: int = KEPT) -> FileSnapshotStore:
        """Find and verify the newest snapshot of an open data directory, of which the ``kept`` newest stay.

        What a crash left half made is deleted. Raises StorageCorrupt naming the file if the newest one
        is damaged, StorageFormatUnknown if a newer version wrote it, StorageFull or StorageError.
        """
        disk, folder = directory.disk, directory.snapshots_path
        _make_folder(disk, folder)
        clear_temporaries(disk, folder)
        try:
            # A name that only the cache has must not be acted on: the log might be trimmed for it.
            disk.sync_directory(folder)
        except OSError as error:
            raise disk_failure(error, "syncing", folder) from error
        owner = Owner(bytes.fromhex(directory.instance_id), directory.incarnation)
        newest = find_newest(disk, folder, owner)
        if newest is not None:
            verify(disk, newest)
        return cls(disk, folder, owner, newest, kept=kept)

    # -- the port -----------------------------------------------------------------------------------

    def newest(self) -> Snapshot | None:
        newest = self._newest
        return None if newest is None else newest.label

    def write(self, label: Snapshot, chunks: Iterable[bytes]) -> Snapshot:
        """See the port. What ``chunks`` raises passes through, and nothing is kept then."""
        draft = self._begin(WRITING, label)
        try:
            for chunk in chunks:
                self._append(draft, chunk)
            return self._publish(draft)
        except Exception:
            draft.discard()
            raise

    def read(self, snapshot: Snapshot, offset: int, length: int) -> bytes:
        """See the port. The part at offset 0 is given only if all of the contents are as they were
        written: whoever is sent a damaged snapshot would find out at the end, and ask for it again."""
        file = self._find(snapshot)
        try:
            if offset == 0:
                verify(self._disk, file)
            return _read_contents(self._disk, file, offset, length)
        except FileNotFoundError as error:
            raise _not_kept(snapshot) from error

    def contents(self, snapshot: Snapshot) -> Iterator[bytes]:
        return verified(self._disk, self._find(snapshot))

    def store_chunk(self, snapshot: Snapshot, offset: int, data: bytes) -> int:
        """See the port. A full disk forgets what was under way."""
        if offset == 0:
            self._forget_receiving()
            self._receiving = self._begin(RECEIVING, snapshot)
        draft = self._receiving
        if draft is None or draft.label != snapshot:
            return 0
        # More than was announced is not stored: it would fill the disk on the word of a peer.
        if offset == draft.size_bytes and offset + len(data) <= snapshot.size_bytes:
            try:
                self._append(draft, data)
            except StorageError:
                self._forget_receiving()
                raise
        return draft.size_bytes

    def finish(self, snapshot: Snapshot) -> bool:
        draft = self._receiving
        if draft is None or draft.label != snapshot:
            return False
        self._receiving = None
        if (draft.size_bytes, draft.checksum) != (snapshot.size_bytes, snapshot.checksum):
            draft.discard()
            return False
        try:
            self._publish(draft)
        except StorageError:
            draft.discard()
            raise
        return True

    # -- inside -------------------------------------------------------------------------------------

    @contextmanager
    def _final(self) -> Iterator[None]:
        """What is done to the disk in here fails for good (S12), unless the disk is full."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except StorageFull:
            raise
        except StorageError as error:
            self._failure = error
            _log.error("snapshots_failed", code=error.code, reason=error.message, next_step=error.next_step)
            raise

    def _begin(self, name: str, label: Snapshot) -> Draft:
        with self._final():
            return Draft(self._disk, self._folder / name, label, self._owner)

    def _append(self, draft: Draft, data: bytes) -> None:
        with self._final():
            draft.append(data)

    def _find(self, snapshot: Snapshot) -> SnapshotFile:
        file = self._files.get(snapshot)
        if file is None:
            raise _not_kept(snapshot)
        return file

    def _publish(self, draft: Draft) -> Snapshot:
        with self._final():
            file = draft.publish()
            # One of the same index and term had the same name, and is gone.
            self._files = {label: kept for label, kept in self._files.items() if kept.path != file.path}
            self._files[file.label] = file
            if self._newest is None or file.label.last_index >= self._newest.label.last_index:
                self._newest = file
            self._prune(file, self._newest)
        return file.label

    def _prune(self, published: SnapshotFile, newest: SnapshotFile) -> None:
        """Delete the older ones. Only now: what takes their place is durable (S14)."""
        names = sorted((place, name) for name in names_in(self._disk, self._folder) if (place := snapshot_place(name)))
        kept = {name for _, name in names[-self._kept :]} | {published.path.name, newest.path.name}
        gone = [name for _, name in names if name not in kept]
        try:
            for name in gone:
                self._disk.unlink(self._folder / name)
            if gone:
                self._disk.sync_directory(self._folder)
        except OSError as error:
            raise disk_failure(error, "tidying", self._folder) from error
        self._files = {label: file for label, file in self._files.items() if file.path.name in kept}

    def _forget_receiving(self) -> None:
        draft, self._receiving = self._receiving, None
        if draft is not None:
            draft.discard()


# -- reading, for the store and for others ------------------------------------------------------------


def find_newest(disk: Disk, folder: Path, owner: Owner) -> SnapshotFile | None:
    """The newest snapshot in a folder, by its name; its header is verified, its contents are not."""
    names = [(place, name) for name in names_in(disk, folder) if (place := snapshot_place(name))]
    if not names:
        return None
    _, name = max(names)
    path = folder / name
    try:
        return read_header(disk, path, owner)
    except FileNotFoundError as error:
        raise corrupt_file(path, "it is missing") from error


def verify(disk: Disk, file: SnapshotFile) -> None:
    """Raises StorageCorrupt unless the contents are what the header says, no more and no less."""
    for _ in verified(disk, file):
        pass
    if read_part(disk, file.path, file.contents_at + file.label.size_bytes, 1):
        raise corrupt_file(file.path, f"it is longer than its {file.label.size_bytes} bytes of contents")


def check_log_follows(folder: Path, newest: Snapshot | None, recovered: Recovered) -> None:
    """Raise StorageCorrupt if entries are missing between the newest snapshot and the log.

    ``folder`` is that of the snapshots. A log begins behind another index than 0 only because there was
    a durable snapshot up to there.
    """
    begins = recovered.previous_index
    reached = 0 if newest is None else newest.last_index
    if begins > reached:
        raise corrupt_file(folder, f"the log begins behind index {begins}, and the newest snapshot ends at {reached}")
    if newest is not None and begins == reached and recovered.previous_term != newest.last_term:
        terms = f"term {recovered.previous_term} for the log and {newest.last_term} for the snapshot"
        raise corrupt_file(folder, f"the log begins behind index {begins}, which has {terms}")


def verified(disk: Disk, file: SnapshotFile) -> Iterator[bytes]:
    """The contents in parts; the last one only if the checksum of all of them is right."""
    check = 0
    held: bytes | None = None
    for offset in range(0, file.label.size_bytes, READ_BYTES):
        try:
            data = _read_contents(disk, file, offset, READ_BYTES)
        except FileNotFoundError as error:
            raise _not_kept(file.label) from error
        check = google_crc32c.extend(check, data)
        if held is not None:
            yield held
        held = data
    if check != file.label.checksum:
        raise corrupt_file(file.path, "the checksum of its contents is wrong")
    if held is not None:
        yield held


def _read_contents(disk: Disk, file: SnapshotFile, offset: int, length: int) -> bytes:
    wanted = max(0, min(length, file.label.size_bytes - offset))
    data = read_part(disk, file.path, file.contents_at + offset, wanted)
    if len(data) != wanted:
        raise corrupt_file(file.path, f"it ends before its {file.label.size_bytes} bytes of contents")
    return data


def _not_kept(snapshot: Snapshot) -> NotFound:
    return NotFound(
        f"the snapshot of index {snapshot.last_index}, term {snapshot.last_term} is not kept any more",
        next_step="begin with the newest one",
    )


def _make_folder(disk: Disk, folder: Path) -> None:
    """A directory that was formatted before there were snapshots has no place for them."""
    if is_directory(disk, folder):
        return
    try:
        disk.make_directory(folder)
        disk.sync_directory(folder.parent)
    except OSError as error:
        raise disk_failure(error, "making", folder) from error
