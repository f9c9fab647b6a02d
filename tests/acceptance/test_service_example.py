"""The example of a service runs on a real PostgreSQL, broker and worker, with Python only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.cluster import Cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "service"


def test_a_service_submits_follows_answers_and_reads_the_matrix(cluster: Cluster) -> None:
    cluster.project.write({file.name: file.read_text("utf-8") for file in EXAMPLE.glob("*.py")})
    cluster.start_scheduler()
    cluster.start_worker(concurrency=2)
    done = subprocess.run(
        [sys.executable, "service.py", "rain", "snow"],
        cwd=cluster.project.folder,
        env={**os.environ, **cluster.env, "WTB_DATABASE_URL": cluster.project.url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "sweep.submitted"
    assert {line for line in lines if "?" in line} == {
        "Send the letter about rain? send",
        "Send the letter about snow? hold back",
    }
    assert lines[-3:] == ["sweep.completed", "default: 3.5 words", "warm: 4 words"]
    assert set(cluster.sweeps().values()) == {"completed"}
    asked_by = {by for (by,) in cluster.query("SELECT answered_by FROM approvals")}
    assert asked_by == {"letter service"}
