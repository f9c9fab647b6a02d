"""The memory quota of a session holds for all workers together; a worker goes on with other sessions meanwhile."""

from __future__ import annotations

import pytest

from tests.support.cluster import Cluster
from tests.support.prose import sentence

FLOW = """
import os
import time

from wtb import END, Workflow

wf = Workflow("hungry")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


@wf.node(retries=0)
def eat(state, ctx):
    held = bytearray(b"x") * (ctx.params["mb"] * 1_000_000)
    with open(HERE + "log", "a") as log:
        log.write(f"held {ctx.case.id} {os.getpid()}\\n")
    while not os.path.exists(HERE + ctx.params["gate"]):
        time.sleep(0.01)
    return {"size": len(held)}


wf.entry(eat)
wf.edge(eat, END)
"""


def submit(crew: Cluster, name: str, cases: int, mb: int, session: str) -> str:
    listed = [f"  - {{id: {name}-{n}, input: {{x: {n}}}}}\n" for n in range(cases)]
    crew.project.write(
        {
            "hungry.py": FLOW,
            f"{name}.yaml": f"sweep: {name}\nworkflow: hungry:wf\nvary: {{eat: all}}\ncases:\n{''.join(listed)}"
            f"params: {{mb: {mb}, gate: {name}.go}}\nrun: {{grace: 1, set_aside_after: 4}}\nsession: {session}\n",
        }
    )
    return str(crew.wtb("submit", f"{name}.yaml", check=0).stdout.strip())


def held_lines(crew: Cluster, name: str) -> list[str]:
    return [line for line in crew.project.log() if line.startswith(f"held {name}-")]


@pytest.mark.nodes("started")
def test_the_memory_quota_of_a_session_holds_over_all_workers(crew: Cluster) -> None:
    crew.start_worker(concurrency=1)
    crew.wtb("admin", "session", "create", "small", "--memory", "600MB", check=0)
    sweep = submit(crew, "a", 3, 230, "small")
    crew.until(lambda: crew.scalar("SELECT sum(kills) FROM executions"), "a process to be ended", 60)
    (failure,) = crew.project.query(
        "SELECT failure FROM attempts WHERE status = 'failed' AND failure ->> 'kind' = 'killed'"
    )[0]
    assert failure["type"] == "MemoryQuotaReached"
    assert sentence("the node processes of session {} used ", "'small'") in failure["message"]
    assert sentence("of its memory quota of {}", "600.0 MB") in failure["message"]
    runners = "SELECT count(*) FROM session_memory WHERE used > 100000000"
    crew.until(lambda: crew.scalar(runners) >= 1, "what is used to be recorded")
    assert (
        crew.wtb("admin", "session", "show", "small", "--format", "json", check=0).json["session"]["quota"]["memory"]
        == 6e8
    )

    crew.project.write({"a.go": ""})
    crew.wait_completed(sweep)
    cells = f"SELECT status, count(*) FROM cells WHERE sweep_id = '{sweep}' GROUP BY 1"
    assert crew.project.query(cells) == [("succeeded", 3)]
    assert crew.scalar("SELECT max(kills) FROM executions") <= 3
    log = crew.wtb("log", sweep, check=0).stdout
    assert "memory quota of session 'small' reached" in " ".join(log.split())


@pytest.mark.nodes("started")
def test_workers_claim_nothing_for_a_session_above_its_quota_and_serve_others(crew: Cluster) -> None:
    crew.wtb("admin", "session", "create", "full", "--memory", "1GB", check=0)
    crew.wtb("admin", "session", "create", "free", check=0)
    crew.project.change(
        "INSERT INTO runners (id, host, boot, pid, process_started_at, seen_at, slots) "
        "VALUES ('other', 'elsewhere', 'b', 7, 0, extract(epoch from clock_timestamp()) + 600, 1)"
    )
    crew.project.change(
        "INSERT INTO session_memory (runner_id, session_id, used, largest, measured_at) SELECT 'other', id, "
        "2000000000, 0, extract(epoch from clock_timestamp()) + 600 FROM sessions WHERE name = 'full'"
    )
    crew.project.write({"b.go": "", "c.go": ""})
    waiting = submit(crew, "b", 2, 1, "full")
    crew.wait_completed(submit(crew, "c", 2, 1, "free"))
    assert held_lines(crew, "b") == []
    assert crew.scalar(f"SELECT status FROM sweeps WHERE id = '{waiting}'") in ("pending", "running")
    crew.wtb("admin", "session", "change", "full", "--memory", "none", check=0)
    crew.wait_completed(waiting)
    assert crew.scalar(f"SELECT count(*) FROM cells WHERE sweep_id = '{waiting}' AND status = 'succeeded'") == 2
