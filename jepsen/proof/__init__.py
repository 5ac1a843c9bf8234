"""The long proof: seeds, each a life of a cluster under faults; what must hold in it; and mutants that must not live.

    python -m fencepost.jepsen.proof prove --minutes 12 --workers 2 --out build/prove.json

``plan`` derives from a seed what will be done to the cluster; ``life`` does it and looks; ``shrink`` makes
a failing plan small; ``mutants`` shows that the looking finds faults. The world itself is ``jepsen.sim``.
"""

from __future__ import annotations
