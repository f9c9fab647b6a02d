"""A workflow of three nodes that has run as a sweep, whose nodes count how often they ran."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.bench import Bench
from wtb import END, Workflow
from wtb.analysis.matrix.build import build
from wtb.operations.context import Context
from wtb.operations.running.added_rows import AddedRow, add_row
from wtb.planning.binding import Bound, bind
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import SweepSpec, Variant
from wtb.store.read import queries


def score(case: Any, result: Any) -> float:
    return float(len("".join(result.state["way"])) + 0.01 * result.state["x"])


def node(name: str, folder: str) -> Callable[..., dict[str, Any]]:
    def run(state: dict[str, Any], *, suffix: str = "") -> dict[str, Any]:
        with open(f"{folder}/log", "a") as log:
            log.write(f"{name}\n")
        if name == "a" and os.path.exists(f"{folder}/fails-{state['x']}"):
            raise ValueError("no such case")
        return {"way": [*state.get("way", []), name + suffix]}

    return run


def changed(state: dict[str, Any]) -> dict[str, Any]:
    return {"way": [*state.get("way", []), "changed"]}


def ran(folder: Path) -> Counter[str]:
    log = folder / "log"
    return Counter(log.read_text().split() if log.exists() else ())


class Abc:
    """a -> b -> c over cases, each of which appends its name to `way`; a fails where a file says so of x.

    What nodes did is in a file: fingerprints cover what a function holds.
    """

    def __init__(self, folder: Path, bench: Callable[..., Bench], cases: int = 8, **spec: Any) -> None:
        self.folder = folder
        self.wf = Workflow("abc")
        for name in "abc":
            self.wf.node(node(name, str(folder)), name=name)
        self.wf["b"].variant("loud", suffix="!")
        self.wf["b"].variant("off", suffix="")
        self.wf["c"].variant("late", suffix="?????")
        self.wf.entry("a")
        self.wf.edge("a", "b")
        self.wf.edge("b", "c")
        self.wf.edge("c", END)
        for number in spec.pop("fails", ()):
            (folder / f"fails-{number}").touch()
        listed = [{"id": f"c{number}", "input": {"x": number}} for number in range(cases)]
        spec = {"run": {"concurrency": 2}, "baseline": {"b": "default"}, **spec}
        self.bench = bench(self.wf, listed, {"b": ["default", "loud"]}, evaluators={"t:score": score}, **spec)
        self.bench.run()
        self.forget()
        self.context = Context(self.bench.database, by="anna")

    @property
    def ran(self) -> Counter[str]:
        """The number of runs of each node."""
        return ran(self.folder)

    def forget(self) -> None:
        (self.folder / "log").unlink()

    def code(self, spec: SweepSpec) -> Bound:
        """The workflow as it is now, which no import finds."""
        return bind(spec, self.wf, {"t:score": score})

    def execution(self, case: str, **choices: str) -> str:
        every = queries.choices(self.bench.database, self.bench.sweep_id)
        rows = list(queries.cell_rows(self.bench.database, self.bench.sweep_id))
        fits = (row for row in rows if choices.items() <= every[row.combination].items() and row.case == case)
        return str(next(fits).execution_id)

    def add(self, ref: str, variants: Mapping[str, Variant] | None = None, at: str | None = None) -> AddedRow:
        return add_row(self.context, ref, at=at, variants=variants, reason="it looked good", run=False, code=self.code)

    def run(self) -> None:
        """Run what is pending, with the code as it is now."""
        bound = self.code(stored_spec(self.bench.row))
        self.bench.prepared = replace(self.bench.prepared, bound=bound)
        self.bench.run()

    def matrix(self) -> dict[str, Any]:
        return build(self.bench.database, self.bench.row)


def write_new(abc: Abc) -> None:
    """Write a function that was not there when the sweep was submitted."""
    abc.wf["b"].variant("new", suffix="!!!!!!!!!!")
