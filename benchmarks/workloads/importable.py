"""Workflows that workers import by name: T, S, and one whose node says when it starts."""

from __future__ import annotations

import time
from typing import TypedDict

from benchmarks.workloads.chain import workflow
from wtb.authoring.edges import END
from wtb.authoring.workflow import Workflow

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
