"""A random life of a whole cluster under one seed, and what must hold at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from fencepost.raft.core.options import Options
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.handlers import Permanent, Retryable
from fencepost.raft.effects.policy import RetryPolicy
from fencepost.raft.outbox.operation import TERMINAL, OperationState
from fencepost.raft.ports import Answer, AnswerStatus, Attempt, Guarantee, Wait

from .world import OPTIONS, FakeConnection, ResourceSpec, SimNode, World

COMMANDS = 60
ROUNDS = 40
POLICY = RetryPolicy(max_attempts=5, backoff_ns=20_000_000, backoff_max_ns=200_000_000, lost_max=1000)


class Command:
    """What one client wants, and what it has heard."""

    def __init__(self, operation_id: str, lane: str, resource: str) -> None:
        self.operation_id = operation_id
        self.lane = lane
        self.resource = resource
        self.connection = FakeConnection()
        self.request = 0
        self.node: SimNode | None = None
        self.since_ns = 0
        self.final: Answer | None = None
        self.heard: list[Answer] = []
        self.naked = resource == "naked"


class Chaos:
    def __init__(self, seed: int, *, nodes: int = 3, options: Options = OPTIONS) -> None:
        self.failures: dict[str, int] = {}
        """By operation id: how many times its effect will still fail, or -1: for good."""
        ledger = ResourceSpec("ledger", {"credit": self._credit}, batch_limit=7, policy=POLICY)
        wide = ResourceSpec("wide", {"credit": self._credit}, batch_limit=2, concurrency=3, policy=POLICY)
        keyed = ResourceSpec("keyed", {"credit": self._credit}, guarantee=Guarantee.KEYED, policy=POLICY)
        naked = ResourceSpec("naked", {"credit": self._credit}, guarantee=Guarantee.NAKED, batch_limit=3, policy=POLICY)
        voters = tuple(f"n{n}" for n in range(1, nodes + 1))
        self.world = World(ledger, wide, keyed, naked, voters=voters, seed=seed, options=options)
        self.chance = self.world.random
        self.commands: list[Command] = []
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []

    def _credit(self, attempt: Attempt) -> bytes:
        left = self.failures.get(attempt.operation_id, 0)
        if left < 0:
            raise Permanent("400")
        if left:
            self.failures[attempt.operation_id] -= 1
            raise Retryable("503")
        return b'{"rows":1}'

    # -- clients ----------------------------------------------------------------------------------

    def _send(self, command: Command) -> None:
        if not self.world.up():
            return
        node = self.chance.choice(self.world.up())
        leaders = [each for each in self.world.up() if each.leads]
        if leaders and self.chance.random() < 0.8:
            node = self.chance.choice(leaders)
        command.node = node
        command.since_ns = self.world.loop.now_ns
        (command.request,) = self.world.submit(
            node,
            command.operation_id,
            lane=command.lane,
            resource=command.resource,
            # A naked command may go in doubt and never end: nobody waits for that.
            wait=Wait.COMMITTED if command.naked else self.chance.choice([Wait.DONE, Wait.DONE, Wait.COMMITTED]),
            connection=command.connection,
        )

    def clients(self) -> None:
        """Whoever has no final answer asks again, with the same id, after an answer or a while."""
        for command in self.commands:
            answers = command.connection.answers.pop(command.request, [])
            assert len(answers) <= 1, (command.operation_id, answers)
            if answers:
                answer = answers[0]
                command.heard.append(answer)
                assert answer.status in (AnswerStatus.DONE, AnswerStatus.RETRY, AnswerStatus.UNKNOWN), answer
                if answer.status == AnswerStatus.DONE and (answer.state in TERMINAL or command.naked):
                    if command.final is not None and not command.naked:
                        assert (command.final.index, command.final.state) == (answer.index, answer.state)
                    command.final = answer
            gone = command.node is None or command.node.process.dead
            waited = self.world.loop.now_ns - command.since_ns > 3_000_000_000
            if command.final is None and (answers or gone or waited):
                if waited and command.node is not None and not command.node.process.dead:
                    command.node.process.call_soon(command.node.service.closed, command.connection)
                self._send(command)

    def submit_some(self) -> None:
        for _ in range(self.chance.randint(0, 4)):
            if len(self.commands) == COMMANDS:
                return
            number = len(self.commands)
            resource = self.chance.choice(["ledger", "ledger", "wide", "wide", "keyed", "naked"])
            lane = self.chance.choice(["", "", f"{resource}-a", f"{resource}-b"])
            command = Command(f"c{number}", lane, resource)
            self.failures[command.operation_id] = self.chance.choice([0, 0, 0, 0, 1, 2, -1, 99])
            self.commands.append(command)
            self._send(command)

    # -- faults -----------------------------------------------------------------------------------

    def fault(self) -> None:
        """One fault, which ends after a while."""
        world, chance = self.world, self.chance
        up = world.up()
        if not up:
            return
        node = chance.choice(up)
        leaders = [each for each in up if each.leads and not each.process.paused]
        if leaders and chance.random() < 0.7:
            node = chance.choice(leaders)
        name = chance.choice(
            ["none", "crash", "pause", "cut", "hold", "hold", "freeze", "freeze", "freeze", "disk", "down",
             "step-down", "loss", "clock"]
        )  # fmt: skip
        self.faults[name] += 1
        match name:
            case "crash":
                world.crash(node.name, keep_some=True)
                self._later(lambda: self._start(node.name) if world.nodes.get(node.name) is node else None)
            case "pause":
                node.process.pause()
                self._later(node.process.resume)
            case "cut":
                world.isolate(node.name)
                self._later(world.heal)
            case "hold":
                self._hold(node, chance.choice(["hold_before", "hold_after"]))
                self._later(self._release)
            case "freeze":
                # Stopped just before sending; when it wakes it sends what it was about to (S47).
                self._hold(node, "hold_before")
                world.loop.call_later(chance.choice([0.01, 0.05, 0.1]), self._freeze, node)
            case "disk":
                node.log_store.stick()
                self._later(node.log_store.unstick)
            case "down":
                spec = chance.choice(world.specs)
                spec.store.down = True
                self._later(lambda: setattr(spec.store, "down", False))
            case "step-down":
                node.loop.step_down("chaos")
            case "clock":
                node.clock.skew_ns = chance.choice([-3600, 0, 1, 3600]) * 1_000_000_000
            case "loss":
                world.loss = 0.05
                self._later(lambda: setattr(world, "loss", 0.0))

    def _later(self, end: Callable[[], object]) -> None:
        self.world.loop.call_later(self.chance.uniform(0.1, 1.5), end)

    def _hold(self, node: SimNode, where: str) -> None:
        for resource in node.resources.values():
            setattr(resource, where, True)

    def _freeze(self, node: SimNode) -> None:
        if not node.process.dead and any(resource.held for resource in node.resources.values()):
            node.process.pause()
            self._later(node.process.resume)
        for resource in node.resources.values():
            resource.hold_before = False
            resource.release()

    def _start(self, name: str) -> None:
        self.watch(self.world.start(name))

    def _release(self) -> None:
        for node in self.world.up():
            for resource in node.resources.values():
                resource.hold_before = resource.hold_after = resource.hang_claims = False
                resource.release()

    def mend(self) -> None:
        world = self.world
        world.heal()
        world.loss = 0.0
        for spec in world.specs:
            spec.store.down = False
        for node in world.up():
            node.process.resume()
            if node.disk.stuck:
                node.log_store.unstick()
        self._release()
        for name, node in list(world.nodes.items()):
            if node.process.dead:
                self._start(name)

    # -- what must hold whenever a batch is handed over --------------------------------------------

    def watch(self, node: SimNode) -> None:
        node.log_store.delay_s = self.chance.choice([0.0005, 0.001, 0.001, 0.02])
        for spec in self.world.specs:
            gated = node.resources[spec.name]
            gated.watch = lambda token, attempts, spec=spec: self._handed_over(node, spec, token, attempts)  # type: ignore[misc]

    def _handed_over(self, node: SimNode, spec: ResourceSpec, token: FencingToken, attempts: Sequence[Attempt]) -> None:
        try:
            self._check_batch(node, spec, token, attempts)
        except AssertionError as error:
            self.violations.append(f"{node.name} {spec.name} {token}: {error}")

    def _check_batch(self, node: SimNode, spec: ResourceSpec, token: FencingToken, attempts: Sequence[Attempt]) -> None:
        gated = node.resources[spec.name]
        assert node.raft.log.term_at(node.applier.last_applied) >= token.term, "before the barrier (S54)"
        assert gated.running <= gated.concurrency, "more at once than allowed (S53)"
        if spec.guarantee is Guarantee.FENCED:
            assert spec.store.fences[spec.name].token >= token, "without a claim (S54)"
        accepted = {each.operation_id for each in spec.store.operations}
        before: set[str] = set()
        for attempt in attempts:
            operation = node.machine.operations[attempt.operation_id]
            if operation.state is OperationState.RETRY_WAIT and node.leads:
                assert operation.next_try_ns <= node.loop.cluster_time_ns(), "before its time (S53)"
            for other in node.machine.operations.values():
                if not attempt.lane or other.lane != attempt.lane or other.index >= attempt.index:
                    continue
                assert other.state is not OperationState.IN_DOUBT, "past a command in doubt (S52)"
                ended = other.state in TERMINAL or other.operation_id in accepted
                assert ended or other.operation_id in before, f"{attempt.operation_id} past {other.operation_id} (S52)"
            before.add(attempt.operation_id)

    # -- the life ---------------------------------------------------------------------------------

    def run(self) -> None:
        world = self.world
        with world:
            for node in world.up():
                self.watch(node)
            for _ in range(ROUNDS):
                self.submit_some()
                self.fault()
                for _ in range(self.chance.randint(1, 4)):
                    world.advance(self.chance.choice([0.001, 0.003, 0.01, 0.05, 0.2, 0.5]))
                    self.clients()
            self.mend()

            def all_heard() -> bool:
                self.clients()
                return all(command.final is not None for command in self.commands)

            for _ in range(600):
                world.advance(0.1)
                self._resolve()
                if all_heard():
                    break
            assert all_heard(), [command.operation_id for command in self.commands if command.final is None]
            world.until(lambda: all(map(self._rests, world.up())), within_s=30.0, what="rest")
            world.settle_log()
            self.check()

    def _resolve(self) -> None:
        """An operator looks at what is in doubt at the keyed resource, now that nothing is on its way any more: its
        last attempt was refused, and one before had no answer."""
        leaders = [node for node in self.world.up() if node.leads]
        for node in leaders:
            for operation in list(node.machine.pending.get("keyed", {}).values()):
                if operation.state is OperationState.IN_DOUBT:
                    done = ("keyed", operation.operation_id) in self.world.specs[2].store.first
                    word = {"as": "done" if done else "failed"}
                    self.world.call(node, "command.resolve", id=operation.operation_id, note="looked", **word)

    @staticmethod
    def _rests(node: SimNode) -> bool:
        """Everything has ended, but for naked commands in doubt and what stands behind them in a lane."""
        doubtful = {"": False}
        for operation in node.machine.operations.values():
            if operation.state is OperationState.IN_DOUBT:
                assert operation.resource == "naked"
                doubtful[operation.lane] = bool(operation.lane)
            elif operation.state not in TERMINAL and not doubtful.get(operation.lane):
                return False
        return True

    def check(self) -> None:
        world = self.world
        assert not self.violations, self.violations
        world.check_equal()
        for spec in world.specs[:2]:
            world.check_store(spec)
        for spec in world.specs[2:]:
            # No fence there; yet no effect twice, and lanes in order among those that took place first.
            assert len({each.operation_id for each in spec.store.operations}) == len(spec.store.operations)
        accepted = Counter(each.operation_id for spec in world.specs for each in spec.store.operations)
        machine = world.up()[0].machine
        guarantees = {spec.name: spec.guarantee for spec in world.specs}
        for command in self.commands:
            operation = machine.operations[command.operation_id]
            fails = self.failures[command.operation_id]
            name = command.operation_id
            if command.naked:
                # At most once, possibly never: in doubt it may be either.
                wanted = {OperationState.SUCCEEDED: {1}, OperationState.IN_DOUBT: {0, 1}}.get(operation.state, {0})
                assert accepted[name] in wanted, (name, operation.state)
                continue
            assert command.final is not None
            assert command.final.state == operation.state.value, name
            # Executed exactly once if it says so, and never if it failed for good or died trying.
            if operation.state is OperationState.SUCCEEDED:
                assert accepted[name] == 1, name
                assert 0 <= fails < 99, name
            else:
                assert accepted[name] == 0, name
                assert fails != 0 or operation.state is OperationState.DEAD, name
            if fails == -1:
                # Where only keys are known, a refusal does not tell of an earlier attempt without an answer.
                # Then it was in doubt, and an operator has looked.
                doubted = any(row.state == OperationState.IN_DOUBT for row in operation.history)
                end = OperationState.DEAD if doubted else OperationState.FAILED
                assert operation.state is end, name
                assert not doubted or guarantees[operation.resource] is not Guarantee.FENCED, name
            assert operation.failures <= POLICY.max_attempts, name
        for node in world.up():
            assert not node.loop.failed.done(), node.loop.failed.result()
            assert len(node.loop.waiters) == 0
            assert not node.service._answers
            for name, status in node.effects.status().items():
                assert status["in_flight"] == 0
                assert name == "naked" or status["pending"] == 0
        # A new leader has nothing to do and says nothing else; unless it is the one that knows of a naked
        # effect which was done after all, and of a lane that stands behind it.
        executed = sum(accepted.values())
        late = any(len(node.effects._late) for node in world.up())
        world.active_leader().loop.step_down("the end")
        world.advance(2.0)
        world.active_leader()
        assert late or sum(len(spec.store.operations) for spec in world.specs) == executed
