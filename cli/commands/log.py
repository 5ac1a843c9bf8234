"""``fencepost log verify|tail|get``: what is in the log, on disk or at a node. Changes nothing anywhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ...raft.core.entry import Entry
from ...raft.core.errors import NotFound
from ...storage.checking import check_directory
from ...storage.formatting import LOG
from ...storage.reader import read_log
from ...storage.recovery import Recovered
from ..app import FencepostCommand, Session, current_session, run_async
from ..entries import entry_json, summary
from ..output import Column

ASK_TIMEOUT_S = 10.0
POLL_S = 0.2
"""How often --follow looks for more."""
LAST = 10
"""How many entries ``tail`` shows."""

_TITLES = ("index", "term", "time", "kind", "bytes", "content")

_data_dir = click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Read this data directory instead of asking a node. Takes no lock; the node may run.",
)


# -- verify -----------------------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=("fencepost log verify n1", "fencepost log verify n1 -o json"),
    short_help="Check a data directory.",
    help="Read all of a data directory, check every checksum and that everything fits together, and say what is in it. "
    "Damage is named by file, offset and log index, and ends with exit code 8. Nothing is changed and no lock is "
    "taken, so the node may run; a half-written last record is no damage, the next start cuts it.",
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
def verify(directory: Path) -> None:
    found = check_directory(directory)
    log, snapshot = found.log, found.snapshot
    body = {
        "directory": str(directory),
        "verified": True,
        "cluster_id": found.identity.cluster_id,
        "incarnation": found.identity.incarnation,
        "node": found.identity.node_id,
        "instance_id": found.identity.instance_id,
        "boot": found.boot,
        "term": log.hard_state.term,
        "voted_for": log.hard_state.voted_for or None,
        "first_index": log.previous_index + 1,
        "last_index": log.last_index,
        "last_term": log.last_term,
        "commit_index": log.commit_index,
        "torn_bytes": log.torn_bytes,
        "snapshot_index": None if snapshot is None else snapshot.last_index,
        "snapshot_bytes": None if snapshot is None else snapshot.size_bytes,
    }
    columns = [
        Column.of("directory"),
        Column.of("verified"),
        Column("cluster", lambda row: row["cluster_id"]),
        Column.of("incarnation"),
        Column.of("node"),
        Column("instance", lambda row: row["instance_id"]),
        Column.of("boot"),
        Column.of("term"),
        Column.of("voted for"),
        Column("entries", _entries),
        Column("committed", lambda row: f"up to {row['commit_index']}, as far as the node knew"),
        Column("snapshot", lambda row: row["snapshot_index"] and f"up to {row['snapshot_index']}"),
        Column("torn bytes", lambda row: row["torn_bytes"] or None),
    ]
    current_session().render.show("LogVerify", body, columns)


def _entries(row: Mapping[str, Any]) -> str:
    if row["last_index"] < row["first_index"]:
        return "none" if row["first_index"] == 1 else f"none, it goes on behind {row['last_index']}"
    return f"{row['first_index']} to {row['last_index']}, the last of term {row['last_term']}"


# -- tail -------------------------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=("fencepost log tail -n 5", "fencepost log tail --data-dir n1 -o json"),
    short_help="Show the last entries of the log.",
    help="Show the last entries of the log by their content: commands, dispatches, outcomes, elections, changes of "
    "members. A node is asked for committed entries; with --data-dir all are shown that are in the files, and "
    "those that the node did not know to be committed are marked with ?.",
)
@_data_dir
@click.option("-n", "number", type=click.IntRange(min=0), default=LAST, show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Go on with those that come.")
def tail(data_dir: Path | None, number: int, follow: bool) -> None:
    run_async(lambda: _tail(current_session(), data_dir, number, follow))


async def _tail(session: Session, data_dir: Path | None, number: int, follow: bool) -> None:
    if data_dir is not None:
        await _tail_directory(session, data_dir, number, follow)
        return
    async with session.client(timeout_s=ASK_TIMEOUT_S) as client:
        body = await client.call("log.entries", {"last": number, "limit": number})
        rows = _rows(body["entries"])
        while body["entries"] and len(rows) < number:  # A page holds so many and no more.
            body = await client.call("log.entries", {"after_index": rows[-1]["index"], "limit": number - len(rows)})
            rows += _rows(body["entries"])
        if not follow:
            _show(session, rows)
            return
        _stream(session, rows, first=True)
        after = rows[-1]["index"] if rows else body["commit_index"]
        while not session.render.closed:
            body = await client.call("log.entries", {"after_index": after})
            rows = _rows(body["entries"])
            _stream(session, rows)
            if rows:
                after = rows[-1]["index"]
            else:
                await asyncio.sleep(POLL_S)


def _rows(entries: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """What a node answers; all of it is committed."""
    return [{**entry_json(Entry(*entry)), "committed": True} for entry in entries]


async def _tail_directory(session: Session, path: Path, number: int, follow: bool) -> None:
    log = read_log(path)
    rows = _rows_of(log, max(log.last_index - number, 0))
    if not follow:
        _show(session, rows)
        return
    _stream(session, rows, first=True)
    after, stamp = log.last_index, _stamp(path)
    open_terms = _open_terms(rows)
    while not session.render.closed:
        await asyncio.sleep(POLL_S)
        now = _stamp(path)
        if now == stamp:
            continue
        log, stamp = read_log(path), now
        # What was not committed may have been replaced: the same index comes again, with another entry.
        while after in open_terms and _term_at(log, after) != open_terms[after]:
            after -= 1
        rows = _rows_of(log, after)
        _stream(session, rows)
        open_terms = {**{index: term for index, term in open_terms.items() if index <= after}, **_open_terms(rows)}
        after = max(after, log.last_index)


def _open_terms(rows: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """The term by index, of entries that were not known to be committed when they were shown."""
    return {row["index"]: row["term"] for row in rows if not row["committed"]}


def _term_at(log: Recovered, index: int) -> int:
    offset = index - log.previous_index - 1
    return log.entries[offset].term if 0 <= offset < len(log.entries) else 0


def _rows_of(log: Recovered, after: int) -> list[dict[str, Any]]:
    rows = log.entries[max(after - log.previous_index, 0) :]
    return [{**entry_json(entry), "committed": True if entry.index <= log.commit_index else None} for entry in rows]


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Something that changes when the log does."""
    found = []
    for entry in os.scandir(path / LOG):
        status = entry.stat()
        found.append((entry.name, status.st_mtime_ns, status.st_size))
    return tuple(sorted(found))


# -- get --------------------------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=("fencepost log get 2", "fencepost log get 2 --data-dir n1"),
    short_help="Show one entry of the log.",
    help="Show one entry of the log, with everything that is in it. One that was given up, because a snapshot holds "
    "what it did, or that is not there yet, ends with exit code 7.",
)
@click.argument("index", type=click.IntRange(min=1))
@_data_dir
def get(index: int, data_dir: Path | None) -> None:
    session = current_session()
    row = run_async(lambda: _ask(session, index)) if data_dir is None else _read(data_dir, index)
    columns = [
        Column.of("index"),
        Column.of("term"),
        Column("time", lambda row: session.render.time(row["time_ns"])),
        Column.of("kind", "entry_kind"),
        Column.of("bytes"),
        Column("committed", lambda row: "yes" if row["committed"] else "not known"),
        *(Column(name.replace("_", " "), _of(name)) for name in row["content"]),
    ]
    session.render.show("Entry", row, columns)


def _of(name: str) -> Any:
    return lambda row: row["content"][name]


async def _ask(session: Session, index: int) -> dict[str, Any]:
    async with session.client(timeout_s=ASK_TIMEOUT_S) as client:
        body = await client.call("log.entries", {"after_index": index - 1, "limit": 1})
    rows = _rows(body["entries"])
    if not rows or rows[0]["index"] != index:
        raise _missing(index, body["first_index"], body["commit_index"], "committed up to")
    return rows[0]


def _read(path: Path, index: int) -> dict[str, Any]:
    log = read_log(path)
    rows = [row for row in _rows_of(log, index - 1)[:1] if row["index"] == index]
    if not rows:
        raise _missing(index, log.previous_index + 1, log.last_index, "its last entry is")
    return rows[0]


def _missing(index: int, first: int, last: int, what: str) -> NotFound:
    if index < first:
        why = f"it was given up, a snapshot holds what it did; the first one that is left is {first}"
    else:
        why = f"{what} {last}"
    return NotFound(f"no entry {index}: {why}", next_step="fencepost log tail")


# -- shown ------------------------------------------------------------------------------------------


def _cells(session: Session, row: Mapping[str, Any]) -> list[Any]:
    mark = "" if row["committed"] else "?"
    return [
        f"{row['index']}{mark}", row["term"], session.render.time(row["time_ns"]), row["entry_kind"], row["bytes"],
        summary(row),
    ]  # fmt: skip


def _show(session: Session, rows: list[dict[str, Any]]) -> None:
    def cell(place: int) -> Any:
        return lambda row: _cells(session, row)[place]

    columns = [Column(title, cell(place)) for place, title in enumerate(_TITLES)]
    session.render.show("EntryList", {"items": rows}, columns, rows="items")


def _stream(session: Session, rows: list[dict[str, Any]], *, first: bool = False) -> None:
    titles: Sequence[str] | None = _TITLES if first else None
    for row in rows:
        if session.render.machine:
            session.render.stream("Entry", row)
        else:
            session.render.stream_row(titles, _cells(session, row))
            titles = None
