"""Who is in the cluster, and how one configuration follows from another (Raft thesis chapter 4).

A change of one voter goes from a configuration to the next directly: their majorities overlap
(section 4.1). Anything larger goes through a *joint* configuration, in which every decision needs a
majority of the old voters and one of the new (section 4.3). Learners receive the log and are counted
in no quorum (section 4.2.1).

This file is arithmetic: it knows no log and no leader. When a change may be made is ``membership``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from .errors import UnknownEntry


class ConfigurationInvalid(ValueError):
    """A change that cannot be made to this configuration. The text says why."""


class ChangeKind(IntEnum):
    ADD_VOTER = 0
    """Make it a voter, whether it is new or a learner."""
    ADD_LEARNER = 1
    """Make it a learner, whether it is new or a voter."""
    REMOVE = 2
    """Take it out of the configuration. Its node id is retired: it never comes back."""
    UPDATE = 3
    """Leave its part as it is; only its address changes."""


class Change(NamedTuple):
    """One step of a change. ``address`` is where its peers reach the node, empty to leave it as it is."""

    kind: ChangeKind
    node_id: str
    address: str = ""


class Configuration(NamedTuple):
    """The members of the cluster by node id, each part sorted."""

    voters: tuple[str, ...]
    """Who decides; while the configuration is joint, the new voters."""
    outgoing: tuple[str, ...] = ()
    """The old voters while the configuration is joint, else empty."""
    learners: tuple[str, ...] = ()
    learners_next: tuple[str, ...] = ()
    """Old voters that become learners when the joint configuration is left."""
    auto_leave: bool = False
    """The leader leaves the joint configuration by itself as soon as that may be done."""
    retired: tuple[str, ...] = ()
    """Ids that were removed. A removed node may not know it yet; its id is never used again."""
    addresses: tuple[tuple[str, str], ...] = ()
    """(node id, peer address) of members that were given one with a change; others are configured."""

    @property
    def quorum(self) -> int:
        """How many of ``voters`` make a majority."""
        return len(self.voters) // 2 + 1

    @property
    def is_joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def members(self) -> tuple[str, ...]:
        """Everybody who receives the log, sorted."""
        return _sorted({*self.voters, *self.outgoing, *self.learners, *self.learners_next})

    def is_voter(self, node_id: str) -> bool:
        """Whether it decides, in the new configuration or the old."""
        return node_id in self.voters or node_id in self.outgoing

    def address(self, node_id: str) -> str:
        """Its peer address as the configuration knows it, or the empty string."""
        return dict(self.addresses).get(node_id, "")


def _sorted(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(ids))


def check_configuration(configuration: Configuration) -> None:
    """Raises :class:`ConfigurationInvalid` if its parts contradict each other."""
    voters, outgoing = set(configuration.voters), set(configuration.outgoing)
    learners, learners_next = set(configuration.learners), set(configuration.learners_next)
    for word in (*configuration.members, *configuration.retired, *dict(configuration.addresses).values()):
        if not word or " " in word or not word.isprintable():
            raise ConfigurationInvalid(f"{word!r} is no node id or address: one word that can be printed")
    if not voters:
        raise ConfigurationInvalid("there would be no voter left")
    if learners & (voters | outgoing):
        raise ConfigurationInvalid(f"{_sorted(learners & (voters | outgoing))} are both learners and voters")
    if not learners_next <= outgoing or learners_next & voters:
        raise ConfigurationInvalid(f"{_sorted(learners_next)} become learners later, but are no outgoing voters")
    if not outgoing and configuration.auto_leave:
        raise ConfigurationInvalid("only a joint configuration is left")


def _apply(configuration: Configuration, changes: Sequence[Change]) -> Configuration:
    """The changes one after another, against the voters that are coming."""
    voters, outgoing = set(configuration.voters), set(configuration.outgoing)
    learners, learners_next = set(configuration.learners), set(configuration.learners_next)
    addresses = dict(configuration.addresses)
    for kind, node_id, address in changes:
        if kind is ChangeKind.ADD_VOTER:
            voters.add(node_id)
            learners.discard(node_id)
            learners_next.discard(node_id)
        elif kind is ChangeKind.ADD_LEARNER:
            voters.discard(node_id)
            if node_id in outgoing:
                # Still a voter of the old configuration; nobody is voter and learner at once.
                learners_next.add(node_id)
            else:
                learners.add(node_id)
        elif kind is ChangeKind.REMOVE:
            voters.discard(node_id)
            learners.discard(node_id)
            learners_next.discard(node_id)
        elif address and node_id not in voters | outgoing | learners:
            raise ConfigurationInvalid(f"{node_id} is no member")
        if address and kind is not ChangeKind.REMOVE:
            addresses[node_id] = address
    stay = voters | learners | learners_next
    made = Configuration(
        _sorted(voters),
        configuration.outgoing,
        _sorted(learners),
        _sorted(learners_next),
        configuration.auto_leave,
        # Whoever was a member and will be none, whatever was said on the way there.
        _sorted({*configuration.retired, *(set(configuration.members) - stay)}),
        _addresses_of_members(addresses, stay | outgoing),
    )
    check_configuration(made)
    return made


def _addresses_of_members(addresses: Mapping[str, str], members: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """A voter that is going has to be reached until it has gone."""
    return tuple((node_id, addresses[node_id]) for node_id in sorted(members) if node_id in addresses)


def change_simply(configuration: Configuration, changes: Sequence[Change]) -> Configuration:
    """The configuration after changes that alter at most one voter (section 4.1)."""
    if configuration.is_joint:
        raise ConfigurationInvalid("the configuration is joint: leave it first")
    made = _apply(configuration, changes)
    if len(set(configuration.voters) ^ set(made.voters)) > 1:
        raise ConfigurationInvalid("more than one voter changes: that needs a joint configuration")
    return made


def enter_joint(configuration: Configuration, changes: Sequence[Change], *, auto_leave: bool) -> Configuration:
    """The joint configuration of the present voters and those after ``changes`` (section 4.3)."""
    if configuration.is_joint:
        raise ConfigurationInvalid("the configuration is joint already")
    if not configuration.voters:
        raise ConfigurationInvalid("without voters there is nothing to join")
    return _apply(configuration._replace(outgoing=configuration.voters, auto_leave=auto_leave), changes)


def leave_joint(configuration: Configuration) -> Configuration:
    """The new configuration alone."""
    if not configuration.is_joint:
        raise ConfigurationInvalid("there is no joint configuration to leave")
    learners = _sorted({*configuration.learners, *configuration.learners_next})
    made = configuration._replace(
        outgoing=(),
        learners=learners,
        learners_next=(),
        auto_leave=False,
        addresses=_addresses_of_members(dict(configuration.addresses), {*configuration.voters, *learners}),
    )
    check_configuration(made)
    return made


# -- as the data of a log entry -----------------------------------------------------------------------

_PARTS = ("voters", "outgoing", "learners", "learners_next", "retired")


def encode_configuration(configuration: Configuration) -> bytes:
    """Text, a line a part: ``voters n1 n2 n3``. Empty parts are left out, and node ids hold no blanks."""
    lines = [" ".join((part, *getattr(configuration, part))) for part in _PARTS if getattr(configuration, part)]
    if configuration.auto_leave:
        lines.append("auto_leave")
    lines += [f"address {node_id} {address}" for node_id, address in configuration.addresses]
    return "\n".join(lines).encode()


def decode_configuration(data: bytes) -> Configuration:
    """Raises :class:`~.errors.UnknownEntry` for anything that :func:`encode_configuration` does not make:
    a part that this version does not know would be lost by going on without it (S55)."""
    parts: dict[str, tuple[str, ...]] = {}
    addresses: list[tuple[str, str]] = []
    auto_leave = False
    try:
        for line in data.decode().split("\n"):
            name, *rest = line.split(" ")
            if name in _PARTS and rest and name not in parts:
                parts[name] = tuple(rest)
            elif name == "auto_leave" and not rest:
                auto_leave = True
            elif name == "address" and len(rest) == 2:
                addresses.append((rest[0], rest[1]))
            else:
                raise ConfigurationInvalid(f"{line!r} is no part of a configuration")
        made = Configuration(
            parts.get("voters", ()),
            parts.get("outgoing", ()),
            parts.get("learners", ()),
            parts.get("learners_next", ()),
            auto_leave,
            parts.get("retired", ()),
            tuple(addresses),
        )
        check_configuration(made)
        in_order = all(getattr(made, part) == _sorted(set(getattr(made, part))) for part in _PARTS)
        if not in_order or addresses != sorted(dict(addresses).items()) or encode_configuration(made) != data:
            raise ConfigurationInvalid("its parts are not in order")
    except ValueError as error:
        raise UnknownEntry(f"a configuration in the log that this version cannot read: {error}") from error
    return made
