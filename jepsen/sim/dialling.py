"""Making and losing connections: dialling with a back-off, the handshake, and finding out that a peer is gone.

What the real transport does with sockets and pings, in as few events as possible: nothing is sent to
find out whether a connection still works; when something is done to a link, the moment at which its
pings would have told is put on the agenda.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ...raft.core.errors import FencepostError
from ...transport.codec import Hello, Welcome
from .agenda import Agenda
from .link import Link
from .loop import SimLoop

if TYPE_CHECKING:
    from .network import Network
    from .transport import SimTransport


class Dialling:
    def __init__(self, network: Network, agenda: Agenda, outside: SimLoop, chance: Random) -> None:
        self._network = network
        self._agenda = agenda
        self._outside = outside
        self._chance = chance

    # -- processes come and go ----------------------------------------------------------------------

    def joined(self, transport: SimTransport) -> None:
        """A process begins to listen, and to dial."""
        network = self._network
        network.running[transport.name] = transport
        for link in list(network.links.values()):
            if link.to == transport.name and link.up:
                # Its sender never heard of the end of the process before: the new one resets the connection.
                self._outside.call_after_ns(self._half_way_ns(), self._reset, link, link.epoch)

    def begin(self, link: Link, transport: SimTransport) -> None:
        """This process wants a connection to that peer from now on."""
        link.dialled_by = transport
        link.lender = None
        link.up = link.dialling = False
        link.epoch += 1
        link.attempt += 1
        link.backoff_ns = 0
        self._outside.call_after_ns(0, self._dial, link, link.attempt)

    def end(self, link: Link) -> None:
        """Nobody sends on it any more."""
        link.dialled_by = None
        link.up = False
        link.epoch += 1
        link.attempt += 1
        link.stream = None
        self._take_back(link)

    def hang_up(self, link: Link, transport: SimTransport) -> None:
        """This process does not want it any more. What has been sent still arrives where there is no other way back."""
        if link.up:
            transport.loop.call_soon(transport.handler.unreachable, link.to)
        link.dialled_by = None
        link.up = False
        link.attempt += 1
        self._take_back(link)
        arrived = self._network.links.get((link.to, link.source))
        if arrived is not None and arrived.up and arrived.dialled_by is not None and arrived.reached is transport:
            # The other end's own connection is still there, and there is no other way to it any more. One that it
            # only believes in, because the process that it reached is gone, is none of this process.
            self._lend(arrived, arrived.dialled_by, transport)

    # -- the way back -------------------------------------------------------------------------------

    def _lend(self, link: Link, sender: SimTransport, there: SimTransport) -> None:
        """Who was dialled and does not dial itself answers on this connection."""
        back = self._network.link(link.to, link.source)
        if back.dialled_by is None and self._network.running.get(there.name) is there:
            back.lender = link
            self._connect(back, sender)

    def _take_back(self, link: Link) -> None:
        back = self._network.links.get((link.to, link.source))
        if back is not None and back.lender is link:
            back.lender = None
            back.up = False
            back.epoch += 1
            there = link.reached
            if there is not None:
                there.loop.call_soon(there.handler.unreachable, link.source)

    def left(self, transport: SimTransport, *, told: bool) -> None:
        """A process is gone. ``told``: its system closes its connections; else the machine is gone with it."""
        network = self._network
        if network.running.get(transport.name) is transport:
            del network.running[transport.name]
        for link in list(network.links.values()):
            if link.dialled_by is transport:
                self.end(link)
            elif link.to == transport.name and link.up:
                if told:
                    self._outside.call_after_ns(self._half_way_ns(), self._reset, link, link.epoch)
                else:
                    self._suspect_link(link)

    def stopped(self, name: str) -> None:
        """A process was stopped by a signal: it answers no ping."""
        for link in self._network.links.values():
            if link.to == name and link.up:
                self._suspect_link(link)

    # -- losing a connection ------------------------------------------------------------------------

    def broke(self, link: Link, cause: str) -> None:
        """The sender finds out that its connection is gone. One that was lent is gone for who dialled it, too."""
        if link.lender is not None:
            link = link.lender
        link.up = False
        link.epoch += 1
        link.stream = None
        link.troubled = link.blocked or link.half_open
        link.cause = cause
        self._take_back(link)
        sender = link.dialled_by
        if sender is None:
            return
        sender.loop.call_soon(sender.handler.unreachable, link.to)
        link.attempt += 1
        self._again(link)

    def suspect(self, source: str, to: str) -> None:
        """Nothing passes from ``source`` to ``to``: neither the pings of the one nor the pongs to the other."""
        self._suspect_link(self._network.link(source, to))
        self._suspect_link(self._network.link(to, source))

    def _suspect_link(self, link: Link) -> None:
        timeout_ns = self._network.settings.ping_timeout_ns
        if link.lender is not None:
            link = link.lender
        if timeout_ns and link.up:
            after_ns = self._chance.randint(timeout_ns, timeout_ns + timeout_ns // 4)
            self._outside.call_after_ns(after_ns, self._pings_unanswered, link, link.epoch)

    def suspect_stuck(self, link: Link) -> None:
        """Damage may have made the other end wait for bytes that never come."""
        self._outside.call_after_ns(
            self._network.settings.ping_timeout_ns or 2_000_000_000, self._stuck, link, link.epoch
        )

    def _pings_unanswered(self, link: Link, epoch: int) -> None:
        if link.epoch == epoch and link.up and not self._passes(link):
            self.broke(link, "pings without an answer")

    def _stuck(self, link: Link, epoch: int) -> None:
        if link.epoch == epoch and link.up and link.stream is not None:
            self.broke(link, "pings without an answer")

    def heard_again(self, link: Link) -> None:
        """What is sent on a half-open connection arrives from now on: where its other end is gone, it is reset."""
        if link.up and link.reached is not self._network.running.get(link.to):
            self._outside.call_after_ns(self._half_way_ns(), self._reset, link, link.epoch)

    def _reset(self, link: Link, epoch: int) -> None:
        if link.epoch == epoch and link.up and not link.half_open:
            self.broke(link, "connection reset")

    def _passes(self, link: Link) -> bool:
        """Whether bytes pass both ways and a process that runs answers at the other end."""
        back = self._network.link(link.to, link.source)
        there = self._network.running.get(link.to)
        return (
            there is not None
            and (link.reached is None or link.reached is there)
            and not there.process.paused
            and not link.blocked
            and not back.blocked
        )

    # -- making one ---------------------------------------------------------------------------------

    def _half_way_ns(self) -> int:
        settings = self._network.settings
        return settings.delay_min_ns + self._chance.randint(0, settings.delay_spread_ns)

    def _again(self, link: Link) -> None:
        settings = self._network.settings
        link.backoff_ns = min(max(2 * link.backoff_ns, settings.backoff_min_ns), settings.backoff_max_ns)
        after_ns = self._chance.randint(link.backoff_ns // 2, link.backoff_ns)
        self._outside.call_after_ns(after_ns, self._dial, link, link.attempt)

    def _dial(self, link: Link, attempt: int) -> None:
        sender = link.dialled_by
        if attempt != link.attempt or sender is None or link.up:
            return
        link.attempt += 1
        link.reached = None
        there = self._network.running.get(link.to)
        back = self._network.link(link.to, link.source)
        if there is None or link.blocked or back.blocked:
            self._again(link)
            return
        self._outside.call_after_ns(self._network.settings.connect_timeout_ns, self._timed_out, link, link.attempt)
        link.dialling = True
        hello = sender.hello_to(link.to)
        there.loop.call_after_ns(self._half_way_ns(), self._greet, link, link.attempt, there, hello)

    def _timed_out(self, link: Link, attempt: int) -> None:
        if attempt == link.attempt and not link.up and link.dialled_by is not None:
            link.attempt += 1
            link.dialling = False
            self._again(link)

    def _greet(self, link: Link, attempt: int, there: SimTransport, hello: Hello) -> None:
        """At the other end: judge who has come."""
        answer: Welcome | FencepostError
        try:
            answer = there.greeted(hello)
        except FencepostError as error:
            answer = error
        else:
            self.hurry(self._network.link(link.to, link.source))
        sender = link.dialled_by
        if attempt == link.attempt and sender is not None and not link.blocked:
            sender.loop.call_after_ns(self._half_way_ns(), self._answered, link, attempt, there, answer)

    def hurry(self, link: Link) -> None:
        """Who has just dialled this node is there: do not sit out the back-off before dialling it."""
        if link.dialled_by is not None and not link.up and not link.dialling:
            link.attempt += 1
            self._outside.call_after_ns(0, self._dial, link, link.attempt)

    def _answered(self, link: Link, attempt: int, there: SimTransport, answer: Welcome | FencepostError) -> None:
        """Back at the end that dialled."""
        sender = link.dialled_by
        if attempt != link.attempt or sender is None:
            return
        link.attempt += 1
        link.dialling = False
        try:
            if isinstance(answer, FencepostError):
                sender.told(answer)
                raise answer
            sender.welcomed(link.to, answer)
        except FencepostError as error:
            link.cause = str(error)
            self._again(link)
            return
        link.backoff_ns = 0
        link.cause = ""
        self._connect(link, there)
        self._lend(link, sender, there)
        if not self._passes(link):
            self._suspect_link(link)

    @staticmethod
    def _connect(link: Link, there: SimTransport) -> None:
        link.up = True
        link.epoch += 1
        link.reached = there
        link.loop = there.loop
        link.receive = there.handler.receive
        link.arrived_at_ns = 0
        link.stream = None
