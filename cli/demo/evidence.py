"""What is left on disk when every process has ended: the ledger, the nodes' logs, the client's journal."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ...raft.core.entry import Entry, EntryKind
from ...raft.core.errors import CheckFailed
from ...raft.effects.resources.audit import read_ledger
from ...raft.effects.resources.ledger import Ledger
from ...raft.outbox.machine import OutboxMachine
from ...storage.reader import read_log
from ...storage.recovery import Recovered
from ..local_cluster import read_log_lines
from .payments import JOURNAL_FILE, LEDGER_FILE, Payment


class LedgerEntry(NamedTuple):
    """A row of the application's own table."""

    payment: str
    account: str
    cents: int
    memo: str


@dataclass(frozen=True, slots=True)
class Evidence:
    submitted: list[Payment]
    answers: dict[str, str]
    """State by operation id, as the client was told."""
    errors: dict[str, str]
    expectations: list[dict[str, Any]]
    """What the scenario set out to show."""
    exit_codes: list[tuple[str, int]]
    """Of each node that was asked to stop."""
    ledger: Ledger
    entries: list[LedgerEntry]
    logs: dict[str, Recovered]
    node_logs: dict[str, list[dict[str, Any]]]

    @classmethod
    def read(cls, folder: Path, nodes: tuple[str, ...]) -> Evidence:
        """Read everything. Raises CheckFailed, StorageCorrupt or StorageError; writes nothing."""
        rows = [json.loads(line) for line in (folder / JOURNAL_FILE).read_text(encoding="utf-8").splitlines()]
        return cls(
            submitted=[
                Payment(row["operation_id"], row["account"], row["cents"], row["memo"])
                for row in rows
                if row["kind"] == "submit"
            ],
            answers={row["operation_id"]: row["state"] for row in rows if row["kind"] == "answer"},
            errors={row["operation_id"]: row["code"] for row in rows if row["kind"] == "error"},
            expectations=[row for row in rows if row["kind"] not in ("submit", "answer", "error", "stopped")],
            exit_codes=[(row["node"], row["code"]) for row in rows if row["kind"] == "stopped"],
            ledger=read_ledger(folder / LEDGER_FILE),
            entries=_read_entries(folder / LEDGER_FILE),
            logs={node: _read_log(folder / node) for node in nodes},
            node_logs={node: read_log_lines(folder / f"{node}.log") for node in nodes},
        )


def _read_log(path: Path) -> Recovered:
    log = read_log(path)
    if not log.last_index:
        raise CheckFailed(f"the log in {path} is empty")
    return log


def _read_entries(path: Path) -> list[LedgerEntry]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT payment, account, cents, memo FROM entries ORDER BY rowid").fetchall()
    except sqlite3.Error as error:
        raise CheckFailed(f"{path} cannot be read: {error}") from error
    return [LedgerEntry(*row) for row in rows]


def committed_index(logs: Mapping[str, Recovered]) -> int:
    """Up to where the logs of **all** voters prove that entries are committed, with every process ended.

    A recorded commit index is one proof. The other: an entry of the highest term that any log holds,
    found on a majority. Nobody without it can win an election any more, because each of that majority
    has a log that is more up to date (Raft thesis section 3.6.1).
    """
    proven = max(log.commit_index for log in logs.values())
    highest = max(log.last_term for log in logs.values())
    lasts = sorted((log.last_index for log in logs.values() if log.last_term == highest), reverse=True)
    quorum = len(logs) // 2 + 1
    return max(proven, lasts[quorum - 1]) if len(lasts) >= quorum else proven


def committed_entries(logs: Mapping[str, Recovered]) -> tuple[list[Entry], list[str]]:
    """The committed entries, and every disagreement of the logs about them, one sentence each.

    A log may begin behind a snapshot: what it gave up is committed, and taken from those that still have it.
    """
    index = committed_index(logs)
    # The most up-to-date log holds every committed entry (Raft thesis section 3.6.3).
    name, reference = max(logs.items(), key=lambda item: (item[1].last_term, item[1].last_index))
    entries = {entry.index: entry for entry in reference.entries if entry.index <= index}
    problems = []
    if reference.last_index < index:
        problems.append(
            f"index {index} was committed, and {name}, the most up-to-date log, ends at {reference.last_index}"
        )
    for node, log in logs.items():
        for theirs in log.entries:
            if theirs.index <= reference.previous_index:
                mine = entries.setdefault(theirs.index, theirs)
            else:
                mine = entries.get(theirs.index, theirs)
            if mine != theirs:
                problems.append(
                    f"{name} and {node} disagree about the committed entry {mine.index}: "
                    f"term {mine.term} there, term {theirs.term} here"
                )
                break
    return [entries[index] for index in sorted(entries)], problems


def replay(entries: list[Entry]) -> OutboxMachine:
    """The outbox as those entries make it. Raises CheckFailed if they are not all from the first on."""
    machine = OutboxMachine()
    for index, entry in enumerate(entries, 1):
        if entry.index != index:
            raise CheckFailed(
                f"no log holds entry {index} any more, and entry {entry.index} cannot be replayed without"
            )
        if entry.kind == EntryKind.OUTBOX:
            machine.apply(entry)
    return machine
