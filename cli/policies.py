"""What the configuration says, as the values that the parts of a node take."""

from __future__ import annotations

from ..raft.core.options import SECOND, Options
from ..raft.effects.policy import ActivationPolicy, DispatchPolicy, OnDead, RetryPolicy
from ..raft.outbox.codec import Retention
from .config import NodeConfiguration


def options(configuration: NodeConfiguration, *, lease_reads: bool) -> Options:
    election_timeout = configuration.raft.election_timeout_ns
    return Options(
        election_timeout=election_timeout,
        heartbeat_interval=configuration.raft.heartbeat_ns,
        stall_bound=election_timeout,
        # A target that has not taken over by then would have been missed as a leader (S08).
        transfer_timeout=election_timeout,
        chunk_timeout=max(election_timeout, SECOND),
        snapshot_entries=configuration.snapshots.entries,
        snapshot_bytes=configuration.snapshots.payload_bytes,
        retained_entries=configuration.snapshots.retained,
        retained_bytes=configuration.snapshots.retained_payload_bytes,
        window_entries=configuration.storage.window,
        window_bytes=configuration.storage.window_payload_bytes,
        chunk_bytes=configuration.snapshots.chunk_bytes,
        lease_reads=lease_reads,
    )


def activation_policies(configuration: NodeConfiguration) -> dict[str, ActivationPolicy]:
    return {
        name: ActivationPolicy(settings.required, settings.activation_timeout_ns)
        for name, settings in configuration.resources.items()
    }


def dispatch_policies(configuration: NodeConfiguration) -> dict[str, DispatchPolicy]:
    return {
        name: DispatchPolicy(
            concurrency=settings.calls_at_once,
            slow_start=settings.slow_start,
            horizon_ns=settings.dispatch_horizon_ns,
            on_dead=OnDead(settings.on_dead_name),
        )
        for name, settings in configuration.resources.items()
    }


def retry_policies(configuration: NodeConfiguration) -> dict[str, RetryPolicy]:
    return {
        name: RetryPolicy(
            max_attempts=settings.max_attempts,
            backoff_ns=settings.backoff_ns,
            backoff_max_ns=settings.backoff_max_ns,
        )
        for name, settings in configuration.resources.items()
    }


def retention(configuration: NodeConfiguration) -> Retention:
    return Retention(configuration.outbox.retention_ns, configuration.outbox.retention_count)
