"""Storms without workers: `wtb run` is killed again and again, and finds its disk full."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.chaos import plan as faults
from tests.chaos.figures import Figures, figures
from tests.chaos.plan import Plan
from tests.chaos.workflow import CELLS, set_pace, write_workflow
from tests.support.invariants import lives
from tests.support.project import Project, Running

PATIENCE_S = 300.0
PACE_S = 0.1
SMALL = 1 << 20  # bytes of the disk that gets full
RESUMED = "`wtb resume`: until the first node begins"


def killed_runs(folder: Path, plan: Plan, say: Callable[[str], None]) -> Figures:
    """Kill `wtb run`, then `wtb resume`, as often as planned, at any moment; then let it end."""
    project, dice = Project(folder), random.Random(plan.seed)
    write_workflow(project, plan.cells // CELLS)
    set_pace(project, PACE_S)
    times: dict[str, list[float]] = defaultdict(list)
    began, left = time.monotonic(), list[str]()
    command = ["run", "sweep.yaml"]
    killed = 0
    while killed < plan.counts[faults.RUN] and time.monotonic() - began < 60 * plan.minutes:
        since, before = time.monotonic(), len(project.log())
        with project.start(*command, "--quiet") as running:
            _until(lambda: len(project.log()) > before or _has_ended(running), "a node to begin")  # noqa: B023
            if _has_ended(running):
                break
            if killed:
                times[RESUMED].append(time.monotonic() - since)
            enough = before + dice.randint(1, 8)
            moment = time.monotonic() + dice.uniform(0.0, 0.1)
            _until(lambda: len(project.log()) >= enough or _has_ended(running), "progress")  # noqa: B023
            _until(lambda: time.monotonic() > moment, "the moment")  # noqa: B023
            running.signal(signal.SIGKILL)
            running.wait()
            killed += 1
        left += _outlived(project)
        command = ["resume", "chaos"]
        if killed % 10 == 0:
            say(f"{time.monotonic() - began:6.1f} s: {faults.RUN} ({killed} of {plan.counts[faults.RUN]})")
    set_pace(project, 0.0)
    project.wtb("resume", "chaos", "--quiet", timeout=PATIENCE_S)
    counts = {faults.RUN: killed}
    lasted = time.monotonic() - began
    found = figures("`wtb run` on SQLite", project, plan.cells, faults=counts, seconds=lasted, times=times, left=left)
    project.close()
    return found


def full_disks(folder: Path, plan: Plan, say: Callable[[str], None]) -> Figures:
    """Run on a small disk until it is full, then make room. Where the run has ended, a person resumes it."""
    project = Project(folder)
    write_workflow(project, plan.cells // CELLS)
    set_pace(project, PACE_S)
    place = project.folder / ".wtb" / "files"
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL},mode=0700", "wtb-chaos", str(place)], check=True)
    times: dict[str, list[float]] = defaultdict(list)
    began, by_hand = time.monotonic(), 0
    try:
        filler = place / "filler"
        running = project.start("run", "sweep.yaml", "--quiet")
        for number in range(1, plan.counts[faults.DISK] + 1):
            enough = len(project.log()) + 3
            _until(lambda: len(project.log()) >= enough or _has_ended(running), "progress")  # noqa: B023
            _fill(filler)
            full = len(project.log()) + 16  # by then some node has left a file that was not to be stored
            _until(lambda: _has_ended(running) or len(project.log()) >= full or _is_held(project), "it to be full")  # noqa: B023
            before = len(project.log())
            filler.unlink()
            since = time.monotonic()
            if _has_ended(running):
                by_hand += 1
                running = project.start("resume", "chaos", "--quiet")
            _until(lambda: len(project.log()) > before or _has_ended(running), "work to go on")  # noqa: B023
            times[faults.DISK].append(time.monotonic() - since)
            say(f"{time.monotonic() - began:6.1f} s: {faults.DISK} ({number} of {plan.counts[faults.DISK]})")
        while running.wait(timeout=PATIENCE_S).code and project.query("SELECT status FROM sweeps") == [("paused",)]:
            by_hand += 1
            running = project.start("resume", "chaos", "--quiet")
        lasted = time.monotonic() - began
        return figures(
            "`wtb run` on a small disk",
            project,
            plan.cells,
            faults=plan.counts,
            seconds=lasted,
            times=times,
            by_hand=by_hand,
        )
    finally:
        project.close()
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def can_mount() -> bool:
    """Whether this user may make a small disk."""
    return os.geteuid() == 0


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:  # now it is full
            return


def _is_held(project: Project) -> bool:
    """Whether its sweep is paused, or its run waits for room."""
    ((status, reason),) = project.query("SELECT status, reason FROM sweeps")
    return status == "paused" or "disk is full" in (reason or "")


def _has_ended(running: Running) -> bool:
    return running.process.poll() is not None


def _outlived(project: Project) -> list[str]:
    """Node processes of a killed run that are not ended within some seconds by what keeps them."""
    pids = {int(line.split()[0]) for line in project.log()[-64:]}
    ends = time.monotonic() + 10.0
    while (left := [pid for pid in pids if lives(pid)]) and time.monotonic() < ends:
        time.sleep(0.01)
    return [f"node process {pid} outlived its run" for pid in left]


def _until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.005)
