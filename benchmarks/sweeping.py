"""The workload T and how a sweep is timed: 64 combinations x 10 cases of three trivial nodes, 840 node runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypedDict

from benchmarks.places import Kind, Places
from wtb.prepare import prepare
from wtb.running import SweepRun, workspaces_of
from wtb.spec import parse_spec
from wtb.store import reading
from wtb.store.database import Database
from wtb.sweep import cell_documents, run_to_end
from wtb.workflow import END, Workflow

VARIANTS, CASES = 4, 10
CELLS = VARIANTS**3 * CASES
NODE_RUNS = (VARIANTS + VARIANTS**2 + VARIANTS**3) * CASES
SLOTS = 16


class State(TypedDict, total=False):
    x: int
    a: int
    b: int
    c: str


def first(state: State, variant: int) -> State:
    return {"a": state["x"] + variant}


def second(state: State, variant: int) -> State:
    return {"b": state["a"] * 10 + variant}


def third(state: State, variant: int) -> State:
    return {"c": f"{state['b']}-{variant}"}


STEPS = {"A": first, "B": second, "C": third}


def expected(x: int, variants: Sequence[int]) -> State:
    """The state at the end, for the case `x` and one variant a node."""
    state: State = {"x": x}
    for step, variant in zip(STEPS.values(), variants, strict=True):
        state.update(step(state, variant))
    return state


def workflow(sleep_s: float = 0.0) -> Workflow:
    """A -> B -> C, four variants each; every node sleeps first."""
    made = Workflow("bench", state=State)
    for name, step in STEPS.items():
        node = made.node(_node(step, sleep_s), name=name)
        for number in range(1, VARIANTS):
            node.variant(f"v{number}", variant=number)
    made.entry("A")
    for source, target in (("A", "B"), ("B", "C"), ("C", END)):
        made.edge(source, target)
    return made


def _node(step: Callable[[State, int], State], sleep_s: float) -> Callable[..., State]:
    def run(state: State, *, variant: int = 0) -> State:
        if sleep_s:
            time.sleep(sleep_s)
        return step(state, variant)

    return run


def open_warm(places: Places, kind: Kind) -> Database:
    """An empty database on which a sweep of one case has run, so that connections and caches are warm."""
    database = Database(places.fresh(kind))
    database.prepare()
    timed(database, workflow(), cases=1)
    return database


def timed(
    database: Database, made: Workflow, *, cases: int = CASES, durability: str = "20ms", slots: int | None = None
) -> float:
    """Seconds from before the submission to the last commit of T; every cell is verified in the database."""
    spec = parse_spec(
        {
            "workflow": "bench:workflow",
            "cases": [{"id": str(x), "input": {"x": x}} for x in range(cases)],
            "vary": dict.fromkeys(STEPS, "all"),
            "run": {"durability": durability} | ({"concurrency": slots} if slots else {}),
        }
    )
    prepared, workspaces = prepare(spec, workflow=made), workspaces_of(database)
    begun = time.perf_counter()
    sweep_id = prepared.submit(database, workspaces)
    run = SweepRun(database, reading.find_sweep(database, sweep_id), prepared.bound, workspaces=workspaces)
    ended = run_to_end(run, grace=10.0)
    seconds = time.perf_counter() - begun
    if ended.status != "completed":
        raise RuntimeError(f"the sweep ended as {ended}")
    _verify(database, sweep_id, cases)
    return seconds


def _verify(database: Database, sweep_id: str, cases: int) -> None:
    """Hold every cell in the database against what its variants must give."""
    found = 0
    for cell in cell_documents(database, sweep_id):
        variants = [int(cell["combination"][node].removeprefix("v").replace("default", "0")) for node in STEPS]
        if cell["status"] != "succeeded" or cell["state"] != expected(int(cell["case"]), variants):
            raise RuntimeError(f"a wrong cell: {cell}")
        found += 1
    node_runs, _ = reading.spent(database, sweep_id)
    if (found, node_runs * CASES) != (VARIANTS**3 * cases, NODE_RUNS * cases):
        raise RuntimeError(f"{found} cells and {node_runs} node runs of {cases} cases")
