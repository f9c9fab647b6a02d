"""Workers import no user code: node processes do, and describe it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.support.cluster import Cluster

# Each module of the user notes what kind of process imports it.
NOTE = """
import os, sys
with open({log!r}, "a") as log:
    kind = "node" if "WTB_NODE_PROCESS" in os.environ else " ".join(map(os.path.basename, sys.argv[:2]))
    log.write(f"{{__name__}}: {{kind}}\\n")
"""
NATIVE = """
import dataclasses, enum, operator
from typing import Annotated, TypedDict

from parts import Colour, Point, add, is_far
from wtb import END, Workflow


class State(TypedDict, total=False):
    n: Annotated[int, add]
    point: Point
    colour: Colour
    tried: bool


def make():
    wf = Workflow("native", state=State)

    @wf.node(retries=1)
    def first(state, ctx):
        if ctx.attempt == 1:
            ctx.leave(output=Point(1, 2))
            raise ValueError("once")
        assert ctx.previous.output == Point(1, 2), ctx.previous.output
        return {"n": 1, "point": Point(3, 4), "colour": Colour.RED}

    @wf.node
    async def second(state):
        return {"n": state["point"].x}

    @wf.node
    def third(state):
        return {"tried": True}

    @wf.node
    def near(state):
        return {}

    wf.entry(first)
    wf.edge(first, second)
    wf.edge(first, third)
    wf.branch(third, {"go": near}, by=lambda state: "go")
    wf.edge(second, END, when=is_far)
    wf.edge(second, END, default=True)
    wf.edge(near, END)
    return wf
"""
PARTS = """
import dataclasses, enum


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Colour(enum.Enum):
    RED = 1


def add(one, other):
    return one + other


def is_far(state):
    return state["point"].x > 2
"""
MORE = "def quick(state, *, k: int = 1):\n    return {'n': 10 * k}\n"
SCORING = """
from wtb import evaluator


@evaluator(better="higher", scale=(0, 100))
def total(case, result):
    return result.state["n"]


@evaluator(better="higher", scale=(0, 10))
def again(case, result):
    return result.state["point"].x
"""
GRAPH = """
import operator
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    n: Annotated[int, operator.add]


def one(state):
    return {"n": 1}


def two(state):
    return {"n": 2}


graph = StateGraph(State)
graph.add_node("one", one)
graph.add_node("two", two)
graph.add_edge(START, "one")
graph.add_conditional_edges("one", lambda state: "two", ["two"])
graph.add_edge("two", END)
"""
SWEEP = """
sweep: native
workflow: native:make
cases: [{id: c0, input: {}}, {id: c1, input: {}}]
vary: {second: [default, {name: quick, with: "more:quick", k: 2}]}
evaluate: ["scoring:total", {all_of: {of: ["scoring:total"], at_least: 1}}]
"""


@pytest.fixture
def noted(cluster: Cluster) -> Cluster:
    log = str(cluster.project.folder / "imported")
    files = {"native": NATIVE, "parts": PARTS, "more": MORE, "scoring": SCORING, "graphs": GRAPH}
    cluster.project.write({f"{name}.py": NOTE.format(log=log) + code for name, code in files.items()})
    cluster.take_time()
    return cluster


def submit(cluster: Cluster, file: str) -> None:
    """Submit in a process of its own, whose command line names it."""
    cluster.project.wtb("submit", file, check=0, env=cluster.env)


def imported(cluster: Cluster) -> Counter[str]:
    """Count the imports by process."""
    log = Path(cluster.project.folder / "imported")
    return Counter(line.partition(": ")[2] for line in log.read_text().splitlines())


def test_a_sweep_is_imported_by_nodes_and_by_whoever_submits_it(noted: Cluster) -> None:
    """With a factory, a reducer, conditions, types of the user, added variants, retries and evaluators."""
    noted.project.write({"sweep.yaml": SWEEP.replace(', {all_of: {of: ["scoring:total"], at_least: 1}}', "")})
    noted.start_worker(ready=False)
    noted.start_scheduler()
    noted.wait_ready()
    submit(noted, "sweep.yaml")
    noted.wait_completed()
    assert noted.cells() == {"succeeded": 4}
    assert noted.query("SELECT metric, value FROM scores ORDER BY value")[::3] == [("total", 4.0), ("total", 21.0)]
    assert imported(noted).keys() == {"node", "wtb submit"}


def test_graphs_publications_runs_and_scorings_are_imported_by_nodes(noted: Cluster) -> None:
    noted.project.write(
        {
            "wtb.toml": """
[workflows]
graph = "graphs:graph"
native = "native:make"
broken = "broken:wf"
[publish]
evaluators = ["scoring:total"]
""",
            "case.json": "{}",
            "broken.py": "import os\nos.kill(os.getpid(), 9)\n",
            "graph.yaml": "sweep: graph\nworkflow: graph\ncases: [{id: a, input: {n: 1}}]\nvary: {two: all}\n",
        }
    )
    noted.start_worker(ready=False)
    noted.start_scheduler()
    noted.wait_ready()
    described = (
        "SELECT count(*) FROM publications WHERE description IS NOT NULL OR name = 'broken' AND error IS NOT NULL"
    )
    noted.until(lambda: noted.scalar(described) == 4, "all that is registered to be published")
    noted.project.wtb("submit", "graph.yaml", "--published", check=0, env=noted.env)
    noted.project.wtb("start", "native", "--published", "--input", "case.json", check=0, env=noted.env)
    noted.wait_completed()
    noted.project.wtb("score", "graph", "--evaluate", "scoring:total", "--published", check=0, env=noted.env)
    assert noted.query("SELECT value FROM scores") == [(4.0,)]
    assert imported(noted).keys() == {"node"}


SPY = """
import gc, glob, os
from wtb.config.credentials import known_credentials


def sees(path):
    try:
        with open(path, "rb") as file:
            return {secret!r}.encode() in file.read() and os.path.dirname(path)
    except OSError:
        return None


with open({log!r}, "a") as log:
    seen = [*filter(None, map(sees, glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"))), *known_credentials()]
    seen += [str(one) for one in gc.get_objects() if type(one).__name__ == "Database"]
    log.write(f"spy: {{'node' if 'WTB_NODE_PROCESS' in os.environ else 'other'}} {{seen}}\\n")
"""


@pytest.mark.parametrize("place", ["--queued", "--local"])
def test_a_schedule_is_imported_by_nodes_which_find_no_way_to_the_database(noted: Cluster, place: str) -> None:
    """Preparation with cases that code makes, the run, and the judgement of a later fire."""
    log = noted.project.folder / "imported"
    secret = f":{make_url(str(noted.project.url)).password}@"
    cases = "def rows():\n    return [{'id': f'c{n}', 'input': {}} for n in range(2)]\n"
    sweep = SWEEP.replace("[{id: c0, input: {}}, {id: c1, input: {}}]", "cased:rows")
    sweep = sweep.replace(', {all_of: {of: ["scoring:total"], at_least: 1}}', "")
    noted.project.write({"sweep.yaml": sweep, "cased.py": SPY.format(log=str(log), secret=secret) + cases})
    noted.project.wtb(
        "schedule", "add", "nightly", "sweep.yaml", "--cron", "0 3 * * *", "--baseline", "last", place, check=0,
        env=noted.env,
    )  # fmt: skip
    log.unlink()
    noted.project.change("UPDATE schedules SET next_at = next_at - 86400")
    if place == "--queued":
        noted.start_worker(ready=False)
    noted.start_scheduler()
    noted.until(lambda: noted.query("SELECT verdict FROM fires") not in ([], [(None,)]), "the fire to be judged")
    assert noted.cells() == {"succeeded": 4}
    assert noted.query("SELECT verdict FROM fires") == [("cannot tell",)]
    for command in ("check", "show", "history", "pause", "resume", "list"):
        noted.project.wtb("schedule", command, *(["nightly"] if command != "list" else []), check=0, env=noted.env)
    assert imported(noted).keys() == {"node", "node []"}


ENDS = """
import os, signal
from pathlib import Path

from wtb import END, Workflow

mark = Path({mark!r})
if "WTB_NODE_PROCESS" in os.environ and not mark.exists():
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
wf = Workflow("ends")


@wf.node
def answer(state):
    return {{}}


wf.entry(answer)
wf.edge(answer, END)
"""


def test_a_process_that_was_ended_while_it_imported_is_no_reason_to_refuse_a_sweep(cluster: Cluster) -> None:
    mark = cluster.project.folder / "ended"
    sweep = "workflow: ends:wf\ncases: [{id: c, input: {}}]\nvary: {answer: all}\n"
    cluster.project.write({"ends.py": ENDS.format(mark=str(mark)), "sweep.yaml": sweep})
    cluster.start_worker()

    cluster.submit("sweep.yaml", "--wait")

    assert mark.exists()
    assert cluster.project.query("SELECT data FROM events WHERE kind = 'worker.refused'") == []
    cluster.ends_well({"succeeded": 1})
