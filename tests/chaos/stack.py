"""A storm over the stack of `wtb up`: its parts and its supervisor are killed while drawn sweeps run on it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.chaos import plan as faults
from tests.chaos.drawn.load import Load
from tests.chaos.drawn.scenario import SIDE_QUEUE, draw_scenarios
from tests.chaos.drawn.source import set_pace
from tests.chaos.figures import Figures, figures
from tests.chaos.plan import SETTINGS, Plan
from tests.chaos.recovery import ACCEPTED, Recovery
from tests.support.invariants import directories_left, lives
from tests.support.project import Project, Running
from tests.support.waiting import until
from wtb.config.stack_file import Stack, find_stack
from wtb.core.errors import WTBError
from wtb.execution.sandbox.launch.process_tags import RUNNER, tagged

PATIENCE_S = 300.0
QUEUES = f"default,{SIDE_QUEUE}"
PACE_S = 0.3
PARTS = {
    faults.WORKER: "worker",
    faults.SCHEDULER: "scheduler",
    faults.BROKER_KILLED: "valkey",
    faults.DATABASE_KILLED: "postgres",
}


class StackStorm:
    """Runs the sweeps of a plan on the stack of a folder. say: gets what happens."""

    def __init__(self, folder: Path, plan: Plan, say: Callable[[str], None]) -> None:
        self._project = Project(folder)  # whose commands find the stack
        self._read = Project(folder)
        self._plan = plan
        self._say = say
        self._dice = random.Random(plan.seed)
        self._recovery = Recovery(lambda: self._read)
        self._survivors: list[str] = []
        self._struck = Counter[str]()

    def run(self) -> Figures:
        """The whole of it. Raises AssertionError where something did not come about in time."""
        set_pace(self._project, PACE_S)
        self._up = self._start()
        scenarios = draw_scenarios(self._plan.seed, self._plan.cells)
        self._load = Load(lambda: self._read, self._project.wtb, scenarios, self._say)
        try:
            began = time.monotonic()
            for number, fault in enumerate(self._plan.faults(), 1):
                if time.monotonic() - began > 60 * self._plan.minutes:
                    break
                self._further()
                self._strike(fault)
                since = time.monotonic()
                self._until(lambda: self._watch(fault, since), "the database to be back")  # noqa: B023
                self._struck[fault] += 1
                self._until(lambda: not self._recovery.is_waiting, f"work to go on after: {fault}")
                self._say(f"{time.monotonic() - began:6.1f} s: {fault} ({number} of {sum(self._plan.counts.values())})")
            set_pace(self._project, 0.02)
            self._until(self._load.is_completed, "the sweeps to be completed")
            lasted = time.monotonic() - began
            total = self._figures(lasted)  # while its database is there
            runners = {id for (id,) in self._read.query("SELECT id FROM runners")}
        finally:
            self._up.signal(signal.SIGTERM)
            self._up.wait(timeout=PATIENCE_S)
            self._read.close()
        processes = [f"process {pid}" for runner, pids in tagged(RUNNER).items() if runner in runners for pid in pids]
        return total.leaving([*self._survivors, *processes, *directories_left(self._project)])

    def _figures(self, seconds: float) -> Figures:
        return figures(
            "the stack of `wtb up`",
            self._read,
            self._load.scenarios,
            self._load.verdict(),
            faults=self._struck,
            seconds=seconds,
            times=self._recovery.times,
            by_hand=self._load.by_hand,
        )

    def _start(self) -> Running:
        running = self._project.start("up", "--concurrency", "4", "--queues", QUEUES, "--no-flower", env=SETTINGS)

        def ready_stack() -> Stack | None:
            stack = find_stack(self._project.folder)
            if stack is not None and stack.ready:
                return stack
            assert running.process.poll() is None, running.stderr
            return None

        what = "the stack to be ready"
        stack = until(ready_stack, what, PATIENCE_S, pause=0.05, report=lambda: running.stderr)
        self._read.close()
        self._read = Project(self._project.folder)
        self._read.url = stack.database_url
        return running

    def _strike(self, fault: str) -> None:
        stack = self._stack()
        if fault == faults.SUPERVISOR:
            family = [stack.pid, *(child.pid for child in psutil.Process(stack.pid).children(recursive=True))]
            self._up.signal(signal.SIGKILL)
            self._up.wait()
            with suppress(AssertionError):
                until(lambda: not any(map(lives, family)), "the supervisor's processes to end", 20.0, pause=0.05)
            self._survivors += [f"{pid} outlived its supervisor" for pid in family if lives(pid)]
            self._up = self._start()
        else:
            pids: Mapping[str, int] = {part.name: part.pid for part in stack.parts}
            os.kill(pids[PARTS[fault]], signal.SIGKILL)

    def _watch(self, fault: str, since: float) -> bool:
        self._recovery.progress(fault, since)
        return True

    def _stack(self) -> Stack:
        """The stack with all its parts, as soon as they are there."""

        def whole() -> Stack | None:
            stack = find_stack(self._project.folder)
            return stack if stack is not None and {part.name for part in stack.parts} >= {*PARTS.values()} else None

        found: Stack = self._until(whole, "all parts to run")
        return found

    def _further(self) -> None:
        """Wait for a moment of work."""
        more, counts = self._dice.randint(4, 12), list[int]()

        def enough() -> bool:
            present = self._accepted()  # the database may be away just now
            counts.append(present)
            return present >= counts[0] + more

        self._until(enough, "work")

    def _accepted(self) -> int:
        return int(self._read.query(ACCEPTED)[0][0])

    def _until(self, condition: Callable[[], Any], what: str) -> Any:
        def found() -> Any:
            with suppress(WTBError):  # its database is what was killed
                if outcome := condition():
                    return outcome
                self._recovery.look()
                self._load.look()
            return None

        return until(found, what, PATIENCE_S, pause=0.02, report=lambda: self._up.stderr)
