"""Fault 37: an execution moves from one journal of a worker to another, and nothing scores it at the end."""

from __future__ import annotations

import json

import pytest

from tests.faults.workers.reclaiming import lose_claims
from tests.support.cluster import Cluster

SLOTS = 8
CASES = 12
VARIANTS = 6
WORKFLOW = f"""
from wtb import END, Workflow

wf = Workflow("short")


@wf.node
def last(state, ctx, *, by: int = 0):
    return {{"last": f"{{ctx.case.id}}/{{by}}"}}


for by in range(1, {VARIANTS}):
    last.variant(f"v{{by}}", by=by)
wf.entry(last)
wf.edge(last, END)
"""


@pytest.mark.parametrize(
    ("durability", "share"),
    [
        ("20ms", False),
        *(
            pytest.param(durability, share, marks=pytest.mark.slow)
            for durability, share in (("20ms", True), ("sync", True), ("sync", False), ("300ms", False))
        ),
    ],
)
def test_cells_of_killed_workers_end_with_what_their_last_node_wrote(
    cluster: Cluster, durability: str, share: bool
) -> None:
    project = cluster.project
    run = {"share": share, "durability": durability}
    project.write_sweep("short", WORKFLOW, CASES, vary={"last": "all"}, run=run)
    cluster.start_scheduler()
    cluster.submit("sweep.yaml", "--anyway")
    lost = lose_claims(cluster, SLOTS, 6)
    cluster.start_worker(concurrency=SLOTS)
    cluster.wait_completed()

    # On a busy machine a lease of the second worker may run out, too.
    assert cluster.scalar("SELECT count(*) FROM executions WHERE losses > 0") >= lost
    assert final_states(cluster) == expected_states(project.cases(CASES))
    assert cluster.query("SELECT id FROM node_runs WHERE status <> 'succeeded'") == []


def final_states(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Map each cell (case, variant) to `last` of its final state, or to its status if its state has none."""
    contents = dict(cluster.query('SELECT digest, data FROM "values"'))
    rows = cluster.query(
        "SELECT cases.id, combinations.choices, cells.status, checkpoints.state FROM cells "
        "JOIN cases ON cases.sweep_id = cells.sweep_id AND cases.number = cells.case_number "
        "JOIN combinations ON combinations.sweep_id = cells.sweep_id AND combinations.number = cells.combination "
        "JOIN executions ON executions.id = cells.execution_id "
        "JOIN checkpoints ON checkpoints.id = executions.head_id"
    )
    return {
        (case, choices["last"]): json.loads(contents[state["last"]]) if "last" in state else status
        for case, choices, status, state in rows
    }


def expected_states(cases: str) -> dict[tuple[str, str], str]:
    """Compute from the cases alone what `final_states` returns if the node has run in every cell."""
    ids = [json.loads(line)["id"] for line in cases.splitlines()]
    variants = {"default": 0} | {f"v{by}": by for by in range(1, VARIANTS)}
    return {(case, variant): f"{case}/{by}" for case in ids for variant, by in variants.items()}
