"""Folders, objects and APIs in a configuration file: what they become, what is wrong with them, and no secret shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost.cli.compose_resources import make_resources
from fencepost.cli.config import (
    FileResourceConfiguration,
    HttpResourceConfiguration,
    S3ResourceConfiguration,
    definitions_digest,
)
from fencepost.cli.definitions import check_definitions
from fencepost.raft.core.errors import ConfigurationError
from fencepost.raft.effects.resources.file import FileResource
from fencepost.raft.effects.resources.http import HttpResource
from fencepost.raft.effects.resources.s3 import S3Resource
from fencepost.raft.ports import Guarantee

from .test_config import GOOD, problems, read

FILE = """\
[resources.files]
kind = "file"
path = "files"
[resources.files.effects.put]
steps = [["write", "{account}", "{cents}"], ["append", "log"]]
"""
S3 = """\
[resources.objects]
kind = "s3"
bucket = "shop"
[resources.objects.effects.put]
steps = [["add", "balance:{account}", "{cents}"]]
"""
HTTP = """\
[resources.api]
kind = "http"
url = "https://api.example.com/v1"
authorization_env = "API_TOKEN"
[resources.api.effects.charge]
path = "/accounts/{account}/charges"
query = "/operations/{operation_id}"
"""
SECRETS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "hunter2", "API_TOKEN": "Bearer hunter2"}


def test_the_least_of_each(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD + FILE + S3 + HTTP).resources
    files, objects, api = found["files"], found["objects"], found["api"]
    assert isinstance(files, FileResourceConfiguration)
    assert (files.path, files.guarantee, files.kept) == (tmp_path / "files", Guarantee.FENCED, 1024)
    assert files.effects["put"].steps == (("write", "{account}", "{cents}"), ("append", "log"))
    assert isinstance(objects, S3ResourceConfiguration)
    assert (objects.guarantee, objects.access_key_env) == (Guarantee.FENCED, "AWS_ACCESS_KEY_ID")
    assert isinstance(api, HttpResourceConfiguration)
    assert (api.guarantee, api.horizon_ns, api.effects["charge"].method) == (
        Guarantee.KEYED,
        23 * 3600 * 10**9,
        "POST",
    )


def test_they_are_made_and_say_no_secret(tmp_path: Path) -> None:
    configuration = read(tmp_path, GOOD + FILE + S3 + HTTP)
    made = make_resources(configuration, SECRETS)
    assert isinstance(made["files"], FileResource)
    assert isinstance(made["objects"], S3Resource)
    assert isinstance(made["api"], HttpResource)
    assert made["api"].effects == frozenset({"charge"})
    for variable in SECRETS:
        with pytest.raises(ConfigurationError, match=f"{variable} is not set") as error:
            make_resources(configuration, {name: value for name, value in SECRETS.items() if name != variable})
        assert "hunter2" not in str(error.value.as_dict())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            FILE.replace("steps", "stepps", 1),
            ["put.stepps: unknown key; did you mean 'steps'?", "put.steps: missing: "],
        ),
        (
            FILE.replace('[["write", "{account}", "{cents}"], ["append", "log"]]', '"write"'),
            ['put.steps: "write" is not a list of'],
        ),
        (FILE.replace('"{cents}"', "5"), ["put.steps: 5 is not a text; write every word of a step in quotes"]),
        (
            FILE.replace('path = "files"', 'path = "files"\nkept = 100'),
            ["files.kept: 100 is less than batch_limit, 256"],
        ),
        (FILE.split("[resources.files.effects")[0], ["files.effects: no effect; add [resources.files.effects.NAME]"]),
        (
            S3.replace("bucket =", "buket ="),
            ["objects.bucket: missing: ", "objects.buket: unknown key; did you mean 'bucket'?"],
        ),
        (
            S3.replace('"shop"', '"shop"\nendpoint = "htps://x"'),
            ["endpoint: must begin with https://; did you mean 'https'?"],
        ),
        (
            S3.replace('"shop"', '"shop"\nendpoint = "https://x/y"'),
            ["objects.endpoint: must end with its host or port"],
        ),
        (
            S3.replace('"shop"', '"shop"\nobject_max = "1KiB"'),
            ['objects.object_max: "1KiB" is not from 64KiB to 32MiB'],
        ),
        (HTTP.replace("https://", "https://me:hunter2@"), ["api.url: holds a user or a password"]),
        (HTTP.replace("/v1", "/v1?a=b"), ["api.url: must end with its path"]),
        (
            HTTP.replace("query", 'method = "PSOT"\nquery'),
            ["charge.method: \"PSOT\" is not one of POST, PUT, PATCH, DELETE; did you mean 'POST'?"],
        ),
        (HTTP.replace("url =", "ulr ="), ["api.ulr: unknown key; did you mean 'url'?", "api.url: missing: "]),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, says: list[str]) -> None:
    found = problems(tmp_path, GOOD + text)
    assert len(found) == len(says), found
    for sentence in says:
        assert any(sentence in line for line in found), (sentence, found)
    assert not any("hunter2" in line for line in found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            FILE.replace('"append", "log"', '"append", "../log"'),
            r"files\.effects\.put\.steps: .*leads out of the folder",
        ),
        (FILE.replace('"append"', '"prepend"'), r"files\.effects\.put\.steps: .*not one of write, append"),
        (S3.replace('"add"', '"increase"'), r"objects\.effects\.put\.steps: .*not one of set, append, add"),
        (HTTP.replace('"/accounts', '"accounts'), r"api\.effects\.charge: .*is no path such as"),
    ],
)
def test_what_can_never_work_is_found_without_asking_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    found, _ = check_definitions(read(tmp_path, GOOD + text))
    assert len(found) == 1
    assert re.search(problem, found[0])


def test_what_may_be_otherwise_where_the_node_runs_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRETS:
        monkeypatch.delenv(name, raising=False)
    text = FILE.replace('"files"', '"away/files"') + S3 + HTTP.replace("https://", "http://")
    found, warnings = check_definitions(read(tmp_path, GOOD + text))
    assert found == []
    assert [line.partition(": ")[0] for line in warnings] == [
        "resources.files.path",
        "resources.objects",
        "resources.api.url",
        "resources.api",
    ]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('path = "files"', 'path = "elsewhere"', True),
        ('"append", "log"', '"append", "lines"', False),
        ('"add"', '"set"', False),
        ('path = "/accounts', 'path = "/users', False),
        ('url = "https://api', 'horizon = "1h"\nurl = "https://api', False),
        ('url = "https://api', 'concurrency = 3\nurl = "https://api', True),
    ],
)
def test_nodes_compare_what_commands_mean(tmp_path: Path, before: str, after: str, same: bool) -> None:
    text = GOOD + FILE + S3 + HTTP
    assert before in text
    one = definitions_digest(read(tmp_path, text))
    other = definitions_digest(read(tmp_path, text.replace(before, after)))
    assert (one == other) is same
