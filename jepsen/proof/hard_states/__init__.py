"""Beginnings that a cluster reaches seldom and must get out of: logs, votes, members, commands in every bad place.

Each is a history that could have been: what the disks and the resources hold is written by the real
stores, as the processes that ended before this run began would have left it.
"""

from __future__ import annotations

from . import commands, logs, members, snapshots
from .past import HARD_STATES, HardState

__all__ = ["HARD_STATES", "HardState", "commands", "logs", "members", "snapshots"]
