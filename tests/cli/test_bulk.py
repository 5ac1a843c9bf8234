"""Submitting a file of commands: order, outcomes, resuming, exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.bulk.progress import progress_display
from fencepost.cli.bulk.run import Fate, Summary
from fencepost.cli.output import Renderer
from fencepost.raft.core.errors import NoLeader
from fencepost.raft.ports import Wait
from tests.waiting import eventually

from .fake_cluster import FakeCluster, unused_address
from .running import PROGRAM, environment, run, start

FATES = ("done", "replayed", "failed", "refused", "not_submitted", "unknown")


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return f"@{path}"


def bulk(cluster: FakeCluster, source: str, *more: str, **keywords: Any) -> tuple[int, dict[str, Any]]:
    result = run(
        "submit",
        "ledger",
        "credit",
        "--bulk",
        source,
        "--endpoints",
        cluster.endpoints,
        "-o",
        "json",
        *more,
        **keywords,
    )
    assert result.stdout, result.stderr
    body = json.loads(result.stdout)
    assert sum(body[fate] for fate in FATES) == body["lines"]
    return result.exit_code, body


def counts(body: dict[str, Any]) -> dict[str, int]:
    return {fate: body[fate] for fate in FATES if body[fate]}


def test_real_webhooks_once_and_again(cluster: FakeCluster, data_folder: Path) -> None:
    source = f"@{data_folder / 'webhooks.jsonl'}"
    fields = ("--id-field", "delivery", "--lane-field", "payload.repository.full_name")
    rows = [json.loads(line) for line in (data_folder / "webhooks.jsonl").read_text().splitlines()]
    distinct = dict.fromkeys(row["delivery"] for row in rows)

    code, body = bulk(cluster, source, *fields)
    # Five deliveries stand in the file twice, byte for byte: the second one is the same operation.
    assert (code, counts(body)) == (0, {"done": len(distinct), "replayed": len(rows) - len(distinct)})
    assert body["lines"] == body["submitted"] == len(rows) == 329

    lanes: dict[str, list[str]] = {}
    for row in rows:
        name = row["payload"].get("repository", {}).get("full_name")
        if name:
            lanes.setdefault(name, []).append(row["delivery"])
    assert max(len(lane) for lane in lanes.values()) == 230
    for name, expected in lanes.items():
        assert cluster.order_of(name) == list(dict.fromkeys(expected))

    code, body = bulk(cluster, source, *fields)
    assert (code, counts(body)) == (0, {"replayed": 329})


def test_order_within_a_lane_survives_refusals(cluster: FakeCluster, tmp_path: Path) -> None:
    rows = [{"id": f"{lane}{number}", "lane": lane} for number in range(8) for lane in "ab"]
    # The first of a lane is turned away three times: what follows must not overtake it.
    cluster.refusals = {"a0": 3, "a3": 1, "b1": 2}
    code, body = bulk(cluster, write(tmp_path / "rows", rows), "--lane-field", "lane")
    assert (code, counts(body)) == (0, {"done": 16})
    for lane in "ab":
        assert cluster.order_of(lane) == [f"{lane}{number}" for number in range(8)]
    assert cluster.refusals == {"a0": 0, "a3": 0, "b1": 0}


def test_lane_mates_do_not_wait_for_execution(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.held["a0"] = []
    source = write(tmp_path / "rows", [{"id": f"a{number}", "lane": "a"} for number in range(3)])
    process = start("submit", "l", "e", "--bulk", source, "--lane-field", "lane", "--endpoints", cluster.endpoints)
    eventually(
        lambda: cluster.do(lambda: len(cluster.commands) == 3 and bool(cluster.held["a0"])),
        within_s=20,
        what="the lane is committed while its first command has not ended",
    )
    cluster.release("a0")
    stdout, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert b"\ndone           3\n" in stdout


def test_malformed_lines_are_refused_and_the_others_go_on(cluster: FakeCluster, tmp_path: Path) -> None:
    rows = [{"id": "a"}, "{", {"no": "id"}, {"id": True}, "", {"id": 7}, {"id": None}, {"id": ["x"]}]
    source = write(tmp_path / "rows", rows)
    code, body = bulk(cluster, source)
    assert (code, counts(body)) == (2, {"done": 2, "refused": 5})
    assert sorted(cluster.commands) == ["7", "a"]
    assert [(problem["line"], problem["message"].split(";")[0]) for problem in body["problems"]] == [
        (2, "the payload is not JSON: Expecting property name enclosed in double quotes at column 2"),
        (3, "the line has no 'id', where --id-field looks for the id"),
        (4, "the id at id is bool, not a text"),
        (7, "the line has no 'id', where --id-field looks for the id"),
        (8, "the id at id is list, not a text"),
    ]
    result = run("submit", "ledger", "credit", "--bulk", source, "--endpoints", cluster.endpoints)
    assert "warning: line 3: refused: COMMAND_INVALID: the line has no 'id', where --id-field looks " in result.stderr


def test_not_utf8_and_a_byte_order_mark(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b'\xef\xbb\xbf{"id": "a"}\n{"id": "\xff"}\n')
    code, body = bulk(cluster, f"@{tmp_path}/rows")
    assert (code, counts(body), list(cluster.commands)) == (2, {"done": 1, "refused": 1}, ["a"])
    assert body["problems"][0]["message"] == "not UTF-8: byte 8"


def test_fields_by_dotted_path(cluster: FakeCluster, tmp_path: Path) -> None:
    rows = [{"m": [{"k": "x"}], "p": {"v": 1}, "w": {"l": "L"}}, {"m": [{"k": "y"}], "w": {"l": None}}]
    source = write(tmp_path / "rows", rows)
    flags = ("--id-field", "m.0.k", "--lane-field", "w.l", "--payload-field", "p")
    code, body = bulk(cluster, source, *flags)
    assert (code, counts(body)) == (2, {"done": 1, "refused": 1})
    assert body["problems"][0]["message"] == "the line has no 'p', where --payload-field looks for the payload"
    assert (cluster.commands["x"]["payload"], cluster.commands["x"]["lane"]) == ('{"v":1}', "L")
    code, body = bulk(cluster, source, *flags[:4], "--lane-missing", "error")
    assert body["problems"][-1]["message"] == "the line has no 'w.l', where --lane-field looks for the lane"


def test_conflicts_and_failures(cluster: FakeCluster, tmp_path: Path) -> None:
    rows = [{"id": "a", "v": 1}, {"id": "a", "v": 2}, {"id": "b"}]
    code, body = bulk(cluster, write(tmp_path / "rows", rows), "--window", "1")
    assert (code, counts(body), body["conflicts"]) == (6, {"done": 2, "refused": 1}, 1)
    cluster.failing.add("credit")
    code, body = bulk(cluster, write(tmp_path / "rows", [{"id": "c"}, {"id": "b"}]))
    assert (code, counts(body)) == (8, {"failed": 1, "replayed": 1})


def test_stop_on_error(cluster: FakeCluster, tmp_path: Path) -> None:
    source = write(tmp_path / "rows", [{"id": "a"}, "{", {"id": "c"}])
    code, body = bulk(cluster, source, "--stop-on-error", "--window", "1")
    assert (code, counts(body)) == (2, {"done": 1, "refused": 1})
    assert body["stopped"] == "at line 2: COMMAND_INVALID"
    assert list(cluster.commands) == ["a"]


def test_an_unanswered_command_holds_its_lane(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.silent.add("a1")
    rows = [{"id": f"a{number}", "lane": "a"} for number in range(4)]
    code, body = bulk(cluster, write(tmp_path / "rows", rows), "--lane-field", "lane", "--timeout", "500ms")
    assert (code, counts(body)) == (5, {"done": 1, "unknown": 1, "not_submitted": 2})
    assert {identity for identity, _ in cluster.received} == {"a0", "a1"}
    cluster.silent.clear()
    code, body = bulk(cluster, f"@{tmp_path}/rows", "--lane-field", "lane")
    assert (code, counts(body)) == (0, {"replayed": 2, "done": 2})
    assert cluster.order_of("a") == ["a0", "a1", "a2", "a3"]


def test_the_run_stops_when_the_cluster_is_away(tmp_path: Path) -> None:
    rows = [{"id": f"{number}"} for number in range(20)]
    source = write(tmp_path / "rows", rows)
    with FakeCluster(leader="") as cluster:
        code, body = bulk(cluster, source, "--window", "4", "--timeout", "300ms")
    assert code == 4
    # Those in the window had their time; nobody waits for the rest one after another.
    assert counts(body)["not_submitted"] == body["lines"] < 20
    assert "NO_LEADER" in body["stopped"]
    result = run(
        "submit", "l", "e", "--bulk", source, "--endpoints", unused_address(), "--timeout", "300ms", "--window", "2"
    )
    assert result.exit_code == 3
    assert "run the same command again: operation ids make it safe" in result.stdout
    assert result.stderr.count("not submitted: NO_ENDPOINT") == 1, "once, not for each line under way"


def test_a_cluster_that_refuses_the_client_refuses_no_command(cluster: FakeCluster, tmp_path: Path) -> None:
    source = write(tmp_path / "rows", [{"id": f"{number}"} for number in range(20)])
    submit = ("submit", "ledger", "credit", "--bulk", source, "--endpoints", cluster.endpoints, "--window", "4")
    # In a process of its own: the nodes of this one log that they turned somebody away.
    process = start(*submit, "-o", "json", FENCEPOST_CLUSTER_ID="other")
    body = json.loads(process.communicate(timeout=20)[0])
    assert (process.returncode, cluster.commands) == (3, {})
    assert counts(body)["not_submitted"] == body["lines"] < 20
    assert "CLUSTER_MISMATCH" in body["stopped"]


def test_a_resume_file_skips_what_has_ended(cluster: FakeCluster, tmp_path: Path) -> None:
    source = write(tmp_path / "rows", [{"id": "a"}, {"id": "b"}, {"id": "c"}])
    journal = tmp_path / "journal"
    bulk(cluster, write(tmp_path / "first", [{"id": "a"}, {"id": "b"}]), "--resume-file", str(journal))
    with journal.open("ab") as file:
        file.write(b'{"line": 3, "id": "c", "dig')  # killed in the middle of a line
    cluster.received.clear()
    code, body = bulk(cluster, source, "--resume-file", str(journal))
    assert (code, counts(body), body["resumed"], body["submitted"]) == (0, {"done": 3}, 2, 1)
    assert {identity for identity, _ in cluster.received} == {"c"}
    assert [json.loads(line)["fate"] for line in journal.read_text().splitlines()[1:]] == ["done"] * 3
    # A line that has changed since is another command: it is sent, and its conflict is seen.
    code, body = bulk(cluster, write(tmp_path / "rows", [{"id": "a", "v": 2}]), "--resume-file", str(journal))
    assert (code, body["conflicts"]) == (6, 1)


def test_a_resume_file_holds_no_more_than_outcomes(cluster: FakeCluster, tmp_path: Path) -> None:
    """Committed is not ended: a later run that waits for the outcome must ask for it."""
    source, journal = write(tmp_path / "rows", [{"id": "a"}, {"id": "b"}]), tmp_path / "journal"
    code, _ = bulk(cluster, source, "--resume-file", str(journal), "--wait", "committed")
    assert (code, len(journal.read_text().splitlines())) == (0, 1)
    code, body = bulk(cluster, source, "--resume-file", str(journal))
    assert (code, body["resumed"], body["submitted"]) == (0, 0, 2)
    assert len(journal.read_text().splitlines()) == 3


def test_a_resume_file_that_is_something_else_is_left_alone(cluster: FakeCluster, tmp_path: Path) -> None:
    source = write(tmp_path / "rows", [{"id": "a"}])
    for text in ("precious\n", "precious", '{"fencepost": "bulk-journal", "version": 2}\n'):
        (tmp_path / "other").write_text(text)
        result = run(
            "submit", "l", "e", "--bulk", source, "--resume-file", f"{tmp_path}/other", "--endpoints", cluster.endpoints
        )
        assert result.exit_code == 2
        assert "is no resume file of this version; nothing was sent" in result.stderr
        assert (tmp_path / "other").read_text() == text
    assert cluster.received == []


def test_a_resume_file_in_use_is_refused(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.held["a"] = []
    source, journal = write(tmp_path / "rows", [{"id": "a"}]), f"{tmp_path}/journal"
    command = ("submit", "l", "e", "--bulk", source, "--resume-file", journal, "--endpoints", cluster.endpoints)
    first = start(*command)
    eventually(lambda: cluster.do(lambda: list(cluster.held["a"])), within_s=20, what="the first run is under way")
    second = run(*command)
    assert (second.exit_code, "another submission uses it" in second.stderr) == (2, True)
    cluster.release("a")
    first.communicate(timeout=20)
    assert first.returncode == 0


def test_lines_from_a_pipe_are_submitted_as_they_come(cluster: FakeCluster) -> None:
    process = start("submit", "l", "e", "--bulk", "-", "--endpoints", cluster.endpoints)
    assert process.stdin is not None
    process.stdin.write(b'{"id": "a"}\n')
    process.stdin.flush()
    eventually(lambda: cluster.do(lambda: "a" in cluster.commands), within_s=20, what="the line is submitted")
    stdout, _ = process.communicate(b'{"id": "b"}', timeout=20)
    assert (process.returncode, list(cluster.commands)) == (0, ["a", "b"])
    assert b"\ndone           2\n" in stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_still_sums_up(cluster: FakeCluster, tmp_path: Path, number: int, code: int) -> None:
    cluster.held["b"] = []
    process = start("submit", "l", "e", "--bulk", "-", "--endpoints", cluster.endpoints, "-o", "json")
    assert process.stdin is not None
    process.stdin.write(b'{"id": "a"}\n{"id": "b"}\n')
    process.stdin.flush()
    eventually(lambda: cluster.do(lambda: list(cluster.held["b"])), within_s=20, what="both lines are submitted")
    process.send_signal(number)
    # stdin stays open: a reader blocked there must not keep the process.
    process.wait(timeout=20)
    assert process.returncode == code
    assert process.stdout is not None
    assert counts(json.loads(process.stdout.read())) == {"done": 1, "unknown": 1}
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def test_the_precedence_of_exit_codes() -> None:
    def code(error: NoLeader | None = None, conflicts: int = 0, **fates: int) -> int:
        return Summary(
            fates=Counter({Fate(fate): number for fate, number in fates.items()}),
            first_error=error,
            conflicts=conflicts,
        ).exit_code

    away = NoLeader("no leader")
    assert code(away, 1, unknown=1, not_submitted=1, failed=1, refused=1) == 5
    assert code(away, 1, not_submitted=1, failed=1, refused=1) == 4
    assert code(None, 1, not_submitted=1, failed=1, refused=1) == 6
    assert code(None, 0, not_submitted=1, failed=1, refused=1) == 8
    assert code(None, 0, not_submitted=1, refused=1) == 2
    assert code(None, 0, done=3, replayed=1) == 0


async def test_progress_as_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows").write_text("{}\n\n{}\n{}\n")
    summary = Summary(lines=2, fates=Counter({Fate.DONE: 1, Fate.REFUSED: 1}))
    with (tmp_path / "rows").open("rb") as stream:
        async with progress_display(Renderer(), summary, stream, line_every_s=0):
            for _ in range(3):
                await asyncio.sleep(0)
        assert stream.read(2) == b"{}"  # counting its lines has used up nothing
    assert capsys.readouterr().err.splitlines()[0] == "2 of 3 lines: 1 done, 1 refused"


def test_progress_on_a_terminal(cluster: FakeCluster, tmp_path: Path) -> None:
    source = write(tmp_path / "rows", [{"id": f"{number}"} for number in range(5)])
    terminal, inner = pty.openpty()
    command = ("submit", "l", "e", "--bulk", source, "--endpoints", cluster.endpoints)
    process = subprocess.Popen(
        [*PROGRAM, *command], env=environment(TERM="xterm", COLUMNS="120"), stdout=subprocess.PIPE, stderr=inner
    )
    os.close(inner)
    shown = b""
    while chunk := _read(terminal):
        shown += chunk
    stdout, _ = process.communicate(timeout=20)
    os.close(terminal)
    assert process.returncode == 0
    assert b"5/5" in shown
    assert b"5 done" in shown
    assert b"\ndone           5\n" in stdout


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other end has closed
        return b""


def test_wait_committed_asks_once(cluster: FakeCluster, tmp_path: Path) -> None:
    source = write(tmp_path / "rows", [{"id": "a", "lane": "x"}, {"id": "b"}])
    code, body = bulk(cluster, source, "--wait", "committed", "--lane-field", "lane")
    assert (code, counts(body)) == (0, {"done": 2})
    assert sorted(cluster.received) == [("a", Wait.COMMITTED), ("b", Wait.COMMITTED)]
