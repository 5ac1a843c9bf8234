"""An HTTP API that keeps Idempotency-Keys in files, and misbehaves as the request says.

    python http_api_program.py PORT FOLDER

POST /credits, with {"cents": n} and optionally {"do": ...}:
    die-before, die-after   end the process before the effect, or between the effect and the answer
    hold                    apply once there is a file FOLDER/go; the same key is answered 409 until then
    stored-500, lost-500    answer 500 without the effect, or after it, and keep that answer under the key
    drip                    answer without end
    a number                answer with this status, without the effect, and keep nothing
GET /operations/ID says whether an operation was applied. POST /forget forgets all keys.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
LOCK = threading.Lock()
UNDER_WAY: set[str] = set()


def append(name: str, row: Any) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def rows(name: str) -> list[Any]:
    path = FOLDER / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        append("requests", [self.path, dict(self.headers)])
        operation = self.path.removeprefix("/operations/")
        said = FOLDER / "says"
        if said.exists():
            status, body = json.loads(said.read_text())
            return self.answer(status, body)
        if operation in rows("effects"):
            return self.answer(200, {"applied": True})
        return self.answer(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        append("requests", [self.path, dict(self.headers)])
        if self.path == "/forget":
            (FOLDER / "keys").unlink(missing_ok=True)
            return self.answer(200, {})
        key = self.headers.get("Idempotency-Key", "")
        text = body.decode()
        with LOCK:
            for known, request, status, answer in rows("keys"):
                if known == key:
                    if request != text:
                        return self.answer(422, {"error": "the key was used for another request"})
                    return self.answer(status, answer, {"Idempotent-Replayed": "true"})
            if key in UNDER_WAY:
                return self.answer(409, {"error": "under way"}, {"Retry-After": "2"})
            UNDER_WAY.add(key)
        try:
            return self.act(key, text)
        finally:
            UNDER_WAY.discard(key)

    def act(self, key: str, text: str) -> None:
        order = json.loads(text)
        do = order.get("do", "")
        if isinstance(do, int):
            return self.answer(do, {"error": "as told"}, order.get("headers", {}))
        if order["cents"] < 0:
            return self.answer(400, {"error": "cents must not be negative"})
        if do == "die-before":
            os._exit(1)
        if do == "hold":
            (FOLDER / "held").touch()
            while not (FOLDER / "go").exists():
                threading.Event().wait(0.01)
        with LOCK:
            answer: dict[str, Any] = {}
            status = 500 if str(do).endswith("500") else 201
            if do != "stored-500":
                append("effects", json.loads(key) if key.startswith('"') else key)
                answer = {"place": len(rows("effects"))}
            append("keys", [key, text, status, answer])
        if do == "die-after":
            os._exit(1)
        if do == "drip":
            return self.drip()
        # The first answer of a stored one is not marked: whether it will be kept is not known then.
        return self.answer(status, answer)

    def drip(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"x" * 4096)
        except OSError:
            self.close_connection = True

    def answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Api)
    server.daemon_threads = True
    server.serve_forever()
