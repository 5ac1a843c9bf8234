"""Every bit and every length of small files: refused by name, or repaired as promised; never silently different (S10).

Compared is everything that a node goes by: entries, term and vote, commit index, the newest snapshot and its
contents, the instances that were met, the identity. The promise is that of docs/formats.md: in the last record
of the last segment damage passes for a torn write and is cut away, and so is a missing end of that segment;
everything else is refused, by file, offset and index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencepost.jepsen.crashes.aftermath import kill
from fencepost.jepsen.crashes.judge import log_difference, opened
from fencepost.jepsen.crashes.life import Life, little_in_advance
from fencepost.jepsen.crashes.plan import Plan, State, Writes, make_plan
from fencepost.jepsen.crashes.recording import Image, RecordingDisk
from fencepost.jepsen.proof.planting import planted
from fencepost.jepsen.sim.quiet import logging_to
from fencepost.raft.core.errors import StorageCorrupt, StorageFormatUnknown
from fencepost.storage.records import record_at
from fencepost.storage.reserve import RESERVE
from fencepost.storage.segments import HEADER_BYTES, decode_segment_header

ROOT = Path("/data/n1")
SEED, STEPS = 63, 14
STRIDE = 127
"""In the default run: every so many bits, and every so many eighths of bytes. Prime, so that all bits are met."""

REFUSED, SAME, REPAIRED = "refused", "same", "repaired"


class Held(NamedTuple):
    """What a node finds in its files."""

    log: tuple[Any, ...]
    snapshot: Any
    contents: bytes
    rest: tuple[Any, ...]


class Files(NamedTuple):
    """A directory, what it holds, and where its log ends."""

    image: Image
    held: Held
    before: tuple[State, ...]
    """What the log may be without its last record."""
    earlier: tuple[State, ...]
    """What it may be without several."""
    last_segment: str
    last_record: int
    end: int
    closed: bool


def find(image: Image, also: Callable[[Any], object] = lambda found: None) -> tuple[Held, Any]:
    """Open everything as a node does. Raises what it raises."""
    with opened(RecordingDisk(image), ROOT) as found:
        log, directory, newest = found.recovered, found.directory, found.snapshots.newest()
        contents = b"" if newest is None else b"".join(found.snapshots.contents(newest))
        logged = (log.hard_state, log.previous_index, log.previous_term, tuple(found.entries), log.commit_index)
        identity = (directory.cluster_id, directory.incarnation, directory.node_id, directory.instance_id)
        rest = (*identity, directory.voters, directory.boot, directory.known_instances())
        return Held(logged, newest, contents, rest), also(found)


def live(*, closed: bool) -> Files:
    """A life that ends in order, or is killed behind its last write."""
    disk, plan = RecordingDisk({"/data": None}), make_plan(SEED, STEPS)
    image: Image = {}
    acknowledged = 0

    def acknowledge(count: int, what: str) -> None:
        nonlocal image, acknowledged
        if what.startswith("write"):
            image, acknowledged = kill(disk), count

    with logging_to(lambda level, event: None):
        Life(plan, disk, ROOT, acknowledge).run()
        image = kill(disk) if closed else image
        held, _ = find(image)
    last_segment = max(path for path in image if path.endswith(".log"))
    starts = record_starts(last_segment, image[last_segment] or b"")
    # A seal says nothing new: without it the log is what it was.
    before = acknowledged if closed else acknowledged - batch_of(plan, acknowledged)
    return Files(
        image,
        held,
        plan.states[before : acknowledged + 1],
        plan.states[: acknowledged + 1],
        last_segment,
        starts[-2],
        starts[-1],
        closed,
    )


def record_starts(path: str, content: bytes) -> list[int]:
    """Where each record of a segment begins, and where the last one ends."""
    seed = decode_segment_header(Path(path), content, 1).seed
    starts = [HEADER_BYTES]
    while (record := record_at(content, seed, starts[-1])) is not None:
        starts.append(record.end)
    assert len(starts) >= 2, path
    return starts


def batch_of(plan: Plan, acknowledged: int) -> int:
    """How many writes the last record of a life that ends so holds."""
    last = next(step for step in reversed(plan.steps) if isinstance(step, Writes))
    assert plan.reach[acknowledged - 1] == acknowledged
    return len(last.writes)


@pytest.fixture(scope="module", params=["closed", "killed"])
def files(request: pytest.FixtureRequest) -> Iterator[Files]:
    with little_in_advance():
        yield live(closed=request.param == "closed")


def believed(files: Files) -> list[str]:
    """Every file of which something is believed. The reserve, the lock and what is half made are not read."""
    unread = (f"/{RESERVE}", "/lock", ".tmp")
    return sorted(path for path, content in files.image.items() if content and not path.endswith(unread))


def promised(files: Files, path: str, place: int, *, cut: bool) -> set[str]:
    """What may come of damage at this place, or of a cut there."""
    if path.endswith(".snapshot"):
        newest = max(each for each in files.image if each.endswith(".snapshot"))
        # The older one is for those who are still reading it; nobody begins with it.
        return {REFUSED} if path == newest else {SAME}
    if path != files.last_segment or place < HEADER_BYTES:
        return {REFUSED}
    if place >= files.end:
        return {SAME}
    if place >= files.last_record:
        return {REPAIRED, SAME}
    # What is missing at the end cannot be told from what never came, unless something knew of it.
    return {REPAIRED, REFUSED, SAME} if cut else {REFUSED}


def try_damage(files: Files, path: str, content: bytes, place: int, *, cut: bool) -> str:
    """What comes of it; asserts that it is what was promised."""
    what = f"{path}, {'cut to' if cut else 'changed at'} byte {place}"
    possible = files.earlier if cut else files.before
    became, refusal = REFUSED, None
    try:
        found, differs = find(
            {**files.image, path: content},
            lambda opened: [log_difference(opened, state) for state in possible],
        )
    except (StorageCorrupt, StorageFormatUnknown) as error:
        refusal = error
    else:
        became = SAME if found == files.held else REPAIRED
        if became == REPAIRED:
            assert found._replace(log=()) == files.held._replace(log=()), what
            assert "" in differs, (what, differs)
    assert refusal is None or names_the_place(path, place, refusal), (what, refusal)
    assert became in promised(files, path, place, cut=cut), (what, became)
    return became


def names_the_place(path: str, place: int, error: StorageCorrupt | StorageFormatUnknown) -> bool:
    """The file and, in a log, an offset that is not behind the damage, and an index.

    Of a log the damage of one file may be seen at the next one only.
    """
    name = path.rpartition("/")[2]
    if not path.endswith(".log"):
        return name in error.message
    if isinstance(error, StorageFormatUnknown):
        return name in error.message
    told = re.search(r"(\d{16}\.log) is damaged at offset (\d+), log index (\d+):", error.message)
    if told is None:
        return f"{name} is damaged at offset 0: " in error.message
    return told[1] >= name and (told[1] > name or int(told[2]) <= place)


def damage_all(files: Files, stride: int) -> Counter[str]:
    """Flip every so many bits of every file, and cut it at every so many eighths of a byte."""
    seen: Counter[str] = Counter()
    with logging_to(lambda level, event: None):
        for path in believed(files):
            content = files.image[path]
            assert content
            for bit in range(0, 8 * len(content), stride):
                place = bit // 8
                changed = content[:place] + bytes([content[place] ^ 1 << bit % 8]) + content[place + 1 :]
                seen[try_damage(files, path, changed, place, cut=False)] += 1
            for length in range(0, len(content), max(1, stride // 8)):
                seen[try_damage(files, path, content[:length], length, cut=True)] += 1
    return seen


def test_s10_every_so_many_bits_and_lengths_are_refused_or_repaired(files: Files) -> None:
    seen = damage_all(files, STRIDE)
    assert set(seen) >= {REFUSED, SAME}
    assert seen.total() > 500


@pytest.mark.endure
def test_s10_every_bit_and_every_length_is_refused_or_repaired(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of a killed directory; of a closed one, which differs by its seal alone, every seventh bit."""
    stride = 7 if files.closed else 1
    seen = damage_all(files, stride)
    with capsys.disabled():
        print(f"\n{seen.total()} kinds of damage: {dict(seen)}")
    sizes = [len(files.image[path] or b"") for path in believed(files)]
    assert seen.total() == sum(size + (8 * size + stride - 1) // stride for size in sizes)


def test_a_killed_log_is_repaired_in_its_last_record_and_nowhere_else() -> None:
    """The promise is no empty one: there are bits in each of its parts."""
    with little_in_advance(), logging_to(lambda level, event: None):
        files = live(closed=False)
        content = files.image[files.last_segment]
        assert content
        assert HEADER_BYTES < files.last_record < files.end
        for place, became in ((0, REFUSED), (files.last_record - 1, REFUSED), (files.end - 1, REPAIRED)):
            changed = content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]
            assert try_damage(files, files.last_segment, changed, place, cut=False) == became


def test_a_checksum_that_is_not_compared_is_found_out() -> None:
    unchecked = "if len(padded) != end - start:"
    checked = "if len(padded) != end - start or google_crc32c.value(padded) != header.body_check:"
    with little_in_advance(), logging_to(lambda level, event: None):
        files = live(closed=False)
        with planted(record_at, checked, unchecked), pytest.raises(AssertionError):
            damage_all(files, STRIDE)
