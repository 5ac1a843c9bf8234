"""Faults planted in the running core. The helper is the proof's, which plants them too."""

from __future__ import annotations

from fencepost.jepsen.proof.planting import planted

__all__ = ["planted"]
