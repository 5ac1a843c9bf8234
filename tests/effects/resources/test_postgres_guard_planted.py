"""Faults planted in the guards of a PostgreSQL database: the tests beside must see every one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from fencepost.raft.effects.modes import check_step
from fencepost.raft.effects.resources import postgres, postgres_connection, postgres_guard
from fencepost.raft.effects.resources.postgres import Dedupe, PostgresResource
from fencepost.raft.effects.resources.postgres_guard import Guard

from ...core.planting import planted
from ...servers.postgres import PostgresServer, postgres_server
from ...servers.postgres import postgres as empty_postgres
from . import test_postgres_guard as tests
from .subjects import token

__all__ = ["empty_postgres", "postgres_server"]

pytestmark = [pytest.mark.servers, pytest.mark.endure]

Test = Callable[..., Awaitable[None]]


class Fault(NamedTuple):
    name: str
    line: str
    fault: str
    test: Test
    function: Callable[..., Any] | None = None
    texts: tuple[tuple[Any, str], ...] = ()
    """Modules and names of the SQL that the line is in."""


GUARDS = ((postgres_guard, "SCHEMA"), (postgres_connection, "GUARD_SCHEMA"))
began_before = partial(tests.test_a_write_that_began_before_the_step_counts_against_it, isolation="repeatable read")
FAULTS = [
    Fault("a statement is not counted", "INSERT OR UPDATE OR DELETE OR TRUNCATE", "INSERT OR UPDATE OR DELETE",
          tests.test_observing_applies_and_counts_what_shows_no_token_statement_by_statement,
          function=postgres_guard._trigger),
    Fault("any pass is good", "IS DISTINCT FROM pg_catalog.txid_current()::text", "IS NULL",
          tests.test_enforcing_refuses_what_shows_no_token_and_nothing_else, function=postgres_guard._trigger),
    Fault("our own writes show nothing", ", set_config('fencepost.pass', txid_current()::text, true)", "",
          tests.test_enforcing_refuses_what_shows_no_token_and_nothing_else, texts=((postgres, "LOCK_FENCE"),)),
    Fault("the first write of all shows nothing", " RETURNING set_config('fencepost.pass', txid_current()::text, true)",
          "", tests.test_two_resources_of_one_database_may_write_to_the_same_table,
          texts=((postgres, "FIRST_FENCE"),)),
    Fault("a guard runs with the rights of whoever writes",
          "CREATE FUNCTION fencepost.guard() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER",
          "CREATE FUNCTION fencepost.guard() RETURNS trigger LANGUAGE plpgsql",
          tests.test_whoever_writes_needs_no_right_to_what_the_guards_use, texts=GUARDS),
    Fault("the mode is read where an old snapshot shows an old one", "IF TG_ARGV[1] = 'observe' THEN",
          "IF 'observe' = (SELECT mode FROM fencepost.modes WHERE modes.resource = TG_ARGV[0]) THEN",
          began_before, texts=GUARDS),
    Fault("the counts are read before the last writer has ended",
          "await self._count(connection)", "pass",
          tests.test_a_write_that_is_committed_while_the_step_waits_is_a_reason_to_refuse_it, function=Guard.step),
    Fault("a token is compared without a lock", " FOR UPDATE", "",
          tests.test_nobody_passes_the_fence_while_a_shown_token_is_written_with, texts=GUARDS),
    Fault("any token is as good as the one accepted", "AND fence.term = $4", "",
          tests.test_another_program_may_show_the_token_that_it_was_given, texts=GUARDS),
    Fault("any cluster's token is", "AND fence.cluster = $2", "",
          tests.test_another_program_may_show_the_token_that_it_was_given, texts=GUARDS),
    Fault("who stands still with a shown token is not ended", "'2s', true", "'0', true",
          tests.test_nobody_passes_the_fence_while_a_shown_token_is_written_with, texts=GUARDS),
    Fault("the latch opens", "IF TG_OP = 'UPDATE' THEN", "IF TG_OP = 'UPDATE' THEN RETURN NEW;",
          tests.test_one_step_at_a_time_and_none_back, texts=GUARDS),
    Fault("all modes may be taken away", "CREATE TRIGGER latch_all BEFORE TRUNCATE ON fencepost.modes", "-- ",
          tests.test_one_step_at_a_time_and_none_back, texts=GUARDS),
    Fault("triggers of the application are not followed", "if not written <= self._tables:", "if False:",
          tests.test_observing_applies_and_counts_what_shows_no_token_statement_by_statement,
          function=Guard.batch_done),
    Fault("guards that were undone are thought to stand", "if self._stale:", "if False:",
          tests.test_a_batch_that_is_undone_undoes_its_guards_and_the_next_one_makes_them, function=Guard.batch_done),
    Fault("a claim puts back no guard", "await self._guard.claimed(", "0 and await self._guard.claimed(",
          tests.test_a_table_that_was_made_anew_has_its_guard_back_at_the_next_claim, function=PostgresResource.claim),
    Fault("a claim waits as long as a step", "{PATIENCE_MS}", "30000",
          tests.test_a_claim_does_not_wait_long_for_a_guard, function=Guard.claimed),
    Fault("parts of a table are not guarded", "UNION SELECT inhrelid", "UNION SELECT inhparent",
          tests.test_every_part_of_a_table_is_guarded, texts=((postgres_guard, "READ_TABLES"),)),
    Fault("a trigger that sleeps is thought to watch", "pg_trigger.tgenabled NOT IN ('D', 'R')", "true",
          tests.test_what_cannot_be_guarded_is_named, texts=((postgres_guard, "READ_TABLES"),)),
    Fault("what was added up is added once more", "DELETE FROM fencepost.unfenced WHERE ctid",
          "UPDATE fencepost.unfenced SET low = low WHERE ctid",
          tests.test_counts_are_added_up_and_none_is_lost_or_told_apart_for_ever, texts=((postgres_guard, "FOLD"),)),
    Fault("applications are told apart without end", "WHEN known.writers <", "WHEN 0 <",
          tests.test_counts_are_added_up_and_none_is_lost_or_told_apart_for_ever, texts=((postgres_guard, "FOLD"),)),
    Fault("the format stays that of a version that would be refused",
          "await connection.execute(WRITE_FORMAT, FORMAT)", "pass",
          tests.test_an_older_version_does_not_open_what_it_would_be_refused_in, function=Guard.step),
    Fault("a stale leader changes the mode", "await self._pass_fence(connection, stored, token, holder)", "pass",
          tests.test_only_who_holds_the_fence_changes_the_mode, function=PostgresResource.set_mode),
    Fault("a clock that is ahead makes a step impossible", "max(now_ns - max(", "min(now_ns - max(",
          tests.test_another_program_may_show_the_token_that_it_was_given, function=check_step),
    Fault("long names are cut to the same one", "hashlib.sha256(resource.encode()).hexdigest()[:32]", "resource[:40]",
          tests.test_a_resource_with_a_long_name_has_guards_of_its_own, function=postgres_guard._trigger_name),
]  # fmt: skip


@pytest_asyncio.fixture
async def ledger(
    empty_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[tests.Ledger]:
    """As the tests beside have it, with the fault's SQL from the start: it is in the tables that are made."""
    fault: Fault = request.param
    for module, name in fault.texts:
        text: str = getattr(module, name)
        assert fault.line in text, f"{name} has no {fault.line!r}"
        monkeypatch.setattr(module, name, text.replace(fault.line, fault.fault))
    made = tests.Ledger(empty_postgres, Dedupe.TABLE)
    await made.resource.open()
    await made.resource.claim(token(1), "n1")
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("ledger", "fault"), [pytest.param(each, each, id=each.name) for each in FAULTS], indirect=["ledger"]
)
async def test_a_planted_fault_is_seen(ledger: tests.Ledger, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    test = fault.test
    more = {"monkeypatch": monkeypatch} if "monkeypatch" in getattr(test, "__annotations__", {}) else {}
    place = nullcontext() if fault.function is None else planted(fault.function, fault.line, fault.fault)
    with place:
        try:
            await test(ledger, **more)
        except (Exception, pytest.fail.Exception):
            return  # Whatever the test notices, in its own way.
    pytest.fail(f"{test} does not see it")
