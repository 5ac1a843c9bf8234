"""One run of a plan: a beginning, faults, healing, everything alive again within a bound, quiet load, a last look."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import NamedTuple

from ...raft.core.options import MILLISECOND, SECOND
from ...raft.ports import Guarantee
from ..invariants import all_properties, final_scan
from ..sim.jobs import Kind
from ..sim.load import Load, LoadSettings
from ..sim.streams import stream
from ..sim.violation import Violation
from .faults import KINDS
from .hard_states.past import begin
from .liveness import Liveness
from .plan import Plan
from .shrink import Failure
from .stage import Stage
from .surroundings import world_of
from .tally import Tally

QUIET_THINK_NS = 25 * SECOND
"""Between two things that a client wants, on average, once the faults are over."""


LOAD = LoadSettings(proposals=0.25, reads=0.2, consistencies=("linearizable", "linearizable", "lease", "stale"))


class Result(NamedTuple):
    """What came of a run."""

    seed: int
    nodes: int
    failure: Failure | None
    virtual_ns: int
    processor_s: float
    """Of one core, for the run alone: what else the machine does is none of its business."""
    events: int
    digest: str
    """Of everything that happened: two runs with one digest were the same run."""
    faults: Counter[str]
    hard_state: str
    zombie: bool
    membership_partition: bool
    histories: int
    operations: int
    alive_ns: int
    """From healing until everything was alive."""


class Life:
    """``run`` may be called once. ``story`` is then what happened last, event by event."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = world_of(plan)
        self.stage = Stage(self.world)
        think_ns = int(plan.settings["think_ms"]) * MILLISECOND
        wishes = bool(plan.settings.get("wishes", 0))
        self.load = Load(
            self.world,
            LOAD._replace(clients=plan.clients, think_ns=think_ns, timed=0.2 if wishes else 0.0, decides=wishes),
        )
        self.liveness = Liveness(self.world, self.stage, self.load)
        self.histories = 0
        self.operations = 0

    def run(self) -> Result:
        """Does not raise for what a run can find; only for a bug in the proof itself."""
        began = time.process_time()
        failure: Failure | None = None
        with self.world:
            try:
                self._live()
            except Exception as error:
                failure = failure_of(error, self.world.now_ns)
        return self.result(failure, time.process_time() - began)

    def _live(self) -> None:
        world, plan, stage = self.world, self.plan, self.stage
        if plan.hard_state:
            begin(world, plan.hard_state, stream(plan.seed, "hard state"))
        stage.properties = properties = all_properties(world)
        stage.tally = Tally(properties.ledger)
        properties.add(stage.tally)
        world.hooks.add(stage.looks)
        world.start_all()
        stage.supervise()
        self.load.start()
        for fault in plan.faults:
            world.later(fault.at_ns, self._do, fault.kind, fault.parameters)
        world.run_for(plan.safety_ns)
        stage.heal()
        self.liveness.come_alive()
        self.load.settings = self.load.settings._replace(think_ns=QUIET_THINK_NS)
        self.liveness.stay_alive(plan.quiet_ns)
        self._look_last()

    def _do(self, kind: str, parameters: dict[str, int | float | str]) -> None:
        """One fault of the plan, now."""
        stage = self.stage
        if stage.over:
            return
        stage.world.note("fault", kind, *(f"{name}={value}" for name, value in parameters.items()))
        if KINDS[kind].act(stage, parameters):
            stage.happened[kind] += 1

    def _look_last(self) -> None:
        """The final scan, which judges every history as well."""
        assert self.stage.properties is not None
        final_scan(self.world)
        jobs = self.stage.properties.jobs
        keys = {job.parameters.get("key") for job in jobs if job.kind is Kind.READ}
        fenced = [each for each in self.world.resources.values() if each.spec.guarantee is Guarantee.FENCED]
        self.histories = len(keys) + 1 + len(fenced)
        self.operations = len(jobs) + sum(len(resource.calls) for resource in fenced)

    def result(self, failure: Failure | None, processor_s: float) -> Result:
        world, plan, tally = self.world, self.plan, self.stage.tally
        return Result(
            plan.seed,
            plan.nodes,
            failure,
            world.now_ns,
            processor_s,
            world.agenda.last_order,
            world.trace.digest(),
            self.stage.happened + (tally.happened if tally else Counter()),
            plan.hard_state,
            bool(tally and tally.zombie),
            bool(tally and tally.membership_partition),
            self.histories,
            self.operations,
            self.liveness.alive_ns,
        )


def failure_of(error: BaseException, at_ns: int) -> Failure:
    """What an exception that ended a run says about it."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    named = next((each for each in causes if hasattr(each, "property_name")), None)
    if named is not None:
        about = str(named.property_name)
    elif isinstance(causes[-1], Violation):
        about = _without_particulars(str(causes[-1]))
    else:
        about = f"{type(causes[-1]).__name__}: {_without_particulars(str(causes[-1]))}"
    return Failure(about, at_ns, str(error))


def _without_particulars(text: str) -> str:
    """The last line, which says what was violated, without numbers and names of nodes."""
    last = text.strip().rsplit("\n", 1)[-1]
    return re.sub(r"\bn?\d[\d.:]*\b", "#", last.split(" ms: ", 1)[-1])[:200]


def run(plan: Plan) -> Result:
    """One run of a plan from its beginning."""
    return Life(plan).run()
