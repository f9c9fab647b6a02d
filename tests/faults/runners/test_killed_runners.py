"""The runner is killed: at every named fault point (so 3 and 4), and together with its children."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.attempts import ATTEMPTS
from tests.support.invariants import (
    A_CASE,
    GATED,
    SLOTS,
    Before,
    at_most_durability_was_lost,
    files_are_whole,
    invariants_hold,
    kill,
    lives,
    node_processes,
    nodes_have_ended,
    noted,
    nothing_committed_ran_again,
    processes_left,
    trail_is_complete,
    write_trail,
)
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.core.fault_points import POINTS

CASES = 4
KILLED = -signal.SIGKILL

# Every point that a runner passes once its sweep is there, each at a passing that leaves something to do. One sweep
# goes through all of them, so each is met by what those before it have left.
IN_TURN = {
    "submit.committed": 1,
    "claim.committed": 1,
    "node.starting": 4,
    "journal.writing": 4,
    "node.answered": 6,
    "journal.committed": 3,
    "files.publishing": 2,
    "heartbeat": 2,
    "finish.released": 1,
}


OF_DELETIONS = ("delete.hidden", "delete.part")


def resume(project: Project) -> None:
    """Go on in this process, until the sweep is at its end."""
    project.inside("resume", "trail", check=0)


def test_every_named_fault_point_is_tested() -> None:
    elsewhere = {"submit.written", "submit.batch", "copy.batch", "task.done", "scoring.part"}
    assert {*IN_TURN, *elsewhere, *OF_DELETIONS} == set(POINTS)


@pytest.mark.slow
def test_a_sweep_whose_runner_is_killed_at_every_fault_point_in_turn_completes(project: Project) -> None:
    write_trail(project, CASES)
    done: list[Before] = []
    for point, passing in IN_TURN.items():
        command = ["resume", "trail"] if done else ["run", "sweep.yaml"]
        env = {"WTB_FAULT": f"{point}:{passing}", "WTB_LEASE_S": "0.3" if point == "heartbeat" else "30"}
        assert project.wtb(*command, "--quiet", env=env).code == KILLED, f"{point} was not passed"
        nodes_have_ended(project)
        at_most_durability_was_lost(Before.of(project), done)
        done.append(Before.of(project))
        for before in done:
            nothing_committed_ran_again(project, before)
    assert 0 < done[-2].committed.total() < A_CASE * CASES == done[-1].committed.total()

    resume(project)
    for before in done:
        nothing_committed_ran_again(project, before)
    trail_is_complete(project, CASES)
    files_are_whole(project)


def test_a_runner_killed_before_the_sweep_is_committed_leaves_nothing_of_it(project: Project) -> None:
    write_trail(project, 1)
    project.wtb("run", "sweep.yaml", "--quiet", check=KILLED, env={"WTB_FAULT": "submit.written"})
    for table in ("sweeps", "cases", "cells", "executions", "events"):
        assert project.query(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert project.inside("resume", "trail").code == 2
    assert noted(project) == []

    project.inside("run", "sweep.yaml", check=0)
    trail_is_complete(project, 1)


@pytest.mark.parametrize("fault", ["submit.batch:1", "submit.written"])
def test_a_runner_killed_between_batches_of_a_submission_leaves_what_nobody_sees(project: Project, fault: str) -> None:
    write_trail(project, 1_200)  # 6,000 rows: a batch has 5,000
    project.wtb("run", "sweep.yaml", "--quiet", check=KILLED, env={"WTB_FAULT": fault})

    assert project.query("SELECT status FROM sweeps") == [("submitting",)]
    assert project.query("SELECT count(*) FROM cells") > [(0,)]
    assert sentence("there are no sweeps") in project.inside("list", check=0).output
    assert project.inside("show", "trail").code == 2

    write_trail(project, 1)
    project.inside("run", "sweep.yaml", check=0)  # its name is free
    project.inside("admin", "gc", check=0)
    assert project.query("SELECT count(*) FROM sweeps") == [(2,)]  # its submitter may live
    project.change("UPDATE sweeps SET created_at = created_at - 601 WHERE status = 'submitting'")
    project.inside("admin", "gc", check=0)
    for table, count in (("sweeps", 1), ("cases", 1), ("cells", 4)):
        assert project.query(f"SELECT count(*) FROM {table}") == [(count,)], table
    trail_is_complete(project, 1)


@pytest.mark.parametrize("fault", [*OF_DELETIONS, "delete.part:3"])
def test_a_deletion_that_was_killed_is_ended_by_a_collection(project: Project, fault: str) -> None:
    write_trail(project, 2)
    project.inside("run", "sweep.yaml", check=0)

    project.wtb("delete", "trail", "--yes", check=KILLED, env={"WTB_FAULT": fault})

    assert project.query("SELECT status FROM sweeps") == [("deleting",)]
    assert sentence("there are no sweeps") in project.inside("list", check=0).output
    assert project.inside("delete", "trail", "--yes").code == 2
    project.inside("admin", "gc", check=0)
    for table in ("sweeps", "cases", "cells", "executions", "checkpoints", "node_runs", "attempts", "events"):
        assert project.query(f"SELECT count(*) FROM {table}") == [(0,)], table


def test_with_sync_durability_only_what_the_slots_had_in_hand_runs_again(project: Project) -> None:
    write_trail(project, 2, durability="sync")
    project.wtb("run", "sweep.yaml", "--quiet", check=KILLED, env={"WTB_FAULT": "journal.writing:12"})
    before = Before.of(project)
    lost = {note.trail for note in before.log if note.word == "ended"} - before.committed.keys()
    assert len(lost) <= SLOTS
    resume(project)
    nothing_committed_ran_again(project, before)
    trail_is_complete(project, 2)
    # Each attempt was committed before it began: of the last, those that the kill kept from it are there, too.
    assert 0 <= started(project) - len(noted(project, "begun")) <= SLOTS


@pytest.mark.parametrize("whom", ["runner", "runner, keepers and workers"])
def test_a_runner_killed_in_the_middle_of_nodes_is_resumed(project: Project, whom: str) -> None:
    write_trail(project, 2, params="{hold: [b c0, c c0, b c1, c c1]}")
    with project.start("run", "sweep.yaml", "--quiet") as running:
        project.until(lambda: waiting_count(project) == SLOTS, "both slots to be in nodes that wait")
        project.until(lambda: started(project) == len(noted(project, "begun")), "their start to be committed")
        keepers, workers = node_processes(running.pid)
        assert (len(keepers), len(workers)) == (SLOTS, SLOTS)
        killed_at = time.time()
        kill(running.pid)
        if "workers" in whom:
            kill(*(process.pid for process in (*keepers, *workers)))
        running.wait(check=KILLED)
        before = Before.of(project)
        project.until(
            lambda: not any(lives(process.pid) for process in (*keepers, *workers)), "its children to die", 10
        )
    at_most_durability_was_lost(before, killed_at=killed_at)
    assert 0 < before.committed.total() < A_CASE * 2

    project.write({"gate": ""})
    resume(project)
    nothing_committed_ran_again(project, before)
    trail_is_complete(project, 2)
    assert started(project) == len(noted(project, "begun"))  # those that were killed count, and nothing else does
    document = project.wtb("matrix", "trail", "--format", "json", check=0).json
    assert document["node_runs"]["attempts"] == started(project)


def waiting_count(project: Project) -> int:
    """Count the nodes that wait at the gate, which is still closed."""
    return len(noted(project, "held"))


def started(project: Project) -> int:
    ((count,),) = project.query(f"SELECT count(*) FROM {ATTEMPTS}")
    return int(count)


# A node that waits, with programs of its own: one in its session, one in a session of its own.
PROGRAMS = (
    GATED
    + """
import subprocess

wf = Workflow("programs")


@wf.node
def work(state, ctx, *, by: int = 0):
    programs = [subprocess.Popen(["sleep", "600"], start_new_session=own) for own in (False, True)]
    note(f"{os.getpid()} {' '.join(str(program.pid) for program in programs)}")
    wait_for_gate()
    return {"done": by}


work.variant("one", by=1)
wf.entry(work)
wf.edge(work, END)
"""
)


@pytest.fixture
def programs(empty_project: Project) -> Iterator[Project]:
    empty_project.write_sweep("programs", PROGRAMS, vary={"work": "all"}, run={"concurrency": 2})
    yield empty_project
    kill(*(pid for pid in started_programs(empty_project) if lives(pid)))


def started_programs(project: Project) -> list[int]:
    return [int(pid) for line in project.log() for pid in line.split()[1:]]


@pytest.mark.parametrize("whom", ["runner", "runner and keepers"])
def test_programs_that_nodes_started_do_not_outlive_their_runner_and_the_resume(programs: Project, whom: str) -> None:
    """Fault 2. Without their keepers, they are found by their tag when somebody else goes on."""
    with programs.start("run", "sweep.yaml", "--quiet") as running:
        programs.until(lambda: len(programs.log()) == 2, "both nodes to have started their programs")
        keepers, _ = node_processes(running.pid)
        kill(running.pid, *([keeper.pid for keeper in keepers] if "keepers" in whom else []))
        running.wait(check=KILLED)
    pids = started_programs(programs)
    if whom == "runner":
        programs.until(lambda: not any(map(lives, pids)), "the keepers to end all", 10)

    programs.write({"gate": ""})
    programs.inside("resume", "programs", check=0)
    assert not [pid for pid in pids if lives(pid)]
    programs.until(lambda: not processes_left(programs), "the programs of the resume to end", 10)
    invariants_hold(programs, {"succeeded": 2})


def test_programs_that_nodes_started_do_not_outlive_their_keeper(programs: Project) -> None:
    """Fault 2, the other parent of a worker: its runner lives, and sees to what the keeper cannot end any more."""
    with programs.start("run", "sweep.yaml", "--quiet") as running:
        programs.until(lambda: len(programs.log()) == 2, "both nodes to have started their programs")
        first = started_programs(programs)
        keepers, workers = node_processes(running.pid)
        kill(*(keeper.pid for keeper in keepers))
        programs.until(lambda: len(programs.log()) == 4, "both nodes to run again in other processes")
        assert not [worker for worker in workers if lives(worker.pid)]
        programs.until(lambda: not any(map(lives, first)), "the programs of the dead processes to end", 10)
        programs.write({"gate": ""})
        running.wait(check=0)
    assert not [pid for pid in started_programs(programs) if lives(pid)]
    invariants_hold(programs, {"succeeded": 2})
