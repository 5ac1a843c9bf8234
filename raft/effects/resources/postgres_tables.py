"""The tables that a PostgreSQL resource keeps beside the data it protects, in a schema of their own.

They live in the same database as the effects, because fence, dedupe and effect must be one transaction
(concepts: The fencing token), and they must never be dropped or restored apart from it.
"""

from __future__ import annotations

from enum import StrEnum

from .postgres_guard_tables import PASS


class Dedupe(StrEnum):
    """How a repeated operation is recognised (docs/resources.md)."""

    TABLE = "table"
    """A row an operation, kept for ever."""
    ORDERED_LANE = "ordered-lane"
    """A row a lane and its latest results; what has no lane has a row an operation."""


SCHEMA_NAME = "fencepost"
SCHEMA_VERSION = 1
SCHEMA_LOCK = 0x66656E6365
"""The advisory lock under which tables are made: all nodes start at once, and IF NOT EXISTS does not wait."""

HAS_TABLES = "SELECT to_regclass('fencepost.format') IS NOT NULL"
SCHEMA = """
CREATE SCHEMA IF NOT EXISTS fencepost;
CREATE TABLE fencepost.fence (
    resource text PRIMARY KEY,
    cluster text NOT NULL,
    incarnation bigint NOT NULL,
    term bigint NOT NULL,
    holder text NOT NULL
);
-- Every rise of the fence, so that an audit can tell what was the lowest acceptable token when.
CREATE TABLE fencepost.claims (
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource text NOT NULL,
    incarnation bigint NOT NULL,
    term bigint NOT NULL,
    holder text NOT NULL,
    accepted_before bigint NOT NULL,
    claimed_ns bigint NOT NULL
);
-- `accepted` rises with every acceptance of one resource, because each happens under its fence's row lock.
-- The key is the second line of defence: even a look-up that fails cannot let one operation in twice.
CREATE TABLE fencepost.operations (
    resource text NOT NULL,
    operation_id text NOT NULL,
    accepted bigint GENERATED ALWAYS AS IDENTITY,
    digest bytea NOT NULL,
    effect text NOT NULL,
    lane text NOT NULL,
    log_index bigint NOT NULL,
    incarnation bigint NOT NULL,
    term bigint NOT NULL,
    holder text NOT NULL,
    attempt bigint NOT NULL,
    result bytea NOT NULL,
    applied_ns bigint NOT NULL,
    PRIMARY KEY (operation_id, resource)
);
CREATE INDEX operations_by_acceptance ON fencepost.operations (resource, accepted);
-- How far each lane has come, and up to where its operations were given up. An index is only comparable
-- within one incarnation.
CREATE TABLE fencepost.lanes (
    resource text NOT NULL,
    lane text NOT NULL,
    incarnation bigint NOT NULL,
    log_index bigint NOT NULL,
    forgotten_incarnation bigint NOT NULL DEFAULT 0,
    forgotten_index bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (resource, lane)
);
CREATE TABLE fencepost.refusals (
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource text NOT NULL,
    refused_ns bigint NOT NULL,
    incarnation bigint NOT NULL,
    term bigint NOT NULL,
    holder text NOT NULL,
    stored_incarnation bigint NOT NULL,
    stored_term bigint NOT NULL,
    stored_holder text NOT NULL,
    operations text NOT NULL,
    reason text NOT NULL
);
CREATE TABLE fencepost.format (version integer NOT NULL);
"""
LANE_INDEX = """CREATE INDEX IF NOT EXISTS operations_by_lane
    ON fencepost.operations (resource, lane, accepted) WHERE lane <> ''"""
"""Made when the first `ordered-lane` resource needs it; the others need not pay for it."""

READ_FORMAT = "SELECT max(version) FROM fencepost.format"
WRITE_FORMAT = f"INSERT INTO fencepost.format VALUES ({SCHEMA_VERSION})"

REFUSALS_KEPT = 10_000

# Isolation is named, whatever the server's default: each statement after the lock must see what the
# lock's last holder committed. A snapshot taken before the wait would not show its dedupe rows.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

# The ledger grows faster than the server counts its rows. What it plans for a ledger that it takes for small reads the
# whole of it, in every batch, until it has been analyzed; and a plan is kept. So from the lock on no plan of ours may
# read a table through, until the look-up gives the session's own setting back to the effects that come after it.
ONLY_BY_INDEX = "set_config('enable_seqscan', 'off', true)"

READ_FENCE = "SELECT cluster, incarnation, term, holder FROM fencepost.fence WHERE resource = $1"
LOCK_FENCE = f"""SELECT cluster, incarnation, term, holder, {PASS}, {ONLY_BY_INDEX}
    FROM fencepost.fence WHERE resource = $1 FOR UPDATE"""
"""Always with the pass: another resource of this database may guard the same tables, unknown here."""
LOCK_FIRST_FENCE = "SELECT pg_advisory_xact_lock(hashtextextended('fencepost ' || $1::text, 0))"
FIRST_FENCE = f"""INSERT INTO fencepost.fence (resource, cluster, incarnation, term, holder)
    VALUES ($1, $2, $3, $4, $5) RETURNING {PASS}"""
RAISE_FENCE = "UPDATE fencepost.fence SET incarnation = $2, term = $3, holder = $4 WHERE resource = $1"
WRITE_CLAIM = """INSERT INTO fencepost.claims (resource, incarnation, term, holder, accepted_before, claimed_ns)
    VALUES ($1, $2, $3, $4, (SELECT coalesce(max(accepted), 0) FROM fencepost.operations WHERE resource = $1), $5)"""

_FOUND = """SELECT operation_id, digest, result, resource FROM fencepost.operations
            WHERE operation_id = ANY($1::text[]) OFFSET 0"""
"""By the key alone (OFFSET keeps the next condition out of it): the other index begins with the resource, and so has
all of them in it."""
READ_OPERATIONS = f"""SELECT operation_id, digest, result FROM ({_FOUND}) AS found WHERE resource = $2
    UNION ALL SELECT NULL, NULL, NULL WHERE set_config('enable_seqscan', $3, true) IS NULL"""
QUERY = """SELECT fence.cluster, fence.incarnation, fence.term, fence.holder, operations.digest, operations.result,
        coalesce(lanes.forgotten_incarnation, 0) AS forgotten_incarnation,
        coalesce(lanes.forgotten_index, 0) AS forgotten_index
    FROM fencepost.fence
        LEFT JOIN fencepost.operations ON operations.resource = fence.resource AND operations.operation_id = $2
        LEFT JOIN fencepost.lanes ON lanes.resource = fence.resource AND lanes.lane = $3
    WHERE fence.resource = $1"""
"""The fence and what is kept of one operation, as they stand at one moment."""
WRITE_OPERATIONS = """INSERT INTO fencepost.operations
        (resource, operation_id, digest, effect, lane, log_index, incarnation, term, holder, attempt, result,
        applied_ns)
    SELECT $1, applied.operation_id, applied.digest, applied.effect, applied.lane, applied.log_index, $2, $3, $4,
        applied.attempt, applied.result, $5
    FROM unnest($6::text[], $7::bytea[], $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::bytea[])
        WITH ORDINALITY AS applied (operation_id, digest, effect, lane, log_index, attempt, result, place)
    ORDER BY applied.place"""

READ_OLDEST = """SELECT accepted, incarnation = $2 AND (lane = '' OR $5) AS ours, log_index FROM fencepost.operations
    WHERE resource = $1 AND accepted > $3 ORDER BY accepted LIMIT $4"""
READ_NEWEST = "SELECT coalesce(max(accepted), 0) FROM fencepost.operations WHERE resource = $1"
DELETE_OPERATIONS = "DELETE FROM fencepost.operations WHERE resource = $1 AND accepted = ANY($2::bigint[])"

READ_KNOWN = f"""SELECT operation_id, digest, result, NULL AS lane, 0, 0, 0, 0 FROM ({_FOUND}) AS found
    WHERE resource = $2
    UNION ALL
    SELECT NULL, NULL, NULL, mark.* FROM unnest($4::text[]) AS wanted (lane) CROSS JOIN LATERAL (
            SELECT lane, incarnation, log_index, forgotten_incarnation, forgotten_index FROM fencepost.lanes
            WHERE lanes.resource = $2 AND lanes.lane = wanted.lane OFFSET 0
        ) AS mark
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 0, 0, 0, 0 WHERE set_config('enable_seqscan', $3, true) IS NULL"""
"""The operations, and how far lanes have come, in one exchange: a row has one or the other."""
WRITE_OPERATIONS_AND_LANES = f"""WITH moved AS (
        INSERT INTO fencepost.lanes (resource, lane, incarnation, log_index)
        SELECT $1, moved.lane, $2, moved.log_index FROM unnest($13::text[], $14::bigint[]) AS moved (lane, log_index)
        ON CONFLICT (resource, lane)
        DO UPDATE SET incarnation = excluded.incarnation, log_index = excluded.log_index
    ) {WRITE_OPERATIONS}"""
FORGET_LANES = """WITH cut AS MATERIALIZED (
        SELECT moved.lane, old.accepted FROM unnest($2::text[]) AS moved (lane) CROSS JOIN LATERAL (
            SELECT operations.accepted FROM fencepost.operations
            WHERE operations.resource = $1 AND operations.lane = moved.lane AND operations.lane <> ''
            ORDER BY operations.accepted DESC OFFSET $3 LIMIT 1
        ) AS old
    ), gone AS (
        DELETE FROM fencepost.operations USING cut
        WHERE operations.resource = $1 AND operations.lane = cut.lane AND operations.lane <> ''
            AND operations.accepted <= cut.accepted
        RETURNING operations.lane, operations.incarnation, operations.log_index
    ), newest AS MATERIALIZED (
        SELECT DISTINCT ON (lane) lane, incarnation, log_index FROM gone
        ORDER BY lane, incarnation DESC, log_index DESC
    )
    UPDATE fencepost.lanes SET forgotten_incarnation = newest.incarnation, forgotten_index = newest.log_index
    FROM newest WHERE lanes.resource = $1 AND lanes.lane = ANY($2::text[]) AND lanes.lane = newest.lane"""
"""MATERIALIZED, and the lanes named twice: else what is cut is looked for once a row, and every lane read for a few."""

WRITE_REFUSAL = """INSERT INTO fencepost.refusals (
        resource, refused_ns, incarnation, term, holder, stored_incarnation, stored_term, stored_holder, operations,
        reason
    ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"""
FORGET_REFUSALS = f"""DELETE FROM fencepost.refusals
    WHERE sequence <= (SELECT max(sequence) FROM fencepost.refusals) - {REFUSALS_KEPT}"""
