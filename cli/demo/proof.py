"""The verdict, computed from what is on disk and from nothing that a node said while it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ...raft.core.token import FencingToken
from ...raft.effects.resources.audit import check_ledger
from ...raft.effects.resources.ledger import AcceptedOperation
from ...raft.outbox.machine import OutboxMachine
from ...raft.outbox.operation import Operation, OperationState
from .evidence import Evidence, committed_entries, replay

PROBLEMS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was to be shown. It holds if there are no ``problems``."""

    claim: str
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.problems


def prove(evidence: Evidence) -> list[Finding]:
    """Everything a scenario promises, found to hold or not."""
    entries, disagreements = committed_entries(evidence.logs)
    machine = replay(entries)
    return [
        _exactly_once(evidence),
        *(EXPECTATIONS[row["kind"]](evidence, machine, row) for row in evidence.expectations),
        _tokens(evidence),
        _log_and_ledger(evidence, machine),
        Finding(f"the {len(evidence.logs)} logs agree on all {len(entries)} committed entries", disagreements),
        _money(evidence),
        _stopped(evidence),
    ]


def money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"


# -- always -----------------------------------------------------------------------------------------


def _exactly_once(evidence: Evidence) -> Finding:
    """The application's own table decides what took effect, not the notes beside it."""
    standing = Counter(entry.payment for entry in evidence.entries)
    by_id = {entry.payment: entry for entry in evidence.entries}
    problems = []
    for payment in evidence.submitted:
        count = standing.pop(payment.operation_id, 0)
        answer = evidence.answers.get(payment.operation_id) or evidence.errors.get(payment.operation_id, "no answer")
        if count != 1:
            problems.append(f"{payment.operation_id} took effect {count} times (its client heard: {answer})")
        elif tuple(by_id[payment.operation_id]) != tuple(payment):
            stands = by_id[payment.operation_id]
            problems.append(f"{payment.operation_id} was submitted as {payment[1:]} and stands as {stands[1:]}")
        if answer != OperationState.SUCCEEDED:
            problems.append(f"{payment.operation_id}: its client heard {answer}")
    problems += [f"{payment!r} stands in the ledger and was never submitted" for payment in standing]
    number = len(evidence.submitted)
    return Finding(f"{number} payments submitted, and each took effect exactly once (guarantee: fenced)", problems)


def _tokens(evidence: Evidence) -> Finding:
    counts = Counter(operation.token for operation in evidence.ledger.operations)
    shares = ", ".join(f"{count} under {token}" for token, count in sorted(counts.items()))
    return Finding(f"no lower token was accepted after a higher one: {shares}", check_ledger(evidence.ledger))


def _log_and_ledger(evidence: Evidence, machine: OutboxMachine) -> Finding:
    accepted: dict[str, AcceptedOperation] = {}
    for row in evidence.ledger.operations:
        accepted[row.operation_id] = row
    problems = [problem for operation in machine.operations.values() for problem in _compare(operation, accepted)]
    problems += [
        f"the ledger accepted {row.operation_id} under {row.token}, and no such command is committed"
        for row in evidence.ledger.operations
        if row.operation_id not in machine.operations
    ]
    number = len(machine.operations)
    return Finding(f"log and ledger agree: {number} commands committed, the same {number} accepted", problems)


def _compare(operation: Operation, accepted: dict[str, AcceptedOperation]) -> Iterator[str]:
    name = operation.operation_id
    if operation.state is not OperationState.SUCCEEDED:
        yield f"{name} is {operation.state.value} in the log: {operation.error or 'without a reason'}"
    row = accepted.get(name)
    if row is None:
        yield f"{name} is committed at index {operation.index}, and the ledger never accepted it"
    elif (row.digest, row.log_index, row.effect) != (operation.digest, operation.index, operation.effect):
        yield f"{name}: log and ledger hold different commands (index {operation.index} and {row.log_index})"
    elif operation.state is OperationState.SUCCEEDED and row.result != operation.result:
        yield f"{name}: the result in the log is {operation.result!r}, in the ledger {row.result!r}"


def _money(evidence: Evidence) -> Finding:
    wanted: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for payment in evidence.submitted:
        wanted[payment.account] += payment.cents
    for entry in evidence.entries:
        found[entry.account] += entry.cents
    problems = [
        f"{account}: {money(wanted[account])} were submitted and {money(found[account])} are in the ledger"
        for account in sorted(wanted | found)
        if wanted[account] != found[account]
    ]
    return Finding(f"every account is right to the cent: {money(wanted.total())} in all", problems)


def _stopped(evidence: Evidence) -> Finding:
    codes = evidence.exit_codes
    problems = [f"{node} ended with {code}" for node, code in codes if code != 0]
    return Finding(f"{len(codes)} times a node was asked to stop, and it ended by itself with 0", problems)


# -- what a scenario set out to show ------------------------------------------------------------------


def _late_write(evidence: Evidence, machine: OutboxMachine, row: dict[str, str]) -> Finding:
    """The frozen leader's write was really attempted after it woke, and really refused."""
    name, node = row["operation_id"], row["node"]
    operation = machine.operations.get(name)
    tried_under = {
        step.token for step in operation.history if step.state == OperationState.DISPATCHED and step.token
    } if operation is not None else set()  # fmt: skip
    refused = [
        refusal
        for refusal in evidence.ledger.refusals
        if name in refusal.operations and _node_of(refusal.holder) == node and refusal.reason == "STALE_LEADER"
    ]
    problems = []
    if not refused:
        problems.append(
            f"not shown: {node} was frozen while it carried out {name}, and the ledger has no record of refusing it; "
            "either the late write never came, or it was let in"
        )
    for refusal in refused:
        if refusal.token >= refusal.stored:
            problems.append(f"the ledger refused {refusal.token} while its fence stood at {refusal.stored}")
        if refusal.token not in tried_under:
            problems.append(f"{name} was refused under {refusal.token}; by the log nobody tried it under that token")
        if not _said_so(evidence, node, refusal.token):
            problems.append(f"{node} never wrote down that {refusal.token} was refused")
    seen = f" ({refused[0].token}, and the fence stood at {refused[0].stored})" if refused else ""
    return Finding(f"{node}'s late write of {name} came and was refused{seen}", problems)


def _node_of(holder: str) -> str:
    """A holder is ``node/instance/boot``."""
    return holder.partition("/")[0]


def _said_so(evidence: Evidence, node: str, token: FencingToken) -> bool:
    return any(
        line.get("event") == "refused at the fence" and line.get("token") == str(token)
        for line in evidence.node_logs[node]
    )


def _recognised(evidence: Evidence, machine: OutboxMachine, row: dict[str, str]) -> Finding:
    """A payment was done, its leader died before that was committed, and the next leader tried it again."""
    name = row["operation_id"]
    operation = machine.operations.get(name)
    accepted = next((each for each in evidence.ledger.operations if each.operation_id == name), None)
    problems = []
    if operation is None or accepted is None:
        problems.append(f"not shown: {name} is not in the log, or not in the ledger")
    elif operation.token is None or operation.token <= accepted.token:
        problems.append(
            f"not shown: {name} was done under {accepted.token} and recorded as done under {operation.token}; "
            "no later leader tried it again"
        )
    seen = f" (done under {accepted.token}, tried again under {operation.token})" if operation and accepted else ""
    return Finding(f"{name} was tried again and recognised as done already{seen}", problems)


def _tried_again(evidence: Evidence, machine: OutboxMachine, row: dict[str, str]) -> Finding:
    """A payment's leader died before it was done; the next one did it, once."""
    name = row["operation_id"]
    operation = machine.operations.get(name)
    accepted = next((each for each in evidence.ledger.operations if each.operation_id == name), None)
    attempts = operation.attempt if operation is not None else 0
    problems = []
    if accepted is None or attempts < 2:
        problems.append(f"not shown: {name} has {attempts} attempt(s) in the log, and should have had a second one")
    return Finding(f"{name} was lost with its leader and done by a later one (attempt {attempts})", problems)


EXPECTATIONS: dict[str, Callable[[Evidence, OutboxMachine, dict[str, str]], Finding]] = {
    "late-write": _late_write,
    "recognised": _recognised,
    "tried-again": _tried_again,
}


def failures(findings: Iterable[Finding]) -> list[str]:
    """The problems of all findings."""
    return [problem for finding in findings for problem in finding.problems]
