"""What must hold of a simulated cluster, one file a property, looked at after every event.

    properties = all_properties(world)      # before the nodes are started
    ...
    final_scan(world)                       # when everything was healed and is at rest

Properties judge by what can be seen from outside: what was written and synced, what was sent, what was decided
at resources, what clients heard. They do not ask a core whether it is right.
"""

from __future__ import annotations

from .ending import final_scan
from .properties import Properties, all_properties, properties_of
from .property import DiskFate, Property, PropertyViolated

__all__ = [
    "DiskFate",
    "Properties",
    "Property",
    "PropertyViolated",
    "all_properties",
    "final_scan",
    "properties_of",
]
