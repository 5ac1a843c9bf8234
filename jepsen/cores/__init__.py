"""Deterministic simulation: the same seed gives the same run, step for step."""
