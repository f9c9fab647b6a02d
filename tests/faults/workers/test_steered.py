"""Executions that workers run, paused and resumed by people: nothing runs while they are paused, none escapes."""

from __future__ import annotations

from tests.support.cluster import Cluster
from tests.support.invariants import each_cell_has_one_outcome

FLOW = """
import time
from pathlib import Path

from wtb import END, Workflow

wf = Workflow("held")


def note(ctx, word):
    with open(f"{ctx.params['here']}/log", "a") as log:
        log.write(f"{word} {ctx.case.id}\\n")


@wf.node
def hold(state, ctx):
    note(ctx, "hold")
    while not Path(f"{ctx.params['here']}/go").exists():
        time.sleep(0.01)
    return {"held": True}


@wf.node
def split(state, ctx, *, k: int = 0):
    note(ctx, "split")
    return {"k": k}


split.variant("other", k=1)
wf.entry(hold)
wf.edge(hold, split)
wf.edge(split, END)
"""


def test_workers_release_what_is_paused_and_claim_what_is_resumed(cluster: Cluster) -> None:
    project = cluster.project
    project.write_sweep("held", FLOW, 2, vary={"split": "all"}, params={"here": str(project.folder)})
    cluster.start_scheduler()
    cluster.start_worker(concurrency=2)
    cluster.submit()
    cluster.until(lambda: sorted(project.log()) == ["hold c0", "hold c1"], "both nodes to run")
    cluster.until(lambda: cluster.query("SELECT 1 FROM node_runs HAVING count(*) = 2"), "that to be committed")
    (first,), (second,) = cluster.query("SELECT id FROM executions ORDER BY case_number")

    nodes = project.node_processes()
    # One is taken away, and its node ends; the other finishes its node first.
    now = project.inside("pause", first, "--now", "--reason", "look", env=cluster.env, check=0)
    assert f"paused: {first}" in now.output
    cluster.until(lambda: len(project.node_processes()) < len(nodes), "the node of the first to end")
    status = project.inside("status", second, env=cluster.env, check=0)
    assert "hold=default for" in status.stdout
    project.write({"go": ""})
    project.inside("pause", second, env=cluster.env)
    cluster.until(lambda: not cluster.executions("running"), "all to pause or end")
    assert cluster.query("SELECT owner_id FROM executions WHERE status = 'paused' AND owner_id IS NOT NULL") == []
    assert set(cluster.sweeps().values()) == {"running"}
    paused = cluster.executions("paused")
    assert first in paused

    for id in paused:
        project.inside("resume", id, env=cluster.env, check=0)
    cluster.wait_completed()
    each_cell_has_one_outcome(project, {"succeeded": 4})

    # Of what has ended, one goes another way beside it, and one is done again from where it was wound back to.
    (cell,) = cluster.query("SELECT execution_id FROM cells WHERE case_number = 0 AND combination = 0")
    project.inside("fork", *cell, "--at", "hold", "--variant", "split=other", env=cluster.env, check=0)
    cluster.until(lambda: cluster.scalar("SELECT status FROM executions WHERE origin = 'manual'") == "completed", "it")
    project.inside("rollback", *cell, "--to", "hold", env=cluster.env, check=0)
    project.inside("resume", *cell, env=cluster.env, check=0)
    cluster.wait_completed()
    assert cluster.cells() == {"succeeded": 4}
    assert cluster.query("SELECT count(*) FROM cells WHERE execution_id = :held", held=cell[0])[0][0] > 0
    assert project.log().count("hold c1") == 1
    assert project.log().count("hold c0") == 2
