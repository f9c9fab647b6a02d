"""A node that has several tasks in one step, and processes that are killed in the middle of it."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.execution import fanning
from tests.support.project import Project

FLOW = """
import os
import signal
from pathlib import Path

from fanning import fan, number_of


def work(state, ctx, *, k=0):
    number = number_of(ctx)
    folder = Path(ctx.params["folder"])
    with open(folder / "log", "a") as log:
        log.write(f"{number} {ctx.variant}\\n")
    if number == ctx.params.get("deadly") and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"found": [state["items"][number] + k]}


wf = fan(work)
"""
CASE = '{"id": "one", "input": {"items": [1, 2, 3]}}\n'
SWEEP = (
    "sweep: fan\nworkflow: fanned:wf\ncases: cases.jsonl\nvary: {work: all}\nrun: {concurrency: 1, durability: sync}\n"
)


@pytest.fixture
def fanned(project: Project) -> Project:
    project.write({"fanning.py": Path(fanning.__file__).read_text("utf-8"), "fanned.py": FLOW, "cases.jsonl": CASE})
    return project


def sweep(project: Project, **params: object) -> None:
    listed = ", ".join(f"{key}: {setting}" for key, setting in {"folder": project.folder, **params}.items())
    project.write({"sweep.yaml": f"{SWEEP}params: {{{listed}}}\n"})


def task_starts(project: Project) -> Counter[str]:
    """Count how often the code of each task was entered under each variant."""
    return Counter((project.folder / "log").read_text("utf-8").splitlines())


def node_runs(project: Project) -> Counter[tuple[str, str, int]]:
    rows = project.query("SELECT task, variant, attempts FROM node_runs WHERE status = 'succeeded'")
    return Counter((str(task), str(variant), int(attempts)) for task, variant, attempts in rows)


EACH = [f"{number} {variant}" for number in range(3) for variant in ("default", "other")]


def test_a_runner_killed_in_the_middle_of_a_fan_out_is_resumed_and_no_committed_task_runs_again(
    fanned: Project,
) -> None:
    sweep(fanned)
    killed = fanned.wtb("run", "sweep.yaml", "--quiet", env={"WTB_FAULT": "node.answered:4"})
    assert killed.code == -signal.SIGKILL
    done = node_runs(fanned)
    tasks = [task for task, _, _ in done if task.startswith("work|")]
    assert 0 < len(tasks) < 6
    lost = task_starts(fanned).total() - len(tasks)
    assert lost == 1  # the slot had one in hand

    fanned.inside("resume", "fan", check=0)

    assert task_starts(fanned).keys() == set(EACH)
    assert task_starts(fanned).total() == 6 + lost
    assert done <= node_runs(fanned)
    assert node_runs(fanned).total() == 1 + 6 + 1 + 2
    assert dict(fanned.query("SELECT status, count(*) FROM cells GROUP BY status")) == {"succeeded": 2}


def test_a_task_that_kills_its_process_is_tried_again_and_the_others_are_not(fanned: Project) -> None:
    sweep(fanned, deadly=1)

    fanned.inside("run", "sweep.yaml", "--quiet", check=0)

    assert task_starts(fanned) == {task: 1 + task.startswith("1 ") for task in EACH}
    attempts = {(task, variant): tries for task, variant, tries in node_runs(fanned)}
    assert {task: attempts[task, "other"] for task in ("work|0", "work|1", "work|2")} == {
        "work|0": 1,
        "work|1": 2,
        "work|2": 1,
    }


def test_what_cannot_begin_in_a_node_process_fails_its_cells_and_is_retried(fanned: Project) -> None:
    refuse = fanned.folder / "refuse"
    sweep(fanned, refuse=refuse)
    refuse.touch()
    fanned.inside("run", "sweep.yaml", "--quiet")
    ((failure,),) = fanned.query("SELECT failure FROM executions")
    assert "case one cannot begin" in str(failure)
    assert dict(fanned.query("SELECT status, count(*) FROM cells GROUP BY status")) == {"failed": 2}

    refuse.unlink()
    fanned.inside("retry", "fan", check=0)

    assert dict(fanned.query("SELECT status, count(*) FROM cells GROUP BY status")) == {"succeeded": 2}
