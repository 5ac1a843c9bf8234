"""fencepost: a Raft log that carries a replicated outbox, fenced at the resource."""

from __future__ import annotations
