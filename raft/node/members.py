"""``member.add``, ``member.promote`` and ``member.remove``: changes of the cluster, driven by its leader.

A new node becomes a learner first, which costs no quorum anything; once it has caught up and is heard
of it becomes a voter (S28, thesis section 4.2.1). Whatever is "not yet" is tried again until the call's
deadline; what can never be is refused at once, with the reason.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..core.configuration import Change, ChangeKind, Configuration, ConfigurationInvalid, change_simply
from ..core.errors import Busy, ChangeRefused, CommandInvalid, FencepostError, LeadershipLost, NotCaughtUp, NotLeader
from ..core.events import Refused
from .calls import Reply, SlowCall, SlowQuery, not_leader, refused_as, timeout_of, unknown
from .loop import RaftLoop

_NODE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_ADDRESS = re.compile(r"\S+:[0-9]{1,5}")

NOT_YET = frozenset({NotCaughtUp.code, Busy.code})
"""What the core refuses with these may be done at another moment."""


def configuration_json(configuration: Configuration) -> dict[str, Any]:
    return {
        "voters": list(configuration.voters),
        "outgoing": list(configuration.outgoing),
        "learners": list(configuration.learners),
        "learners_next": list(configuration.learners_next),
        "retired": list(configuration.retired),
        "addresses": dict(configuration.addresses),
        "joint": configuration.is_joint,
        "quorum": configuration.quorum,
    }


class MemberCalls:
    """The changes, as slow calls. The list is a question (``queries.NodeQueries``)."""

    def __init__(
        self,
        loop: RaftLoop,
        timers: asyncio.AbstractEventLoop,
        *,
        leader_address: Callable[[str], str],
        addresses: Callable[[], Mapping[str, str]],
    ) -> None:
        """``addresses()`` are the peer addresses that this node uses, by node id."""
        self.loop = loop
        self.timers = timers
        self.leader_address = leader_address
        self._addresses = addresses

    def methods(self) -> dict[str, SlowQuery]:
        return {"member.add": self.add, "member.promote": self.promote, "member.remove": self.remove}

    def add(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``node``, ``address``, ``learner`` (stay one), ``timeout_s``, ``dry_run``."""
        node, address = _node_id(parameters), str(parameters.get("address") or "")
        configuration = self.loop.raft.configuration
        if _ADDRESS.fullmatch(address) is None:
            raise CommandInvalid(f"{address!r} is no address of a peer", next_step="write it as host:port")
        if node in configuration.retired:
            raise _never(f"{node} was removed, and ids are not used again", "give the new node a new id")
        if node in configuration.members:
            raise _never(*_member_already(configuration, node))
        taken = [member for member, used in self._addresses().items() if used == address]
        if taken:
            raise _never(f"{address} is the address of {taken[0]}", "give the new node an address of its own")
        steps = [Change(ChangeKind.ADD_LEARNER, node, address)]
        if not parameters.get("learner"):
            steps.append(Change(ChangeKind.ADD_VOTER, node))
        self._begin(parameters, reply, steps)

    def promote(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``node``, ``timeout_s``, ``dry_run``."""
        node = _node_id(parameters)
        configuration = self.loop.raft.configuration
        if node in configuration.voters:
            raise _never(f"{node} is a voter already", "fencepost member list")
        if node not in configuration.learners:
            raise _never(f"{node} is no learner of this cluster", f"fencepost member add {node} HOST:PORT")
        self._begin(parameters, reply, [Change(ChangeKind.ADD_VOTER, node)])

    def remove(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``node``, ``timeout_s``, ``dry_run``."""
        node = _node_id(parameters)
        configuration = self.loop.raft.configuration
        if node in configuration.retired:
            raise _never(f"{node} was removed already", "fencepost member list")
        if node not in configuration.members:
            raise _never(f"{node} is no member of this cluster", "fencepost member list")
        self._begin(parameters, reply, [Change(ChangeKind.REMOVE, node)])

    def _begin(self, parameters: dict[str, Any], reply: Reply, steps: list[Change]) -> None:
        raft = self.loop.raft
        if raft.leader != raft.node_id:
            raise not_leader(raft.leader, self.leader_address)
        timeout_s = timeout_of(parameters)
        planned = raft.configuration
        if not planned.is_joint:
            try:
                for step in steps:
                    planned = change_simply(planned, [step])
            except ConfigurationInvalid as error:
                raise _never(str(error), "fencepost member list") from error
        if parameters.get("dry_run"):
            reply({"dry_run": True, "configuration": configuration_json(planned)}, None)
        else:
            _Drive(self, reply, timeout_s, steps).next_step()


def _node_id(parameters: dict[str, Any]) -> str:
    node = str(parameters.get("node") or "")
    if _NODE_ID.fullmatch(node) is None:
        raise CommandInvalid(f"{node!r} is no id of a node: letters, digits, '_', '.', '-', at most 64 of them")
    return node


def _never(text: str, next_step: str) -> ChangeRefused:
    return ChangeRefused(text, next_step=next_step)


def _member_already(configuration: Configuration, node: str) -> tuple[str, str]:
    if node in configuration.learners:
        return f"{node} is a learner of this cluster already", f"fencepost member promote {node}"
    return f"{node} is a member of this cluster already", "fencepost member list"


class _Drive:
    """One change of members on its way: step by step, each until it is committed (``questions.ChangeSink``)."""

    def __init__(self, calls: MemberCalls, reply: Reply, timeout_s: float, steps: list[Change]) -> None:
        self._calls = calls
        self._loop = calls.loop
        self._steps = steps
        self._done = 0
        self._committing = False
        """The step was given to the core, and may be in the log: its end is unknown until it is heard."""
        self._why_not_yet = "the leader has not looked at it yet"
        self._call = SlowCall(calls.loop, calls.timers, reply, timeout_s, self._overdue)
        pause_ns = calls.loop.raft.options.heartbeat_interval
        self._pause_s = pause_ns / 1e9
        self._last_try_ns = calls.loop.now() + int(timeout_s * 1e9) - 2 * pause_ns
        """A step that is begun just before the end could only be answered with an unknown one."""

    @property
    def _node(self) -> str:
        return self._steps[0].node_id

    def next_step(self) -> None:
        self._committing = True
        self._loop.change_configuration([self._steps[self._done]], self)

    # -- ChangeSink -------------------------------------------------------------------------------

    def refused(self, refusal: Refused) -> None:
        self._committing = False
        why = refusal.detail or refusal.code
        # A joint configuration is being left by itself, and only then another change can be judged.
        if refusal.code in NOT_YET or (refusal.code == ChangeRefused.code and self._loop.raft.configuration.is_joint):
            self._why_not_yet = why
            if self._loop.now() < self._last_try_ns:
                self._call.later(self._pause_s, self.next_step)
        elif self._done:
            lost = refusal.code == NotLeader.code
            self._call.fail(self._half_done("this node does not lead any more" if lost else why))
        else:
            self._call.fail(refused_as(refusal, self._calls.leader_address, "fencepost member list"))

    def committed(self, index: int, term: int) -> None:
        self._done += 1
        if self._call.ended:
            return
        if self._done < len(self._steps):
            self.next_step()
            return
        configuration = self._loop.raft.configuration_at(index)[1]
        body = {"node": self._node, "index": index, "term": term, "configuration": configuration_json(configuration)}
        self._call.answer(body)

    def lost(self) -> None:
        why = "another leader was elected before it was committed"
        if self._done:
            self._call.fail(self._half_done(why))
        else:
            self._call.fail(LeadershipLost(why, next_step="fencepost member list"))

    def unknown(self) -> None:
        self._call.fail(unknown(f"the change of {self._node} was committed", "fencepost member list"))

    # -- the end ----------------------------------------------------------------------------------

    def _overdue(self) -> FencepostError:
        if self._committing:
            return unknown(f"the change of {self._node} will be committed", "fencepost member list")
        if self._done:
            return self._half_done(self._why_not_yet)
        kind = NotCaughtUp if self._steps[0].kind is ChangeKind.ADD_VOTER else Busy
        return kind(self._why_not_yet, next_step="fencepost member list")

    def _half_done(self, why: str) -> FencepostError:
        """Added, and not promoted. Not an error that a client tries again by itself: the node is a member now."""
        return NotCaughtUp(
            f"{self._node} was added as a learner and is no voter yet: {why}",
            next_step=f"fencepost member promote {self._node}",
        )
