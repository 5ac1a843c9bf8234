"""An HTTP API that recognises an Idempotency-Key, and keeps a log of every call: a program of its own.

    python -m fencepost.jepsen.cluster.keyed_api PORT LOG

POST /EFFECT?lane=LANE&place=INDEX applies the body under its key, once; a repeat is given the first answer. It looks at
no token: it writes down who came with which. A line of the log is written before its call is answered, and what is in
the log is what the API knows after a restart. ``{"pause_ms": n}`` in the body puts off the decision.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs, unquote, urlsplit

REASONS = {200: "OK", 201: "Created", 404: "Not Found", 405: "Method Not Allowed"}


class KeyedApi:
    """What it has done, by key, and its log."""

    def __init__(self, log: IO[str], rows: list[dict[str, Any]]) -> None:
        self._log = log
        self._calls = len(rows)
        self._first: dict[str, dict[str, Any]] = {}
        for row in rows:
            self._first.setdefault(row["key"], row)

    async def post(self, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        pause_ms = json.loads(body).get("pause_ms", 0)
        if pause_ms:
            await asyncio.sleep(pause_ms / 1000)
        # From here on nothing is awaited: looking for the key, the effect and the line of the log are one step.
        key = json.loads(headers["idempotency-key"])
        parts = urlsplit(target)
        names = parse_qs(parts.query, keep_blank_values=True)
        first = self._first.get(key)
        self._calls += 1
        row = {
            "call": self._calls,
            "time_ns": time.time_ns(),
            "key": key,
            "effect": unquote(parts.path[1:]),
            "lane": names["lane"][0],
            "place": int(names["place"][0]),
            "payload": body.decode(),
            "token": headers["x-fencepost-token"],
            "holder": headers["x-fencepost-holder"],
            "replayed": first is not None,
            "result": {"place": self._calls} if first is None else first["result"],
        }
        self._first.setdefault(key, row)
        self._log.write(json.dumps(row) + "\n")
        self._log.flush()
        return 201, json.dumps(row["result"]).encode()

    def get(self, target: str) -> tuple[int, bytes]:
        """Whether an operation was applied."""
        first = self._first.get(unquote(urlsplit(target).path.rpartition("/")[2]))
        return (404, b"{}") if first is None else (200, json.dumps(first["result"]).encode())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a request after the other."""
        try:
            while head := await _head(reader):
                (method, target), headers = head
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if method == "POST":
                    status, answer = await self.post(target, headers, body)
                else:
                    status, answer = self.get(target) if method == "GET" else (405, b"{}")
                writer.write(
                    f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(answer)}\r\n\r\n".encode()
                    + answer
                )
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # Whoever asked is gone. What was decided stands.
        finally:
            writer.close()


async def _head(reader: asyncio.StreamReader) -> tuple[tuple[str, str], dict[str, str]] | None:
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = lines[0].split(" ")
    fields = (line.partition(":") for line in lines[1:] if line)
    return (method, target), {name.strip().lower(): value.strip() for name, _, value in fields}


def read_calls(path: Path) -> list[dict[str, Any]]:
    """The log of an API: every call that it has answered. A line that a kill cut off was not."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def payload_digest(payload: bytes) -> bytes:
    """As the simulation notes what has arrived at a resource: 8 bytes."""
    return hashlib.blake2b(payload, digest_size=8).digest()


async def main(port: int, path: Path) -> None:
    rows = read_calls(path)
    whole = "".join(json.dumps(row) + "\n" for row in rows)
    with path.open("a", encoding="utf-8") as log:
        log.truncate(len(whole.encode()))  # Off with the line that a kill has cut.
        server = await asyncio.start_server(KeyedApi(log, rows).serve, "127.0.0.1", port)
        await server.serve_forever()


if __name__ == "__main__":
    from ...cli.local_cluster import end_with_parent

    end_with_parent(int(sys.argv[3]))
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
