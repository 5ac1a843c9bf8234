"""A node's numbers in the form that Prometheus reads. Read when somebody asks, kept nowhere twice.

The library is loaded with the first node that has an `http` address (docs/decisions/prometheus-client.md). What is
measured along the way is plain numbers in ``raft``; the rest is read from the node's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ..raft.core.events import Role
from ..raft.effects.activation import ActivationState
from ..raft.effects.modes import FenceMode
from ..raft.measures import Seconds
from ..raft.ports import Clock

if TYPE_CHECKING:
    from ..raft.effects.coordinator import EffectsCoordinator
    from ..raft.node.loop import RaftLoop
    from ..raft.node.measures import NodeMeasures
    from ..raft.node.service import ClientService
    from ..raft.outbox.machine import OutboxMachine


ELSEWHERE = "(elsewhere)"
"""Resources that this node's file does not name: clients choose their names, and each would be a series for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the numbers come from. All of it is read on the node's loop."""

    loop: RaftLoop
    machine: OutboxMachine
    effects: EffectsCoordinator
    measures: NodeMeasures
    service: ClientService
    clock: Clock
    disk: Callable[[], Mapping[str, Any]]
    links: Callable[[], Mapping[str, Mapping[str, Any]]]
    identity: Mapping[str, str]


class NodeMetrics:
    """A registry of this node's own: several nodes may live in one process."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> tuple[bytes, str]:
        """The text of one scrape, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._node()
        yield from self._disk()
        yield from self._elections()
        yield from self._commands()
        yield from self._resources()
        yield from self._effects()

    # -- the node -------------------------------------------------------------------------------------

    def _node(self) -> Iterator[Metric]:
        loop, measures, service = self._sources.loop, self._sources.measures, self._sources.service
        raft = loop.raft
        yield _gauge("info", "What this node is.", {tuple(self._sources.identity.values()): 1},
                     tuple(self._sources.identity))  # fmt: skip
        yield _gauge("role", "1 for the role that the node is in.",
                     {(role.value,): int(role is raft.role) for role in Role}, ("role",))  # fmt: skip
        yield _gauge("term", "The current term.", {(): raft.current_term})
        yield _gauge("has_leader", "1 while the node knows a leader.", {(): int(bool(raft.leader))})
        yield _gauge("holds_lease", "1 while the node leads and a quorum has followed it within its lease.",
                     {(): int(loop.holds_lease())})  # fmt: skip
        yield _gauge("commit_index", "The last index known to be committed.", {(): raft.commit_index})
        yield _gauge("applied_index", "The last index applied to the state.", {(): loop.applier.last_applied})
        yield _gauge("log_first_index", "The first index in the log.", {(): raft.log.first_index})
        yield _gauge("log_last_index", "The last index in the log.", {(): raft.log.last_index})
        snapshot = 0 if raft.snapshot is None else raft.snapshot.last_index
        yield _gauge("snapshot_index", "The last index that the newest snapshot holds; 0 for none.", {(): snapshot})
        yield _gauge("voters", "Voters of the configuration in force.", {(): len(raft.configuration.voters)})
        links = self._sources.links()
        yield _gauge("peer_connected", "1 while the node is connected with that peer.",
                     {(peer,): int(link["connected"]) for peer, link in links.items()}, ("peer",))  # fmt: skip
        behind = {(peer,): raft.log.last_index - progress.match_index for peer, progress in raft.progress.items()}
        yield _gauge("peer_behind_entries", "Entries that a follower lacks, as its leader knows.", behind, ("peer",))
        yield _histogram("loop_lag_seconds", "How late the timer of the node's loop came.", {(): loop.lag})
        yield _gauge("loop_lag_max_seconds", "The longest of these since the node started.",
                     {(): loop.longest_lag_ns / 1e9})  # fmt: skip
        for name, text, value in (
            ("submissions", "Commands applied under an id that was new.", measures.submitted),
            ("submissions_replayed", "Submissions that heard the answer of the first of their id.", service.replayed),
            ("submissions_reused", "Submissions refused: their id stands for another command.", service.reused),
        ):
            yield _counter(name, text, {(): value})

    def _disk(self) -> Iterator[Metric]:
        disk = self._sources.disk()
        yield _gauge("disk_free_bytes", "Free on the log's disk when it was last looked at.", {(): disk["free_bytes"]})
        yield _gauge("disk_low", "1 while less is free than storage.low_space.", {(): int(disk["low"])})
        yield _gauge("disk_reserve_held", "1 while the reserve is there.", {(): int(disk["reserve_held"])})
        yield _gauge("log_segments", "Files of the log.", {(): disk["segments"]})
        yield _counter("log_syncs", "Records of the log made durable.", {(): disk["syncs"]})
        yield _counter("log_written_bytes", "Written to the log.", {(): disk["written_bytes"]})

    # -- elections ------------------------------------------------------------------------------------

    def _elections(self) -> Iterator[Metric]:
        measures, elections = self._sources.measures, self._sources.machine.elections
        for name, text, value in (
            (
                "campaigns",
                "Times that this node missed a leader, and asked whether to ask for votes.",
                measures.campaigns,
            ),
            ("elections_begun", "Times that this node asked for votes.", measures.elections_begun),
            ("elections_won", "Times that this node was elected.", measures.elections_won),
            ("leaderships_lost", "Times that this node stopped leading.", measures.leaderships_lost),
            ("leader_changes", "Times that this node followed, or became, another leader.", measures.leader_changes),
            ("transfers_begun", "Times that this leader began to hand over.", measures.transfers_begun),
        ):
            yield _counter(name, text, {(): value})
        raft = self._sources.loop.raft
        yield _counter("votes_refused", "Votes that this node asked for and was refused, by reason.",
                       {(reason,): count for reason, count in raft.votes_refused.items()}, ("reason",))  # fmt: skip
        yield _gauge("leading_seconds", "How long the node leads; 0 where it does not.", {(): measures.leading_s})
        yield _histogram("leadership_seconds", "How long its leaderships that have ended took.",
                         {(): measures.leaderships})  # fmt: skip
        left = {
            "now": raft.lease_left(self._sources.loop.now()),
            "least": measures.least_lease_left_ns,
        }
        yield _gauge("lease_left_seconds", "Until the leader would give up if nobody answered any more: now, and the "
                     "least at the end of a turn in its last leadership.",
                     {(when,): ns / 1e9 for when, ns in left.items() if ns is not None}, ("when",))  # fmt: skip
        yield _gauge("election_unapplied_entries", "Entries that this node had and had not applied when it was elected "
                     "last.", {(): measures.unapplied_at_election})  # fmt: skip
        last = elections[-1].election if elections else None
        stages = {} if last is None else {(stage.stage,): stage.seconds for stage in last.stages}
        yield _gauge("last_election_stage_seconds", "What the last change of leader spent in each stage.",
                     stages, ("stage",))  # fmt: skip
        yield _gauge("last_election_term", "The term that it began.", {(): 0 if last is None else last.token.term})

    # -- commands -------------------------------------------------------------------------------------

    def _commands(self) -> Iterator[Metric]:
        machine = self._sources.machine
        measures = self._sources.measures
        now_ns = self._sources.clock.time_ns()
        counts = self._by_resource(machine.counts)
        yield _gauge("commands", "Commands in each state.", counts, ("resource", "state"))
        yield _counter("commands_ended", "Commands that ended, or got in doubt, as applied here; one that is redriven "
                       "or settled ends again.", self._by_resource(measures.ended), ("resource", "state"))  # fmt: skip
        decisions: dict[str, dict[str, int]] = {}
        for (resource, decision), count in measures.decisions.items():
            decisions.setdefault(resource, {})[decision] = count
        yield _counter("decisions", "Commands changed by a word from outside, or by their deadline.",
                       self._by_resource(decisions), ("resource", "decision"))  # fmt: skip
        yield _gauge("commands_remembered", "Commands in the state, those that have ended among them.",
                     {(): len(machine.operations)})  # fmt: skip
        yield _counter("commands_forgotten", "Commands that have ended and are remembered no more.",
                       {(): machine.forgotten})  # fmt: skip
        yield _gauge("done_watermark", "Every command that took its place up to this index has ended.",
                     {(): machine.done_watermark})  # fmt: skip
        yield _gauge("retention_seconds", "How long what has ended is remembered, as the cluster has agreed; 0 for "
                     "ever.", {(): machine.retention.window_ns / 1e9})  # fmt: skip
        yield _gauge("retention_commands", "How many that have ended are remembered; 0 for any number.",
                     {(): machine.retention.ended_max})  # fmt: skip
        oldest: dict[tuple[str, ...], float] = {}
        for resource, pending in machine.pending.items():
            first = next(iter(pending.values()), None)
            seconds = 0.0 if first is None else max(now_ns - first.submitted_ns, 0) / 1e9
            name = self._label(resource)
            oldest[(name,)] = max(oldest.get((name,), 0.0), seconds)
        yield _gauge("oldest_pending_seconds", "Since the oldest command without an outcome was committed, by the wall "
                     "clock.", oldest, ("resource",))  # fmt: skip

    def _label(self, resource: str) -> str:
        """Names of resources come with commands, and anybody may make up more of them than a store of metrics bears."""
        return resource if self._sources.effects.resource(resource) is not None else ELSEWHERE

    def _by_resource(self, numbers: Mapping[str, Mapping[Any, int]]) -> dict[tuple[str, ...], int]:
        counts: dict[tuple[str, ...], int] = {}
        for resource, kinds in numbers.items():
            for kind, number in kinds.items():
                key = (self._label(resource), str(kind))
                counts[key] = counts.get(key, 0) + number
        return counts

    def _resources(self) -> Iterator[Metric]:
        effects = self._sources.effects
        status = effects.status()
        yield _gauge("resource_activation", "1 for the state that the resource's activation is in on this node.",
                     {(name, state.value): int(each["activation"] == state.value)
                      for name, each in status.items() for state in ActivationState},
                     ("resource", "state"))  # fmt: skip
        yield _gauge("resource_activation_seconds", "What this node's last activation has spent in each state.",
                     {(name, state.value): seconds for name, each in effects.measures.items()
                      for state, seconds in each.stage_seconds.items()},
                     ("resource", "state"))  # fmt: skip
        yield _gauge("resource_guarantee", "1 for the guarantee that the resource gives now.",
                     {(name, str(each["kind"]), str(each["guarantee"])): 1 for name, each in status.items()},
                     ("resource", "kind", "guarantee"))  # fmt: skip
        modes = {name: each["fence_mode"] for name, each in status.items() if each["fence_mode"] is not None}
        yield _gauge("fence_mode", "1 for the mode that the resource treats writes without a token in.",
                     {(name, mode.value): int(each["mode"] == mode.value)
                      for name, each in modes.items() for mode in FenceMode},
                     ("resource", "mode"))  # fmt: skip
        yield _counter("unfenced", "Rows or requests without a token that the resource has applied, as this node last "
                       "read it there.", {(name,): each["unfenced"] for name, each in modes.items()},
                       ("resource",))  # fmt: skip
        yield _counter("would_reject", "Of what the resource has applied, what enforce would have refused.",
                       {(name,): each["would_reject"] for name, each in modes.items()}, ("resource",))  # fmt: skip
        yield _gauge("resource_in_flight", "Attempts under way or not yet recorded.",
                     {(name,): each["in_flight"] for name, each in status.items()}, ("resource",))  # fmt: skip

    def _effects(self) -> Iterator[Metric]:
        effects = self._sources.effects
        measures = effects.measures
        one = ("resource",)
        yield _counter("stale_refusals", "Times that a resource refused this node's token.",
                       {(name,): number for name, number in effects.stale_refusals.items()}, one)  # fmt: skip
        yield _counter("attempts", "Attempts made.", {(name,): each.attempts for name, each in measures.items()}, one)
        yield _counter("retries", "Attempts that were not their command's first.",
                       {(name,): each.retries for name, each in measures.items()}, one)  # fmt: skip
        yield _counter("duplicates", "Attempts that the resource knew as applied already.",
                       {(name,): each.replayed for name, each in measures.items()}, one)  # fmt: skip
        outcomes = {
            (name, status.name.lower().replace("_", "-")): number
            for name, each in measures.items()
            for status, number in each.outcomes.items()
        }
        yield _counter("attempt_outcomes", "Attempts by what the resource said of them.", outcomes,
                       ("resource", "outcome"))  # fmt: skip
        yield _histogram("effect_seconds", "How long a call of the resource took; one call may carry many attempts.",
                         {(name,): each.seconds for name, each in measures.items()}, one)  # fmt: skip


def _gauge(name: str, text: str, values: Mapping[Any, float], labels: tuple[str, ...] = ()) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"fencepost_{name}", text, labels=labels)
    for given, value in values.items():
        family.add_metric(given, value)
    return family


def _counter(name: str, text: str, values: Mapping[Any, float], labels: tuple[str, ...] = ()) -> CounterMetricFamily:
    """Named ``fencepost_NAME_total`` in a scrape."""
    family = CounterMetricFamily(f"fencepost_{name}", text, labels=labels)
    for given, value in values.items():
        family.add_metric(given, value)
    return family


def _histogram(
    name: str, text: str, values: Mapping[Any, Seconds], labels: tuple[str, ...] = ()
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"fencepost_{name}", text, labels=labels)
    for given, seconds in values.items():
        total, buckets = 0, []
        for bound, count in zip((*map(repr, seconds.bounds), "+Inf"), seconds.counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric(given, buckets, sum_value=seconds.sum_s)
    return family
