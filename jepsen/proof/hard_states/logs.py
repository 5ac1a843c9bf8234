"""Logs and votes: what the Raft paper draws, and what an election leaves behind when it is interrupted."""

from __future__ import annotations

from .past import Disk, Log, Past, hard_state

# The logs of figure 7 of the Raft paper, as terms: the leader of term 8 and the followers (a) to (f).
_FIGURE_7 = {
    "leader": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6),
    "a": (1, 1, 1, 4, 4, 5, 5, 6, 6),
    "b": (1, 1, 1, 4),
    "c": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    "d": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    "e": (1, 1, 1, 4, 4, 4, 4),
    "f": (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
}


def _log_of(terms: tuple[int, ...]) -> Log:
    """A log with these terms; the first entry of each term is its no-op."""
    log = Log()
    before = 0
    for term in terms:
        if term == before:
            log.plain(term, 1)
        else:
            log.no_op(term)
        before = term
    return log


def _figure_7(past: Past, letter: str) -> None:
    """One node has the log of the figure's leader and one that of ``letter``; the others have any of the figure's.

    What a majority has is committed, and known to be by some. The leader of term 8 has not been elected yet; who led
    the newest term that left an entry was elected by a majority, which therefore has that term.
    """
    letters = ["leader", letter, *(past.random.choice("abcdef") for _ in past.names[2:])]
    logs = {name: _FIGURE_7[each] for name, each in zip(past.names, letters, strict=True)}
    newest = max(max(terms) for terms in logs.values())
    leader = max(past.names, key=lambda name: (max(logs[name]) == newest, len(logs[name])))
    # It was elected with the log that it had before its own term; who had more did not vote for it.
    inherited = tuple(term for term in logs[leader] if term < newest)
    voters = [name for name in past.names if name == leader or _may_vote(logs[name], inherited, newest)]
    voters = voters[: len(past.names) // 2 + 1] if leader in voters[: len(past.names) // 2 + 1] else voters
    past.lead(newest, leader)
    committed = _committed(list(logs.values()), logs[leader])
    for name, terms in logs.items():
        term, vote = (newest, leader) if name in voters else (max(terms), "")
        same = next(
            (place for place, (one, other) in enumerate(zip(terms, committed, strict=False)) if one != other), 0
        )
        same = same or min(len(terms), len(committed))
        past.disks[name] = Disk(_log_of(terms), term, vote, commit_index=past.random.randint(3, same))


def _committed(logs: list[tuple[int, ...]], newest: tuple[int, ...]) -> tuple[int, ...]:
    """As much of the newest leader's log as a majority has. What others have of older terms in its place was never
    committed, on however many disks it lies: the newest leader would have had it."""
    sizes = [
        size
        for size in range(1, len(newest) + 1)
        if sum(other[:size] == newest[:size] for other in logs) > len(logs) // 2
    ]
    return newest[: max(sizes)]


def _may_vote(terms: tuple[int, ...], candidate: tuple[int, ...], term: int) -> bool:
    """Whether a node that has this log now can have voted then for a candidate with that one."""
    before = tuple(each for each in terms if each < term)
    return (max(before), len(before)) <= (max(candidate), len(candidate))


for _letter in "abcdef":
    hard_state(f"figure-7{_letter}")(lambda past, letter=_letter: _figure_7(past, letter))  # type: ignore[misc]


@hard_state("no-op-uncommitted")
def no_op_uncommitted(past: Past) -> None:
    """A leader was elected, and only its own disk has its no-op."""
    first, *others = past.names
    log = Log()
    log.no_op(1)
    log.plain(1, 4)
    ahead = log.copy()
    ahead.no_op(2)
    past.lead(2, first)
    past.disks[first] = Disk(ahead, 2, first, commit_index=4)
    for name in others:
        past.disks[name] = Disk(log, 2, first, commit_index=past.random.randint(0, 5))


@hard_state("figure-8")
def figure_8(past: Past) -> None:
    """An entry of an old term is on a majority and not committed: the next leader may still overwrite it.

    The first node led term 2 and wrote its entry to itself alone; the last led term 3 and did the same; the
    first led term 4 and sent its old entry to a majority, as in (c) of the figure.
    """
    *majority, last = past.names
    log = Log()
    log.no_op(1)
    old, new = log.copy(), log.copy()
    old.no_op(2)
    new.no_op(3)
    leader = majority[0]
    past.lead(4, leader)
    holders = majority[: len(past.names) // 2 + 1]
    for name in past.names:
        if name == last:
            past.disks[name] = Disk(new, 3, last, commit_index=1)
        elif name in holders:
            past.disks[name] = Disk(old, 4, leader, commit_index=1)
        else:
            past.disks[name] = Disk(log, 4, leader, commit_index=1)


@hard_state("high-term-isolated")
def high_term_isolated(past: Past) -> None:
    """A node was alone for long without pre-vote, and its term has climbed while its log stood still."""
    *others, alone = past.names
    log = Log()
    log.no_op(1)
    log.plain(1, 3)
    ahead = log.copy()
    ahead.no_op(2)
    ahead.plain(2, 5)
    for name in others:
        past.disks[name] = Disk(ahead, 2, others[0], commit_index=ahead.last_index)
    past.disks[alone] = Disk(log, 40 + past.random.randint(0, 50), alone, commit_index=2)


@hard_state("vote-newer-than-log")
def vote_newer_than_log(past: Past) -> None:
    """Votes were given in a term of which nobody has an entry, and they do not agree."""
    log = Log()
    log.no_op(1)
    log.plain(1, 6)
    for place, name in enumerate(past.names):
        # Each for itself or for the first: no majority has come together.
        voted_for = past.names[0] if place < len(past.names) // 2 else name
        past.disks[name] = Disk(log.up_to(5 + place % 2 * 2), 5, voted_for, commit_index=5)


@hard_state("long-old-suffix")
def long_old_suffix(past: Past) -> None:
    """A former leader has a long log of entries that nobody else has; the others have committed fewer, and newer."""
    *others, alone = past.names
    log = Log()
    log.no_op(1)
    log.plain(1, 2)
    long, short = log.copy(), log.copy()
    long.plain(1, past.random.randint(5, 12))
    short.no_op(2)
    short.plain(2, past.random.randint(1, 3))
    past.lead(1, alone)
    past.lead(2, others[0])
    past.disks[alone] = Disk(long, 1, alone, commit_index=3)
    for name in others:
        past.disks[name] = Disk(short, 2, others[0], commit_index=short.last_index)
