"""Named parameters become numbers, and nothing that only looks like one does."""

from __future__ import annotations

import pytest

from fencepost.raft.effects.resources.named_parameters import number_parameters


@pytest.mark.parametrize(
    ("sql", "numbered", "names"),
    [
        ("SELECT :a", "SELECT $1", ("a",)),
        ("SELECT :a, :b, :a", "SELECT $1, $2, $1", ("a", "b")),
        ("SELECT :a::numeric(10,2)", "SELECT $1::numeric(10,2)", ("a",)),
        ("SELECT now()::date", "SELECT now()::date", ()),
        ("SELECT ':a', :b", "SELECT ':a', $1", ("b",)),
        ("SELECT 'it''s :a', :b", "SELECT 'it''s :a', $1", ("b",)),
        (r"SELECT E'\':a', :b", r"SELECT E'\':a', $1", ("b",)),
        ('SELECT ":a", :b', 'SELECT ":a", $1', ("b",)),
        ("SELECT :b -- :a\n, :c", "SELECT $1 -- :a\n, $2", ("b", "c")),
        ("SELECT /* :a /* :b */ :c */ :d", "SELECT /* :a /* :b */ :c */ $1", ("d",)),
        ("SELECT $$ :a $$, :b", "SELECT $$ :a $$, $1", ("b",)),
        ("SELECT $t$ :a $$ $t$, :b", "SELECT $t$ :a $$ $t$, $1", ("b",)),
        ("SELECT a[1:2], :b", "SELECT a[1:2], $1", ("b",)),
        ("SELECT x$1y, :b", "SELECT x$1y, $1", ("b",)),
    ],
)
def test_each_name_has_one_number(sql: str, numbered: str, names: tuple[str, ...]) -> None:
    found = number_parameters(sql)
    assert (found.sql, found.names) == (numbered, names)


def test_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="must have names"):
        number_parameters("SELECT $1")


def test_words_are_those_outside_strings_and_comments() -> None:
    found = number_parameters(
        """INSERT /* fencepost */ INTO "FencePost".x VALUES ('fencepost', :fencepost) -- fencepost"""
    )
    assert found.words == ("insert", "into", "fencepost", "x", "values")
