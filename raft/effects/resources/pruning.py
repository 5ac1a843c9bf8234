"""Which rows of a ledger are given up, a few at a time, when the cluster has forgotten their operations.

The rows are looked at in the order of acceptance, which is nearly that of the log, so what is to go is at the front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    accepted: int
    ours: bool
    """Whether it was accepted from this resource under the same incarnation. Those of an earlier one stay: a restored
    cluster may not remember what it had done, and counts its indexes anew."""
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used


class Sifted(NamedTuple):
    gone: list[int]
    """``accepted`` of what is to be deleted."""
    begin: int
    """Up to here nothing is left to look at."""
    more: bool
    """Whether there may be something behind, worth another look at once."""


def sift(rows: Sequence[Row], *, below: int, newest: int, begin: int, limit: int) -> Sifted:
    """What goes of ``rows``, which are the first behind ``begin`` in the order of acceptance, at most ``limit``.

    ``below``: the index from which on the cluster remembers operations. ``newest`` is the last that was accepted; it
    stays, because the next one and each claim count on from it.
    """
    gone = [row.accepted for row in rows if row.ours and row.index < below and row.accepted < newest]
    going = set(gone)
    stays = next((row.accepted for row in rows if row.ours and row.accepted not in going), 0)
    end = stays - 1 if stays else rows[-1].accepted if rows else begin
    return Sifted(gone, end, len(rows) == limit and (end > begin or bool(gone)))
