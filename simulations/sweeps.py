"""Promises checked against whole sweeps: run by the engine, with shared prefixes, read from the matrix."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simulations.promises import Promise, seed_from
from wtb import END, Context, Sweep, Workflow, evaluator
from wtb.store.database import Database

CASES = 20


def promises() -> Iterator[Promise]:
    """Two prefixes of equal truth, random in each case, and two leaves of which one is really better by 0.1."""
    yield Promise(
        "a best that is clear, and is not", "real sweeps of such prefixes", "4 rows, 20 cases", _clear, None, 0.05, 60
    )


def _workflow(seed: int) -> Workflow:
    workflow = Workflow("prefixes")

    @workflow.node
    def first(state: dict[str, Any], ctx: Context, *, kind: str = "a") -> dict[str, Any]:
        return {"luck": random.Random(f"{seed} {ctx.case.id} {kind}").gauss(0.0, 1.0)}

    @workflow.node
    def last(state: dict[str, Any], *, gain: float = 0.0) -> dict[str, Any]:
        return {"score": state["luck"] + gain}

    first.variant("b", kind="b")
    last.variant("more", gain=0.1)
    workflow.entry(first)
    workflow.edge(first, last)
    workflow.edge(last, END)
    return workflow


@evaluator(better="higher")
def score(case: Any, result: Any) -> float:
    return float(result.state["score"])


def _clear(rng: np.random.Generator, runs: int) -> tuple[int, int]:
    """Count how often one combination is called clearly best although there are two."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="wtb-simulated-") as folder:
        for number in itertools.islice(itertools.count(), runs):
            database = Database(f"sqlite:///{Path(folder) / f'{number}.db'}")
            database.upgrade()
            done = Sweep(
                workflow=_workflow(seed_from(rng)),
                cases=[{"input": {"x": n}} for n in range(CASES)],
                vary={"first": "all", "last": "all"},
                evaluate=[score],
                run={"pool": "thread"},
            ).run(database, files=Path(folder) / f"files{number}")
            wrong += done.matrix()["best"]["score"]["clear"]
            database.close()
    return wrong, runs
