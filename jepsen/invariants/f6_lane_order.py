"""F6: the effects of one lane take place in the order of the log."""

from __future__ import annotations

from ..sim.resource import OutsideResource, ResourceCall
from .calls import effects_of, text
from .ledger import Ledger
from .property import Property


class LaneOrder(Property):
    """At resources of every guarantee: a dispatcher starts nothing of a lane before its head has ended."""

    name = "F6 lane order"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._last: dict[tuple[str, str], tuple[int, str, int]] = {}
        """By resource and lane: index and id of the last one that took effect, and the call."""

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        for attempt in effects_of(call):
            if not attempt.lane:
                continue
            lane = (call.resource, attempt.lane)
            last = self._last.get(lane)
            if last is not None and attempt.index <= last[0]:
                raise self.broken(
                    f"{attempt.operation_id!r} of lane {attempt.lane!r}, index {attempt.index}, took effect in "
                    f"{text(call)} after {last[1]!r}, index {last[0]}, in call {last[2]}"
                )
            self._last[lane] = (attempt.index, attempt.operation_id, call.number)

    def resource_restored(self, resource: OutsideResource) -> None:
        for lane in [lane for lane in self._last if lane[0] == resource.name]:
            del self._last[lane]
        for done in resource.store.operations:
            if done.resource == resource.name and done.lane:
                self._last[resource.name, done.lane] = (done.log_index, done.operation_id, 0)
