"""The tables that a SQLite resource keeps beside the data it protects.

They live in the same file as the effects, because fence, dedupe and effect must be one transaction
(concepts: The fencing token), and they must never be deleted apart from it.
"""

from __future__ import annotations

TABLE_PREFIX = "fencepost_"

SCHEMA_VERSION = 1
"""Of a file in which nobody looks for writes without a token; ``sqlite_guard.FORMAT`` of one where somebody does."""

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS fencepost_fence (
        resource TEXT PRIMARY KEY,
        cluster TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        term INTEGER NOT NULL,
        holder TEXT NOT NULL
    ) WITHOUT ROWID""",
    # Every rise of the fence, so that an audit can tell what was the lowest acceptable token when.
    """CREATE TABLE IF NOT EXISTS fencepost_claims (
        sequence INTEGER PRIMARY KEY,
        resource TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        term INTEGER NOT NULL,
        holder TEXT NOT NULL,
        accepted_before INTEGER NOT NULL,
        claimed_ns INTEGER NOT NULL
    )""",
    # `accepted` is the rowid: it rises with every acceptance.
    """CREATE TABLE IF NOT EXISTS fencepost_operations (
        accepted INTEGER PRIMARY KEY,
        resource TEXT NOT NULL,
        operation_id TEXT NOT NULL,
        digest BLOB NOT NULL,
        effect TEXT NOT NULL,
        lane TEXT NOT NULL,
        log_index INTEGER NOT NULL,
        incarnation INTEGER NOT NULL,
        term INTEGER NOT NULL,
        holder TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        result BLOB NOT NULL,
        applied_ns INTEGER NOT NULL
    )""",
    # Second line of defence: even a dedupe look-up that fails cannot let one operation in twice.
    """CREATE UNIQUE INDEX IF NOT EXISTS fencepost_operations_by_id
        ON fencepost_operations (operation_id, resource)""",
    # How far each lane has come. An index is only comparable within one incarnation.
    """CREATE TABLE IF NOT EXISTS fencepost_lanes (
        resource TEXT NOT NULL,
        lane TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        log_index INTEGER NOT NULL,
        PRIMARY KEY (resource, lane)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS fencepost_refusals (
        sequence INTEGER PRIMARY KEY,
        resource TEXT NOT NULL,
        refused_ns INTEGER NOT NULL,
        incarnation INTEGER NOT NULL,
        term INTEGER NOT NULL,
        holder TEXT NOT NULL,
        stored_incarnation INTEGER NOT NULL,
        stored_term INTEGER NOT NULL,
        stored_holder TEXT NOT NULL,
        operation_count INTEGER NOT NULL,
        operations TEXT NOT NULL,
        reason TEXT NOT NULL
    )""",
    "CREATE TABLE IF NOT EXISTS fencepost_format (version INTEGER NOT NULL)",
)

REFUSALS_KEPT = 10_000

READ_FORMAT = "SELECT max(version) FROM fencepost_format"
WRITE_FORMAT = "INSERT INTO fencepost_format SELECT ? WHERE NOT EXISTS (SELECT 1 FROM fencepost_format)"

READ_FENCE = "SELECT cluster, incarnation, term, holder FROM fencepost_fence WHERE resource = ?"
WRITE_FENCE = """INSERT INTO fencepost_fence (resource, cluster, incarnation, term, holder) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (resource) DO UPDATE SET
        incarnation = excluded.incarnation, term = excluded.term, holder = excluded.holder"""
WRITE_CLAIM = """INSERT INTO fencepost_claims (resource, incarnation, term, holder, accepted_before, claimed_ns)
    VALUES (?, ?, ?, ?, (SELECT ifnull(max(accepted), 0) FROM fencepost_operations), ?)"""

READ_OPERATION = "SELECT operation_id, digest, result FROM fencepost_operations WHERE operation_id = ? AND resource = ?"
READ_OPERATIONS = """SELECT operation_id, digest, result FROM fencepost_operations
    WHERE operation_id IN (SELECT value FROM json_each(?)) AND resource = ?"""
_OPERATION_COLUMNS = (
    "resource, operation_id, digest, effect, lane, log_index, incarnation, term, holder, attempt, result, applied_ns"
)
_OPERATION_PLACES = "(" + ", ".join("?" * (_OPERATION_COLUMNS.count(",") + 1)) + ")"
WRITE_OPERATIONS = tuple(
    (
        count,
        f"INSERT INTO fencepost_operations ({_OPERATION_COLUMNS}) VALUES {', '.join([_OPERATION_PLACES] * count)}",
    )
    for count in (64, 16, 4, 1)
)
"""One statement for many rows, by how many. The sqlite3 module lets go of the interpreter at every
statement, and gets it back only when the node's loop has had its turn: a statement a row would make a
transaction as long as the node is busy. Few sizes, so that all of them stay prepared."""

READ_OLDEST = """SELECT accepted, resource = ? AND incarnation = ?, log_index FROM fencepost_operations
    WHERE accepted > ? ORDER BY accepted LIMIT ?"""
READ_NEWEST = "SELECT ifnull(max(accepted), 0) FROM fencepost_operations"
DELETE_OPERATIONS = "DELETE FROM fencepost_operations WHERE accepted IN (SELECT value FROM json_each(?))"

READ_LANES = """SELECT lane, incarnation, log_index FROM fencepost_lanes
    WHERE resource = ? AND lane IN (SELECT value FROM json_each(?))"""
WRITE_LANE = """INSERT INTO fencepost_lanes (resource, lane, incarnation, log_index) VALUES (?, ?, ?, ?)
    ON CONFLICT (resource, lane) DO UPDATE SET incarnation = excluded.incarnation, log_index = excluded.log_index"""

WRITE_REFUSAL = """INSERT INTO fencepost_refusals (
        resource, refused_ns, incarnation, term, holder, stored_incarnation, stored_term, stored_holder,
        operation_count, operations, reason
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
FORGET_REFUSALS = f"""DELETE FROM fencepost_refusals
    WHERE sequence <= (SELECT max(sequence) FROM fencepost_refusals) - {REFUSALS_KEPT}"""
