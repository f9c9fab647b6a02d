"""Workflows that workers import by name: T, S, and one whose node records its start."""

from __future__ import annotations

import time
from typing import Any, TypedDict

from benchmarks.workloads.chain import workflow
from wtb import evaluator
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END

SLEEP_S = 0.02
MANY = 10  # variants of each node of `many`

tiny = workflow()
sleepy = workflow(SLEEP_S)
many = workflow(variants=MANY)


class Clocked(TypedDict, total=False):
    at: float


clocked = Workflow("clocked", state=Clocked)


@clocked.node
def look(state: Clocked) -> Clocked:
    return {"at": time.time()}


clocked.entry(look)
clocked.edge(look, END)


class Sums(TypedDict, total=False):
    x: int


def add(state: Sums, *, by: int = 0) -> Sums:
    return {"x": state["x"] + by}


@evaluator(better="higher")
def summed(case: Any, result: Any) -> float:
    """Return the sum and a part that depends on the case, so that rows differ by more than a constant."""
    return float(result.state["x"] * (1 + int(case.id) % 7))


four = Workflow("four", state=Sums)
for name in "ABCD":
    node = four.node(add, name=name)
    for number in range(1, 5):
        node.variant(f"v{number}", by=number)
four.entry("A")
for source, target in (("A", "B"), ("B", "C"), ("C", "D"), ("D", END)):
    four.edge(source, target)
