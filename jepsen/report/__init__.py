"""Pictures of what the proof has measured: ``python -m fencepost.jepsen.report``."""
