"""`python -m benchmarks.count_calls [--functions]`: count our functions that a trivial node run calls on a slot.

Two chains of different length are run on this thread, for one case and for several. What the longer one calls more for
the further cases is divided by the node runs that it has more, so that what a sweep, a node or a cell costs once is not
in the figures. A generator counts each time that
it is resumed, and a comprehension counts as a function. `--functions` lists what is called.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import wtb
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.execution.runtime.sweep_run import SweepRun
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.read.queries import find_sweep

OURS = str(Path(wtb.__file__).parent)
SHORT, LONG = 5, 15  # nodes
CASES = 6
CALLS, ACROSS, FILES = 150, 60, 18  # the most that there should be


@dataclass
class Counts:
    """Calls of our functions. across: those whose caller is in another file. functions: by file and name."""

    calls: float = 0
    across: float = 0
    functions: Counter[tuple[str, str]] = field(default_factory=Counter)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Count an event of the interpreter if it is a call of ours."""
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(OURS):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(OURS):
            caller = caller.f_back
        self.calls += 1
        self.across += caller is None or caller.f_code.co_filename != file
        self.functions[str(Path(file).relative_to(OURS)), frame.f_code.co_qualname] += 1

    def __sub__(self, other: Counts) -> Counts:
        return Counts(self.calls - other.calls, self.across - other.across, self.functions - other.functions)

    def shared_by(self, node_runs: int) -> Counts:
        """Return the share of each of some node runs, without functions that not every one calls."""
        functions = Counter({name: times // node_runs for name, times in self.functions.items()})
        return Counts(self.calls / node_runs, self.across / node_runs, +functions)

    @property
    def files(self) -> int:
        return len({file for file, _ in self.functions})


def count() -> Counts:
    """Count the calls of one node run of a chain on its slot."""
    with tempfile.TemporaryDirectory(prefix="wtb-count-") as folder:
        database = Database(f"sqlite:///{folder}/count.db")
        database.prepare()
        _counted(database, SHORT, 1)  # what is called once in a process has been called
        shorter, longer = (_counted(database, nodes, CASES) - _counted(database, nodes, 1) for nodes in (SHORT, LONG))
        database.close()
    return (longer - shorter).shared_by((LONG - SHORT) * (CASES - 1))


def _counted(database: Database, nodes: int, cases: int) -> Counts:
    case_rows = [{"id": str(number), "input": {"x": number}} for number in range(cases)]
    document = {"workflow": "chain", "cases": case_rows, "vary": {"n0": "all"}, "run": RUN}
    prepared, workspaces = prepare(parse_spec(document), workflow=_chain(nodes)), workspaces_of(database)
    sweep_id = prepared.submit(database, workspaces)
    run = SweepRun(database, find_sweep(database, sweep_id), prepared.bound, workspaces=workspaces)
    run.begin()
    counts = Counts()
    sys.setprofile(counts.profile)
    try:
        run.pool.work(run.runner.run)
    finally:
        sys.setprofile(None)
    if run.finish().status != "completed":
        raise RuntimeError("the sweep did not complete")
    return counts


RUN = {"pool": "thread", "concurrency": 1}


def _chain(nodes: int) -> Workflow:
    workflow = Workflow("chain", state=dict)
    for number in range(nodes):
        workflow.node(_next, name=f"n{number}")
    workflow.entry("n0")
    for number in range(nodes):
        workflow.edge(f"n{number}", f"n{number + 1}" if number + 1 < nodes else END)
    return workflow


def _next(state: dict[str, int]) -> dict[str, int]:
    return {"x": state["x"] + 1}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.count_calls", description=__doc__)
    parser.add_argument("--functions", action="store_true", help="list the functions that are called")
    options = parser.parse_args()
    counts = count()
    if options.functions:
        for (file, function), times in counts.functions.most_common():
            print(f"{times:5d}  {file}: {function}")
    print(f"a node run: {counts.calls:.0f} calls ({CALLS}), {counts.across:.0f} across files ({ACROSS}),", end=" ")
    print(f"in {counts.files} files ({FILES}); in parentheses: the most that there should be")


if __name__ == "__main__":
    main()
