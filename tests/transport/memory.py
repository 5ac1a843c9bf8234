"""The Transport port in memory: links that can be cut, and delivery when the world says so.

For tests and simulation. Nothing happens by itself: :meth:`MemoryNetwork.deliver` hands over what is
under way, in order for each pair, so that whoever drives the world decides what overtakes what.
"""

from __future__ import annotations

from collections import deque

from fencepost.raft.core.messages import Message
from fencepost.raft.ports import PeerHandler


class MemoryTransport:
    """One node's end (:class:`fencepost.raft.ports.Transport`)."""

    def __init__(self, network: MemoryNetwork, node_id: str) -> None:
        self._network = network
        self._node_id = node_id

    def send(self, to: str, message: Message) -> None:
        """Never blocks; drops when the link is cut, the peer unknown, or too much is under way."""
        self._network.put(self._node_id, to, message)


class MemoryNetwork:
    """Every node of a cluster and what is under way between them."""

    def __init__(self, *, under_way_max: int = 1024) -> None:
        self._under_way_max = under_way_max
        self._handlers: dict[str, PeerHandler] = {}
        self._queues: dict[tuple[str, str], deque[Message]] = {}
        self._cut: set[tuple[str, str]] = set()
        self._broken: deque[tuple[str, str]] = deque()
        self.dropped = 0

    def attach(self, node_id: str, handler: PeerHandler) -> MemoryTransport:
        self._handlers[node_id] = handler
        return MemoryTransport(self, node_id)

    def put(self, source: str, to: str, message: Message) -> None:
        if to not in self._handlers or to == source or (source, to) in self._cut:
            self.dropped += 1
            return
        queue = self._queues.setdefault((source, to), deque())
        if len(queue) >= self._under_way_max:
            self.dropped += len(queue) + 1
            queue.clear()
            self._broken.append((source, to))
            return
        queue.append(message)

    def cut(self, one: str, other: str) -> None:
        """Break the link both ways: what is under way is lost, and both ends are told."""
        for pair in ((one, other), (other, one)):
            if pair not in self._cut:
                self._cut.add(pair)
                self.dropped += len(self._queues.pop(pair, ()))
                self._broken.append(pair)

    def heal(self, one: str, other: str) -> None:
        self._cut -= {(one, other), (other, one)}

    @property
    def under_way(self) -> list[tuple[str, str]]:
        """The pairs between which a message is under way, in the order the first ones were sent."""
        return [pair for pair, queue in self._queues.items() if queue]

    def deliver_one(self, source: str, to: str) -> None:
        """Hand over the oldest message from ``source`` to ``to``."""
        self._handlers[to].receive(source, self._queues[source, to].popleft())

    def deliver(self) -> int:
        """Hand over everything under way now, and tell of broken links. Returns how much that was.

        What is sent by a receiver meanwhile stays under way.
        """
        count = 0
        while self._broken:
            source, to = self._broken.popleft()
            self._handlers[source].unreachable(to)
            count += 1
        for pair, waiting in [(pair, len(queue)) for pair, queue in self._queues.items()]:
            for _ in range(waiting):
                if self._queues.get(pair):
                    self.deliver_one(*pair)
                    count += 1
        return count
