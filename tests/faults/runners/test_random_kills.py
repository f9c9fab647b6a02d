"""SIGKILL at random moments, of the runner, of children, of both: by a fixed list of seeds."""

from __future__ import annotations

import random
import signal

import pytest

from tests.support.invariants import (
    A_CASE,
    Before,
    at_most_durability_was_lost,
    files_are_whole,
    kill,
    node_processes,
    nodes_have_ended,
    nothing_committed_ran_again,
    trail_is_complete,
    write_trail,
)
from tests.support.project import Project, Running

CASES = 7  # 63 node runs
TARGETS = ("runner", "keepers", "workers", "all", "one worker")


@pytest.mark.parametrize("seed", [11, pytest.param(27, marks=pytest.mark.slow)])
def test_a_sweep_under_random_kills_completes_with_nothing_lost_or_doubled(project: Project, seed: int) -> None:
    dice = random.Random(seed)
    write_trail(project, CASES, run="set_aside_after: 100")
    done: list[Before] = []
    targets = ["runner", *(dice.choice(TARGETS) for _ in range(dice.randint(2, 4)))]
    command = ["run", "sweep.yaml"]
    while targets:
        with project.start(*command, "--quiet") as running:
            while targets and running.process.poll() is None:
                further_along(project, running, dice.randint(1, A_CASE))
                keepers, workers = node_processes(running.pid)
                target = targets.pop(0)
                if target in ("keepers", "all"):
                    kill(*(process.pid for process in keepers))
                if target in ("workers", "all"):
                    kill(*(process.pid for process in workers))
                if target == "one worker" and workers:
                    kill(dice.choice(workers).pid)
                if target in ("runner", "all"):
                    kill(running.pid)
                    break
            exit_code = -signal.SIGKILL if target in ("runner", "all") else 0
            running.wait(check=exit_code if running.process.poll() is None else None)
        nodes_have_ended(project)
        at_most_durability_was_lost(Before.of(project), done)
        done.append(Before.of(project))
        command = ["resume", "trail"]
    project.inside("resume", "trail", check=0)
    for before in done:
        nothing_committed_ran_again(project, before)
    trail_is_complete(project, CASES)
    files_are_whole(project)


def further_along(project: Project, running: Running, lines: int) -> None:
    """Wait until the log has so many lines more, or the runner has ended."""
    enough = len(project.log()) + lines
    project.until(lambda: len(project.log()) >= enough or running.process.poll() is not None, "progress")
