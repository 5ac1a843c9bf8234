"""Whether what a crash left is what was promised: everything acknowledged, and nothing that was never done.

Behind the last acknowledgement only the step under way may be there, as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from ...raft.core.entry import Entry, Snapshot
from ...raft.core.errors import FencepostError
from ...raft.effects.resources.audit import check_ledger, read_ledger
from ...raft.outbox.codec import Outcome, decode
from ...storage.disk import Disk
from ...storage.identity import DataDirectory
from ...storage.log_store import FileLogStore
from ...storage.recovery import Recovered
from ...storage.snapshots import FileSnapshotStore, check_log_follows
from ...storage.statefiles import TEMPORARY
from .life import NEVER_S, SEGMENT_BYTES, open_directory
from .plan import Plan, State, contents


class Opened(NamedTuple):
    """A node's files, opened by a judge."""

    directory: DataDirectory
    store: FileLogStore
    snapshots: FileSnapshotStore
    recovered: Recovered
    entries: list[Entry]


class Known(NamedTuple):
    """What a judge knows of a life that was cut off."""

    possible: tuple[State, ...]
    """The states that may be found, the earliest first."""
    instance_id: str = ""
    """As the first opening told it; empty: it has not."""
    more_openings: int = 0
    """How many openings may have been cut off since."""


def known_after(plan: Plan, acknowledged: int, instance_id: str = "") -> Known:
    """What is known when so many things of a plan have been acknowledged."""
    return Known(plan.states[acknowledged : plan.reach[acknowledged] + 1], instance_id)


@contextmanager
def opened(disk: Disk, root: Path, entropy: Callable[[int], bytes] | None = None) -> Iterator[Opened]:
    """Open as a node does, and close again."""
    directory = open_directory(disk, root, entropy or Random("judge").randbytes)
    store = None
    try:
        store, recovered = FileLogStore.open(directory, segment_bytes=SEGMENT_BYTES, seal_after_s=NEVER_S)
        snapshots = FileSnapshotStore.open(directory)
        check_log_follows(directory.snapshots_path, snapshots.newest(), recovered)
        yield Opened(directory, store, snapshots, recovered, list(recovered.entries))
    finally:
        if store is not None:
            store.close()
        directory.close()


def judge(disk: Disk, root: Path, known: Known) -> list[str]:
    """Open what is left, which repairs it, and say what is wrong; nothing is wrong if that is empty."""
    try:
        with opened(disk, root) as found:
            _, problems = match(found, known)
            return problems + leftovers(disk, root)
    except FencepostError as error:
        return [refusal(error)]


def refusal(error: FencepostError) -> str:
    return f"it does not open: {error.code}: {error.message}"


def match(found: Opened, known: Known) -> tuple[int, list[str]]:
    """Which of the possible states was found, or what is wrong where it is none of them.

    The last one that it can be: a write that only gives up entries is not seen before they are gone.
    """
    reasons: list[str] = []
    for number in reversed(range(len(known.possible))):
        reason = difference(found, known.possible[number], known)
        if not reason:
            return number, []
        reasons.append(reason)
    return 0, ["; or ".join(dict.fromkeys(reversed(reasons)))]


def difference(found: Opened, state: State, known: Known) -> str:
    """In what the opened files are not this state; empty where they are."""
    return (
        _named("log", log_difference(found, state))
        or _named("snapshots", _snapshot_difference(found, state))
        or _named("identity", _identity_difference(found, state, known))
    )


def _named(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else ""


def log_difference(found: Opened, state: State) -> str:
    """In what a log is not this one; compacted entries may be there or not."""
    log = found.recovered
    previous = log.previous_index
    if log.hard_state != state.hard_state:
        return f"term and vote are {log.hard_state}, not {state.hard_state}"
    if log.commit_index != state.commit_index:
        return f"the commit index is {log.commit_index}, not {state.commit_index}"
    if not state.base_index <= previous <= max(state.base_index, state.compact_to):
        return f"it begins behind {previous}; reset to {state.base_index}, compacted up to {state.compact_to}"
    if log.previous_term != state.term_at(previous):
        return f"the term at {previous} is {log.previous_term}, not {state.term_at(previous)}"
    if tuple(found.entries) != state.entries[previous - state.base_index :]:
        return f"its entries, up to {previous + len(found.entries)}, are not those up to {state.last_index}"
    return ""


def _snapshot_difference(found: Opened, state: State) -> str:
    newest = found.snapshots.newest()
    if newest != state.snapshot:
        return f"the newest is {_index(newest)}, not {_index(state.snapshot)}"
    if newest is not None and b"".join(found.snapshots.contents(newest)) != contents(newest):
        return f"that of index {newest.last_index} has other contents"
    return ""


def _index(snapshot: Snapshot | None) -> str:
    return "none" if snapshot is None else f"of index {snapshot.last_index}, term {snapshot.last_term}"


def _identity_difference(found: Opened, state: State, known: Known) -> str:
    directory = found.directory
    if not state.opened + 1 <= directory.boot <= state.opened + 1 + known.more_openings:
        return f"it counts {directory.boot} openings, this one included; there were {state.opened} before"
    if directory.created and state.opened:
        return "it was formatted anew"
    if known.instance_id and directory.instance_id != known.instance_id:
        return f"its instance id is {directory.instance_id}, not {known.instance_id}"
    if tuple(directory.known_instances().items()) != state.instances:
        return f"it knows the instances {directory.known_instances()}, not {dict(state.instances)}"
    return ""


def leftovers(disk: Disk, root: Path) -> list[str]:
    """What an opening has to clear away and has not."""
    left: list[str] = []
    for folder in (root, root / "log", root / "snapshots"):
        left += [f"{folder / name} is left" for name in sorted(disk.list_directory(folder)) if name.endswith(TEMPORARY)]
    return left


def judge_resource(path: Path, known: Known, entries: list[Entry]) -> list[str]:
    """The ledger against the life, and against the outcomes that the log has."""
    ledger = read_ledger(path)
    executed = tuple(operation.operation_id for operation in ledger.operations)
    fence = max((stored.token for stored in ledger.fences), default=State().token)
    problems = check_ledger(ledger)
    if (executed, fence) not in [(state.executed, state.token) for state in known.possible]:
        state = known.possible[0]
        problems.append(f"resource: {executed} under {fence} took effect, not {state.executed} under {state.token}")
    done = {operation.log_index for operation in ledger.operations}
    for entry in entries:
        marked = decode(entry.data)
        if isinstance(marked, Outcome):
            problems += [
                f"entry {entry.index} says that {row.index} succeeded, and the resource does not know it"
                for row in marked.rows
                if row.index not in done
            ]
    return problems
