"""F4: in the end every committed command took effect exactly once, or its end is on record with a reason: FAILED,
DEAD, CANCELLED or in doubt. One that is cancelled never took effect. What each may mean depends on the guarantee of
its resource."""

from __future__ import annotations

from ...raft.effects.policy import OnDead
from ...raft.outbox.operation import TERMINAL, Operation, OperationState
from ...raft.ports import Guarantee
from ..sim.resource import OutsideResource, ResourceCall
from .calls import effects_of
from .ledger import Ledger
from .property import Property
from .reference import Reference

_ENDED = (*TERMINAL, OperationState.IN_DOUBT)
"""What stands in a lane behind one in doubt waits until a person has looked (S52): that is on record, too."""


def _in_its_lane(operation: Operation) -> tuple[bool, int]:
    """Dead letters first: where one blocks its lane it does so wherever it stands."""
    return operation.state is not OperationState.DEAD, operation.place


class OutcomeRecorded(Property):
    name = "F4 outcome recorded"

    def __init__(self, ledger: Ledger, reference: Reference) -> None:
        super().__init__(ledger)
        self._reference = reference
        self._effects: dict[tuple[str, str], int] = {}
        """By resource and operation id: how often it took effect, those undone by a restore included."""

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        for attempt in effects_of(call):
            name = (call.resource, attempt.operation_id)
            self._effects[name] = self._effects.get(name, 0) + 1

    def resource_restored(self, resource: OutsideResource) -> None:
        if not resource.calls:  # What it had done when the world began.
            for done in resource.store.operations:
                self._effects.setdefault((resource.name, done.operation_id), 1)

    def finished(self) -> None:
        resources = self.ledger.world.resources
        standing: dict[tuple[str, str], None] = {}
        operations = sorted(self._reference.at_end().machine.operations.values(), key=_in_its_lane)
        for operation in operations:
            resource, lane = resources.get(operation.resource), (operation.resource, operation.lane)
            if resource is None or operation.effect not in resource.inner.effects:
                continue  # Nobody can carry it out, and that is no secret (``waiting_reason``).
            blocks = resource.spec.dispatch.on_dead is OnDead.BLOCK and operation.state is OperationState.DEAD
            if operation.lane and (operation.state is OperationState.IN_DOUBT or blocks):
                standing[lane] = None
            if operation.state in _ENDED or lane not in standing:
                self._check(operation, resource)

    def _check(self, operation: Operation, resource: OutsideResource) -> None:
        count = self._effects.get((resource.name, operation.operation_id), 0)
        restored = any(what.startswith("restored") for _, what in resource.events)
        state, guarantee = operation.state, resource.spec.guarantee
        at = f"at {guarantee.value} resource {resource.name}"
        what = (
            f"{operation.operation_id!r} (index {operation.index}, term {operation.term}) {at} is {state.value} after "
            f"{operation.attempt} attempts and took effect {count} times"
        )
        if state is OperationState.SUCCEEDED:
            if not count or (count > 1 and not restored):
                raise self.broken(what)
        elif state not in _ENDED:
            raise self.broken(f"{what}: it has no end")
        elif not operation.error and not operation.history[-1].note:
            raise self.broken(f"{what}, and no reason is on record")
        elif state is OperationState.IN_DOUBT and guarantee is Guarantee.FENCED and not operation.deadline_ns:
            raise self.broken(f"{what}: a fenced resource leaves nothing in doubt but what may not be repeated")
        elif state is OperationState.DEAD and guarantee is Guarantee.FENCED and count and not restored:
            raise self.broken(f"{what}: a dead letter was certainly not applied")
        elif state is OperationState.CANCELLED and count and not restored:
            raise self.broken(f"{what}: it was cancelled for certain")
        elif state is OperationState.FAILED and count and not restored:
            raise self.broken(f"{what}: it was refused for certain ({operation.error})")
