"""The network between nodes: delays, losses, copies, damage, and connections that come and go.

Faults are set on single links, in one direction, or as settings for all of them. A message that is
lost tells nobody; a connection that breaks tells its sender, as the real transport does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappush
from random import Random
from typing import TYPE_CHECKING

from ...raft.core.errors import FrameInvalid
from ...raft.core.messages import Message
from ...transport.codec import encode_message
from .agenda import Agenda, Handle
from .bytestream import ByteStream, damaged, round_trip
from .dialling import Dialling
from .link import Link
from .loop import SimLoop
from .settings import NetworkSettings

if TYPE_CHECKING:
    from .observer import Hooks
    from .transport import SimTransport


class Network:
    """``outside`` is the thread of the world itself."""

    def __init__(
        self,
        agenda: Agenda,
        outside: SimLoop,
        chance: Random,
        hooks: Hooks,
        settings: NetworkSettings,
        names: Sequence[str],
    ) -> None:
        self.names = names
        """All nodes that there are; the world adds to them."""
        self.hooks = hooks
        self._looks = hooks.on_sent
        self.links: dict[tuple[str, str], Link] = {}
        self.counts = {"lost": 0, "copied": 0, "kept": 0, "damaged": 0, "encoded": 0, "refused": 0, "stale": 0}
        """What has been done to messages so far."""
        self.running: dict[str, SimTransport] = {}
        """The process that runs, by node."""
        self._agenda = agenda
        self.outside = outside
        self._random = chance.random
        self._chance = chance
        self.settings = settings
        self._troubled = False
        self.set(settings)
        self.dialling = Dialling(self, agenda, outside, chance)

    def set(self, settings: NetworkSettings) -> None:
        """Behave like this from now on."""
        self.settings = settings
        self._troubled = settings.troubled
        self._delay_min_ns = settings.delay_min_ns
        self._delay_spread_ns = settings.delay_spread_ns
        self._usual = 1.0 - settings.tail - settings.encoded
        self._ordered = settings.ordered

    def link(self, source: str, to: str) -> Link:
        found = self.links.get((source, to))
        if found is None:
            found = self.links[source, to] = Link(self, source, to)
        return found

    # -- faults -------------------------------------------------------------------------------------

    def cut(self, source: str, to: str) -> None:
        """One direction: from now on nothing arrives, not even what is on its way."""
        link = self.link(source, to)
        if not link.blocked:
            link.blocked = link.troubled = True
            self.dialling.suspect(source, to)

    def mend(self, source: str, to: str) -> None:
        """What was done to one direction is over."""
        link = self.link(source, to)
        if link.half_open:
            self.dialling.heard_again(link)
        link.blocked = link.half_open = False
        link.troubled = link.stream is not None

    def partition(self, *groups: Iterable[str]) -> None:
        """Nodes hear only those who share a group with them. A node in two groups is a bridge; in none, alone."""
        members = [frozenset(group) for group in groups]
        for source, to in self._pairs():
            if any(source in group and to in group for group in members):
                self.mend(source, to)
            else:
                self.cut(source, to)

    def isolate(self, name: str) -> None:
        for source, to in self._pairs():
            if name in (source, to):
                self.cut(source, to)

    def heal(self) -> None:
        """All links work again, as far as their connections have survived."""
        for link in self.links.values():
            self.mend(link.source, link.to)

    def half_open(self, source: str, to: str) -> None:
        """The sender's connection stands, nothing sent on it arrives, and nobody tells. Until ``mend``."""
        link = self.link(source, to)
        link.half_open = link.troubled = True

    def break_link(self, source: str, to: str) -> None:
        """The connection breaks: what is on its way is lost, and the sender hears that the peer is unreachable."""
        link = self.link(source, to)
        if link.up:
            self.dialling.broke(link, "reset")

    def _pairs(self) -> Iterator[tuple[str, str]]:
        return ((source, to) for source in self.names for to in self.names if source != to)

    # -- messages -----------------------------------------------------------------------------------

    def carry(self, link: Link, message: Message) -> None:
        """A message leaves on a connection that is up. The usual case in one go, as most of a run is this."""
        if self._looks:
            self._show(link, message)
        if link.troubled or self._troubled:
            self._carry_with_trouble(link, message)
            return
        # One draw says both how long it takes and whether anything is unusual.
        drawn = self._random()
        agenda = self._agenda
        if drawn < self._usual:
            arrives_ns = agenda.now_ns + self._delay_min_ns + int(drawn * self._delay_spread_ns)
        else:
            arrives_ns, message = self._unusual(drawn, message)
        if self._ordered:
            if arrives_ns < link.arrived_at_ns:
                arrives_ns = link.arrived_at_ns
            else:
                link.arrived_at_ns = arrives_ns
        handle = Handle(link.loop, link.deliver, (link.epoch, message))
        heappush(agenda.heap, (arrives_ns, agenda.next_order(), handle))

    def _show(self, link: Link, message: Message) -> None:
        try:
            for look in self._looks:
                look(link.source, link.to, message)
        except Exception as error:
            self.hooks.failed(error)
            raise

    def _unusual(self, drawn: float, message: Message) -> tuple[int, Message]:
        """The long tail of delays, and the messages that travel as bytes."""
        settings = self.settings
        now_ns = self._agenda.now_ns
        if drawn < self._usual + settings.encoded:
            self.counts["encoded"] += 1
            return now_ns + settings.delay_min_ns + settings.delay_spread_ns, round_trip(message)
        tail_ns = int(settings.tail_ns * self._chance.paretovariate(settings.tail_alpha))
        return now_ns + min(tail_ns, settings.tail_max_ns), message

    def _carry_with_trouble(self, link: Link, message: Message) -> None:
        settings, counts = self.settings, self.counts
        if link.blocked or link.half_open or (settings.loss and self._random() < settings.loss):
            counts["lost"] += 1
            return
        if settings.stale and self._random() < settings.stale:
            counts["kept"] += 1
            after_ns = self._chance.randint(settings.stale_min_ns, settings.stale_max_ns)
            self.outside.call_after_ns(after_ns, self._deliver_stale, link, message)
        if link.stream is not None:
            self._send_bytes(link, encode_message(message), message)
            return
        if settings.corruption and self._random() < settings.corruption:
            counts["damaged"] += 1
            link.stream = ByteStream()
            link.troubled = True
            self.dialling.suspect_stuck(link)
            self._send_bytes(link, damaged(encode_message(message), self._chance), None)
            return
        self._deliver_later(link, message)
        if settings.duplication and self._random() < settings.duplication:
            counts["copied"] += 1
            self._deliver_later(link, message)

    def _deliver_later(self, link: Link, message: Message) -> None:
        drawn = self._random()
        arrives_ns = self._agenda.now_ns + self._delay_min_ns + int(drawn * self._delay_spread_ns)
        if drawn >= self._usual:
            arrives_ns, message = self._unusual(drawn, message)
        if self._ordered:
            link.arrived_at_ns = arrives_ns = max(arrives_ns, link.arrived_at_ns)
        self._agenda.put(arrives_ns, Handle(link.loop, link.deliver, (link.epoch, message)))

    def _deliver_stale(self, link: Link, message: Message) -> None:
        """A copy from long ago turns up, wherever the connection that carried it may be now."""
        receiver = self.running.get(link.to)
        if receiver is not None and not link.blocked:
            self.counts["stale"] += 1
            receiver.loop.call_soon(self._receive_stale, receiver, link.source, message)

    def _receive_stale(self, receiver: SimTransport, source: str, message: Message) -> None:
        for hook in self.hooks.on_delivered:
            hook(source, receiver.name, message)
        receiver.handler.receive(source, message)

    # -- bytes --------------------------------------------------------------------------------------

    def _send_bytes(self, link: Link, data: bytes, message: Message | None) -> None:
        # A stream is in order by nature, whatever the settings say.
        settings = self.settings
        delay_ns = settings.delay_min_ns + self._chance.randint(0, settings.delay_spread_ns)
        link.arrived_at_ns = arrives_ns = max(self._agenda.now_ns + delay_ns, link.arrived_at_ns)
        self._agenda.put(arrives_ns, Handle(link.loop, self._read_bytes, (link, link.epoch, data, message)))

    def _read_bytes(self, link: Link, epoch: int, data: bytes, message: Message | None) -> None:
        if epoch != link.epoch or link.stream is None:
            return
        try:
            found = link.stream.feed(data, message)
        except FrameInvalid as error:
            self.counts["refused"] += 1
            self.dialling.broke(link, error.message)
            return
        for each in found:
            link.deliver(epoch, each)
