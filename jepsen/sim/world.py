"""A cluster of whole nodes under one seed: what surrounds them, and everything that can be done to them.

All chance comes from one seed, all time from one agenda; so a world is its seed and what was done
to it. The methods do things *now*; ``run_for`` and ``run_until`` let time pass. What is done to links is
done to ``world.network``, to resources to ``world.resources[name]``, to a machine's disk and clocks to
``world.hosts[name]``.
"""

from __future__ import annotations

from collections.abc import Callable

from ...raft.core.configuration import Change, Configuration
from ...raft.core.events import Role, Transition
from ...raft.core.options import SECOND
from .clients import Client
from .members import Question
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

    # -- members ------------------------------------------------------------------------------------

    def add_node(self, name: str) -> None:
        """A new machine with an empty disk, whose file names the first members. :meth:`start` starts its node,
        which has no members of its own and waits to be added (``join``)."""
        if name in self.hosts:
            raise AssertionError(f"there is a node {name}; ids are not used again")
        self._add_host(name, ())
        self.names.append(name)

    def change_members(
        self, *changes: Change, at: str = "", transition: Transition = Transition.AUTO, unchecked: bool = False
    ) -> Question:
        """Ask a node (else the leader) for a change of members; none ask for a joint configuration to be left."""
        node = self._asked(at)
        question = Question(self.now_ns, node.name)
        self._ask(
            node,
            question,
            lambda: node.loop.change_configuration(changes, question, transition=transition, unchecked=unchecked),
        )
        return question

    def transfer(self, target: str = "", *, at: str = "") -> Question:
        """Ask a node (else the leader) to hand its leadership to ``target``, or to whoever has the most of the log."""
        node = self._asked(at)
        question = Question(self.now_ns, node.name)
        self._ask(node, question, lambda: node.loop.transfer_leadership(target, question))
        return question

    def campaign(self, name: str) -> None:
        """Have a node begin an election now."""
        node = self.node(name)
        node.process.loop.call_soon(node.loop.campaign)

    def step_down(self, name: str) -> None:
        """Have a node give up leadership or candidacy."""
        node = self.node(name)
        node.process.loop.call_soon(node.loop.step_down, "somebody asked for it")

    def _asked(self, at: str) -> SimNode:
        node = self.node(at) if at else self.leader()
        if node is None:
            raise AssertionError("nobody leads, and nobody was named to be asked")
        return node

    def _ask(self, node: SimNode, question: Question, ask: Callable[[], None]) -> None:
        node.process.at_death(question.died)
        node.process.loop.call_soon(ask)

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

    def configuration(self) -> Configuration:
        """The committed one, as the newest leader that runs knows it, or whoever else knows most."""
        nodes = self.up()
        if not nodes:
            raise AssertionError("no node runs")
        knows = self.leader() or max(nodes, key=lambda node: (node.raft.commit_index, node.name))
        return knows.raft.committed_configuration()

    def members(self) -> list[SimNode]:
        """The processes of those that receive the log."""
        members = self.configuration().members
        return [node for node in self.up() if node.name in members]

    def settled(self) -> bool:
        """Whether all members' processes have applied the same log to its end."""
        nodes = self.members()
        ends = {node.raft.log.last_index for node in nodes} | {node.applier.last_applied for node in nodes}
        return len(ends) == 1

    def state_hashes(self) -> dict[str, str]:
        """The state machines of every member that runs, as a hash each: equal where equally much is applied."""
        return {node.name: node.state_hash() for node in self.members()}

    # -- clients ------------------------------------------------------------------------------------

    def client(self, name: str = "") -> Client:
        """A new client."""
        self._clients += 1
        return Client(self, name or f"c{self._clients}")

    def next_request_id(self) -> int:
        self._requests += 1
        return self._requests

    def cut_clients(self, name: str) -> None:
        """From now on nothing passes between this node and any client."""
        self.clients_cut[name] = None

    def mend_clients(self, name: str) -> None:
        self.clients_cut.pop(name, None)
