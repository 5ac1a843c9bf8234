"""Majority arithmetic: what a set of voters has agreed on.

In a joint configuration everything needs a majority of the old voters and one of the new (thesis
section 4.3): a value is reached by both, an election is won in both and lost in either.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from .configuration import Configuration


class VoteResult(Enum):
    PENDING = "pending"
    WON = "won"
    LOST = "lost"


UNBOUNDED = 1 << 62
"""The value reached by a set of no voters: it holds nobody back."""


def majority_vote(voters: tuple[str, ...], votes: Mapping[str, bool]) -> VoteResult:
    """The state of an election among ``voters``. Votes are by voter id: a repeated or foreign vote
    changes nothing (S06)."""
    quorum = len(voters) // 2 + 1
    granted = refused = 0
    for voter in voters:
        vote = votes.get(voter)
        if vote is True:
            granted += 1
        elif vote is False:
            refused += 1
    if granted >= quorum or not voters:
        return VoteResult.WON
    if len(voters) - refused < quorum:
        return VoteResult.LOST
    return VoteResult.PENDING


def majority_value(voters: tuple[str, ...], values: Mapping[str, int]) -> int:
    """The largest value that a majority of ``voters`` has reached. A voter without a value counts as 0."""
    if not voters:
        return UNBOUNDED
    reached = sorted([values.get(voter, 0) for voter in voters], reverse=True)
    return reached[len(voters) // 2]


def vote_result(configuration: Configuration, votes: Mapping[str, bool]) -> VoteResult:
    """The state of an election under a configuration, joint or not."""
    result = majority_vote(configuration.voters, votes)
    if configuration.outgoing and result is not VoteResult.LOST:
        other = majority_vote(configuration.outgoing, votes)
        if other is not VoteResult.WON:
            return other
    return result


def quorum_value(configuration: Configuration, values: Mapping[str, int]) -> int:
    """The largest value that a quorum has reached: of match indexes, the index that a quorum holds; of
    contact times, the time since which a quorum has been in contact."""
    value = majority_value(configuration.voters, values)
    if configuration.outgoing:
        value = min(value, majority_value(configuration.outgoing, values))
    return value
