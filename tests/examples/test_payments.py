"""examples/payments: what a client hears, and what is at the provider. The page of the examples runs its `demo.py`."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import eventually

from .programs import copied, module, running


@pytest.mark.endure
@pytest.mark.servers
def test_what_a_client_hears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = copied("payments", tmp_path)
    monkeypatch.syspath_prepend(str(place))
    demo: Any = module(place / "demo.py")
    with running(place) as processes:
        for name in demo.WEB:
            processes.start(name, "service.py", name)
        leader = demo.leader()
        for address in demo.WEB.values():
            eventually(partial(up, demo, address), within_s=60, what=address)
            payment = {"account": "alice", "cents": 5}
            assert demo.call(address, "/payments", payment) == (400, {"error": "Idempotency-Key is missing"})
            assert demo.call(address, "/payments", {"account": "alice"}, "x")[0] == 400
            status, answer = demo.call(address, "/payments", {"account": "alice", "cents": "5"}, "x")
            assert (status, "does not fit Payment" in answer["error"]) == (400, True)
            status, answer = demo.call(address, "/payments", {"account": "alice", "cents": 0}, "free")
            assert (status, "0 cents cannot be paid" in answer["error"]) == (422, True)
            status, answer = demo.call(address, "/payments", payment, "paid")
            assert (status, answer) == (201, {"payment": "paid", "number": 1, "attempt": 1})

        # Told to stop, the leader hands over: the others are not without one for an election timeout.
        process = processes.by_name.pop(leader)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)
        began = time.monotonic()
        assert demo.leader() != leader
        assert time.monotonic() - began < 20
        assert demo.pay(1)["payment"] == "payment-1"


def up(demo: Any, address: str) -> bool:
    try:
        return bool(demo.call(address, "/status")[0] == 200)
    except OSError:
        return False
