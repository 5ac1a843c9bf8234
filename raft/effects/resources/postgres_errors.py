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
        "55006",  # object_in_use
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
_SERVER_CLASSES = frozenset(
    {
        "08",  # connection exception
        "25",  # invalid transaction state: read-only, or ended by the server
        "53",  # insufficient resources: disk full, out of memory, too many connections
        "57",  # operator intervention: shutting down, starting, a crash of another session
        "58",  # system error: a failed write or read
        "F0",  # configuration file error
        "XX",  # internal error, damaged data
        "",
    }
)
_STATEMENT_CLASSES = frozenset({"42", "0A"})
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
    if code[:2] in _SERVER_CLASSES or type(error).__name__ == "InvalidCachedStatementError":
        # The last: a table was altered since the statement was prepared. A new connection prepares it anew.
        return Cause.SERVER
    return Cause.STATEMENT if code[:2] in _STATEMENT_CLASSES else Cause.ATTEMPT
