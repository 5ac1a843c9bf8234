"""Majority arithmetic: what a set of voters has agreed on."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from .configuration import Configuration


class VoteResult(Enum):
    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def vote_result(configuration: Configuration, votes: Mapping[str, bool]) -> VoteResult:
    """The state of an election. Votes are by voter id: a repeated or foreign vote changes nothing (S06)."""
    granted = sum(1 for voter in configuration.voters if votes.get(voter) is True)
    refused = sum(1 for voter in configuration.voters if votes.get(voter) is False)
    if granted >= configuration.quorum:
        return VoteResult.WON
    if len(configuration.voters) - refused < configuration.quorum:
        return VoteResult.LOST
    return VoteResult.PENDING


def quorum_value(configuration: Configuration, values: Mapping[str, int]) -> int:
    """The largest value that a majority of voters has reached: of match indexes, the index that a
    majority holds; of contact times, the time since which a majority has been in contact.

    A voter without a value counts as 0.
    """
    reached = sorted((values.get(voter, 0) for voter in configuration.voters), reverse=True)
    return reached[configuration.quorum - 1]
