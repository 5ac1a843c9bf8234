"""Followers that need a snapshot: one that is far behind, and one whose log has gone another way."""

from __future__ import annotations

from .past import Disk, Log, Past, hard_state


@hard_state("snapshot-conflicting-suffix")
def snapshot_conflicting_suffix(past: Past) -> None:
    """The others have compacted past the place where a follower's log conflicts with theirs (S15)."""
    *others, behind = past.names
    log = Log()
    log.no_op(1)
    log.plain(1, 2)
    conflicting = log.copy()
    conflicting.plain(1, past.random.randint(1, 14))
    good = log.copy()
    good.no_op(2)
    good.plain(2, 9)
    past.lead(1, behind)
    past.lead(2, others[0])
    for name in others:
        past.disks[name] = Disk(
            good,
            2,
            others[0],
            commit_index=good.last_index,
            snapshot_at=good.last_index - 2,
            begins_behind=good.last_index - 2,
        )
    past.disks[behind] = Disk(conflicting, 1, behind, commit_index=3)


@hard_state("behind-compacted-log")
def behind_compacted_log(past: Past) -> None:
    """A follower was away while the others took snapshots and let their logs go."""
    *others, behind = past.names
    log = Log()
    log.no_op(1)
    log.plain(1, 40)
    past.lead(1, others[0])
    for name in others:
        past.disks[name] = Disk(log, 1, others[0], commit_index=41, snapshot_at=38, begins_behind=38)
    past.disks[behind] = Disk(log.up_to(past.random.randint(1, 5)), 1, others[0], commit_index=1)
