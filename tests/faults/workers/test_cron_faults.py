"""Fires whose processes are killed, two schedulers at once, and a broker that is down when it is time."""

from __future__ import annotations

import pytest

from tests.support.cluster import Cluster
from tests.support.project import FLOW, Project

SWEEP = """
workflow: flow:wf
cases: cases.jsonl
vary: {A: [v1]}
"""
DUE = "UPDATE schedules SET next_at = next_at - 86400"


def scheduled(project: Project, *options: str) -> None:
    """A schedule of a quick sweep, with a fire that is due."""
    project.write({"flow.py": FLOW, "cases.jsonl": Project.cases(2), "sweep.yaml": SWEEP})
    project.inside("schedule", "add", "nightly", "sweep.yaml", "--cron", "0 3 * * *", *options, check=0)
    project.change(DUE)


def one_good_sweep(project: Project) -> None:
    assert project.query("SELECT status FROM fires") == [("judged",)]
    assert project.query("SELECT s.status FROM sweeps s JOIN fires f ON f.sweep_id = s.id") == [("completed",)]
    assert project.query("SELECT count(*) FROM sweeps") == [(1,)]
    assert project.query("SELECT status, count(*) FROM cells GROUP BY status") == [("succeeded", 2)]


@pytest.mark.slow
def test_a_fire_whose_processes_are_killed_is_continued_by_the_next_scheduler(empty_project: Project) -> None:
    """Before its sweep is submitted, after that, and at the end of its run."""
    scheduled(empty_project)
    for place, status, sweeps in (
        ("submit.written", "starting", 0),
        ("submit.committed", "running", 1),
        ("finish.released", "running", 1),
    ):
        empty_project.wtb("schedule", "run-due", env={"WTB_FAULT": place}, check=0)
        assert empty_project.query("SELECT status FROM fires") == [(status,)]
        assert empty_project.query("SELECT count(*) FROM sweeps") == [(sweeps,)]
    empty_project.wtb("schedule", "run-due", check=0)
    one_good_sweep(empty_project)


def test_schedulers_at_once_make_and_carry_out_one_fire(empty_project: Project) -> None:
    scheduled(empty_project)
    schedulers = [empty_project.start("schedule", "run-due") for _ in range(2)]
    for scheduler in schedulers:
        scheduler.wait(check=0)
    one_good_sweep(empty_project)


@pytest.mark.slow
def test_a_broker_that_is_down_when_it_is_time_holds_up_the_start_and_gives_one_sweep(cluster: Cluster) -> None:
    """Fault 29."""
    cluster.take_time()
    cluster.valkey.kill()
    scheduled(cluster.project, "--queued")
    for _ in range(2):
        cluster.start_scheduler()
    cluster.until(lambda: cluster.query("SELECT status FROM fires") == [("running",)], "the sweep to be submitted")
    cluster.valkey.start()
    cluster.start_worker(concurrency=2, ready=False)
    cluster.until(lambda: cluster.query("SELECT status FROM fires") == [("judged",)], "the fire to be judged")
    cluster.ends_well({"succeeded": 2})
    one_good_sweep(cluster.project)
