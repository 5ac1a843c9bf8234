"""Every kind of fault, by name. A plan names kinds; the modules here do what they say."""

from __future__ import annotations

from . import clients, clock, disk, membership, network, process, resource
from .kind import KINDS, Kind

__all__ = ["KINDS", "Kind", "clients", "clock", "disk", "membership", "network", "process", "resource"]
