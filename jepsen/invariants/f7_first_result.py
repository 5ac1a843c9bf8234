"""F7: a repetition is answered with the first result, and only what was done before is a repetition."""

from __future__ import annotations

from ...raft.ports import AttemptStatus
from ..sim.resource import OutsideResource, ResourceCall
from .calls import text
from .ledger import Ledger
from .property import Property


class FirstResult(Property):
    name = "F7 first result"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._results: dict[tuple[str, str], tuple[bytes, int]] = {}
        """By resource and operation id: its first result, and the call that gave it."""

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        for attempt in call.attempts:
            outcome = attempt.outcome
            if outcome is None or outcome.status != AttemptStatus.SUCCEEDED:
                continue
            name = (call.resource, attempt.operation_id)
            if not outcome.replayed:
                self._results.setdefault(name, (outcome.result, call.number))
                continue
            first = self._results.get(name)
            if first is None:
                raise self.broken(f"{attempt.operation_id!r} is no repetition, and is answered as one in {text(call)}")
            if first[0] != outcome.result:
                raise self.broken(
                    f"{attempt.operation_id!r} is answered with {outcome.result!r} in {text(call)}, and its first "
                    f"result was {first[0]!r}, in call {first[1]}"
                )

    def resource_restored(self, resource: OutsideResource) -> None:
        for name in [name for name in self._results if name[0] == resource.name]:
            del self._results[name]
        for done in resource.store.operations:
            if done.resource == resource.name:
                self._results.setdefault((resource.name, done.operation_id), (done.result, 0))
