"""Start the three, pay, kill the leader in the middle, and count at the provider:  python demo.py"""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from service import PROVIDER, WEB

PAYMENTS = 60


def call(address: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
    request = urllib.request.Request(f"http://{address}{path}", headers={"Idempotency-Key": key})
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, data, timeout=15) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def pay(number: int) -> dict[str, Any]:
    """As a client does it: the same key, on one node after the other, until one says what became of it."""
    body = {"account": f"account-{number % 5}", "cents": 100 + number}
    for _ in range(200):
        try:
            status, answer = call(random.choice(list(WEB.values())), "/payments", body, f"payment-{number}")
        except OSError:
            continue  # Dead, or died in the middle: then nobody knows whether it was paid.
        if status == 201:
            return dict(answer)
    raise SystemExit(f"payment-{number} got no answer")


def leader(within_s: float = 60) -> str:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for name, address in WEB.items():
            try:
                status, answer = call(address, "/status")
            except OSError:
                continue
            if status == 200 and answer["role"] == "leader":
                return name
        time.sleep(0.05)
    raise SystemExit("nobody leads")


def start(name: str) -> subprocess.Popen[bytes]:
    with Path(f"{name}.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "service.py", name], stdout=log, stderr=log)


def main() -> None:
    processes = {name: start(name) for name in WEB}
    try:
        first = leader()
        killed = threading.Event()
        answers: list[dict[str, Any]] = []

        def pay_and_kill(number: int) -> None:
            answers.append(pay(number))
            if len(answers) >= PAYMENTS // 3 and not killed.is_set():
                killed.set()
                processes[first].kill()
                print("killed the leader while payments are under way")

        with ThreadPoolExecutor(8) as clients:
            list(clients.map(pay_and_kill, range(PAYMENTS)))
        assert killed.is_set()
        assert leader() != first
        print(f"{len(answers)} payments answered, another node leads")

        with closing(sqlite3.connect(PROVIDER)) as provider:
            captures = provider.execute("SELECT key, cents FROM captures").fetchall()
        assert len(captures) == PAYMENTS, captures
        assert dict(captures) == {f"payment-{number}": 100 + number for number in range(PAYMENTS)}
        print(f"{len(captures)} captures at the provider: each payment once, none missing")

        assert pay(7)["number"] == next(each["number"] for each in answers if each["payment"] == "payment-7")
        status, answer = call(WEB[leader()], "/payments", {"account": "mallory", "cents": 1}, "payment-7")
        print("the same key for another payment:", status, answer["error"].partition(",")[0])
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait(20)


if __name__ == "__main__":
    main()
