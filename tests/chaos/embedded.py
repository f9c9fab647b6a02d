"""Storms without workers: `wtb run` is killed again and again, and finds its disk full."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.chaos import plan as faults
from tests.chaos.drawn.judge import Verdict, judge_all
from tests.chaos.drawn.load import answer_open
from tests.chaos.drawn.oracle import answers
from tests.chaos.drawn.scenario import Block, Fan, Scenario, draw_scenarios
from tests.chaos.drawn.source import set_pace, write_scenario
from tests.chaos.figures import Figures, figures, orphans
from tests.chaos.plan import Plan
from tests.support.invariants import lives
from tests.support.project import Project, Running
from tests.support.waiting import until

PATIENCE_S = 300.0
PACE_S = 0.1
SMALL = 1 << 20  # bytes of the disk that gets full
RESUMED = "`wtb resume`: until the first node begins"


def killed_runs(folder: Path, plan: Plan, say: Callable[[str], None]) -> Figures:
    """Kill `wtb run`, then `wtb resume`, of one drawn sweep after the other at any moment; then let each end."""
    scenarios = draw_scenarios(plan.seed, plan.cells, on_workers=False)
    killer = _Killer(Project(folder), plan, say)
    for number, scenario in enumerate(scenarios, 1):
        say(str(scenario))
        killer.strike(scenario, plan.counts[faults.RUN] * number // len(scenarios))
    lasted = time.monotonic() - killer.began
    project = killer.project
    report = figures(
        "`wtb run` on SQLite",
        project,
        scenarios,
        _judge(project, scenarios),
        faults={faults.RUN: killer.killed},
        seconds=lasted,
        times=killer.times,
    ).leaving([*killer.survivors, *orphans(project)])
    project.close()
    return report


class _Killer:
    """Runs sweeps in a folder, and kills what runs them. killed: how often so far."""

    def __init__(self, project: Project, plan: Plan, say: Callable[[str], None]) -> None:
        self.project = project
        self.began = time.monotonic()
        self.killed = 0
        self.times: dict[str, list[float]] = defaultdict(list)
        self.survivors: list[str] = []
        self._dice = random.Random(plan.seed)
        self._ends = self.began + 60 * plan.minutes
        self._say = say

    def strike(self, scenario: Scenario, max_kills: int) -> None:
        """Run a sweep, kill it until there were so many kills in all or it is completed, and let it end."""
        project = self.project
        project.write(write_scenario(scenario))
        set_pace(project, PACE_S)
        command = ["run", f"{scenario.name}.yaml"]
        while self.killed < max_kills and time.monotonic() < self._ends:
            if not self._kill(scenario, command):
                break
            command = ["resume", scenario.name]
        set_pace(project, 0.0)
        ends = time.monotonic() + PATIENCE_S
        while not self._is_completed(scenario):
            assert time.monotonic() < ends, f"{scenario.name} is not completed within {PATIENCE_S:g} s of no kills"
            self._answer(scenario)
            project.wtb(*command, "--quiet", timeout=PATIENCE_S)
            command = ["resume", scenario.name]

    def _kill(self, scenario: Scenario, command: Sequence[str]) -> bool:
        """Run a command until a moment of work, and kill it. Returns False where it ended before, completed."""
        since, before = time.monotonic(), len(self._log(scenario))
        with self.project.start(*command, "--quiet") as running:
            _until(lambda: len(self._log(scenario)) > before or _has_ended(running), "a node to begin")
            if not _has_ended(running):
                if command[0] == "resume":
                    self.times[RESUMED].append(time.monotonic() - since)
                enough, moment = before + self._dice.randint(1, 16), time.monotonic() + self._dice.uniform(0.0, 0.1)
                _until(lambda: len(self._log(scenario)) >= enough or _has_ended(running), "progress")
                _until(lambda: time.monotonic() > moment, "the moment")
            if _has_ended(running):
                self._answer(scenario)
                return not self._is_completed(scenario)
            running.signal(signal.SIGKILL)
            running.wait()
        self.killed += 1
        self.survivors += _outlived(self._log(scenario))
        self._answer(scenario)
        if self.killed % 10 == 0:
            self._say(f"{time.monotonic() - self.began:6.1f} s: {faults.RUN} ({self.killed})")
        return True

    def _answer(self, scenario: Scenario) -> None:
        """Answer what a sweep waits for: whoever resumes it goes on with that."""
        answer_open(self.project, self.project.inside, answers(scenario))

    def _is_completed(self, scenario: Scenario) -> bool:
        rows = self.project.query("SELECT status FROM sweeps WHERE name = :name", name=scenario.name)
        return rows == [("completed",)]

    def _log(self, scenario: Scenario) -> list[str]:
        return self.project.log(f"{scenario.name}.log")


def full_disks(folder: Path, plan: Plan, say: Callable[[str], None]) -> Figures:
    """Run on a small disk until it is full, then make room. Where the run has ended, a person resumes it."""
    project = Project(folder)
    scenario = _with_files(draw_scenarios(plan.seed, plan.cells, on_workers=False)[0])
    log = f"{scenario.name}.log"
    project.write(write_scenario(scenario))
    set_pace(project, PACE_S)
    place = project.folder / ".wtb" / "files"
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL},mode=0700", "wtb-chaos", str(place)], check=True)
    times: dict[str, list[float]] = defaultdict(list)
    began, by_hand = time.monotonic(), 0
    try:
        filler = place / "filler"
        running = project.start("run", f"{scenario.name}.yaml", "--quiet")
        for number in range(1, plan.counts[faults.DISK] + 1):
            enough = len(project.log(log)) + 3
            _until(lambda: len(project.log(log)) >= enough or _has_ended(running), "progress")  # noqa: B023
            _fill(filler)
            full = len(project.log(log)) + 16  # by then some node has left a file that was not to be stored
            _until(lambda: _has_ended(running) or len(project.log(log)) >= full or _is_held(project), "it to be full")  # noqa: B023
            before = len(project.log(log))
            filler.unlink()
            since = time.monotonic()
            if _has_ended(running):
                by_hand += 1
                running = project.start("resume", scenario.name, "--quiet")
            _until(lambda: len(project.log(log)) > before or _has_ended(running), "work to go on")  # noqa: B023
            times[faults.DISK].append(time.monotonic() - since)
            say(f"{time.monotonic() - began:6.1f} s: {faults.DISK} ({number} of {plan.counts[faults.DISK]})")
        while running.wait(timeout=PATIENCE_S).code and project.query("SELECT status FROM sweeps") == [("paused",)]:
            by_hand += 1
            running = project.start("resume", scenario.name, "--quiet")
        lasted = time.monotonic() - began
        return figures(
            "`wtb run` on a small disk",
            project,
            [scenario],
            _judge(project, [scenario]),
            faults=plan.counts,
            seconds=lasted,
            times=times,
            by_hand=by_hand,
        ).leaving(orphans(project))
    finally:
        project.close()
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def can_mount() -> bool:
    """Return whether this user may make a small disk."""
    return os.geteuid() == 0


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:  # now it is full
            return


def _is_held(project: Project) -> bool:
    """Return whether its sweep is paused, or its run waits for room."""
    ((status, reason),) = project.query("SELECT status, reason FROM sweeps")
    return status == "paused" or "disk is full" in (reason or "")


def _has_ended(running: Running) -> bool:
    return running.process.poll() is not None


def _judge(project: Project, scenarios: Sequence[Scenario]) -> Verdict:
    ids = dict(project.query("SELECT name, id FROM sweeps"))
    return judge_all(project, {ids[scenario.name]: scenario for scenario in scenarios})


def _with_files(scenario: Scenario) -> Scenario:
    """The same, where every node leaves a file and nobody is asked."""
    leaf = lambda node: replace(node, file=True, asks=False)  # noqa: E731
    blocks = list[Block]()
    for block in scenario.blocks:
        match block:
            case Fan(arms, join):
                blocks.append(Fan(tuple(map(leaf, arms)), leaf(join)))
            case _:
                blocks.append(type(block)(*map(leaf, block.nodes)))
    return replace(scenario, blocks=tuple(blocks))


def _outlived(log: Sequence[str]) -> list[str]:
    """Node processes of a killed run that are not ended within some seconds by what keeps them."""
    pids = {int(json.loads(line)["mark"].split()[0]) for line in log[-64:] if '"mark"' in line}
    with suppress(AssertionError):
        until(lambda: not any(map(lives, pids)), "node processes to end", 10.0)
    return [f"node process {pid} outlived its run" for pid in pids if lives(pid)]


def _until(condition: Callable[[], bool], what: str) -> None:
    until(condition, what, PATIENCE_S)
