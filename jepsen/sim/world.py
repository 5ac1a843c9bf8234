"""A cluster of whole nodes under one seed: what surrounds them, and everything that can be done to them.

All chance comes from one generator, all time from one agenda; so a world is its seed and what was done
to it. The methods do things *now*; ``run_for`` and ``run_until`` let time pass. What is done to links is
done to ``world.network``, to resources to ``world.resources[name]``, to a machine's disk and clocks to
``world.hosts[name]``.
"""

from __future__ import annotations

from ...raft.core.events import Role
from ...raft.core.options import SECOND
from .clients import Client
from .node import SimNode
from .processes import Processes


class World(Processes):
    """Use it as a context manager. All times are nanoseconds.

    ``seed`` decides everything. ``nodes`` are the first members: their names, or how many (``n1`` and
    on). ``options`` are the cores', ``network`` and ``disk`` how these behave unless something is done to
    them, ``observers`` see what happens. Nothing runs before :meth:`start` or :meth:`start_all`.
    """

    _requests = 0
    _clients = 0

    def start_all(self) -> None:
        """Start every node that does not run."""
        for name in self.names:
            if self.hosts[name].node is None:
                self.start(name)

    def leader(self) -> SimNode | None:
        """The leader of the highest term among those that run and are not stopped; it may be cut off."""
        leaders = [node for node in self.up() if node.running and node.raft.role is Role.LEADER]
        return max(leaders, key=lambda node: node.raft.current_term, default=None)

    def elect(self, *, within_ns: int = 60 * SECOND) -> SimNode:
        """Run until there is a leader that has every resource's fence."""
        found: list[SimNode] = []

        def look() -> bool:
            leader = self.leader()
            if leader is not None and leader.active:
                found.append(leader)
            return bool(found)

        self.run_until(look, within_ns=within_ns, what="an active leader")
        return found[0]

    def settled(self) -> bool:
        """Whether all processes have applied the same log to its end."""
        nodes = self.up()
        ends = {node.raft.log.last_index for node in nodes} | {node.applier.last_applied for node in nodes}
        return len(ends) == 1

    def state_hashes(self) -> dict[str, str]:
        """The outbox of every process, as a hash each: equal where equally much is applied."""
        return {node.name: node.machine.state_hash().hex() for node in self.up()}

    # -- clients ------------------------------------------------------------------------------------

    def client(self, name: str = "") -> Client:
        """A new client."""
        self._clients += 1
        return Client(self, name or f"c{self._clients}")

    def next_request_id(self) -> int:
        self._requests += 1
        return self._requests

    def client_way_ns(self) -> int:
        """How long one way between a client and a node takes."""
        return 200_000 + int(self.random.random() * 800_000)

    def cut_clients(self, name: str) -> None:
        """From now on nothing passes between this node and any client."""
        self.clients_cut[name] = None

    def mend_clients(self, name: str) -> None:
        self.clients_cut.pop(name, None)
