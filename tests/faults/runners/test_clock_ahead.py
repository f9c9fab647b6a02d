"""Moments that were stored while the database's clock was months ahead: schedules and leases recover by themselves."""

from __future__ import annotations

import json

from tests.support.project import Project
from tests.support.prose import sentence

AHEAD_S = 200 * 86_400
FLOW = """
from wtb import END, Workflow
wf = Workflow("w")
@wf.node
def ans(state): return {"a": 1}
wf.entry(ans)
wf.edge(ans, END)
"""
SWEEP = {"workflow": "flow:wf", "cases": [{"id": "a", "input": {}}], "vary": {"ans": ["default"]}}


def scheduled(project: Project) -> None:
    project.write({"flow.py": FLOW, "sweep.yaml": json.dumps(SWEEP)})
    project.inside("schedule", "add", "often", "sweep.yaml", "--cron", "* * * * *", "--tz", "UTC", "--local", check=0)


def test_a_next_fire_that_is_months_too_late_is_named_and_set_right(project: Project) -> None:
    scheduled(project)
    ((before,),) = project.query("SELECT next_at FROM schedules")
    project.change(f"UPDATE schedules SET next_at = next_at + {AHEAD_S}")

    wrong = project.inside("schedule", "check", "often", check=1)
    assert sentence("the clock was ahead") in " ".join((wrong.stdout + wrong.stderr).split())
    project.inside("schedule", "run-due", check=0)
    ((after,),) = project.query("SELECT next_at FROM schedules")
    assert before <= after < before + 3600
    project.inside("schedule", "check", "often", check=0)


def test_a_lease_of_a_fire_that_ends_months_from_now_is_held_by_nobody(project: Project) -> None:
    scheduled(project)
    project.change("UPDATE schedules SET next_at = next_at - 60")
    project.change(
        "INSERT INTO fires (schedule_id, fire_at, status, manual, token, lease_until, tries, notify_tries) "
        f"SELECT id, next_at - 60, 'starting', false, 1, next_at + {AHEAD_S}, 1, 0 FROM schedules"
    )

    project.wtb("schedule", "run-due", check=0)
    statuses = {status for (status,) in project.query("SELECT status FROM fires")}
    assert statuses == {"judged"}
