"""The stories. Each does something to the nodes while payments go on, and says what is to be seen."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from ...raft.core.errors import CheckFailed
from ..local_cluster import Status, until
from ..output import token_text
from .payments import RESOURCE, THINK_S, Payment
from .stage import Stage

WARM_UP = 40
"""Payments answered before anything is done to the nodes."""
CATCH_TRIES = 5

STAGES = {
    "detect": "until a node had heard no leader for its election timeout",
    "elect": "until a majority had voted",
    "catch-up": "until everything committed before was applied here too",
    "fence": "until the ledger had the new token, so that the old one is worth nothing",
    "reconcile": "until what the old leader left unfinished was taken over",
    "first-effect": "until the first payment was in the ledger",
}


async def stale_leader(stage: Stage) -> None:
    tell = stage.narrator
    leader = await _opening(stage)
    tell.act("The leader freezes in the middle of a payment")
    tell.say(
        "A garbage collection, a stuck disk, a suspended machine: a process can stop at any instruction and go on "
        "later without noticing. Here it is SIGSTOP, while the leader is about to write a payment."
    )
    payment = await _freeze_in_payment(stage, leader)
    node, token = leader["node_id"], token_text(leader["resources"][RESOURCE]["token"])
    tell.fact(f"{node} carries out {payment.operation_id} under token {token}, and is frozen before the ledger has it")
    stage.payments.note("late-write", operation_id=payment.operation_id, node=node)

    tell.act("Another node takes over")
    tell.say(f"{node} still believes that it leads, and nobody can tell it otherwise. The others go on without it:")
    successor = await stage.elected(besides=[node])
    done = await stage.succeeded(successor["node_id"], payment)
    _tell_election(stage, successor)
    tell.fact(
        f"{successor['node_id']} has carried out {payment.operation_id} (attempt {done['attempt']}), under token "
        f"{token_text(done['token'])}"
    )
    await stage.payments.answered_more(10)
    tell.fact(
        f"payments go on; the longest time without an answer was {stage.payments.longest_gap_s:.1f} s, of which the "
        f"new leader spent {THINK_S} s thinking about that payment"
    )

    tell.act("The old leader wakes, and writes")
    tell.say(
        f"{node} goes on at the very instruction where it stopped: writing {payment.operation_id}. No check of its own "
        "can stop that, because it was past its checks already. Without a fence, a write this late lands on top of "
        "whatever has happened since."
    )
    stage.thaw(node)
    refusal = await stage.refusal(payment, within_s=5)
    if refusal is None:
        tell.fact("the ledger has no record of a refusal")
    else:
        tell.fact(
            f"the ledger refuses it: {refusal.reason}, token {refusal.token} when it has accepted {refusal.stored} of "
            f"{refusal.stored_holder.partition('/')[0]}"
        )
    await _follows(stage, node)
    tell.fact(f"{node} has heard of the later term, and follows")
    await stage.payments.answered_more(10)
    await stage.finish()


async def crash_loop(stage: Stage) -> None:
    tell = stage.narrator
    leader = await _opening(stage)
    tell.act("kill -9 before the effect")
    tell.say("The leader dies while it carries out a payment that is not in the ledger yet.")
    payment = await _freeze_in_payment(stage, leader)
    stage.kill(leader["node_id"])
    tell.fact(f"{leader['node_id']} is killed; the ledger does not have {payment.operation_id}")
    stage.payments.note("tried-again", operation_id=payment.operation_id)
    leader = await _replaced(stage, leader, payment, "carried out now, for the first time")

    tell.act("kill -9 after the effect, before anybody could hear of it")
    tell.say(
        "The hard case. The payment is in the ledger, and no log says so. To make it certain the other nodes are "
        "frozen first, so that the outcome cannot be committed; then the leader dies, and they wake."
    )
    payment = stage.payments.pay("pay_slowly")
    await stage.dispatched(leader["node_id"], payment)
    followers = stage.others(leader["node_id"])
    stage.freeze(*followers)
    await _in_ledger(stage, payment)
    stage.kill(leader["node_id"])
    stage.thaw(*followers)
    tell.fact(f"{leader['node_id']} is killed; the ledger has {payment.operation_id}, and no log knows")
    stage.payments.note("recognised", operation_id=payment.operation_id)
    leader = await _replaced(stage, leader, payment, "tried again; the ledger knows it and answers as before")

    tell.act("kill -9 at any moment")
    await stage.payments.answered_more(random.Random(stage.seed).randint(5, 40))
    payment = stage.payments.pay()
    stage.kill(leader["node_id"])
    tell.fact(f"{leader['node_id']} is killed just after {payment.operation_id} was submitted")
    await _replaced(stage, leader, payment, "done")
    await stage.finish()


async def rolling(stage: Stage) -> None:
    tell = stage.narrator
    leader = await _opening(stage)
    tell.act("Each node is stopped and started again, the leader last")
    tell.say(
        "SIGTERM: a node starts nothing new, finishes what is under way, hands leadership over if it has it, and ends "
        "with 0. Payments go on meanwhile."
    )
    for node in [*stage.others(leader["node_id"]), leader["node_id"]]:
        stage.payments.measure_anew()
        codes = await stage.stop(node)
        await stage.payments.answered_more(5)
        status = await stage.cluster.ready()
        stage.start(node)
        await stage.cluster.caught_up(int(status["commit_index"]))
        await stage.payments.answered_more(5)
        role = "the leader" if node == leader["node_id"] else "a follower"
        tell.fact(
            f"{node}, {role}: ended with {codes[node]}, is back and has caught up; longest time without an answer "
            f"{stage.payments.longest_gap_s:.2f} s"
        )
    await stage.finish()


SCENARIOS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "stale-leader": stale_leader,
    "crash-loop": crash_loop,
    "rolling": rolling,
}


# -- parts ------------------------------------------------------------------------------------------


async def _opening(stage: Stage) -> Status:
    tell = stage.narrator
    number = len(stage.cluster.nodes)
    tell.act(f"{number} nodes and a ledger")
    tell.say(
        f"{number} processes agree on a log of payments. One of them leads, and only the leader carries payments out, "
        "into a SQLite database that stands for whatever you want to protect."
    )
    status = await stage.elected(first_effect=False)
    if gone := [node for node in stage.cluster.nodes if node not in stage.cluster.running()]:
        # The others would go on without it, and what is shown next might need it.
        raise CheckFailed(
            f"{', '.join(gone)} has ended by itself: {stage.cluster.last_line(gone[0])}", next_step="run it again"
        )
    tell.fact(
        f"{status['node_id']} leads in term {status['term']}; it has shown the ledger its token "
        f"{token_text(status['resources'][RESOURCE]['token'])}, and the ledger takes no lower one from now on"
    )
    stage.payments.begin()
    await stage.payments.answered_more(WARM_UP)
    tell.fact(f"{stage.payments.answered} payments are made and answered, and a client keeps submitting more")
    return status


async def _freeze_in_payment(stage: Stage, leader: Status) -> Payment:
    """Freeze the leader while it carries out a payment. On a busy machine the moment can be missed."""
    node = leader["node_id"]
    for _ in range(CATCH_TRIES):
        payment = stage.payments.pay("pay_slowly")
        await stage.dispatched(node, payment)
        stage.freeze(node)
        if stage.accepted(payment) is None:
            return payment
        stage.thaw(node)
    raise CheckFailed(
        f"{node} finished a payment of {THINK_S} s before it could be frozen, {CATCH_TRIES} times; nothing was shown",
        next_step="run it again when this machine has less to do",
    )


async def _in_ledger(stage: Stage, payment: Payment) -> None:
    async def look() -> bool:
        return stage.accepted(payment) is not None

    await until(look, within_s=10, what=f"{payment.operation_id} in the ledger")


async def _follows(stage: Stage, node: str) -> None:
    async def look() -> bool:
        status = await stage.cluster.status(node)
        return status is not None and status["role"] == "follower" and bool(status["leader"])

    await until(look, within_s=15, what=f"{node} as a follower")


async def _replaced(stage: Stage, leader: Status, payment: Payment, what: str) -> Status:
    """After the leader was killed: the next one, what became of the payment, and the node's return."""
    tell = stage.narrator
    successor = await stage.elected(besides=[leader["node_id"]])
    await stage.succeeded(successor["node_id"], payment)
    _tell_election(stage, successor)
    tell.fact(f"{payment.operation_id}: {what}")
    stage.start(leader["node_id"])
    await stage.cluster.caught_up(int(successor["commit_index"]))
    tell.fact(f"{leader['node_id']} is started again and has caught up")
    stage.payments.measure_anew()
    await stage.payments.answered_more(5)
    return await stage.cluster.ready()


def _tell_election(stage: Stage, status: Status) -> None:
    record = status["last_election"]
    stage.narrator.fact(f"{status['node_id']} leads in term {record['token']['term']} and acts. What that took:")
    stage.narrator.rows(
        [(row["stage"], f"{row['seconds']:.3f} s", STAGES.get(row["stage"], "")) for row in record["stages"]]
    )
