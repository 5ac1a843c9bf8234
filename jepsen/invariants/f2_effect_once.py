"""F2: an operation takes effect at most once where the guarantee says so: at a fenced resource at all, at a keyed one
for its key. At a naked one an attempt is carried out at most once, and none follows one that may have been applied."""

from __future__ import annotations

from ...raft.ports import AttemptStatus, Guarantee
from ..sim.resource import AttemptRecord, OutsideResource, ResourceCall
from .calls import effects_of, text
from .ledger import Ledger
from .property import Property


class EffectOnce(Property):
    name = "F2 effect once"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._effects: dict[tuple[str, str], int] = {}
        """By resource and operation id: the call in which it took effect."""
        self._attempts: dict[tuple[str, str, int], int] = {}
        """Of naked resources, by attempt: the call that carried it out."""

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        for attempt in effects_of(call):
            before = self._effects.setdefault((call.resource, attempt.operation_id), call.number)
            if before != call.number:
                raise self.broken(
                    f"{attempt.operation_id!r} (index {attempt.index}, attempt {attempt.number}) took effect in "
                    f"{text(call)}, and before in call {before}"
                )
        if resource.spec.guarantee is Guarantee.NAKED:
            for attempt in call.attempts:
                self._check_naked(call, attempt)

    def _check_naked(self, call: ResourceCall, attempt: AttemptRecord) -> None:
        outcome = attempt.outcome
        if outcome is None or outcome.status == AttemptStatus.NOT_ATTEMPTED:
            return
        name = (call.resource, attempt.operation_id, attempt.number)
        before = self._attempts.setdefault(name, call.number)
        if before != call.number:
            raise self.broken(
                f"attempt {attempt.number} of {attempt.operation_id!r} (index {attempt.index}) was carried out in "
                f"{text(call)}, and before in call {before}"
            )
        earlier = self._effects.get((call.resource, attempt.operation_id))
        if earlier is not None and earlier != call.number:
            raise self.broken(
                f"attempt {attempt.number} of {attempt.operation_id!r} (index {attempt.index}) reached a naked "
                f"resource in {text(call)}, and call {earlier} had applied it"
            )

    def resource_restored(self, resource: OutsideResource) -> None:
        """What it had done since the backup is undone, and it knows nothing of it."""
        left = {done.operation_id: None for done in resource.store.operations if done.resource == resource.name}
        for name in [name for name in self._effects if name[0] == resource.name and name[1] not in left]:
            del self._effects[name]
        for operation_id in left:
            self._effects.setdefault((resource.name, operation_id), 0)
