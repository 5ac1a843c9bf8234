"""The conformance suite's world in an S3 bucket."""

from __future__ import annotations

import json
from typing import Any

from fencepost.raft.effects.resources import s3_audit
from fencepost.raft.effects.resources.ledger import Ledger
from fencepost.raft.effects.resources.s3 import Credentials, S3Effect, S3Place, S3Resource

from ...servers.postgres import run_aside
from ...servers.s3 import S3Server
from .file_subjects import joined

CREDENTIALS = Credentials("key", "secret")


class S3Subject:
    def __init__(self, server: S3Server) -> None:
        self.server = server

    def place(self, name: str, endpoint: str = "") -> S3Place:
        return S3Place("bucket", f"fencepost/{name}.json", "us-east-1", endpoint or self.server.endpoint)

    def node(
        self,
        name: str = "ledger",
        cluster_id: str = "cluster",
        effects: dict[str, list[list[str]]] | None = None,
        **options: Any,
    ) -> S3Resource:
        # A negative number is refused after the entry was appended: the entry must not stay.
        credit = [
            ["append", "entries", "{operation_id}"],
            ["set", "last", "{cents}"],
            ["at-least", "last", "0"],
            ["add", "sum", "{cents}"],
        ]
        given = {"credit": credit} if effects is None else effects
        return S3Resource(
            name,
            self.place(name, options.pop("endpoint", "")),
            options.pop("credentials", CREDENTIALS),
            {effect: S3Effect(steps) for effect, steps in given.items()},
            cluster_id=cluster_id,
            **options,
        )

    def values(self, name: str = "ledger") -> dict[str, Any]:
        status, body = self.server.call("GET", f"/bucket/fencepost/{name}.json")
        found: dict[str, Any] = json.loads(body)["values"] if status == 200 else {}
        return found

    def world(self, name: str = "ledger") -> list[str]:
        entries: list[str] = self.values(name).get("entries", [])
        return entries

    def ledger(self) -> Ledger:
        return joined(
            [run_aside(s3_audit.read_ledger(self.place(name), CREDENTIALS, name)) for name in ("ledger", "mail")]
        )
