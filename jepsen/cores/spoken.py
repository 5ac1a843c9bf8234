"""What a node may say: nothing that a crash at this moment would make untrue (S05, S13)."""

from __future__ import annotations

from ...raft.core.messages import (
    AppendEntriesResponse,
    InstallSnapshotResponse,
    Message,
    RequestVote,
    RequestVoteResponse,
)
from .disk import Disk


def check_spoken(name: str, to: str, message: Message, disk: Disk, snapshot_index: int = 0) -> None:
    """Judged by the disk alone, whatever the core believes to be on it; ``snapshot_index`` is the last
    index of the newest snapshot there."""
    saved = disk.hard_state
    match message:
        case RequestVote(term=term):
            if saved.term < term or (saved.term == term and saved.voted_for != name):
                raise AssertionError(f"{name} asked for votes in term {term} with {saved} on its disk")
        case RequestVoteResponse(term=term, granted=True):
            if saved.term < term or (saved.term == term and saved.voted_for != to):
                raise AssertionError(f"{name} granted {to} its vote in term {term} with {saved} on its disk")
        case (
            AppendEntriesResponse(term=term, success=True, match_index=index)
            | InstallSnapshotResponse(term=term, installed=True, last_index=index)
        ):
            # In a later term the entries may have been replaced since: that is another leader's word.
            held = max(disk.last_index, snapshot_index)
            if saved.term < term or (saved.term == term and held < index):
                raise AssertionError(
                    f"{name} acknowledged {index} in term {term} with entries to {held} and {saved} on its disk"
                )
        case _:
            if saved.term < message.term - 1:  # A pre-vote names the term after the current one.
                raise AssertionError(f"{name} spoke for term {message.term} with {saved} on its disk")
