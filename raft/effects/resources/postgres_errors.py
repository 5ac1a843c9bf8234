"""What an error of PostgreSQL says about the attempt, the transaction and the server.

By SQLSTATE, PostgreSQL manual, appendix A. The text of an error is translated and reworded; its code is not.
"""

from __future__ import annotations

from enum import Enum, auto


class Cause(Enum):
    ATTEMPT = auto()
    """The attempt itself: a constraint, a value that does not fit, an exception of a trigger."""
    CONTENTION = auto()
    """It met another writer or took too long: not applied, and worth another try."""
    MISSING = auto()
    """A table, column or right that is not there, or not yet."""
    STATEMENT = auto()
    """The SQL is wrong: it can never work."""
    SERVER = auto()
    """The connection or the server: nothing is known about it beyond that."""


_CONTENTION = frozenset(
    {
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "55P03",  # lock_not_available: lock_timeout
        "57014",  # query_canceled: statement_timeout
    }
)
_MISSING = frozenset(
    {
        "42P01",  # undefined_table
        "42703",  # undefined_column
        "42883",  # undefined_function
        "3F000",  # invalid_schema_name
        "42501",  # insufficient_privilege
    }
)
_ATTEMPT_CLASSES = frozenset(
    {
        "21",  # cardinality violation: ON CONFLICT met one row twice
        "22",  # data exception
        "23",  # integrity constraint violation
        "27",  # triggered data change violation
        "44",  # WITH CHECK OPTION violation
        "54",  # program limit exceeded
        "P0",  # RAISE in PL/pgSQL
    }
)
CONNECT_REFUSED = frozenset({"28000", "28P01", "3D000", "42501"})
"""Wrong user, password or database: an operator has to put it right."""


def sqlstate(error: BaseException) -> str:
    """The five characters; empty for what is no answer of the server."""
    return str(getattr(error, "sqlstate", None) or "")


def cause_of(error: BaseException) -> Cause:
    """What an error inside an attempt's statement is about."""
    code = sqlstate(error)
    if code in _CONTENTION:
        return Cause.CONTENTION
    if code in _MISSING:
        return Cause.MISSING
    if code[:2] in _ATTEMPT_CLASSES:
        return Cause.ATTEMPT
    if code[:2] == "42":
        return Cause.STATEMENT
    return Cause.SERVER
