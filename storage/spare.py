"""The file that the next segment is made of, ready before it is needed.

A sync costs about half where it changes no size, and less where it writes nothing twice. So a log goes on in
a file that is as long as a segment already:

* a segment that was given up, where there is one: its bytes are on the disk, nothing has to be written;
* else one of zeros, written piece by piece while the second half of the segment in use fills up.

What a recycled file holds is old records. Their header checksums began with another salt's seed, and a new
use never has that seed again (:meth:`Spare.draw_salt`), so none of them is a record of the new segment. Where
the new records end is said by a sector of zeros behind the last one (``segments``).

The file's name ends like that of everything half made, so each start removes it: nobody has to know what a
crash has left in it. It is no part of the log until it has a header, and then a segment's name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from ..raft.core.errors import StorageError
from .disk import Disk, File, write_fully
from .failures import disk_failure, is_full
from .records import salt_seed
from .segments import (
    HEADER_BYTES,
    ActiveSegment,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
    end_mark,
    segment_name,
    zeros_ahead,
)
from .statefiles import TEMPORARY, create_anew

SPARE = "spare" + TEMPORARY

SHORTEST = 8
"""A segment is recycled if it has at least this part of a segment's full size."""


class Spare:
    """At most one file in a log's directory. Used by the writer only."""

    def __init__(self, disk: Disk, directory: Path, segment_bytes: int) -> None:
        self.allowed = True
        """There is room for a spare: one is prepared, or a segment kept for it."""
        self._disk = disk
        self._path = directory / SPARE
        self._segment_bytes = segment_bytes
        self._file: File | None = None
        self._size = 0
        self._old_seed: int | None = None

    @property
    def size(self) -> int:
        """Bytes that are ready; 0 where there is no spare."""
        return self._size

    def prepare(self, end: int) -> None:
        """Write the next piece of zeros, if the segment in use, which is filled up to ``end``, calls for one.

        Only a saving: with no space left it is given up. Raises StorageError.
        """
        limit = self._segment_bytes
        if not self.allowed or self._old_seed is not None or self._size >= limit:
            return
        piece = zeros_ahead(limit - self._size)
        # Two bytes for each one written to the second half, so that both are full at once.
        if self._size + len(piece) > 2 * end - limit + len(piece):
            return
        try:
            if self._file is None:
                self._file = create_anew(self._disk, self._path)
            write_fully(self._file, self._size, [piece])
            self._file.sync_data()
        except OSError as error:
            if not is_full(error):
                raise disk_failure(error, "preparing", self._path) from error
            self.allowed = False
            self.give_up()
        else:
            self._size += len(piece)

    def recycle(self, path: Path) -> bool:
        """Keep a segment that the log has given up, durably; whether it was. Else it is there to be deleted."""
        disk, limit = self._disk, self._segment_bytes
        if not self.allowed:
            return False
        try:
            size = disk.size(path)
            if size <= self._size or not limit // SHORTEST <= size <= 2 * limit:
                return False
            seed = decode_segment_header(path, disk.read_at(path, 0, HEADER_BYTES), 0).seed
            self.close()
            disk.rename(path, self._path)
            self._file = disk.open(self._path, create=False)
        except StorageError:
            # Its header is damaged. It is not needed any more.
            return False
        except OSError as error:
            raise disk_failure(error, "recycling", path) from error
        self._size, self._old_seed = size, seed
        return True

    def draw_salt(self, entropy: Callable[[int], bytes]) -> bytes:
        """A salt under which no record that the spare may hold is one."""
        salt = entropy(16)
        while salt_seed(salt) == self._old_seed:
            salt = entropy(16)
        return salt

    def become(self, header: SegmentHeader) -> ActiveSegment:
        """Make the spare, which must be there, the segment with this header, and its name durable."""
        path = self._path.with_name(segment_name(header.number))
        file = self._file
        assert file is not None
        recycled = self._old_seed is not None
        try:
            write_fully(file, 0, [encode_segment_header(header), end_mark(HEADER_BYTES, self._size if recycled else 0)])
            file.sync_data()
            self._disk.rename(self._path, path)
            self._disk.sync_directory(path.parent)
        except OSError as error:
            raise disk_failure(error, "creating", path) from error
        segment = ActiveSegment(file, path, header, HEADER_BYTES, allocated=self._size, recycled=recycled)
        self._forget()
        return segment

    def give_up(self) -> bool:
        """Delete the spare; whether there was one."""
        if self._file is None:
            return False
        self.close()
        with contextlib.suppress(OSError):
            self._disk.unlink(self._path)
        return True

    def close(self) -> None:
        """Let go of the file. The next start removes it."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._forget()

    def _forget(self) -> None:
        self._file, self._size, self._old_seed = None, 0, None
