"""What a node with an `http` address serves there, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..raft.core.events import Role
from ..raft.effects.activation import ActivationState
from ..transport.gateway import Check, Gateway, Standing
from ..transport.http_server import HttpServer
from .metrics import NodeMetrics, Sources

if TYPE_CHECKING:
    from ..raft.effects.coordinator import EffectsCoordinator
    from ..raft.node.loop import RaftLoop
    from ..raft.node.service import ClientService


APPLYING_BEHIND_MAX = 10_000
"""Committed entries that a node which follows may still have to apply, and count as ready."""


class ComposedView:
    """Implements ``transport.gateway.NodeView``."""

    def __init__(
        self,
        loop: RaftLoop,
        effects: EffectsCoordinator,
        service: ClientService,
        leader_address: Callable[[str], str],
        disk_low: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._effects = effects
        self._service = service
        self._leader_address = leader_address
        self._disk_low = disk_low

    def standing(self) -> Standing:
        raft = self._loop.raft
        return Standing(
            raft.node_id,
            self._loop.applier.last_applied,
            raft.current_term,
            raft.leader,
            self._leader_address(raft.leader) if raft.leader else "",
            self._loop.holds_lease(),
        )

    def checks(self) -> dict[str, Check]:
        """Readiness: this node takes its part. Where it leads, every required resource is active as well."""
        raft = self._loop.raft
        status = self._effects.status()
        leads = raft.role is Role.LEADER
        found = {
            "admitting": Check(not self._service.draining, "stopping" if self._service.draining else "takes work in"),
            "leader": self._leader_check(),
            "applied": self._applied_check(),
            "disk": Check(True, "little room, see storage.low_space" if self._disk_low() else "room"),
        }
        for name, each in status.items():
            state = str(each["activation"])
            said = f"{state}: {each['last_error']}" if each["last_error"] else state
            waits = leads and each["required"] and state != ActivationState.ACTIVE.value
            found[f"resource.{name}"] = Check(not waits, said if each["required"] else f"{said} (not required)")
        return found

    def _leader_check(self) -> Check:
        raft = self._loop.raft
        if raft.role is Role.LEADER:
            held = self._loop.holds_lease()
            return Check(held, "leads" if held else "leads, and has not heard a quorum within its lease")
        return Check(bool(raft.leader), f"follows {raft.leader}" if raft.leader else "knows no leader")

    def _applied_check(self) -> Check:
        """A leader whose no-op is not applied yet does not know everything that its predecessors finished."""
        raft, applied = self._loop.raft, self._loop.applier.last_applied
        leads = raft.role is Role.LEADER
        needed = raft.term_start_index if leads else raft.commit_index - APPLYING_BEHIND_MAX
        return Check(applied >= needed, f"{applied} of {raft.commit_index} committed")


def make_gateway(listen: str, view: ComposedView, sources: Sources) -> HttpServer:
    """The server, not yet started."""
    return HttpServer(listen, Gateway(view, NodeMetrics(sources).text))
