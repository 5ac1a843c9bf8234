"""fencepost: a Raft log that carries a replicated outbox, fenced at the resource."""

from __future__ import annotations

import os.path

# One stat. Without it the first import from a link that git could not make ends in "No module
# named 'fencepost.raft'", which says nothing about the cause.
if os.path.isfile(os.path.join(os.path.dirname(__file__), "raft")):
    raise ImportError(
        "this checkout has no symbolic links (src/fencepost/raft is a text file): "
        "run `git config core.symlinks true` and `git checkout -- src`, or install the published wheel"
    )

__version__ = "0.1.0"
