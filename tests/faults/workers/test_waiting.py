"""Executions that wait for people hold no slot, and outlive the workers that asked."""

from __future__ import annotations

from tests.support.cluster import Cluster
from tests.support.prose import sentence

FLOW = """
from wtb import END, Workflow

wf = Workflow("asking")


@wf.node
def make(state, ctx):
    with open(f"{ctx.params['log']}/log", "a") as log:
        log.write(f"make {ctx.case.id}\\n")
    return {"made": state["x"] + 1}


@wf.node
def check(state, ctx, *, k: int = 0):
    said = ctx.ask("Is it right?", context=state["made"])
    return {"y": [said.feedback, k]}


check.variant("other", k=1)
wf.entry(make)
wf.edge(make, check)
wf.edge(check, END)
"""


def test_waiting_holds_no_slot_and_survives_kill_9_of_the_worker(cluster: Cluster) -> None:
    project = cluster.project
    project.write_sweep("asking", FLOW, 3, vary={"check": "all"}, params={"log": str(project.folder)})
    cluster.start_scheduler()
    first = cluster.start_worker(concurrency=1)
    cluster.submit()
    # More executions wait than there are slots, so none of them can hold one.
    cluster.until(lambda: len(cluster.executions("waiting")) == 6, "all to wait")
    assert cluster.cells() == {"waiting": 6}
    assert set(cluster.sweeps().values()) == {"running"}
    assert cluster.query("SELECT owner_id FROM executions WHERE owner_id IS NOT NULL") == []
    cluster.until(lambda: cluster.query("SELECT * FROM working") == [], "the slot to be free")
    first.end()

    questions = [id for (id,) in cluster.query("SELECT id FROM approvals WHERE status = 'open' ORDER BY id")]
    assert len(questions) == 3  # one a case, for both variants
    for id in questions:
        output = project.inside("answer", id, "approve", "--feedback", "yes", env=cluster.env, check=0)
        assert sentence("{} for the workers", "2 executions") in output.output
    cluster.start_worker(concurrency=1)
    cluster.ends_well({"succeeded": 6})
    assert sorted(project.log()) == ["make c0", "make c1", "make c2"]
