"""Configurations in the middle of being changed."""

from __future__ import annotations

from ....raft.core.configuration import Configuration
from .past import Disk, Log, Past, hard_state


def _joint(past: Past) -> Configuration:
    """The last voters become learners, as many as no quorum of the old ones could do without."""
    names = tuple(sorted(past.names))
    stay = len(names) // 2 + 1
    return Configuration(names[:stay], names, (), names[stay:], auto_leave=True)


@hard_state("joint-uncommitted")
def joint_uncommitted(past: Past) -> None:
    """A joint configuration is in the leader's log and nowhere else."""
    first, *others = past.names
    log = Log()
    log.no_op(1)
    log.plain(1, 3)
    ahead = log.copy()
    ahead.configuration(1, _joint(past))
    past.lead(1, first)
    past.disks[first] = Disk(ahead, 1, first, commit_index=4)
    for name in others:
        past.disks[name] = Disk(log, 1, first, commit_index=past.random.randint(1, 4))


@hard_state("joint-committed")
def joint_committed(past: Past) -> None:
    """A joint configuration is committed, and its leader has ended before it could leave it (S24)."""
    log = Log()
    log.no_op(1)
    log.plain(1, 3)
    index = log.configuration(1, _joint(past))
    past.lead(1, past.names[0])
    for name in past.names:
        past.disks[name] = Disk(log, 1, past.names[0], commit_index=index if name == past.names[0] else index - 1)


@hard_state("configuration-on-minority")
def configuration_on_minority(past: Past) -> None:
    """A node has a configuration that nobody else knows, and the others have gone on without it (S25)."""
    first, *others = past.names
    log = Log()
    log.no_op(1)
    log.plain(1, 2)
    left = log.copy()
    left.configuration(1, Configuration(tuple(sorted(past.names[:-1]))))
    went_on = log.copy()
    went_on.no_op(2)
    went_on.plain(2, 3)
    past.lead(1, first)
    past.lead(2, others[0])
    past.disks[first] = Disk(left, 1, first, commit_index=3)
    for name in others:
        past.disks[name] = Disk(went_on, 2, others[0], commit_index=past.random.randint(3, 5))
