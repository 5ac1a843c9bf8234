"""Quorum arithmetic and configuration changes against the tables of etcd-io/raft."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fencepost.raft.core.configuration import (
    Change,
    ChangeKind,
    Configuration,
    ConfigurationInvalid,
    change_simply,
    enter_joint,
    leave_joint,
)
from fencepost.raft.core.quorum import UNBOUNDED, VoteResult, quorum_value, vote_result

KINDS = {"v": ChangeKind.ADD_VOTER, "l": ChangeKind.ADD_LEARNER, "r": ChangeKind.REMOVE, "u": ChangeKind.UPDATE}
VOTES = {VoteResult.WON: "VoteWon", VoteResult.LOST: "VoteLost", VoteResult.PENDING: "VotePending"}


def cases(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """(command line, input lines, expected lines) of a table."""
    for block in re.split(r"\n\s*\n", path.read_text()):
        lines = [line for line in block.split("\n") if line.strip() and not line.startswith("#")]
        if "----" in lines:
            at = lines.index("----")
            yield lines[0], lines[1:at], lines[at + 1 :]


def _numbers(line: str, name: str) -> list[str] | None:
    found = re.search(rf"\b{name}=(?:\(([^)]*)\)|(\S+))", line)
    if found is None:
        return None
    inside = found.group(1) if found.group(1) is not None else found.group(2)
    return [] if inside == "zero" else re.findall(r"[^,\s]+", inside)


def _quorum_case(line: str) -> str:
    voters = _numbers(line, "cfg") or []
    outgoing = _numbers(line, "cfgj") or []
    configuration = Configuration(tuple(sorted(voters)), tuple(sorted(outgoing)))
    everybody = list(dict.fromkeys([*voters, *outgoing]))
    if line.startswith("vote"):
        votes = zip(everybody, _numbers(line, "votes") or [], strict=False)
        return VOTES[vote_result(configuration, {voter: vote == "y" for voter, vote in votes if vote != "_"})]
    indexes = zip(everybody, _numbers(line, "idx") or [], strict=False)
    value = quorum_value(configuration, {voter: int(index) for voter, index in indexes if index != "_"})
    return "∞" if value == UNBOUNDED else str(value)


def test_quorums_agree(conformance_folder: Path) -> None:
    compared = 0
    for path in sorted((conformance_folder / "tables" / "quorum").glob("*.txt")):
        for line, _, expected in cases(path):
            if not expected:
                continue
            wanted = expected[-1].replace("<empty majority quorum>", "")
            assert _quorum_case(line) == wanted, f"{path.name}: {line}"
            compared += 1
    assert compared >= 85


def _show(configuration: Configuration) -> str:
    voters = f"({' '.join(configuration.voters)})"
    if configuration.outgoing:
        voters += f"&&({' '.join(configuration.outgoing)})"
    shown = f"voters={voters}"
    if configuration.learners:
        shown += f" learners=({' '.join(configuration.learners)})"
    if configuration.learners_next:
        shown += f" learners_next=({' '.join(configuration.learners_next)})"
    return shown + (" autoleave" if configuration.auto_leave else "")


def _change(configuration: Configuration, line: str, words: list[str]) -> Configuration:
    # That library ignores node 0, which is none.
    changes = [Change(KINDS[word[0]], word[1:]) for word in words if word[1:] != "0"]
    if line.startswith("simple"):
        return change_simply(configuration, changes)
    if line.startswith("enter-joint"):
        return enter_joint(configuration, changes, auto_leave="autoleave=true" in line)
    assert line.startswith("leave-joint"), line
    return leave_joint(configuration)


def test_configuration_changes_agree(conformance_folder: Path) -> None:
    compared = 0
    for path in sorted((conformance_folder / "tables" / "confchange").glob("*.txt")):
        configuration = Configuration(())
        for line, lines, expected in cases(path):
            words = [word for each in lines for word in each.split()]
            try:
                configuration = _change(configuration, line, words)
                agrees = _show(configuration) == expected[0]
            except ConfigurationInvalid:
                agrees = not expected[0].startswith("voters=")
            assert agrees, f"{path.name}: {line} {words}: {expected[0]!r}, here {_show(configuration)!r}"
            compared += 1
    assert compared >= 50
