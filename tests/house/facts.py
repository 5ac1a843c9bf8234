"""What the reference page says and no single place of the program knows. `test_reference.py` holds it to the source."""

from __future__ import annotations

HEAD = """\
# Reference

Made by `python -m tests.house.reference` from the program itself; change it there. For what the words
mean, read [concepts](concepts.md).

[Commands](#commands) · [node configuration](#node-configuration) · [client settings](#client-settings) ·
[exit codes](#exit-codes) · [error codes](#error-codes) · [JSON](#json) · [limits](#limits) ·
[Python names](#python-names)
"""

CONFIGURATION = """\
TOML, one file for each node; `fencepost cluster init` writes them and `fencepost node check-config`
checks one. Durations and sizes carry their unit (`"150ms"`, `"64MiB"`). Relative paths count from the
file. An unknown key is an error. A setting of the plain sections comes from `--set section.key=value`,
else from the environment (`FENCEPOST_SECTION_KEY`), else from the file, else from the default.
"""

PEERS = """\
One line for each of the other nodes: `ID = "host:port"`, the address that is `peer` in that node's file.
"""

PROXY = """\
The file of [`fencepost proxy`](resources.md#a-proxy-in-front-of-an-api). Its other tables, if any, are not looked at.
"""

CLIENT = """\
From the flag, else the environment (`FENCEPOST_ENDPOINTS`, …), else the context, else the client file,
else the default. The client file is `fencepost.toml` in the working folder, else `fencepost/config.toml`
in the user's configuration folder: a table `[client]` with these keys, and tables `[contexts.NAME]` with
the same, chosen by `--context NAME`. `--context FILE` names another file.
"""

OUTCOMES = """\
`fencepost explain CODE` prints the same. The outcome says whether the operation happened: *refused*, no,
and asking again as it stands will not help; *retry*, not now, the same operation id may be tried again;
*unknown*, it may have, and only the same operation id is safe.
"""

JSON = """\
`-o json` prints one document, `-o jsonl` one a line, lists as their rows. Every document begins with
`"apiVersion": "fencepost/v1"` and its `kind`. Fields may be added; those there keep their meaning. Tokens
are `{"incarnation": "1", "term": "7"}`, decimal texts, because both numbers have 64 bits; times are whole
nanoseconds since 1970 and end in `_ns`. Errors, notices and progress go to stderr, one document a line.
"""

EXIT_CODES = {
    0: "done",
    1: "a bug, a node that ended because its disk failed or filled up, or a history whose verdict is unknown",
    2: "usage or configuration",
    3: "no endpoint reachable",
    4: "no leader or no majority; nothing was committed",
    5: "outcome unknown; the id and the command to follow it up are printed",
    6: "the operation id stands for another command, or that change of members leads nowhere",
    7: "not found",
    8: "a check failed, a history is illegal, a command failed, or a fence refused",
    130: "ended by SIGINT",
    143: "ended by SIGTERM; a running node ends with 0 instead",
}

KINDS: dict[str, tuple[str, str]] = {
    "Status": (
        "`status`",
        "`leader` (null, or node, term, confirmed, agree, voters), `nodes`, `members` (voters, outgoing, learners, "
        "joint), `last_election`, `outbox` (null, or operations, forgotten, retention_ns, retention_count, "
        "done_watermark, forgotten_ids_ns, cluster_time_ns), `warnings`",
    ),
    "Submission": ("`submit`", "id, resource, effect, lane, wait, state, replayed, index, term, result, error"),
    "BulkSummary": (
        "`submit --bulk`",
        "`lines`, `submitted`, a number for each fate, `conflicts`, `resumed`, `stopped`, `problems`, "
        "`reroutes` (answers from another node than before), `longest_reroute_s`",
    ),
    "BulkProgress": ("`submit --bulk`, stderr", "`ended`, `total`, a number for each fate"),
    "OperationId": ("`submit`, stderr", "`id`, before anything is sent"),
    "Command": ("`command show`", "the command, its `payload`, `waiting_reason`, and with `--history` its `history`"),
    "CommandList": ("`command list`", "`items`, `next_after_index`"),
    "CommandHistory": ("`command show --history -o tsv`", "the steps alone"),
    "CommandStep": ("`command watch`", "one step: index, time_ns, state, attempt, token, note"),
    "CommandDecision": (
        "`command cancel`, `redrive`, `resolve`, `discard`",
        "`id`, `did`, `definite` (false where it is only asked for), `state`, `attempt`, `error`",
    ),
    "ResourceList": (
        "`resource list`",
        "`items`: name, kind, guarantee, activation, token, pending, in_flight, dead, in_doubt, last_error",
    ),
    "ResourceClaim": ("`resource claim`", "`resource`, `token`"),
    "ResourceFenceList": (
        "`resource fences`",
        "`items`: name, kind, guarantee, activation, token, leader_token, holder, error",
    ),
    "ResourceMode": (
        "`resource mode`",
        "resource, mode, since_ns, observed_ns, unfenced, would_reject, last_unfenced_ns, guarded, unguarded, now_ns",
    ),
    "Wait": ("`wait`", "`for`, `found`"),
    "Check": (
        "`check live`, `ready`, `lag`, `fences`, `quorum-critical`",
        "`check`, `ok`, `items`: name, ok, found, and what it was judged by (`lag`: behind, part; `fences`: guarantee, "
        "token, leader_token; `quorum-critical`: left)",
    ),
    "ClusterEvent": (
        "`cluster events --follow`",
        "time_ns, event, node, term, index (null for what only a node remembers), resource, detail, and what belongs "
        "to the event: stages, returned, in_doubt, leader, target, reason, times, voters, outgoing, learners",
    ),
    "ClusterEventList": ("`cluster events`", "`items`"),
    "MemberList": (
        "`member list`",
        "`items`: node, part, leader, address, connected, match_index, behind, last_contact_s; `configuration`, "
        "`configuration_index`, `committed`, `read`: consistency, applied_index, age_s",
    ),
    "MemberChange": (
        "`member add`, `promote`, `remove`",
        "`action`, `node`, `part`, `dry_run`, `index`, `term`, `configuration`, `warnings`",
    ),
    "MemberConfig": ("`member config`", "`node`, `file`, `next`"),
    "LeadershipChange": (
        "`cluster transfer-leader`, `step-down`",
        "`leader`, `term`, `previous_leader`, `drained` (null where nothing was), `seconds`",
    ),
    "ClusterRecover": (
        "`cluster recover`",
        "`directory`, `cluster_id`, `node`, `dry_run`, `previous_incarnation`, `incarnation`, `resumed`, `term`, "
        "`commit_index`, `last_index`, `last_term`, `previous_configuration`, `configuration`, `warnings`",
    ),
    "SnapshotSave": (
        "`snapshot save`",
        "`file`, `cluster_id`, `incarnation`, `node`, `program`, `saved_ns`, `index`, `term`, `time_ns`, "
        "`configuration`, `configuration_index`, `size_bytes`, `checksum`",
    ),
    "SnapshotInspect": (
        "`snapshot inspect`",
        "the same, `verified`, and `commands`: how many by resource and state",
    ),
    "SnapshotRestore": (
        "`snapshot restore`",
        "`directory`, `cluster_id`, `node`, `incarnation`, `instance_id`, `index`, `term`, `time_ns`, `configuration`, "
        "`configuration_index`, `size_bytes`, `checksum`, `next`",
    ),
    "LogVerify": (
        "`log verify`",
        "`directory`, `verified`, cluster_id, incarnation, node, instance_id, boot, term, voted_for, first_index, "
        "last_index, last_term, commit_index, torn_bytes, snapshot_index, snapshot_bytes",
    ),
    "Entry": (
        "`log get`, `log tail -f`",
        "index, term, entry_kind, time_ns, bytes, committed (null where it is not known), `content`: its type, and "
        "what is in it",
    ),
    "EntryList": ("`log tail`", "`items`"),
    "ClusterInit": ("`cluster init`", "`cluster_id`, `files`, `next`"),
    "NodeConfiguration": ("`node check-config`", "what the node would run with"),
    "Explanation": ("`explain CODE`", "code, title, outcome, exit_code, text"),
    "ExplanationList": ("`explain`", "`items`"),
    "HistoryVerdict": (
        "`jepsen check -o jsonl`",
        "file, verdict, model, operations, keys, steps, `explanations`: key, verdict, order, state, blocked, remarks, "
        "steps, text",
    ),
    "HistoryVerdictList": ("`jepsen check`", "`items`"),
    "SeedResult": (
        "`jepsen run -o jsonl`, `jepsen replay`",
        "seed, verdict, about, nodes, hard_state, virtual_s, events, digest, `faults`, replay",
    ),
    "SeedResultList": ("`jepsen run`", "`items`"),
    "StorageVerdict": ("`debug storage-recover`", "verdict, acknowledged, second_crashes, `problems`"),
    "Demo": ("`demo`", "scenario, seed, holds, findings, folder"),
    "Error": ("any command, stderr", "`error`: code, message, outcome, committed, tried, next, exit_code"),
    "Notice": ("any command, stderr", "`message`"),
    "Warning": ("any command, stderr", "`message`"),
}

_REFUSED = "COMMAND_INVALID"
_BUSY = "BUSY"

_RETENTION = "(`Retention`); then the oldest are forgotten"

LIMITS: dict[str, list[tuple[str, str]]] = {
    "A command": [
        ("raft.outbox.codec:PAYLOAD_BYTES_MAX", f"payload; beyond it {_REFUSED}"),
        ("raft.outbox.codec:OPERATION_ID_BYTES_MAX", f"operation id, in UTF-8; {_REFUSED}"),
        ("raft.outbox.codec:NAME_BYTES_MAX", f"name of a resource or effect; {_REFUSED}"),
        ("raft.outbox.codec:LANE_BYTES_MAX", f"lane; {_REFUSED}"),
        (
            "raft.effects.resources.outcomes:RESULT_BYTES_MAX",
            "result of a SQLite or PostgreSQL effect; the command fails, nothing is applied. "
            "Of a Redis effect: not kept, the effect stands",
        ),
        ("raft.effects.resources.python:RESULT_BYTES_MAX", "result of a Python handler; not kept, the effect stands"),
        ("raft.effects.policy:ERROR_CHARACTERS_MAX", "characters of an error kept for each attempt"),
        ("raft.outbox.bookkeeping:HISTORY_ROWS_MAX", "steps kept in the history of one command"),
        ("raft.effects.policy:RetryPolicy.lost_max", "attempts whose leader went away; then the command is in doubt"),
    ],
    "A leader": [
        ("raft.node.service:PENDING_MAX", f"commands without an outcome; {_BUSY}"),
        ("raft.core.options:Options.uncommitted_bytes_max", f"appended and not yet committed; {_BUSY}"),
        (
            "raft.core.options:Options.append_bytes_max",
            "entries in one message to a follower; one larger entry goes alone",
        ),
        ("raft.core.log:ENTRIES_PER_MESSAGE_MAX", "entries in one such message, however short"),
        ("raft.core.options:Options.in_flight_max", "such messages on their way to one follower"),
        (
            "raft.effects.policy:DispatchPolicy.slow_start",
            "attempts in a batch after an activation; doubled as they succeed",
        ),
        ("raft.effects.batch:OUTCOME_BYTES_MAX", "results in one entry; one larger result goes alone"),
        ("raft.node.digests:POINT_ENTRIES", "entries from one comparison of the nodes' states to the next"),
        ("raft.outbox.state:EVENTS_KEPT", "elections and activations that are remembered, each"),
    ],
    "The client port": [
        (
            "transport.listener:CONNECTIONS_MAX",
            "connections (`limits.client_connections`); the oldest without a handshake goes",
        ),
        ("transport.listener:UNANSWERED_MAX", f"requests of one connection without an answer; {_BUSY}"),
        (
            "transport.listener:UNREAD_BYTES_MAX",
            "answers that a client does not read (`limits.client_buffer`); it is closed",
        ),
        ("transport.framing:HANDSHAKE_BODY_BYTES_MAX", "a frame before the handshake; the connection is closed"),
        ("transport.framing:BODY_BYTES_MAX", "a frame after it; the connection is closed"),
    ],
    "The HTTP port": [
        ("transport.http_server:CONNECTIONS_MAX", "connections; one that is idle goes"),
        ("transport.http_server:HEAD_BYTES_MAX", "request line and headers; answered 431, and the connection closed"),
        ("transport.http_server:HEADERS_MAX", "headers of a request; the same"),
        ("transport.http_server:REQUEST_TIMEOUT_S", "seconds for a request to arrive, and an answer to be read"),
        ("transport.http_server:IDLE_TIMEOUT_S", "seconds between two requests of a connection"),
    ],
    "Between nodes": [
        ("transport.peer_link:PeerLimits.connections_max", "connections on the peer port, handshakes included"),
        (
            "transport.peer_link:PeerLimits.queue_bytes_max",
            "waiting for one peer; then all of it is dropped and sent anew",
        ),
        ("transport.peer_link:PeerLimits.queue_count_max", "messages waiting for one peer; likewise"),
        ("transport.codec:CHUNK_BYTES_MAX", "of a snapshot in one message (`snapshots.chunk` is at most that)"),
        ("transport.peer_link:PeerLimits.connect_timeout_s", "to resolve, connect and shake hands"),
        ("transport.peer_link:PeerLimits.ping_s", "between looks at a silent link"),
        ("transport.peer_link:PeerLimits.missed_pings_max", "such looks in a row without a byte; the link is closed"),
        ("transport.peer_link:PeerLimits.backoff_most_s", "longest pause before dialling again"),
    ],
    "The disk": [
        ("storage.segments:DEFAULT_SEGMENT_BYTES", "log file, then the next is begun (`storage.segment`)"),
        ("storage.segments:AHEAD_BYTES", "written ahead of the log's end"),
        ("storage.reserve:RESERVE_BYTES", "held by every data directory, and given up when the disk is full"),
        ("storage.room:DEFAULT_LOW_BYTES", "free on its disk; with less a node warns (`storage.low_space`)"),
        ("storage.log_store:DRAIN_BYTES", "gathered for one record and one sync, and one write more"),
        ("storage.records:MAX_BODY_BYTES", "one record"),
        ("storage.log_store:SEAL_AFTER_S", "quiet, then the log is sealed"),
    ],
    "Stopping, and resources": [
        ("cli.compose:DRAIN_TIMEOUT_S", "for effects under way, at SIGTERM"),
        ("cli.compose:CLOSE_TIMEOUT_S", "for each part that is closed after that"),
        ("raft.effects.tenure:ANSWER_TIMEOUT_S", "for a resource to answer a claim"),
        ("raft.effects.tenure:CLAIM_RETRY_MAX_S", "longest pause between claims of a resource out of reach"),
        ("raft.effects.resources.sqlite_tables:REFUSALS_KEPT", "refused writes that a SQLite resource remembers"),
    ],
    "An embedded node": [
        ("cli.embedding.node:TIMEOUT_S", "for a proposal, a submission or a read that names no other time"),
        ("cli.embedding.envelope:Retention.ids", f"ids of proposals remembered {_RETENTION}"),
        ("cli.embedding.envelope:Retention.result_bytes", f"of their results {_RETENTION}"),
        ("cli.embedding.envelope:Retention.seconds", f"seconds for which they are remembered {_RETENTION}"),
        ("cli.embedding.machine:RESULT_BYTES_MAX", "result of a command; not kept, the command stands"),
        ("cli.embedding.definitions:HANDLER_TIMEOUT_S", "for one call of a handler that names no other time"),
    ],
    "The command line": [
        ("transport.client_endpoints:ENDPOINTS_MAX", "endpoints of one client"),
        ("cli.bulk.run:PROBLEMS_MAX", "problems that a bulk summary lists"),
        ("jepsen.checkers.history_file:PROBLEMS_SHOWN", "problems that are listed of a file that is no history"),
        (
            "jepsen.checkers.linearizability:STEPS_MAX",
            "steps of a search at one key (`--steps`); then the verdict is unknown",
        ),
    ],
}
"""By heading: where the limit stands, and of what it is one."""
