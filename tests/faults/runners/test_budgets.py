"""Budgets where runners die, and where several runners spend of one."""

from __future__ import annotations

import signal
from typing import Any

from tests.support.attempts import ATTEMPTS
from tests.support.invariants import GATED
from tests.support.project import Project
from tests.support.prose import sentence

FLOW = (
    GATED
    + """
wf = Workflow("spends")


@wf.node(max_usd=1.0)
def work(state, ctx):
    note(ctx.case.id)
    ctx.cost(usd=0.25)
    wait_for_gate()
    ctx.cost(usd=0.5)
    return {"y": 1}


wf.entry(work)
wf.edge(work, END)
"""
)


def scalar(project: Project, query: str) -> Any:
    rows = project.query(query)
    return rows[0][0] if rows else None


def test_a_killed_runner_leaves_no_reservation_and_what_it_told_of_counts(project: Project) -> None:
    spec = {"project": "p", "limits": {"usd": 3.5}, "run": {"concurrency": 3}}
    project.write_sweep("spends", FLOW, 5, vary={"work": "all"}, **spec)
    with project.start("run", "sweep.yaml", "--quiet") as run:
        # 3.5 is enough for three that may spend 1 each.
        project.until(lambda: len(project.log()) == 3, "three nodes to hold their slots")
        query = f"SELECT count(*) FROM {ATTEMPTS} WHERE usd = 0.25"
        project.until(lambda: scalar(project, query) == 3, "what they spent to be recorded")
        assert scalar(project, "SELECT count(*) FROM reservations") == 3
        assert scalar(project, "SELECT spent FROM budgets") == 0.75
        assert scalar(project, "SELECT sum(amount) FROM reservations") == 2.25
        run.signal(signal.SIGKILL)
        run.process.wait()
    project.write({"gate": ""})
    paused = project.inside("resume", "spends", "--quiet", check=1)
    assert sentence("limit reached: {} = {}", "usd", "3.5") in paused.output
    spent = scalar(project, "SELECT spent FROM budgets")
    assert spent == scalar(project, f"SELECT sum(usd) FROM {ATTEMPTS}")
    assert 2.5 < spent <= 3.5
    assert scalar(project, "SELECT count(*) FROM reservations") == 0
    project.inside("resume", "spends", "--limits", "usd=20", "--quiet", check=0)
    assert scalar(project, "SELECT spent FROM budgets") == scalar(project, f"SELECT sum(usd) FROM {ATTEMPTS}") == 4.5
