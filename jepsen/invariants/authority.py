"""A leader that has not been followed by a quorum for an election timeout sends nothing that renews a follower
(thesis section 6.2; S30).

Judged by what was answered: of each peer, when the newest message was *sent* that it has answered in this term.
"""

from __future__ import annotations

from ...raft.core.messages import AppendEntries, InstallSnapshot, Message
from ...raft.core.quorum import quorum_value
from .observed import Leadership, ObservedNode
from .property import Property

_ALWAYS = 1 << 62


class Authority(Property):
    """``node.contacts`` are kept by ``watch``, message by message; ``node.renews_until`` is what they allow."""

    name = "authority"

    def elected(self, node: ObservedNode, leadership: Leadership) -> None:
        # The votes are a contact, too.
        node.contacts = dict.fromkeys(node.raft.progress, node.raft.now)
        node.renews_until = 0

    def said(self, node: ObservedNode, to: str, message: Message) -> None:
        if not isinstance(message, AppendEntries | InstallSnapshot):
            return
        raft = node.raft
        if not raft.options.check_quorum or message.term != raft.current_term:
            return
        contacts = node.contacts
        for member in node.configuration.members:
            contacts.setdefault(member, raft.now)  # It has just become one.
        contacts[node.name] = _ALWAYS
        contact = quorum_value(node.configuration, contacts)
        node.renews_until = contact + raft.options.election_timeout
        if message.sent_at >= node.renews_until:
            raise self.broken(
                f"{node}, leader of term {message.term}, sends {type(message).__name__} to {to} at {message.sent_at} "
                f"by its clock, and a quorum of {node.configuration.voters} has followed it last at {contact}"
            )
