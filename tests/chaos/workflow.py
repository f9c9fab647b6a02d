"""The workflow of the long run. Each node run leaves a mark in its state that no other attempt could have left."""

from __future__ import annotations

import json
from collections import Counter

from tests.support.project import Project

CELLS = 4  # of a case

# a -> b(2) -> c(2): seven node runs and four cells a case.
FLOW = """
import os
import time

from wtb import END, Workflow

wf = Workflow("chaos")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


def run(state, ctx):
    way = f"{state.get('way', ctx.case.id)}/{ctx.node}={ctx.variant}"
    mark = f"{os.getpid()} {time.monotonic_ns()}"
    log = os.open(HERE + "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{mark} {way}\\n".encode())
    os.close(log)
    time.sleep(float(open(HERE + "pace").read()))
    (ctx.workspace / f"{ctx.node}.txt").write_text(way)
    return {"way": way, "marks": [*state.get("marks", []), mark]}


@wf.node
def a(state, ctx):
    return run(state, ctx)


@wf.node
def b(state, ctx, *, by: int = 0):
    return run(state, ctx)


@wf.node
def c(state, ctx, *, by: int = 0):
    return run(state, ctx)


b.variant("one", by=1)
c.variant("one", by=1)
wf.entry(a)
wf.edge(a, b)
wf.edge(b, c)
wf.edge(c, END)


def whole(case, result):
    ways = result.state["way"].split("/")
    files = {file.name: file.read_text() for file in result.workspace.iterdir()}
    left = {f"{way[0]}.txt": "/".join(ways[: at + 2]) for at, way in enumerate(ways[1:])}
    return ways[0] == case.id and len(ways) == 4 and len(result.state["marks"]) == 3 and files == left
"""

SWEEP = """
sweep: chaos
workflow: chaos:wf
cases: cases.jsonl
vary: {b: all, c: all}
evaluate: ["chaos:whole"]
run: {durability: 20ms, set_aside_after: 1000}
"""


def write_workflow(project: Project, cases: int) -> None:
    """The workflow over so many cases. Killed node processes are no fault of their cells."""
    project.write({"chaos.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": project.cases(cases)})


def set_pace(project: Project, seconds: float) -> None:
    """How long each node takes that begins from now on."""
    project.write({"pace.new": f"{seconds:g}"})
    (project.folder / "pace.new").rename(project.folder / "pace")


def begun(project: Project) -> dict[str, int]:
    """Mark -> process, of every attempt that has begun."""
    lines = (line.split(" ", 2) for line in project.log())
    return {f"{pid} {moment}": int(pid) for pid, moment, _ in lines}


def accepted(project: Project) -> Counter[str]:
    """The marks of the node runs that the database has accepted."""
    runs = project.query("SELECT writes FROM node_runs WHERE status = 'succeeded'")
    digests = [(json.loads(writes) if isinstance(writes, str) else writes)["marks"] for (writes,) in runs]
    stored = dict(project.query('SELECT digest, data FROM "values"'))
    return Counter(json.loads(stored[digest])[-1] for digest in digests)
