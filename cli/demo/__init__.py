"""``fencepost demo``: real processes, a real database, and a proof from what they left on disk."""
