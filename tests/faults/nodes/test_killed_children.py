"""Faults 1 and 22: node processes are killed, from outside or by their own node."""

from __future__ import annotations

import re
import signal
from collections import Counter

import pytest

from tests.support.attempts import ATTEMPTS
from tests.support.invariants import (
    A_CASE,
    SLOTS,
    Before,
    committed,
    files_are_whole,
    invariants_hold,
    kill,
    node_processes,
    noted,
    nothing_committed_ran_again,
    trail_is_complete,
    write_trail,
)
from tests.support.project import Project
from tests.support.prose import sentence


@pytest.mark.parametrize("whom", ["worker", "keeper", "all workers"])
def test_a_node_process_killed_in_a_node_is_replaced_without_a_human(project: Project, whom: str) -> None:
    write_trail(project, 2, params="{hold: [b c1, c c1]}")
    with project.start("run", "sweep.yaml", "--quiet") as running:
        project.until(lambda: len(waiting(project)) == SLOTS, "both slots to be in nodes that wait")
        pids = set(waiting(project))
        project.until(lambda: committed(project).keys() >= {note.trail for note in noted(project, "ended")}, "commits")
        before = Before.of(project)
        workers = [process for process in node_processes(running.pid)[1] if process.pid in pids]
        victims = {"worker": workers[:1], "keeper": [workers[0].parent()], "all workers": workers}[whom]
        kill(*(process.pid for process in victims))
        project.until(lambda: len(set(waiting(project)) - pids) == len(victims), "other processes to run them", 15)
        project.write({"gate": ""})
        running.wait(check=0)
    nothing_committed_ran_again(project, before)
    trail_is_complete(project, 2)
    assert len(noted(project, "begun")) == 2 * A_CASE + len(victims), "only what was killed ran again"
    assert project.query("SELECT sum(kills) FROM executions") == [(len(victims),)]
    failed = project.query(f"SELECT failure FROM {ATTEMPTS} WHERE status = 'failed'")
    assert len(failed) == len(victims)
    assert all("killed" in str(failure) for (failure,) in failed)


def waiting(project: Project) -> list[int]:
    """The processes whose nodes are held: they have begun and, as far as is known, not ended."""
    ended = Counter((note.pid, note.trail) for note in noted(project, "ended"))
    notes = [note for note in noted(project, "begun") if re.fullmatch(r"c1/a=\w+/[bc]=\w+", note.trail)]
    return [note.pid for note in notes if not ended[note.pid, note.trail]]


def test_node_processes_killed_while_they_publish_files_lose_nothing(project: Project) -> None:
    """Each of them dies at its sixth content, one more than a run leaves: no snapshot refers to half of one."""
    write_trail(project, 2, run="set_aside_after: 100")
    done = project.wtb("run", "sweep.yaml", "--quiet", "--format", "json", env={"WTB_NODE_FAULT": "files.publishing:6"})
    assert done.code == 0, done.stderr
    trail_is_complete(project, 2)
    files_are_whole(project)
    assert project.query("SELECT sum(kills) FROM executions")[0][0] > 0


# Its module waits while it is imported by a node process, for as long as the file `slow` is there.
SLOW_START = """
import os
import time

from wtb import END, Workflow

wf = Workflow("slow")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"

if "WTB_NODE_PROCESS" in os.environ and os.path.exists(HERE + "slow"):
    with open(HERE + "starting", "a") as log:
        log.write(f"{os.getpid()}\\n")
    while os.path.exists(HERE + "slow"):
        time.sleep(0.005)


@wf.node
def work(state, ctx, *, by: int = 0):
    with open(HERE + "log", "a") as log:
        log.write(f"{os.getpid()}\\n")
    while os.path.exists(HERE + "hold"):
        time.sleep(0.005)
    return {"y": by}


work.variant("one", by=1)
wf.entry(work)
wf.edge(work, END)
"""


@pytest.mark.parametrize("when", [sentence("before the first node"), "in place of one that was killed"])
def test_a_node_process_killed_while_it_starts_is_started_again(empty_project: Project, when: str) -> None:
    project = empty_project
    project.write_sweep("slow", SLOW_START, 2, vary={"work": "all"}, run={"concurrency": 1})
    project.write({"slow" if when == "before the first node" else "hold": ""})
    with project.start("run", "sweep.yaml", "--quiet") as running:
        if when != "before the first node":
            project.until(project.log, "the first node to wait")
            project.write({"slow": ""})
            kill(int(project.log()[0]))
            (project.folder / "hold").unlink()
        project.until(lambda: project.log("starting"), "a process to wait in its start")
        kill(int(project.log("starting")[0]))
        (project.folder / "slow").unlink()
        running.wait(check=0)
    invariants_hold(project, {"succeeded": 4})


# A reducer, a branch function and an evaluator that wait: what a node process does beside nodes.
BESIDE = """
import os
import time
from typing import Annotated, TypedDict

from wtb import END, Workflow

HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


def wait(where):
    with open(HERE + "log", "a") as log:
        log.write(f"{where} {os.getpid()}\\n")
    while os.path.exists(HERE + where) and not os.path.exists(HERE + "gate"):
        time.sleep(0.005)
    if os.path.exists(HERE + "abort in " + where):
        os.abort()


def add(present, new):
    wait("reducer")
    return present + new


class State(TypedDict):
    x: int
    total: Annotated[list, add]


wf = Workflow("beside", state=State)


@wf.node
def first(state):
    return {}


@wf.node
def left(state, ctx, *, by: int = 0):
    return {"total": [1]}


@wf.node
def right(state):
    return {"total": [2]}


left.variant("one", by=1)
wf.entry(first)
wf.edge(first, left)
wf.edge(first, right)
wf.edge([left, right], END)


def score(case, result):
    wait("evaluator")
    return result.state["total"] == [1, 2]
"""


def write_beside(project: Project, mark: str) -> None:
    vary = {"left": "all"}
    project.write_sweep("beside", BESIDE, vary=vary, evaluate=["beside:score"], run={"concurrency": 2})
    project.write({mark: ""})


@pytest.mark.parametrize("where", ["reducer", "evaluator"])
def test_a_process_killed_while_it_joins_or_scores_costs_no_outcome(empty_project: Project, where: str) -> None:
    """Fault 1 beside nodes: what was asked of it is asked again of another one."""
    project = empty_project
    write_beside(project, where)
    with project.start("run", "sweep.yaml", "--quiet") as running:
        project.until(lambda: [line for line in project.log() if line.startswith(where)], "it to wait")
        pid = next(int(line.split()[1]) for line in project.log() if line.startswith(where))
        kill(pid)
        project.write({"gate": ""})
        done = running.wait()
    assert done.code == 0, done.stdout + done.stderr
    assert project.query("SELECT error FROM scores WHERE error IS NOT NULL") == []
    invariants_hold(project, {"succeeded": 2})


def test_a_reducer_that_always_kills_its_process_sets_its_cells_aside(empty_project: Project) -> None:
    project = empty_project
    write_beside(project, "abort in reducer")
    project.wtb("run", "sweep.yaml", "--quiet", check=1)
    assert 1 <= len(project.log()) <= 6, "a bounded number of tries"
    assert "SIGABRT" in str(project.query("SELECT failure FROM cells"))
    invariants_hold(project, {"set_aside": 2})


ABORTING = """
import os

from wtb import END, Workflow

wf = Workflow("aborting")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


@wf.node(retries=1)
def before(state, ctx):
    return {"y": state["x"] + 1}


@wf.node(retries=5)
def work(state, ctx, *, by: int = 0):
    with open(HERE + "log", "a") as log:
        log.write(f"{ctx.case.id} {ctx.variant}\\n")
    if ctx.case.id == "c1" and by == 1 and not os.path.exists(HERE + "well"):
        print("these were my last words", flush=True)
        os.abort()
    return {"z": state["y"] + by}


work.variant("one", by=1)
wf.entry(before)
wf.edge(before, work)
wf.edge(work, END)
"""


def test_a_cell_that_always_kills_its_process_is_set_aside_and_the_others_succeed(project: Project) -> None:
    project.write_sweep("aborting", ABORTING, 3, vary={"work": "all"}, run={"concurrency": 2})
    done = project.wtb("run", "sweep.yaml", "--quiet", "--format", "json", check=1)
    assert Counter(project.log())["c1 one"] == 3
    assert project.query("SELECT DISTINCT status FROM sweeps") == [("completed",)]
    invariants_hold(project, {"succeeded": 5, "set_aside": 1})
    ((failure,),) = project.query("SELECT failure FROM cells WHERE status = 'set_aside'")
    assert "SIGABRT" in str(failure)
    assert done.json["cells"]["succeeded"] == 5
    assert project.query(f"SELECT count(*) FROM {ATTEMPTS} WHERE status = 'failed'") == [(3,)]
    outputs = project.query(f"SELECT stdout FROM {ATTEMPTS} WHERE status = 'failed'")
    assert all("my last words" in (stdout or "") for (stdout,) in outputs), "what it said last is kept"

    project.write({"well": ""})
    project.inside("retry", "aborting", check=0)
    assert Counter(project.log())["c1 one"] == 4
    assert dict(project.query("SELECT status, count(*) FROM cells GROUP BY status")) == {"succeeded": 6}


def test_kills_are_counted_over_restarts_of_the_runner(project: Project) -> None:
    """A cell that kills its process, and a runner that is killed too: the third end is still the last."""
    project.write_sweep("aborting", ABORTING, 2, vary={"work": "all"}, run={"concurrency": 2})
    fault = {"WTB_FAULT": "journal.committed:1000"}
    with project.start("run", "sweep.yaml", "--quiet", env=fault) as running:
        counted = "SELECT max(kills) FROM executions"
        project.until(lambda: ((project.query(counted) or [(0,)])[0][0] or 0) >= 1, "a kill to be counted")
        running.signal(signal.SIGKILL)
        code = running.wait().code
    starts = Counter(project.log())["c1 one"]
    done = project.inside("resume", "aborting", check=1)
    if code == -signal.SIGKILL and starts < 3:
        assert 3 <= Counter(project.log())["c1 one"] <= 4, "one more where the runner died before it was counted"
    assert done.code == 1
    invariants_hold(project, {"succeeded": 3, "set_aside": 1})
