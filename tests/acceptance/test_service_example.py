"""The example of a service runs on a real PostgreSQL, broker and worker, with Python only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.project import run_program

EXAMPLE = Path(__file__).parents[2] / "examples" / "service"


def test_a_service_submits_follows_answers_and_reads_the_matrix(cluster: Cluster) -> None:
    cluster.project.write({file.name: file.read_text("utf-8") for file in EXAMPLE.glob("*.py")})
    cluster.start_scheduler()
    cluster.start_worker(concurrency=2)
    env = {**os.environ, **cluster.env, "WTB_DATABASE_URL": cluster.project.url}
    command = [sys.executable, "service.py", "rain", "snow"]
    done = run_program(command, cwd=cluster.project.folder, env=env, timeout=120, code=0)
    lines = done.stdout.splitlines()
    assert lines[0] == "sweep.submitted"
    decisions = {line for line in lines if "?" in line}
    assert decisions == {f"Send the letter about {end}" for end in ("rain? send", "snow? hold back")}
    assert lines[-3:] == ["sweep.completed", "default: 3.5 words", "warm: 4 words"]
    assert set(cluster.sweeps().values()) == {"completed"}
    asked_by = {by for (by,) in cluster.query("SELECT answered_by FROM approvals")}
    assert asked_by == {"letter service"}
