"""What a file resource writes, and where it refuses to."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fencepost.raft.core.errors import ConfigurationError, ResourceUnavailable
from fencepost.raft.effects.resources.file import FileEffect, FileResource
from fencepost.raft.ports import AttemptOutcome, AttemptStatus

from .file_subjects import FileSubject
from .subjects import attempt, attempt_of, token

FAILED = AttemptStatus.FAILED
SUCCEEDED = AttemptStatus.SUCCEEDED

Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    path.mkdir()
    return path


@pytest_asyncio.fixture
async def run(folder: Path) -> AsyncIterator[Run]:
    """Executes one attempt of one effect that has these steps."""
    opened: list[FileResource] = []
    index = 0

    async def one(steps: list[list[str]], payload: Any, **options: Any) -> AttemptOutcome:
        nonlocal index
        index += 1
        resource = FileResource("files", folder, {"put": FileEffect(steps)}, cluster_id="cluster", **options)
        opened.append(resource)
        await resource.open()
        each = attempt_of(payload, f"op{index}", index, effect="put")
        (outcome,) = await resource.execute(token(1), "n1", [each])
        return outcome

    yield one
    for resource in opened:
        await resource.close()


async def test_a_payload_becomes_a_file_byte_for_byte(folder: Path, run: Run) -> None:
    outcome = await run([["write", "a/b/c"]], b"\x00\xff\n")
    assert (outcome.status, (folder / "a/b/c").read_bytes()) == (SUCCEEDED, b"\x00\xff\n")
    assert json.loads(outcome.result) == {"files": [{"path": "a/b/c", "bytes": 3}]}


async def test_names_of_the_payload_in_path_and_content(folder: Path, run: Run) -> None:
    steps = [["write", "{account}/balance", "{cents} of {account}, {{as is}}"], ["append", "log", "{operation_id}"]]
    await run(steps, {"account": "ä", "cents": 5})
    assert (folder / "ä/balance").read_text() == "5 of ä, {as is}"
    assert (folder / "log").read_text() == "op1\n"


async def test_a_second_write_replaces_the_whole_file(folder: Path, run: Run) -> None:
    await run([["write", "a", "{text}"]], {"text": "long text"})
    await run([["write", "a", "{text}"]], {"text": "short"})
    assert (folder / "a").read_text() == "short"


@pytest.mark.parametrize(
    "name",
    ["../out", "a/../../out", "/etc/out", "a//b", "a/./b", "", "a/", "..", "a\0b", ".fencepost/files/state", "x" * 201],
)
async def test_no_path_leads_out(folder: Path, run: Run, name: str) -> None:
    for steps in ([["write", "{name}", "x"]], [["append", "{name}", "x"]]):
        outcome = await run(steps, {"name": name})
        assert outcome.status is FAILED
    assert sorted(os.listdir(folder)) == [".fencepost"]
    assert os.listdir(folder.parent) == ["files"]


@pytest.mark.parametrize("operation", ["write", "append"])
@pytest.mark.parametrize("path", ["link/in", "link", "dangling", "to-folder/in"])
async def test_no_link_is_followed(folder: Path, run: Run, operation: str, path: str) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (folder / "link").symlink_to(outside / "kept")
    (folder / "dangling").symlink_to(outside / "new")
    (folder / "to-folder").symlink_to(outside)
    assert (await run([[operation, path, "x"]], {})).status is FAILED
    assert [(each.name, each.read_text()) for each in outside.iterdir()] == [("kept", "kept")]


async def test_a_link_that_appears_after_the_commit_is_not_followed_either(folder: Path, run: Run) -> None:
    """Nothing is written through it: the resource stands still until it is taken away."""
    from fencepost.raft.effects.resources.file_calls import Calls

    outside = folder.parent / "outside"
    outside.mkdir()

    class Links(Calls):
        def rename(self, old: str, new: str, at: int | None = None) -> None:
            super().rename(old, new, at)
            if new.endswith("/state") and not (folder / "sub").is_symlink():
                (folder / "sub").symlink_to(outside)

    with pytest.raises(ResourceUnavailable, match="cannot be put in place"):
        await run([["write", "sub/a", "x"]], {}, calls=Links())
    assert list(outside.iterdir()) == []
    (folder / "sub").unlink()
    await run([["append", "log", "x"]], {})
    assert (folder / "sub/a").read_text() == "x"


@pytest.mark.parametrize(
    ("before", "steps"),
    [
        ([["write", "a", "x"]], [["append", "a", "x"]]),
        ([["append", "a", "x"]], [["write", "a", "x"]]),
        ([["write", "a", "x"]], [["write", "a/b", "x"]]),
        ([["write", "a/b", "x"]], [["write", "a", "x"]]),
        ([], [["write", "a", "x"], ["write", "a/b", "x"]]),
        ([], [["append", "a/b", "x"], ["append", "a", "x"]]),
        ([], [["append", "a", "two\nlines"]]),
        ([], [["write", "ok", "x"], ["write", "{missing}", "x"]]),
    ],
)
async def test_what_cannot_be_fails_as_a_whole(
    folder: Path, run: Run, before: list[list[str]], steps: list[list[str]]
) -> None:
    if before:
        assert (await run(before, {})).status is SUCCEEDED
    seen = sorted(path.name for path in folder.rglob("*"))
    outcome = await run(steps, {})
    assert outcome.status is FAILED
    assert outcome.error
    assert {"ok"}.isdisjoint(path.name for path in folder.iterdir())
    assert set(seen) <= {path.name for path in folder.rglob("*")}


async def test_lines_that_somebody_else_wrote_hold_a_command_up(folder: Path, run: Run) -> None:
    await run([["append", "log", "one"]], {})
    with (folder / "log").open("a") as file:
        file.write("foreign\n")
    outcome = await run([["append", "log", "two"]], {})
    assert outcome.status is AttemptStatus.NOT_ATTEMPTED
    assert "somebody else writes to it" in outcome.error
    assert (folder / "log").read_text() == "one\nforeign\n"


async def test_what_is_no_longer_kept_is_not_taken_for_new(tmp_path: Path) -> None:
    subject = FileSubject(tmp_path)
    resource = subject.node(kept=4, batch_limit=4)
    await resource.open()
    for index in range(1, 11):
        await resource.execute(token(1), "n1", [attempt(f"a{index}", index, cents=index)])
    forgotten, new, kept = await resource.execute(
        token(1), "n1", [attempt("a2", 2, cents=2), attempt("a11", 11, cents=11), attempt("a9", 9, cents=9)]
    )
    assert (forgotten.status, new.status, kept.status) == (AttemptStatus.DOUBT, SUCCEEDED, SUCCEEDED)
    assert (new.replayed, kept.replayed) == (False, True)
    assert "OPERATION_FORGOTTEN" in forgotten.error
    assert len(subject.world()) == 11
    await resource.close()


async def test_a_folder_put_back_to_an_earlier_state_has_to_be_claimed_again(tmp_path: Path) -> None:
    subject = FileSubject(tmp_path)
    resource = subject.node()
    await resource.open()
    await resource.claim(token(1), "n1")
    state = tmp_path / ".fencepost" / "ledger" / "state"
    before = state.read_bytes()
    await resource.claim(token(2), "n1")
    state.write_bytes(before)
    with pytest.raises(ResourceUnavailable, match="put back to an earlier state"):
        await resource.execute(token(2), "n1", [attempt("a")])
    assert await resource.claim(token(2), "n1") is not None
    (outcome,) = await resource.execute(token(2), "n1", [attempt("a")])
    assert outcome.status is SUCCEEDED
    await resource.close()


async def test_a_damaged_state_is_refused_and_kept(tmp_path: Path) -> None:
    subject = FileSubject(tmp_path)
    resource = subject.node()
    await resource.open()
    await resource.claim(token(1), "n1")
    await resource.close()
    state = tmp_path / ".fencepost" / "ledger" / "state"
    for damaged in (
        state.read_bytes()[:-20],
        b"",
        b'{"format":2}',
        state.read_bytes().replace(b'"format":1', b'"format":2'),
    ):
        state.write_bytes(damaged)
        with pytest.raises(ConfigurationError, match="state file cannot be read"):
            await resource.open()
        assert state.read_bytes() == damaged
    await resource.close()


@pytest.mark.parametrize(
    "steps",
    [
        [["remove", "a"]],
        [["write"]],
        [["write", "/etc/a"]],
        [["write", "../a"]],
        [["write", "{a b}"]],
        [["write", "{"]],
    ],
)
def test_steps_that_can_never_work(steps: list[list[str]], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"effect 'put': the steps are not usable"):
        FileResource("files", tmp_path, {"put": FileEffect(steps)}, cluster_id="cluster")
