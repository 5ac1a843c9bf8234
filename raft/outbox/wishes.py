"""What people want of commands that are in the log: cancelled, tried again, judged, given up (concepts: The life
of a command). Each is an entry, and whether it can still be had is decided where it is applied.
"""

from __future__ import annotations

from ..core.entry import Entry
from ..core.errors import UnknownEntry
from .bookkeeping import Bookkeeping
from .codec import Cancel, Discard, Expiry, Redrive, Resolve
from .operation import Operation, OperationState
from .transitions import TRANSITIONS, Finding, Trigger

_COMMITTED = OperationState.COMMITTED
_IN_DOUBT = OperationState.IN_DOUBT
_DEAD = OperationState.DEAD
_FINDINGS = frozenset(int(finding) for finding in Finding)


class Wishes(Bookkeeping):
    """The part of the machine that operators and clients speak to."""

    def _apply_cancel(self, entry: Entry, cancel: Cancel) -> list[Operation]:
        operation = self.operations.get(cancel.operation_id)
        if operation is None or not self._is_current(entry, operation.resource, cancel.token):
            return []
        trigger = self._way_to_cancel(entry, operation, cancel)
        after = TRANSITIONS[trigger].get(operation.state)
        if after is None or (trigger is Trigger.WISH and operation.cancel_ns):
            return []  # It has ended, or is in doubt, where only a word about it helps; or was asked before.
        self._touch(operation)
        operation.next_try_ns = operation.next_try_ns if trigger is Trigger.WISH else 0
        operation.cancel_ns = entry.time_ns
        note = cancel.note or "cancelled"
        if trigger is Trigger.WISH:
            note = f"asked to be cancelled: {cancel.note}".rstrip(": ")
        elif trigger is Trigger.CANCEL_UNSURE:
            note = f"asked to be cancelled, and an attempt may have been applied: {cancel.note}".rstrip(": ")
        if trigger is not Trigger.WISH:
            operation.error = note
        self._settle(operation)
        self._move(entry, operation, after, operation.attempt, operation.token, note)
        self._trim([operation])
        return [operation]

    def _way_to_cancel(self, entry: Entry, operation: Operation, cancel: Cancel) -> Trigger:
        """Whether it is certain that no attempt of ``operation`` takes effect, now or later, that is not on record.

        A leader's own dispatches stand before its cancel in the log. What an earlier one has dispatched may be
        missing there only at a fenced resource, where an effect runs beside its dispatch entry; and of a command that
        was submitted in this term there is no earlier leader. Behind the claim of a later one the resource refuses what
        it has not applied, or what ended without that leaves it unsure (``Verdict.UNHEARD``).
        """
        if operation.state is OperationState.DISPATCHED:
            return Trigger.WISH
        token = operation.token
        own = operation.term == entry.term or (token is not None and token.term == entry.term)
        fenced = self.is_fenced(operation.resource)
        heard_of_all = self._has_heard_of_all(entry, operation)
        on_record = own or waits_for_its_dispatch(operation) or not self._was_fenced(operation.resource)
        if heard_of_all and on_record:
            return Trigger.CANCEL
        if not fenced:
            return Trigger.CANCEL_UNSURE
        # The resource was asked behind the fence, so nothing older comes after its answer. An attempt of this very
        # leader may, if it hangs: that one bears the token that is let in.
        return Trigger.CANCEL if cancel.absent and (token is None or token < cancel.token) else Trigger.WISH

    def _apply_redrive(self, entry: Entry, redrive: Redrive) -> list[Operation]:
        operation = self.operations.get(redrive.operation_id)
        if operation is None or operation.state not in TRANSITIONS[Trigger.REDRIVE]:
            return []
        self._touch(operation)
        operation.place = entry.index
        operation.failures = operation.lost = 0
        operation.deadline_ns = operation.cancel_ns = operation.finished_ns = 0
        operation.unsure = False
        operation.error = ""
        self._settle(operation)
        del self.dead[operation.resource][operation.index]
        self.pending[operation.resource][operation.index] = operation
        note = f"redriven: {redrive.note}".rstrip(": ")
        self._move(entry, operation, _COMMITTED, operation.attempt, operation.token, note)
        self._trim([operation])
        return [operation]

    def _apply_discard(self, entry: Entry, discard: Discard) -> list[Operation]:
        operation = self.operations.get(discard.operation_id)
        if operation is None or operation.state not in TRANSITIONS[Trigger.DISCARD]:
            return []
        self._touch(operation)
        note = f"discarded: {discard.note}".rstrip(": ")
        operation.error = f"{operation.error} ({note})" if operation.error else note
        self._settle(operation)
        after = TRANSITIONS[Trigger.DISCARD][operation.state]
        self._move(entry, operation, after, operation.attempt, operation.token, note)
        self._trim([operation])
        return [operation]

    def _apply_resolve(self, entry: Entry, resolve: Resolve) -> list[Operation]:
        if resolve.finding not in _FINDINGS:
            raise UnknownEntry(
                f"resolution at index {entry.index} with a finding that this version does not know",
                next_step="install the version that wrote it",
            )
        operation = self.operations.get(resolve.operation_id)
        mistaken = operation is not None and operation.state is _DEAD and resolve.finding == Finding.DONE
        if operation is None or (operation.state is not _IN_DOUBT and not mistaken):
            return []
        if resolve.token is not None and not (
            self._is_current(entry, operation.resource, resolve.token) and resolve.attempt == operation.attempt
        ):
            return []  # The answer that an earlier leader got, or about an earlier attempt.
        finding = Finding(resolve.finding)
        who = "resolved as" if resolve.token is None else "its resource says"
        word = "done" if finding is Finding.DONE else "failed" if resolve.token is None else "not applied"
        note = f"{who} {word}: {resolve.note}".rstrip(": ")
        self._touch(operation)
        operation.unsure = False
        trigger = {Finding.DONE: Trigger.SUCCESS, Finding.NOT_DONE: Trigger.GIVE_UP}.get(finding, Trigger.ABSENT)
        if trigger is Trigger.ABSENT and operation.cancel_ns:
            trigger = Trigger.DROP
        elif trigger is Trigger.ABSENT and 0 < operation.deadline_ns <= entry.time_ns:
            trigger, note = Trigger.GIVE_UP, f"its deadline passed while it was in doubt; {note}"
        if trigger is Trigger.SUCCESS:
            operation.result, operation.error = resolve.result, ""
        elif trigger is Trigger.ABSENT:
            operation.next_try_ns = entry.time_ns
        else:
            operation.error = note
        self._settle(operation)
        after = TRANSITIONS[trigger][operation.state]
        self._move(entry, operation, after, operation.attempt, operation.token, note)
        self._trim([operation])
        return [operation]

    def _apply_expiry(self, entry: Entry, expiry: Expiry) -> list[Operation]:
        pending = self.pending.get(expiry.resource)
        if not pending or not self._is_current(entry, expiry.resource, expiry.token):
            return []
        changed = []
        arrows = TRANSITIONS[Trigger.EXPIRE]
        for index in expiry.indexes:
            operation = pending.get(index)
            if operation is None or not 0 < operation.deadline_ns <= entry.time_ns:
                continue
            after = arrows.get(operation.state)
            if after is None:
                continue
            if not self._has_heard_of_all(entry, operation):
                after = _IN_DOUBT  # Nobody knows what its attempts have done, and no other is made.
            self._touch(operation)
            operation.next_try_ns = 0
            operation.error = f"its deadline passed before attempt {operation.attempt + 1}"
            self._settle(operation)
            self._move(entry, operation, after, operation.attempt, operation.token, operation.error)
            changed.append(operation)
        self._trim(changed)
        return changed


def waits_for_its_dispatch(operation: Operation) -> bool:
    """Whether every attempt of it waits until its dispatch is committed, whatever the guarantee of its resource."""
    return operation.deadline_ns > 0 or operation.not_before_ns > 0
