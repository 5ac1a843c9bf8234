"""Configuration files: what they become, and each mistake with its exact text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.compose_resources import make_resources
from fencepost.cli.config import (
    NodeConfiguration,
    PythonResourceConfiguration,
    SqliteEffectConfiguration,
    SqliteResourceConfiguration,
    definitions_digest,
)
from fencepost.cli.config_file import load
from fencepost.cli.definitions import check_definitions
from fencepost.raft.core.errors import ConfigurationError
from fencepost.raft.effects.resources.python import PythonResource
from fencepost.raft.ports import Guarantee

GOOD = """\
[cluster]
id = "c1"
[node]
id = "n1"
data_dir = "n1"
peer = "127.0.0.1:7001"
client = "127.0.0.1:7101"
[peers]
n2 = "127.0.0.1:7002"
n3 = "[::1]:7003"
"""

LEDGER = """\
[resources.ledger]
kind = "sqlite"
path = "ledger.db"
[resources.ledger.effects.credit]
sql = "INSERT INTO entries(account, cents) VALUES (:account, :cents)"
"""

MAIL = """\
[resources.mail]
kind = "python"
handler = "shop.effects:send_mail"
guarantee = "naked"
allow_duplicates = true
"""


def read(tmp_path: Path, text: str, *overrides: str, **environment: str) -> NodeConfiguration:
    path = tmp_path / "n1.toml"
    path.write_text(text)
    return load(path, overrides=overrides, environment=environment)


def problems(tmp_path: Path, text: str, *overrides: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, text, *overrides, **environment)
    return [line.removeprefix(f"{tmp_path}/") for line in raised.value.tried]


def test_the_least_configuration_and_its_defaults(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    assert found.voters == ("n1", "n2", "n3")
    assert found.node.data_dir == tmp_path / "n1"
    assert (found.raft.heartbeat_ns, found.raft.election_timeout_ns) == (100_000_000, 1_000_000_000)
    assert found.storage.segment_bytes == 64 << 20
    assert found.resources == {}


def test_a_node_that_joins_begins_without_members_s56(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD.replace('id = "c1"', 'id = "c1"\njoin = true'))
    assert (found.voters, sorted(found.peers)) == ((), ["n2", "n3"])
    assert read(tmp_path, GOOD, "cluster.join=true").voters == ()


def test_when_snapshots_are_taken(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD).snapshots
    assert (found.entries, found.payload_bytes, found.retained) == (100_000, 64 << 20, 10_000)
    assert found.retained_payload_bytes == 64 << 20
    text = GOOD + '[snapshots]\nentries = 0\npayload = "1MiB"\nretained = 0\nchunk = "4KiB"\n'
    found = read(tmp_path, text, "snapshots.retained=7").snapshots
    assert (found.entries, found.payload_bytes, found.retained, found.chunk_bytes) == (0, 1 << 20, 7, 4096)
    assert problems(tmp_path, GOOD + '[snapshots]\nentries = "1MiB"\nchunk = "1B"\n') == [
        'n1.toml:12: snapshots.entries: "1MiB" is not a whole number',
        'n1.toml:13: snapshots.chunk: "1B" is not from 1KiB to 4MiB',
    ]


def test_resources(tmp_path: Path) -> None:
    ledger = LEDGER.replace('path = "ledger.db"', 'path = "/x/l.db"\nschema = "@schema.sql"\nbackoff = "1s"')
    (tmp_path / "schema.sql").write_text("CREATE TABLE IF NOT EXISTS entries(account, cents)")
    found = read(tmp_path, GOOD + ledger + 'think = "2s"\n' + MAIL + 'timeout = "5s"\n').resources
    sqlite, python = found["ledger"], found["mail"]
    assert isinstance(sqlite, SqliteResourceConfiguration)
    assert (sqlite.path, sqlite.guarantee, sqlite.backoff_ns) == (Path("/x/l.db"), Guarantee.FENCED, 10**9)
    assert sqlite.schema.startswith("CREATE TABLE")
    assert sqlite.effects["credit"].think_ns == 2 * 10**9
    assert isinstance(python, PythonResourceConfiguration)
    assert python.guarantee is Guarantee.NAKED
    # A handler without an effects table: the effect is called as the function is.
    assert {name: (each.handler, each.timeout_ns) for name, each in python.effects.items()} == {
        "send_mail": ("shop.effects:send_mail", 5 * 10**9)
    }


def test_handlers_per_effect(tmp_path: Path) -> None:
    text = MAIL + '[resources.mail.effects.send]\n[resources.mail.effects.bounce]\nhandler = "m:f"\ntimeout = "1s"\n'
    resource = read(tmp_path, GOOD + text).resources["mail"]
    assert isinstance(resource, PythonResourceConfiguration)
    assert {name: (each.handler, each.timeout_ns) for name, each in resource.effects.items()} == {
        "send": ("shop.effects:send_mail", 30 * 10**9),
        "bounce": ("m:f", 10**9),
    }


def test_precedence_is_flag_environment_file_default(tmp_path: Path) -> None:
    text = GOOD + '[raft]\nheartbeat = "50ms"\nelection_timeout = "500ms"\n'
    found = read(
        tmp_path, text, "raft.heartbeat=20ms", FENCEPOST_RAFT_HEARTBEAT="30ms", FENCEPOST_STORAGE_SEGMENT="1MiB"
    )
    assert found.raft.heartbeat_ns == 20_000_000
    assert found.raft.election_timeout_ns == 500_000_000
    assert found.storage.segment_bytes == 1 << 20
    assert read(tmp_path, text, FENCEPOST_RAFT_HEARTBEAT="30ms").raft.heartbeat_ns == 30_000_000
    # Paths of flags and environment count from the working folder, not from the file.
    assert read(tmp_path, text, "node.data_dir=x").node.data_dir == Path("x")
    assert read(tmp_path, text, "limits.client_connections=5").limits.client_connections == 5


BAD = [
    (
        "",
        [
            "n1.toml: cluster.id: missing: the cluster's id, the same on every node; "
            "`fencepost cluster init` makes one",
            "n1.toml: node.id: missing: this node's id, unique in the cluster",
            "n1.toml: node.data_dir: missing: the folder of this node's log",
            "n1.toml: node.peer: missing: host:port on which the other nodes reach this one",
            "n1.toml: node.client: missing: host:port on which clients reach this node",
        ],
    ),
    (GOOD + "[noed]\n", ["n1.toml:11: noed: unknown section; did you mean 'node'?"]),
    (GOOD + '[raft]\nheartbeet = "1s"\n', ["n1.toml:12: raft.heartbeet: unknown key; did you mean 'heartbeat'?"]),
    (GOOD + "[zzz]\n", ["n1.toml:11: zzz: unknown section"]),
    (
        GOOD + "[raft]\nheartbeat = 100\n",
        ['n1.toml:12: raft.heartbeat: 100 has no unit; write a duration such as "150ms", "2s"'],
    ),
    (
        GOOD + '[raft]\nheartbeat = "1 fortnight"\n',
        ["n1.toml:12: raft.heartbeat: unknown unit 'fortnight'; the units are ns, us, ms, s, m, h, d"],
    ),
    (
        GOOD + '[raft]\nheartbeat = "400ms"\n',
        [
            "n1.toml:11: raft.election_timeout: 1s is less than 3 heartbeats of 400ms: one late heartbeat would "
            "start an election (raft.heartbeat)"
        ],
    ),
    (
        GOOD + '[raft]\nheartbeat = "1ms"\n',
        ["n1.toml:12: raft.heartbeat: 1ms is less than 5ms, which one slow disk write exceeds"],
    ),
    (
        GOOD + '[raft]\nelection_timeout = "1h"\n',
        ["n1.toml:12: raft.election_timeout: 1h is more than 5m: so long nobody would lead after a crash"],
    ),
    (
        GOOD + '[outbox]\nretention = "9m"\n',
        [
            "n1.toml:12: outbox.retention: 9m is less than 10m: what was forgotten so soon, under an id of a clock "
            "that is ahead, would have new ids of others refused"
        ],
    ),
    (GOOD + '[raft]\nheartbeat = "0s"\n', ["n1.toml:12: raft.heartbeat: must be longer than 0"]),
    (GOOD + '[storage]\nsegment = "1B"\n', ['n1.toml:12: storage.segment: "1B" is not from 64KiB to 4GiB']),
    (
        GOOD + '[limits]\nclient_connections = "5"\n',
        ['n1.toml:12: limits.client_connections: "5" is not a whole number'],
    ),
    (
        GOOD.replace("127.0.0.1:7001", "7001"),
        ['n1.toml:6: node.peer: "7001" is not an address such as "127.0.0.1:7001" or "[::1]:7001"'],
    ),
    (
        GOOD.replace(":7101", ":71010"),
        ["n1.toml:7: node.client: port '71010' of \"127.0.0.1:71010\" is not a number from 1 to 65535"],
    ),
    (GOOD.replace(":7101", ":7001"), ["n1.toml:7: node.client: the same address as node.peer, 127.0.0.1:7001"]),
    (GOOD.replace(":7002", ":7001"), ["n1.toml:9: peers.n2: the same address as node.peer, 127.0.0.1:7001"]),
    (GOOD.replace("n2 =", "n1 ="), ["n1.toml:9: peers.n1: this is the node itself; [peers] are the others"]),
    (
        GOOD.replace('client =', 'http = "127.0.0.1:7101"\nclient ='),
        ["n1.toml:7: node.http: the same address as node.client, 127.0.0.1:7101"],
    ),
    (GOOD + "resources = 1\n", ["n1.toml:11: peers.resources: 1 is not an address such as \"127.0.0.1:7001\""]),
    (
        GOOD + '[resources.p]\nkind = "sqllite"\n',
        ["n1.toml:12: resources.p.kind: unknown kind 'sqllite'; did you mean 'sqlite'?"],
    ),
    (
        GOOD + "[resources.p]\n",
        ["n1.toml:11: resources.p.kind: missing: one of sqlite, postgres, redis, s3, http, file, python"],
    ),
    (
        GOOD + '[resources.p]\nkind = "sqlite"\n',
        [
            "n1.toml:11: resources.p.effects: no effect; add [resources.p.effects.NAME] with sql = \"…\"",
            "n1.toml:11: resources.p.path: missing: the database file; every node must be able to open it",
        ],
    ),
    (
        GOOD + LEDGER.replace("sql =", "sqk ="),
        [
            "n1.toml:15: resources.ledger.effects.credit.sqk: unknown key; did you mean 'sql'?",
            "n1.toml:14: resources.ledger.effects.credit.sql: missing: one statement; :names are fields of the payload",
        ],
    ),
    (
        GOOD + LEDGER.replace("path =", 'backoff = "1m"\npath ='),
        ["n1.toml:13: resources.ledger.backoff: longer than backoff_max, 30s"],
    ),
    (
        GOOD + MAIL.replace("allow_duplicates = true", ""),
        [
            "n1.toml:11: resources.mail.allow_duplicates: a naked resource checks neither token nor operation id, so a "
            "crash can leave an effect done twice or not at all; write allow_duplicates = true if that is acceptable"
        ],
    ),
    (
        GOOD + MAIL.replace("naked", "keyed"),
        ["n1.toml:15: resources.mail.allow_duplicates: only for naked resources; this one is keyed"],
    ),
    (
        GOOD + MAIL.replace("naked", "nakid"),
        ['n1.toml:14: resources.mail.guarantee: "nakid" is not one of fenced, keyed, naked; did you mean \'naked\'?'],
    ),
    (
        GOOD + MAIL.replace("allow_duplicates = true", 'claim = "shop.effects"').replace("naked", "keyed"),
        [
            'n1.toml:15: resources.mail.claim: "shop.effects" is not module:function',
            "n1.toml:15: resources.mail.claim: only for fenced resources; this one is keyed",
        ],
    ),
    (
        GOOD + MAIL.replace(":send_mail", ""),
        ['n1.toml:13: resources.mail.handler: "shop.effects" is not module:function'],
    ),
    (
        GOOD + MAIL.replace("handler", "# handler"),
        ['n1.toml:11: resources.mail.handler: missing: handler = "module:function", or one per effect'],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), BAD)
def test_each_mistake_has_its_text(tmp_path: Path, text: str, says: list[str]) -> None:
    assert problems(tmp_path, text) == says


def test_a_claim_hook_of_the_file_gets_to_its_resource(tmp_path: Path) -> None:
    mail = MAIL.replace("allow_duplicates = true", 'claim = "shop.effects:claim"').replace("naked", "fenced")
    made = make_resources(read(tmp_path, GOOD + mail), {})["mail"]
    assert isinstance(made, PythonResource)
    assert (made.guarantee, made.absence_is_final) == (Guarantee.FENCED, True)
    _, warnings = check_definitions(read(tmp_path, GOOD + mail))
    assert [line for line in warnings if "claim 'shop.effects:claim'" in line]


def test_what_is_not_toml(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, "x")
    assert line.startswith("n1.toml: not TOML: ")


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    text = (
        GOOD.replace('id = "c1"', "id = 1").replace(":7002", ":x") + '[raft]\nheartbeat = 1\n[resources.p]\nkind="s4"\n'
    )
    assert [line.split(": ")[1] for line in problems(tmp_path, text)] == [
        "cluster.id", "raft.heartbeat", "peers.n2", "resources.p.kind",
    ]  # fmt: skip


def test_mistakes_in_flags_and_environment_name_their_source(tmp_path: Path) -> None:
    assert problems(
        tmp_path, GOOD, "raft.heartbeat=7", "raft.nothing=1", "peers.n2=1", "x",
        FENCEPOST_RAFT_ELECTION_TIMEOUT="soon", FENCEPOST_NODE_PEAR="x",
    ) == [
        "environment FENCEPOST_NODE_PEAR: node.pear: unknown key; did you mean 'peer'?",
        "--set raft.nothing=1: raft.nothing: unknown key",
        "--set peers.n2=1: peers.n2: write section.key=value with a section of cluster, node, raft, storage, "
        "snapshots, limits, outbox",
        "--set x: x: write section.key=value with a section of cluster, node, raft, storage, snapshots, limits, "
        "outbox",
        "--set raft.heartbeat=7: raft.heartbeat: \"7\" is not a duration such as \"150ms\", \"2s\"",
        "environment FENCEPOST_RAFT_ELECTION_TIMEOUT: raft.election_timeout: \"soon\" is not a duration such as "
        '"150ms", "2s"',
    ]  # fmt: skip


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*: No such file or directory"):
        load(tmp_path / "none.toml")
    assert problems(tmp_path, GOOD + LEDGER.replace("path =", 'schema = "@none.sql"\npath =')) == [
        f"n1.toml:13: resources.ledger.schema: cannot read {tmp_path}/none.sql: No such file or directory"
    ]


def test_the_digest_is_of_definitions_not_of_places(tmp_path: Path) -> None:
    one = read(tmp_path, GOOD + LEDGER + MAIL)
    ledger = one.resources["ledger"]
    assert isinstance(ledger, SqliteResourceConfiguration)

    def with_ledger(**changes: Any) -> str:
        return definitions_digest(replace(one, resources={**one.resources, "ledger": replace(ledger, **changes)}))

    same = definitions_digest(one)
    assert definitions_digest(replace(one, resources=dict(reversed(list(one.resources.items()))))) == same
    assert with_ledger(path=Path("/elsewhere"), batch_limit=7) == same
    other = SqliteEffectConfiguration(name="credit", sql="INSERT INTO entries VALUES (:account, 0)")
    changes: list[dict[str, Any]] = [{"effects": {"credit": other}}, {"max_attempts": 3}, {"schema": "x"}]
    assert len({same, *(with_ledger(**change) for change in changes)}) == 4
