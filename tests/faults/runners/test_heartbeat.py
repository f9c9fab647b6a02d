"""Fault 6, the heartbeat ends: the runner stops its own nodes before others may take over, and says why."""

from __future__ import annotations

import pytest

from tests.support.invariants import (
    SLOTS,
    Before,
    lives,
    node_processes,
    noted,
    nothing_committed_ran_again,
    nothing_is_left,
    trail_is_complete,
    write_trail,
)
from tests.support.project import Project
from tests.support.prose import sentence

PAUSED = "its heartbeat ended"


@pytest.mark.parametrize("moment", ["in the middle of nodes", pytest.param("between nodes", marks=pytest.mark.slow)])
def test_a_runner_without_a_heartbeat_ends_its_nodes_and_pauses(project: Project, moment: str) -> None:
    hold = "hold: [b c1, c c1], " if moment == "in the middle of nodes" else ""
    write_trail(project, 4, params=f"{{{hold}seconds: 0.1}}")
    strike = project.folder / "strike"  # once both slots are busy, however long that takes
    env = {"WTB_FAULT": f"heartbeat:{strike if hold else 2}:raise", "WTB_LEASE_S": "2"}
    with project.start("run", "sweep.yaml", "--quiet", "--format", "json", env=env) as running:
        if hold:
            project.until(lambda: len(noted(project, "begun")) - len(noted(project, "ended")) == SLOTS, "both slots")
            keepers, workers = node_processes(running.pid)
            strike.touch()
        done = running.wait()
        if hold:
            assert not [process for process in (*keepers, *workers) if lives(process.pid)]
    assert PAUSED in done.output
    assert sentence("continue with: wtb resume") in done.output
    assert done.code == 1, "130 means that somebody interrupted it"
    assert done.json["sweep"]["status"] == "paused"
    ((status, reason),) = project.query("SELECT status, reason FROM sweeps")
    assert status == "paused"
    assert PAUSED in reason
    assert project.query("SELECT count(*) FROM executions WHERE status = 'failed'") == [(0,)], "no cell is to blame"
    nothing_is_left(project)

    before = Before.of(project)
    project.write({"gate": ""})
    project.inside("resume", "trail", check=0)
    nothing_committed_ran_again(project, before)
    trail_is_complete(project, 4)
