"""What a user supplies: a world, nodes that reach into it, and a look at what took effect there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...raft.effects.resources.python import ClaimHook, Handler, PythonEffect
from ...raft.ports import Resource


@dataclass(frozen=True, slots=True)
class ClaimedEffect:
    """A handler with the claim hook of its resource, on a node of cluster ``cluster_id``."""

    effect: PythonEffect | Handler
    claim: ClaimHook
    cluster_id: str = "cluster"


NodeHandle = Resource | ClaimedEffect | PythonEffect | Handler
"""A resource; or a handler, alone, as a ``PythonEffect`` that names its query too, or with a claim hook."""


class NotShown(Exception):
    """A cell cannot be shown here, and the text says why. A world's own methods may raise it too."""


class World(ABC):
    """The outside thing that effects are carried out against, new and empty for each cell.

    Two methods are needed. Each of the others gives the kit one more means; where it is left out, the cells that
    need it are reported as not shown, never as held.
    """

    payload: Any = b'{"cents":1}'
    """What effects are carried out with: bytes, or what is made JSON of."""
    other_payload: Any = b'{"cents":2}'
    """Another one, which is accepted as well."""
    refused_payload: Any = None
    """One that is refused for good, before anything takes effect. None: there is none."""
    effect: str = "effect"
    """The name of the effect, where :meth:`node` gives a resource."""
    steps_in: Sequence[Path | str] = ()
    """Files and folders whose lines count as steps, besides the user's own: those that are neither Python's nor
    installed nor fencepost's."""

    @abstractmethod
    def node(self) -> NodeHandle:
        """Another node's handle on this world. Called several times; what it gives may share nothing but the world.

        A resource is opened, used and closed on one thread with a loop of its own. So is a handler that is
        ``async``; a plain one is called on threads, as a node does it.
        """

    @abstractmethod
    def effects(self) -> Sequence[str]:
        """Operation ids in the order in which their effects took place, one for each effect: what was done, and not
        what the handler has written down about it."""

    def close(self) -> None:  # noqa: B027 - most worlds have nothing to close
        """The world is not needed any more."""

    def foreign(self) -> NodeHandle:
        """A node of another cluster, on the same resource of this world."""
        raise NotShown("the world has no foreign(), which makes a node of another cluster")

    def save(self) -> Any:
        """A copy of the world as it is now, as a backup would be."""
        raise NotShown("the world has no save() and restore(), which put it back to an old copy")

    def restore(self, copy: Any) -> None:
        """Put the world back to what :meth:`save` gave, beneath the nodes that are open."""
        raise NotShown("the world has no restore(), which puts it back to an old copy")

    def lost_answer(self) -> AbstractContextManager[None]:
        """While it is entered, whatever is sent takes effect and its answer gets lost."""
        raise NotShown("the world has no lost_answer(), which lets an effect take place and its answer get lost")

    def crash_before(self) -> AbstractContextManager[None]:
        """While it is entered, whoever carries out an effect is ended just before it. At exit all is up again."""
        raise NotShown("the world has no crash_before(), and the handler has no steps of its own")

    def crash_after(self) -> AbstractContextManager[None]:
        """While it is entered, whoever carries out an effect is ended just after it. At exit all is up again."""
        raise NotShown("the world has no crash_after(), and the handler has no steps of its own")

    def frozen(self) -> AbstractContextManager[Callable[[], None]]:
        """While it is entered, the first that is sent stands still before its effect, and goes on at exit. What it
        gives is called to wait until that one stands. What is sent by others is carried out."""
        raise NotShown("the world has no frozen(), and the handler has no steps of its own")
