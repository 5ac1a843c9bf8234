"""What the node calls to send a receipt. The folder `sent` stands for a mail service that knows keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fencepost import EffectContext, Permanent, Retryable

SENT = Path("sent")


def send(context: EffectContext, receipt: dict[str, Any]) -> dict[str, Any]:
    if "@" not in receipt["to"]:
        raise Permanent(f"{receipt['to']!r} is no address")
    if receipt["to"].startswith("slow@") and context.attempt == 1:
        raise Retryable("the mail service takes nothing now")
    SENT.mkdir(exist_ok=True)
    # The operation id is the key: the same for every attempt, on every node. A key that is there
    # already means that an earlier attempt got through and only its answer was lost.
    message = SENT / f"{context.operation_id}.txt"
    draft = SENT / f".{context.operation_id}.{context.attempt}"
    draft.write_text(f"To: {receipt['to']}\nYou paid {receipt['cents'] / 100:.2f}\n")
    try:
        os.link(draft, message)  # All of it or nothing, and never a second time.
    except FileExistsError:
        context.log.info("sent before", operation=context.operation_id)
    draft.unlink()
    return {"message": message.name, "attempt": context.attempt}
