"""Every kind of entry as people and programs read it."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from fencepost.cli.entries import entry_json, summary
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.token import FencingToken
from fencepost.raft.outbox.codec import (
    Activation,
    Cancel,
    Command,
    Discard,
    Dispatch,
    DispatchRow,
    Election,
    Expiry,
    OutboxEntry,
    Outcome,
    OutcomeRow,
    Redrive,
    Resolve,
    Retention,
    StageSeconds,
    Tick,
    encode,
)
from fencepost.raft.outbox.transitions import Finding, Verdict

TOKEN = FencingToken(1, 3)
SHOWN: list[tuple[OutboxEntry, str]] = [
    (Command("a", "ledger", "credit", "k", b"{}", 5, 9), "command a: ledger credit lane k"),
    (Dispatch("ledger", TOKEN, [DispatchRow(4, 2)]), "dispatch ledger 1.3: 4/2"),
    (Outcome("ledger", TOKEN, [OutcomeRow(4, 2, int(Verdict.RETRY), b"", "503", 7)]), "outcome ledger 1.3: 4/2 retry"),
    (Activation("ledger", TOKEN, "n1/i/1", "fenced"), "activation ledger 1.3 by n1/i/1"),
    (Election("n1", TOKEN, [StageSeconds("elect", 0.5)]), "election of n1 1.3, 0.500 s"),
    (Cancel("a", TOKEN, True, "ordered twice"), "cancel a: ordered twice"),
    (Redrive("a", ""), "redrive a"),
    (Resolve("a", int(Finding.DONE), 0, None, b'{"rows":1}', "seen"), "resolve a as done: seen"),
    (Discard("a", "refunded"), "discard a: refunded"),
    (Expiry("ledger", TOKEN, [4, 5]), "deadline of ledger: 4, 5"),
    (Tick(), "tick: something waited for this time"),
    (Retention(3_600_000_000_000, 1000), "retention: 1h or 1,000 that have ended"),
    (Retention(), "retention: for ever"),
]


def test_no_kind_of_entry_is_left_out() -> None:
    assert {type(entry) for entry, _ in SHOWN} == set(get_args(OutboxEntry))


@pytest.mark.parametrize(("entry", "line"), SHOWN, ids=[type(entry).__name__ for entry, _ in SHOWN])
def test_an_entry_in_a_line_and_with_all_that_it_holds(entry: OutboxEntry, line: str) -> None:
    row = entry_json(Entry(7, 3, int(EntryKind.OUTBOX), 1, encode(entry)))
    assert summary(row) == line
    content = json.loads(json.dumps(row["content"]))
    assert content.pop("type") == line.partition(" ")[0].rstrip(":") or isinstance(entry, Expiry)
    assert len(content) == len(entry)
