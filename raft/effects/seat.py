"""One resource within a tenure, and what the log says about its activation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.entry import Entry
from ..ports import Resource
from .activation import ActivationState
from .dispatcher import Dispatcher
from .measures import ResourceMeasures

if TYPE_CHECKING:
    from .tenure import Tenure


class Seat:
    """One resource within a tenure."""

    __slots__ = (
        "_measures",
        "_state",
        "claim_failures",
        "claiming",
        "dispatcher",
        "filled",
        "last_error",
        "overdue",
        "resource",
        "retry",
    )

    def __init__(self, resource: Resource, dispatcher: Dispatcher, measures: ResourceMeasures) -> None:
        self.resource = resource
        self.dispatcher = dispatcher
        self._measures = measures
        self.state = ActivationState.ELECTED
        self.filled = False
        """The queue has been filled from the replicated state; from then on, new commands are offered."""
        self.claiming = False
        self.claim_failures = 0
        """Troubles since the last effect that succeeded: a claim alone does not show that it is well."""
        self.retry: asyncio.TimerHandle | None = None
        self.overdue: asyncio.TimerHandle | None = None
        """Fires when a required resource has been away for too long."""
        self.last_error = ""

    @property
    def state(self) -> ActivationState:
        return self._state

    @state.setter
    def state(self, state: ActivationState) -> None:
        self._state = state
        self._measures.entered(state)


class ActivationSink:
    """Hears of activation entries (keys: resource names) and election records (key: "")."""

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure

    def accepted(self, keys: Sequence[str], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[str], code: str, leader: str) -> None:
        pass  # Only a leader that is one no longer is refused; its tenure is being revoked.

    def applied(self, keys: Sequence[str], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        for name in keys:
            if name:
                self._tenure.activation_applied(name)

    def lost(self, keys: Sequence[str]) -> None:
        pass

    def unknown(self, keys: Sequence[str]) -> None:
        pass
