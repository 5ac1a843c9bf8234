"""The long proof over real processes: three nodes, three resources, and what their own records say afterwards.

Nothing here is simulated, so no run is like another; what is decided by the seed are the commands and the faults.
The judgement is by the properties F1 to F9 of ``jepsen/invariants``, fed from what was recorded.
"""
