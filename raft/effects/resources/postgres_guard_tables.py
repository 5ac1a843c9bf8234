"""What a PostgreSQL database needs to see writes without a token: tables, two functions, and statements on them.

Foreign programs run the functions with the rights of the owner of schema ``fencepost``, and with a search path that
nobody but that owner can put anything in (PostgreSQL manual, CREATE FUNCTION, Writing SECURITY DEFINER Functions).
"""

from __future__ import annotations

FORMAT = 2
"""Of a database that is looked at. A version that knows nothing of it would be refused at each write, and says so at
the start instead."""

PASS = "set_config('fencepost.pass', txid_current()::text, true)"
"""What a transaction says of itself once it has the lock of a fence. The number is never given twice, so what is left
standing by mistake opens nothing later."""

TOKEN_MISSING = "FP001"
STALE = "FP002"
"""SQLSTATEs of refusals, in a class that is nobody's."""

WRITERS_MAX = 1_000
"""Applications that are told apart, for each resource; what comes later is counted without its name."""
FOLDED_AT_ONCE = 10_000

HAS_GUARDS = "SELECT to_regclass('fencepost.modes') IS NOT NULL"
_SAFE = "SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
_NOW_NS = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"

SCHEMA = f"""
CREATE TABLE fencepost.modes (
    resource text PRIMARY KEY,
    mode text NOT NULL CHECK (mode IN ('observe', 'enforce')),
    since_ns bigint NOT NULL,
    observed_ns bigint NOT NULL,
    tables text[] NOT NULL DEFAULT '{{}}'
);
-- A row a statement, and no row that two programs meet at. What is rolled back is not there.
CREATE TABLE fencepost.unfenced (
    resource text NOT NULL,
    relation text NOT NULL,
    role text NOT NULL,
    application text NOT NULL,
    low boolean NOT NULL,
    written_ns bigint NOT NULL
);
CREATE INDEX unfenced_by_resource ON fencepost.unfenced (resource);
-- What these add up to, once the holder of the fence has taken them away.
CREATE TABLE fencepost.writers (
    resource text NOT NULL,
    relation text NOT NULL,
    role text NOT NULL,
    application text NOT NULL,
    low boolean NOT NULL,
    statements bigint NOT NULL,
    last_ns bigint NOT NULL,
    PRIMARY KEY (resource, relation, role, application, low)
);
-- The latch stands where the mode does: not even another program goes back by mistake.
CREATE FUNCTION fencepost.latch() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $latch$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.resource = OLD.resource AND (NEW.mode = OLD.mode OR OLD.mode = 'observe') THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'fencepost: a mode never goes back' USING ERRCODE = 'FP003';
END $latch$;
CREATE TRIGGER latch BEFORE UPDATE OR DELETE ON fencepost.modes FOR EACH ROW EXECUTE FUNCTION fencepost.latch();
CREATE TRIGGER latch_all BEFORE TRUNCATE ON fencepost.modes FOR EACH STATEMENT EXECUTE FUNCTION fencepost.latch();
-- Called for what has not passed a fence; the mode is the trigger's own, so no old snapshot shows another one.
CREATE FUNCTION fencepost.guard() RETURNS trigger LANGUAGE plpgsql {_SAFE} AS $guard$
DECLARE
    low boolean := coalesce(current_setting('fencepost.low', true) = txid_current()::text, false);
    relation text := format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME);
BEGIN
    IF TG_ARGV[1] = 'observe' THEN
        INSERT INTO fencepost.unfenced VALUES (TG_ARGV[0], relation, session_user,
            left(current_setting('application_name'), 64), low, {_NOW_NS});
        RETURN NULL;
    END IF;
    IF low THEN
        RAISE EXCEPTION 'fencepost: STALE_LEADER: % of % shows another token than resource % has accepted',
            TG_OP, relation, TG_ARGV[0] USING ERRCODE = '{STALE}';
    END IF;
    RAISE EXCEPTION 'fencepost: TOKEN_MISSING: % of % shows no token, and resource % enforces its fence',
        TG_OP, relation, TG_ARGV[0]
        USING ERRCODE = '{TOKEN_MISSING}', HINT = 'Submit it as a command, or call fencepost.show_token first.';
END $guard$;
REVOKE ALL ON FUNCTION fencepost.guard() FROM PUBLIC;
-- For programs that an effect has given its token: compared under the lock that leaders meet at, until the transaction
-- ends. Whoever stands still with it is ended as a leader is.
CREATE FUNCTION fencepost.show_token(resource text, cluster text, incarnation bigint, term bigint) RETURNS void
LANGUAGE plpgsql {_SAFE} AS $show$
BEGIN
    PERFORM 1 FROM fencepost.fence WHERE fence.resource = $1 AND fence.cluster = $2 AND fence.incarnation = $3
        AND fence.term = $4 FOR UPDATE;
    IF FOUND THEN
        PERFORM set_config('idle_in_transaction_session_timeout', '2s', true);
        PERFORM {PASS};
        RETURN;
    END IF;
    IF EXISTS (SELECT 1 FROM fencepost.modes WHERE modes.resource = $1 AND modes.mode = 'enforce') THEN
        RAISE EXCEPTION 'fencepost: STALE_LEADER: resource % has accepted another token than %.%', $1, $3, $4
            USING ERRCODE = '{STALE}';
    END IF;
    PERFORM set_config('fencepost.low', txid_current()::text, true);
END $show$;
"""

WRITE_FORMAT = """INSERT INTO fencepost.format
    SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM fencepost.format WHERE version = $1)"""

READ_MODE = "SELECT mode, since_ns, observed_ns, tables FROM fencepost.modes WHERE resource = $1"
WRITE_MODE = """INSERT INTO fencepost.modes (resource, mode, since_ns, observed_ns) VALUES ($1, $2, $3, $3)
    ON CONFLICT (resource) DO UPDATE SET mode = excluded.mode, since_ns = excluded.since_ns"""
WRITE_TABLES = "UPDATE fencepost.modes SET tables = $2 WHERE resource = $1"

READ_COUNTS = """SELECT coalesce(sum(counted.statements) FILTER (WHERE NOT counted.low), 0)::bigint AS unfenced,
        coalesce(sum(counted.statements), 0)::bigint AS would_reject,
        coalesce(max(counted.last_ns) FILTER (WHERE NOT counted.low), 0) AS last_ns,
        count(*) FILTER (WHERE counted.fresh) AS fresh
    FROM (
        SELECT low, statements, last_ns, false AS fresh FROM fencepost.writers WHERE resource = $1
        UNION ALL SELECT low, 1, written_ns, true FROM fencepost.unfenced WHERE resource = $1
    ) AS counted"""

FOLD = f"""WITH gone AS (
        DELETE FROM fencepost.unfenced WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM fencepost.unfenced WHERE resource = $1 LIMIT {FOLDED_AT_ONCE}
        )) RETURNING relation, role, application, low, written_ns
    ), known AS (
        SELECT count(*) AS writers FROM fencepost.writers WHERE resource = $1
    ), named AS (
        SELECT relation, role, CASE WHEN known.writers < {WRITERS_MAX} THEN application ELSE '' END AS application, low,
            written_ns
        FROM gone, known
    )
    INSERT INTO fencepost.writers (resource, relation, role, application, low, statements, last_ns)
    SELECT $1, relation, role, application, low, count(*), max(written_ns) FROM named
        GROUP BY relation, role, application, low
    ON CONFLICT (resource, relation, role, application, low) DO UPDATE SET
        statements = writers.statements + excluded.statements, last_ns = greatest(writers.last_ns, excluded.last_ns)"""

_NAME = "format('%I.%I', pg_namespace.nspname, pg_class.relname)"

QUOTE = "SELECT format('%I.%I', schema, name) AS name FROM unnest($1::text[], $2::text[]) AS found (schema, name)"
"""Quoted where the server would: it knows its own words."""

READ_TABLES = f"""WITH RECURSIVE whole AS (
        SELECT pg_class.oid FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
            WHERE {_NAME} = ANY($1::text[])
        UNION SELECT inhrelid FROM pg_inherits JOIN whole ON inhparent = whole.oid
    )
    SELECT {_NAME} AS name, pg_class.relkind IN ('r', 'p') AS guardable, pg_trigger.oid IS NOT NULL AS guarded,
        coalesce(pg_trigger.tgenabled NOT IN ('D', 'R'), false) AS awake
    FROM whole JOIN pg_class ON pg_class.oid = whole.oid JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
        LEFT JOIN pg_trigger ON pg_trigger.tgrelid = whole.oid AND pg_trigger.tgname = $2
    WHERE pg_class.relkind IN ('r', 'p', 'f') ORDER BY name"""
"""Of these tables, and of all that are parts of them: whether they are guarded."""

READ_WRITTEN = f"""SELECT DISTINCT {_NAME} AS name
    FROM pg_locks JOIN pg_class ON pg_class.oid = pg_locks.relation
        JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
    WHERE pg_locks.pid = pg_backend_pid() AND pg_locks.locktype = 'relation' AND pg_locks.mode = 'RowExclusiveLock'
        AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND pg_class.relkind IN ('r', 'p', 'f') AND pg_namespace.nspname <> 'fencepost'
        AND pg_namespace.nspname NOT LIKE 'pg\\_%'"""
"""What this transaction has written to, itself or by triggers and functions: each write leaves its lock until the
end (PostgreSQL manual, Explicit Locking)."""
