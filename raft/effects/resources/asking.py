"""What a ledger answers about one operation, and when it may be asked (concepts: What can be promised depends on the
resource).

That nothing is there says something only from behind a claim: what bears a lower token can then come no more.
"""

from __future__ import annotations

from ...core.token import FencingToken
from ...ports import Answered, Attempt, Found
from .ledger import StoredFence, check_fence, check_kept
from .outcomes import Known

UNTOLD = Answered(Found.UNKNOWN)
NOTHING_FORGOTTEN = (0, 0)
FIRST_INCARNATION = 1


def still_holds(
    resource: str, stored: StoredFence | None, cluster: str, claimed: FencingToken | None, holder: str
) -> bool:
    """Whether the fence stands where this process has put it; False if this process has claimed nothing there.

    Raises :class:`FenceError` where somebody else has raised it since, and :class:`ResourceUnavailable` where it was
    put back.
    """
    check_kept(resource, stored, claimed)
    if claimed is None:
        return False
    check_fence(resource, stored, cluster, claimed, holder)
    return True


def answer(
    attempt: Attempt, known: Known | None, claimed: FencingToken, forgotten: tuple[int, int] = NOTHING_FORGOTTEN
) -> Answered:
    """``known`` is what the ledger holds under the operation's id, and ``forgotten`` the place (incarnation, index) up
    to where it may hold nothing any more of what was applied."""
    if known is not None and known.digest == attempt.digest:
        return Answered(Found.APPLIED, known.result)
    if known is not None or forgotten == NOTHING_FORGOTTEN:
        return Answered(Found.NOT_APPLIED)
    # Indexes of two incarnations cannot be compared, and which ones its attempts were made in is not told.
    is_above = claimed.incarnation == FIRST_INCARNATION and attempt.index > forgotten[1]
    return Answered(Found.NOT_APPLIED) if is_above else UNTOLD
