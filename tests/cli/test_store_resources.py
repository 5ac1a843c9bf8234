"""A node with a folder, an object or an API: composed from its file, submitted to, asked for its status."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..effects.resources.s3_subjects import S3Subject
from ..servers.http_api import HttpApi, http_api, http_api_server
from ..servers.s3 import S3Server, s3, s3_server
from .test_server_resources import configured, submit_all

__all__ = ["http_api", "http_api_server", "s3", "s3_server"]

pytestmark = pytest.mark.servers

OPERATIONS = [f"op{index}" for index in range(100)]


async def test_a_node_with_a_folder(tmp_path: Path) -> None:
    resource = """[resources.ledger]
kind = "file"
path = "files"
effects.credit.steps = [["append", "{account}.lines", "{operation_id}"]]
"""
    status = await submit_all(configured(tmp_path, resource))
    assert (status["kind"], status["guarantee"]) == ("file", "fenced")
    assert sorted((tmp_path / "files" / "a.lines").read_text().split()) == sorted(OPERATIONS)


async def test_a_node_with_an_object(tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    resource = f"""[resources.ledger]
kind = "s3"
bucket = "bucket"
endpoint = "{s3.endpoint}"
effects.credit.steps = [["append", "entries", "{{operation_id}}"], ["add", "{{account}}", "{{cents}}"]]
"""
    status = await submit_all(configured(tmp_path, resource))
    assert (status["kind"], status["guarantee"]) == ("s3", "fenced")
    values = S3Subject(s3).values()
    assert (sorted(values["entries"]), values["a"]) == (sorted(OPERATIONS), 100)


async def test_a_node_with_an_api(tmp_path: Path, http_api: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "Bearer s3cret")
    resource = f"""[resources.ledger]
kind = "http"
url = "{http_api.url}"
authorization_env = "API_TOKEN"
effects.credit.path = "/credits"
"""
    status = await submit_all(configured(tmp_path, resource))
    assert (status["kind"], status["guarantee"]) == ("http", "keyed")
    assert sorted(http_api.rows("effects")) == sorted(OPERATIONS)
    assert {headers["Authorization"] for _, headers in http_api.rows("requests")} == {"Bearer s3cret"}
