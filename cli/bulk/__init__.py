"""Submitting many commands from JSON lines."""
