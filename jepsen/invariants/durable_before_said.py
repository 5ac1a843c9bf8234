"""A message that leaves says nothing that a crash at this moment would make untrue (S05, S13).

Judged by the disk of its sender alone, whatever the core believes to be on it.
"""

from __future__ import annotations

from ...raft.core.messages import (
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    PreVote,
    RequestVote,
    RequestVoteResponse,
)
from .observed import ObservedNode
from .property import Property


class DurableBeforeSaid(Property):
    name = "durable before said"

    def said(self, node: ObservedNode, to: str, message: Message) -> None:
        saved = node.disk.hard_state
        # A pre-vote names the term after the current one.
        spoken = message.term - 1 if type(message) is PreVote else message.term
        if saved.term < spoken:
            raise self.broken(f"{node} speaks to {to} for term {spoken} with {saved} on its disk: {message}")
        match message:
            case RequestVote(term=term) if (term, node.name) not in node.votes:
                raise self.broken(f"{node} asks {to} for a vote in term {term} with {saved} on its disk")
            case RequestVoteResponse(term=term, granted=True) if (term, to) not in node.votes:
                raise self.broken(f"{node} grants {to} its vote in term {term} with {saved} on its disk")
            case AppendEntriesResponse(term=term, success=True, match_index=index):
                self._check_acknowledged(node, to, term, index)
            case InstallSnapshotResponse(term=term, installed=True, last_index=index):
                self._check_acknowledged(node, to, term, index)
            case InstallSnapshot(snapshot=snapshot):
                held = node.disk.snapshot
                if held is None or held.last_index < snapshot.last_index:
                    raise self.broken(f"{node} sends {to} a snapshot of {snapshot.last_index}; its disk has {held}")
            case _:
                pass

    def _check_acknowledged(self, node: ObservedNode, to: str, term: int, index: int) -> None:
        """The disk agrees with the log of the leader of that term up to that index."""
        disk = node.disk
        leadership = self.ledger.leaderships.get(term)
        # In a later term the entries may have been replaced since: that is another leader's word.
        if disk.hard_state.term == term:
            wanted = leadership.term_at(index) if leadership is not None else disk.term_at(index)
            if wanted == -1 and leadership is not None:
                wanted = disk.term_at(index)  # Cut off at the leader when it was elected: it is committed.
            held = disk.term_at(index)
            covered = disk.snapshot is not None and index <= disk.snapshot.last_index
            if not covered and (held == -1 or held != wanted):
                raise self.broken(
                    f"{node} acknowledges index {index} to {to}, leader of term {term}, whose entry there is of term "
                    f"{wanted}; its disk ends at {disk.last_index} and has term {held} there (-1: nothing)"
                )
        if node.vouched_term != term:
            node.vouched_term, node.vouched_index = term, index
        else:
            node.vouched_index = max(node.vouched_index, index)
