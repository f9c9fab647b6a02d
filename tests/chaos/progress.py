"""The work done under a fault every two seconds, half of which kill a worker, while all cores are busy."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tests.chaos import plan as faults
from tests.chaos.drawn.load import Load
from tests.chaos.drawn.scenario import Node, Step, draw_scenarios
from tests.chaos.drawn.source import set_pace
from tests.chaos.figures import Figures, figures, orphans
from tests.chaos.fleet import node_processes
from tests.chaos.plan import SCHEDULER_INTERVAL_S, SETTINGS, Plan
from tests.support.cluster import Cluster, Worker
from tests.support.invariants import kill, lives
from tests.support.waiting import until
from wtb.hosting.servers.standby import WAITS

EVERY_S = 2.0
WORKERS, SLOTS = 2, 2
PACE_S = 0.2
POLL_S = 0.02
CLAIMED = "worker killed, cores busy: until its replacement has claimed"
SPIN = "while True: pass"
PATIENCE_S = 600.0


@dataclass
class _Kill:
    """The death of a worker. runners: those of that moment."""

    at: float
    runners: set[str]


class ProgressStorm:
    """Strikes workers that are started as users do. spares: each has another one beside it that stands by."""

    def __init__(self, cluster: Cluster, plan: Plan, say: Callable[[str], None], *, spares: bool) -> None:
        self._cluster = cluster
        self._plan = plan
        self._say = say
        self._options = ("--standby",) if spares else ()
        self._dice = random.Random(plan.seed)
        self._members: list[Worker] = []
        self._names = [f"p{number}" for number in range(WORKERS) for _ in range(1 + spares)]
        self._kills: list[_Kill] = []
        self._times: list[float] = []

    def run(self) -> Figures:
        """The whole of it: so many minutes of faults, then the sweeps end in peace."""
        cluster, project = self._cluster, self._cluster.project
        cluster.env |= SETTINGS
        set_pace(project, PACE_S)
        base = draw_scenarios(self._plan.seed, 1)[0]
        nodes = (Node("n01"), Node("n02", variants=2), Node("n03", variants=2), Node("n04", variants=2))
        combinations = tuple({"n02": b, "n03": c, "n04": d} for b in (0, 1) for c in (0, 1) for d in (0, 1))
        scenario = replace(
            base, blocks=tuple(map(Step, nodes)), combinations=combinations, repeats=1, cases=self._plan.cells // 8
        )
        load = Load(lambda: project, cluster.wtb, [replace(scenario, durability="20ms", share=True)], self._say)
        with ExitStack() as leaving:
            for _ in range(os.cpu_count() or 1):
                spinning = subprocess.Popen([sys.executable, "-c", SPIN])
                leaving.callback(spinning.wait)
                leaving.callback(spinning.kill)
            cluster.start_scheduler(SCHEDULER_INTERVAL_S)
            self._members = [self._start(name) for name in self._names]
            load.look()
            self._until(lambda: bool(load.attempt_starts()), "the first node run")
            began, before = time.monotonic(), len(load.attempt_starts())
            count = self._strike_until(began + 60 * self._plan.minutes)
            seconds, during = time.monotonic() - began, len(load.attempt_starts()) - before
        self._say(f"{during} node runs began in {seconds:.0f} s: {60 * during / seconds:.1f} a minute")
        set_pace(project, 0.0)
        self._until(load.is_completed, "the sweep to end")
        self._until(lambda: all(member.ready or WAITS in member.log for member in self._members), "signals to be heard")
        cluster.stop()
        storm = figures(
            "a fault every 2 s" + (", with spares" if self._options else ""),
            project,
            load.scenarios,
            load.verdict(),
            faults=count,
            seconds=seconds,
            times={CLAIMED + (", with spares" if self._options else ""): self._times},
        )
        return replace(storm, node_runs=during).leaving(orphans(project))

    def _start(self, name: str) -> Worker:
        return self._cluster.start_worker(concurrency=SLOTS, name=name, options=self._options, ready=False, own=True)

    def _strike_until(self, ends: float) -> dict[str, int]:
        count = {faults.WORKER: 0, faults.NODE: 0}
        due = time.monotonic() + EVERY_S

        def strike() -> None:
            nonlocal due
            self._look()
            if time.monotonic() >= due:
                due += EVERY_S
                which = faults.WORKER if count[faults.WORKER] <= count[faults.NODE] else faults.NODE
                count[which] += self._kill_a_worker() if which == faults.WORKER else self._kill_a_node()

        patience = ends - time.monotonic() + PATIENCE_S
        until(lambda: time.monotonic() >= ends, "the storm to end", patience, pause=POLL_S, meanwhile=strike)
        return count

    def _runners(self) -> dict[str, int]:
        query = "SELECT id, pid FROM runners WHERE worker IS NOT NULL AND ended_at IS NULL"
        return {id: pid for id, pid in self._cluster.query(query) if lives(pid)}

    def _kill_a_worker(self) -> int:
        runners = self._runners()
        if not runners:
            return 0
        kill(self._dice.choice(sorted(runners.values())))
        self._kills.append(_Kill(time.monotonic(), set(runners)))
        return 1

    def _kill_a_node(self) -> int:
        nodes = node_processes(self._cluster)[1]
        if nodes:
            kill(self._dice.choice(nodes))
        return int(bool(nodes))

    def _look(self) -> None:
        """Start what has died again, and see who claims after a death."""
        for place, member in enumerate(self._members):
            if not member.lives:
                self._members[place] = self._start(self._names[place])
        if self._kills:
            query = "SELECT DISTINCT owner_id FROM executions WHERE status = 'running'"
            owners = {owner for (owner,) in self._cluster.query(query)}
            now = time.monotonic()
            claimed = [death for death in self._kills if owners - death.runners]
            self._times += [now - death.at for death in claimed]
            self._kills = [death for death in self._kills if death not in claimed]

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, what, PATIENCE_S, pause=POLL_S, meanwhile=self._look, report=self._cluster.report)
