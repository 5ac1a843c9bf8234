"""The worlds of our own resources, on real files and real servers."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import fencepost.raft.effects.resources as resources
from fencepost.raft.effects.resources.http import HttpEffect, HttpResource
from fencepost.raft.effects.resources.postgres import Dedupe
from fencepost.raft.ports import Resource
from fencepost.testing import World

from ..effects.resources.file_subjects import FileSubject
from ..effects.resources.s3_subjects import S3Subject
from ..effects.resources.server_subjects import PostgresSubject, RedisSubject
from ..effects.resources.subjects import SqliteSubject
from ..servers.cutting import Way, way_to
from ..servers.http_api import HttpApi
from ..servers.postgres import PostgresServer, run_aside
from ..servers.redis import RedisServer
from ..servers.s3 import S3Server


class Resources(World):
    """What all of them have in common."""

    effect = "credit"
    refused_payload = b'{"cents":-1}'
    steps_in = (Path(next(iter(resources.__path__))).resolve(),)


class SqliteWorld(Resources):
    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.subject = SqliteSubject(folder)

    def node(self) -> Resource:
        return self.subject.node()

    def foreign(self) -> Resource:
        return self.subject.node(cluster_id="another")

    def effects(self) -> list[str]:
        return self.subject.world()

    def save(self) -> sqlite3.Connection:
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        with closing(sqlite3.connect(self.subject.path)) as connection:
            connection.backup(copy)
        return copy

    def restore(self, copy: sqlite3.Connection) -> None:
        with closing(copy), closing(sqlite3.connect(self.subject.path)) as connection:
            copy.backup(connection)


class FileWorld(Resources):
    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.folder = folder
        self.subject = FileSubject(folder)

    def node(self) -> Resource:
        return self.subject.node()

    def foreign(self) -> Resource:
        return self.subject.node(cluster_id="another")

    def effects(self) -> list[str]:
        return self.subject.world()

    def save(self) -> Path:
        return Path(shutil.copytree(self.folder, self.folder.with_name("copy"), dirs_exist_ok=True))

    def restore(self, copy: Path) -> None:
        # As a restore does it: into the folder that is there, whose lock somebody may have open.
        kept = {path.relative_to(copy) for path in copy.rglob("*")}
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_file() and path.relative_to(self.folder) not in kept:
                path.unlink()
        shutil.copytree(copy, self.folder, dirs_exist_ok=True)
        shutil.rmtree(copy)


class CutWay:
    """A way to a server, on a loop and a thread of its own, that is cut after a request with a word in it."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._passage = way_to(port)
        self.way: Way = self._there(self._passage.__aenter__())

    def _there(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    @contextmanager
    def cut_at(self, word: bytes) -> Iterator[None]:
        self.way.cut_at(word, delivered=True)
        yield
        assert self.way.cuts == 1, f"nothing was sent with {word!r} in it"

    def close(self) -> None:
        self._there(self._passage.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ServerWorld(Resources):
    """Nodes reach the server by a way that can be cut."""

    word: bytes

    def __init__(self, port: int) -> None:
        self.cutting = CutWay(port)

    def lost_answer(self) -> Any:
        return self.cutting.cut_at(self.word)

    def close(self) -> None:
        self.cutting.close()


class PostgresWorld(ServerWorld):
    word = b"COMMIT\0"

    def __init__(self, server: PostgresServer, dedupe: Dedupe) -> None:
        server.query("DROP SCHEMA IF EXISTS fencepost CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public;")
        super().__init__(server.port)
        self.server = server
        self.subject = PostgresSubject(server, dedupe)
        self.url = server.url.replace(str(server.port), str(self.cutting.way.port))

    def node(self) -> Resource:
        return self.subject.node(url=self.url)

    def foreign(self) -> Resource:
        return self.subject.node(cluster_id="another", url=self.url)

    def effects(self) -> list[str]:
        return self.subject.world()

    def save(self) -> list[str]:
        tables = [
            f"{row['schemaname']}.{row['tablename']}"
            for row in self.server.query("SELECT * FROM pg_tables WHERE schemaname IN ('fencepost', 'public')")
        ]
        copies = "".join(f"CREATE TABLE copy.{name.replace('.', '_')} AS TABLE {name};" for name in tables)
        self.server.query(f"DROP SCHEMA IF EXISTS copy CASCADE; CREATE SCHEMA copy; {copies}")
        return tables

    def restore(self, copy: list[str]) -> None:
        rows = "".join(
            f"INSERT INTO {name} OVERRIDING SYSTEM VALUE TABLE copy.{name.replace('.', '_')};" for name in copy
        )
        # As `pg_restore --disable-triggers` does: an old copy knows nothing of rules about what came after it.
        quiet = "SET session_replication_role = replica;"
        self.server.query(f"{quiet} TRUNCATE {', '.join(copy)}; {rows} DROP SCHEMA copy CASCADE;")


class RedisWorld(ServerWorld):
    word = b"EVALSHA"

    def __init__(self, server: RedisServer) -> None:
        server.call("FLUSHALL")
        super().__init__(server.port)
        self.server = server
        self.subject = RedisSubject(server)
        self.url = server.url.replace(str(server.port), str(self.cutting.way.port))

    def node(self) -> Resource:
        return self.subject.node(url=self.url)

    def foreign(self) -> Resource:
        return self.subject.node(cluster_id="another", url=self.url)

    def effects(self) -> list[str]:
        return self.subject.world()

    def save(self) -> dict[str, bytes]:
        return {key: self.server.dump(key) for key in self.server.call("KEYS", "*")}

    def restore(self, copy: dict[str, bytes]) -> None:
        self.server.call("FLUSHALL")
        for key, data in copy.items():
            self.server.call("RESTORE", key, 0, data)


class S3World(ServerWorld):
    word = b'"values"'

    def __init__(self, server: S3Server) -> None:
        server.call("POST", "/moto-api/reset")
        server.call("PUT", "/bucket")
        super().__init__(server.port)
        self.server = server
        self.subject = S3Subject(server)
        self.endpoint = f"http://127.0.0.1:{self.cutting.way.port}"

    def node(self) -> Resource:
        return self.subject.node(endpoint=self.endpoint)

    def foreign(self) -> Resource:
        return self.subject.node(cluster_id="another", endpoint=self.endpoint)

    def effects(self) -> list[str]:
        return self.subject.world()

    def save(self) -> bytes:
        return self.server.call("GET", "/bucket/fencepost/ledger.json")[1]

    def restore(self, copy: bytes) -> None:
        self.server.call("PUT", "/bucket/fencepost/ledger.json", copy)


class HttpWorld(ServerWorld):
    word = b'"cents"'

    def __init__(self, api: HttpApi) -> None:
        for path in api.folder.iterdir():
            path.unlink()
        super().__init__(api.port)
        self.api = api

    def node(self) -> Resource:
        effect = HttpEffect("/credits", query="/operations/{operation_id}")
        url = f"http://127.0.0.1:{self.cutting.way.port}"
        return HttpResource("api", url, {"credit": effect}, cluster_id="cluster")

    def effects(self) -> list[str]:
        return self.api.rows("effects")


__all__ = ["FileWorld", "HttpWorld", "PostgresWorld", "RedisWorld", "S3World", "SqliteWorld", "run_aside"]
