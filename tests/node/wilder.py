"""Lives in which the cluster itself changes too: snapshots, handovers, members that come and go, and reads."""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from typing import Any

from fencepost.raft.core.errors import FencepostError, StorageFull
from fencepost.raft.core.options import Options
from fencepost.raft.node.reads import Consistency
from fencepost.raft.ports import AnswerStatus

from .chaos import Chaos
from .world import OPTIONS, SimNode, World

OLD = ("n1", "n2", "n3")
NEW = ("n4", "n5")


def _options(seed: int) -> Options:
    chance = random.Random(seed)
    return dataclasses.replace(
        OPTIONS,
        snapshot_entries=chance.choice([8, 20, 60]),
        retained_entries=chance.choice([0, 3, 20]),
        chunk_bytes=chance.choice([300, 2000, 100_000]),
        promotion_lag_max=chance.choice([0, 5, 1000]),
    )


class Wilder(Chaos):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, options=_options(seed))
        self.asked: list[tuple[frozenset[str], SimNode]] = []
        self.read: dict[str, int] = dict.fromkeys(["answered", "refused", "elsewhere"], 0)
        self.restored = 0
        self.handed_over = 0
        self.wanted: dict[str, str] = {}
        """What is to become of members in the end: ``voter`` or ``gone``."""

    # -- faults -----------------------------------------------------------------------------------

    def fault(self) -> None:
        world, chance = self.world, self.chance
        self.read_somewhere()
        leaders = [node for node in world.up() if node.leads and not node.process.paused]
        if chance.random() < 0.6 or not leaders:
            super().fault()
            return
        leader = chance.choice(leaders)
        name = chance.choice(["hand over", "hand over", "full", "slow", "join", "remove", "cut off for long"])
        self.faults[name] += 1
        match name:
            case "hand over":
                target = chance.choice(["", *OLD])
                world.call(leader, "cluster.transfer_leader", target=target, timeout_s=chance.choice([0.1, 1.0, 5.0]))
            case "full":
                node = chance.choice(world.up())
                node.store.fails = StorageFull("no space left")
                self._later(lambda: setattr(node.store, "fails", None))
            case "slow":
                chance.choice(world.up()).runner.delay_s = chance.choice([0.001, 0.02, 0.2])
            case "join":
                self.join(leader, next((new for new in NEW if new not in world.nodes), ""))
            case "remove":
                if len(world.nodes) > len(OLD) and "gone" not in self.wanted.values():
                    self.remove(leader, chance.choice(OLD))
            case "cut off for long":
                node = chance.choice(world.up())
                world.isolate(node.name)
                world.loop.call_later(chance.uniform(2.0, 4.0), world.heal)

    def join(self, leader: SimNode, name: str) -> None:
        if name:
            self.wanted[name] = "voter"
            self.watch(self.world.join(name))
            self.world.call(leader, "member.add", node=name, address=f"{name}:7001", timeout_s=5.0)

    def remove(self, leader: SimNode, name: str) -> None:
        self.wanted[name] = "gone"
        self.world.call(leader, "member.remove", node=name, timeout_s=5.0)

    # -- reads ------------------------------------------------------------------------------------

    def read_somewhere(self) -> None:
        """Whatever had been answered as done when a read was asked for is seen by it, on any node."""
        known = frozenset(
            command.operation_id
            for command in self.commands
            if any(answer.status == AnswerStatus.DONE for answer in command.heard)
        )
        up = [node for node in self.world.up() if not node.process.paused and not node.loop.stopped]
        if not up:
            return
        node = self.chance.choice(up)

        def done(seen: set[str] | None, error: BaseException | None) -> None:
            if error is not None:
                assert isinstance(error, FencepostError)
                self.read["refused"] += 1
                return
            self.read["answered"] += 1
            self.read["elsewhere"] += not node.leads
            missing = sorted(known - (seen or set()))
            if missing:
                self.violations.append(f"{node.name} read a state without {missing} (S29, S30)")

        consistency = self.chance.choice([Consistency.LINEARIZABLE, Consistency.LEASE])
        node.process.call_soon(node.service.reads.read, lambda: set(node.machine.operations), done, consistency)

    # -- the end ----------------------------------------------------------------------------------

    def mend(self) -> None:
        super().mend()
        for node in self.world.up():
            node.store.fails = None
            node.runner.delay_s = 0.002
        for name, part in self.wanted.items():
            self.world.until(partial(self._became, name, part), within_s=60.0, what=f"{name} {part}")

    def _became(self, name: str, part: str) -> bool:
        """Whether a member is what it is to be; asked for anew until it is."""
        world = self.world
        leader = next((node for node in world.up() if node.leads), None)
        if leader is None:
            return False
        configuration = leader.raft.committed_configuration()
        if part == "voter" and name in configuration.voters:
            return True
        if part == "gone" and name in configuration.retired:
            world.crash(name)
            del world.nodes[name]
            return True
        if world.loop.now_ns % 1_000_000_000 < 1_000_000:
            asked: dict[str, Any] = {"node": name, "timeout_s": 0.9}
            if part == "gone":
                world.call(leader, "member.remove", **asked)
            elif name in configuration.learners:
                world.call(leader, "member.promote", **asked)
            else:
                world.call(leader, "member.add", address=f"{name}:7001", **asked)
        return False

    def check(self) -> None:
        super().check()
        world: World = self.world
        configurations = {node.raft.committed_configuration() for node in world.up()}
        assert len(configurations) == 1, configurations
        for node in world.up():
            assert (len(node.loop.reads), len(node.loop.transfers)) == (0, 0)
            assert node.effects._drains == 0
            assert node.raft.log.previous_index <= (node.raft.snapshot.last_index if node.raft.snapshot else 0)
        self.restored = len(world.logged("state restored"))
        self.handed_over = sum(
            "term" in reply for reply in world.connection.replies.values() if isinstance(reply, dict)
        )
