"""A three-node etcd as the peer, driven by h2load: both from Debian (etcd-server, nghttp2-client)."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fencepost.cli.local_cluster import free_peer_addresses

KEY_BYTES = 16
PUT_PATH = "/etcdserverpb.KV/Put"
START_TIMEOUT_S = 30.0
NEEDED = {"etcd": "apt-get install etcd-server", "h2load": "apt-get install nghttp2-client"}


class Figures(NamedTuple):
    """One measurement: operations per second and latencies in milliseconds."""

    rate: float
    p50_ms: float
    p99_ms: float


def missing() -> list[str]:
    """What has to be installed before etcd can be measured: one command a line."""
    return [command for program, command in NEEDED.items() if shutil.which(program) is None]


def put_request(value_bytes: int) -> bytes:
    """One framed gRPC message: ``PutRequest{key, value}`` behind a flag byte and a length."""

    def field(number: int, data: bytes) -> bytes:
        length, encoded = len(data), b""
        while length > 127:
            encoded += bytes([length & 127 | 128])
            length >>= 7
        return bytes([number << 3 | 2]) + encoded + bytes([length]) + data

    message = field(1, b"k" * KEY_BYTES) + field(2, b"v" * value_bytes)
    return b"\0" + struct.pack(">I", len(message)) + message


class Etcd:
    """A running cluster; ``leader`` is the client address of its leader."""

    def __init__(self, directory: Path, leader: str, body: Path) -> None:
        self._directory = directory
        self.leader = leader
        self._body = body

    def put(self, submitters: int, requests: int, *, connections: int = 1) -> Figures:
        """``requests`` puts with ``submitters`` outstanding, over ``connections`` connections to the leader."""
        log = self._directory / "h2load.log"
        log.unlink(missing_ok=True)
        command = [
            "h2load", "-n", str(requests), "-c", str(connections), "-m", str(max(submitters // connections, 1)),
            "-d", str(self._body), "-H", "content-type: application/grpc", "-H", "te: trailers",
            "--log-file", str(log), f"http://{self.leader}{PUT_PATH}",
        ]  # fmt: skip
        output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        if f"{requests} succeeded" not in output:
            raise RuntimeError(f"h2load did not succeed in every request:\n{output}")
        finished = next(line for line in output.splitlines() if line.startswith("finished in"))
        rate = float(finished.split(",")[1].split()[0])
        times_us = sorted(int(line.split("\t")[2]) for line in log.read_text().splitlines())
        return Figures(rate, _quantile(times_us, 0.5) / 1e3, _quantile(times_us, 0.99) / 1e3)


def _quantile(ordered: list[int], share: float) -> float:
    return float(ordered[min(int(len(ordered) * share), len(ordered) - 1)])


@contextmanager
def running(directory: Path, value_bytes: int) -> Iterator[Etcd]:
    """Start three etcd processes under ``directory``, wait for a leader, end them again."""
    directory.mkdir(parents=True)
    addresses = free_peer_addresses(["a", "b", "c"])
    clients = {name: f"{host}:{int(port) + 100}" for name, (host, port) in _split(addresses).items()}
    initial = ",".join(f"{name}=http://{address}" for name, address in addresses.items())
    processes = []
    try:
        for name, peer in addresses.items():
            command = [
                "etcd", "--name", name, "--data-dir", str(directory / name),
                "--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}",
                "--listen-client-urls", f"http://{clients[name]}", "--advertise-client-urls", f"http://{clients[name]}",
                "--initial-cluster", initial, "--initial-cluster-state", "new", "--log-level", "error",
            ]  # fmt: skip
            log = (directory / f"{name}.log").open("wb")
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
            log.close()
        body = directory / "put.bin"
        body.write_bytes(put_request(value_bytes))
        yield Etcd(directory, _find_leader(list(clients.values())), body)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=30)


def _split(addresses: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {name: (address.rpartition(":")[0], address.rpartition(":")[2]) for name, address in addresses.items()}


def _find_leader(clients: list[str]) -> str:
    """Ask each node over the JSON gateway whether it is the leader it names."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        for client in clients:
            request = urllib.request.Request(f"http://{client}/v3/maintenance/status", data=b"{}", method="POST")
            try:
                with urllib.request.urlopen(request, timeout=2) as answer:
                    status = json.load(answer)
            except (OSError, ValueError):
                continue
            if status.get("leader", "0") == status["header"]["member_id"]:
                return client
        time.sleep(0.1)
    raise RuntimeError(f"etcd had no leader within {START_TIMEOUT_S:g} s")
