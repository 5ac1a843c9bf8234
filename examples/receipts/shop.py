"""Send receipts through a cluster:  python shop.py 127.0.0.1:7101[,127.0.0.1:7102…]"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fencepost import Busy, Client, Command, CommandFailed, NoEndpoint, NoLeader, OperationIdReused, OutcomeUnknown

ORDERS = [("order-1", "alice@example.org", 250), ("order-2", "slow@example.org", 990), ("order-3", "nobody", 100)]


def receipt(order: str, to: str, cents: int) -> Command:
    # Sorted keys and no spaces: the same receipt is the same bytes, whichever program makes it.
    payload = json.dumps({"cents": cents, "to": to}, sort_keys=True, separators=(",", ":"))
    return Command(operation_id=f"receipt-{order}", resource="mail", effect="send", lane=to, payload=payload.encode())


async def submit(client: Client, command: Command) -> Any:
    """The handler's result. Raises what the caller has to decide about."""
    try:
        answer = await client.submit(command, timeout_s=20.0)
    except (NoEndpoint, NoLeader, Busy):
        print(command.operation_id, "was certainly not sent; the same command may be submitted later")
        raise
    except OutcomeUnknown:
        print(command.operation_id, "may have been sent; submit the same command again, under this id and no other")
        raise
    if answer.code:
        raise CommandFailed(f"{answer.state}: {answer.detail}")
    print(command.operation_id, answer.state + " (replayed)" * answer.replayed, answer.result.decode())
    return json.loads(answer.result)


async def main(endpoints: list[str]) -> None:
    async with Client(endpoints) as client:
        for order, to, cents in ORDERS:
            try:
                await submit(client, receipt(order, to, cents))
            except CommandFailed as error:
                print(f"receipt-{order}", error)

        # The same order once more: the answer of the first time, and no second mail.
        again = await submit(client, receipt(*ORDERS[0]))
        assert again == {"message": "receipt-order-1.txt", "attempt": 1}

        # The same id for something else is refused.
        try:
            await submit(client, receipt("order-1", "mallory@example.org", 250))
        except OperationIdReused as error:
            print(error.code, "-", error.outcome)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1].split(",")))
