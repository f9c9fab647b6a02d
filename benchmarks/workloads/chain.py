"""The workload T: 64 combinations x 10 cases of three trivial nodes, 840 node runs. Node processes import it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypedDict

from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END

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
    """Return the final state for the case `x` and one variant a node."""
    state: State = {"x": x}
    for step, variant in zip(STEPS.values(), variants, strict=True):
        state.update(step(state, variant))
    return state


def workflow(sleep_s: float = 0.0, variants: int = VARIANTS) -> Workflow:
    """Build A -> B -> C with these variants each; every node sleeps first."""
    chain = Workflow("bench", state=State)
    for name, step in STEPS.items():
        node = chain.node(_node(step, sleep_s), name=name)
        for number in range(1, variants):
            node.variant(f"v{number}", variant=number)
    chain.entry("A")
    for source, target in (("A", "B"), ("B", "C"), ("C", END)):
        chain.edge(source, target)
    return chain


def _node(step: Callable[[State, int], State], sleep_s: float) -> Callable[..., State]:
    def run(state: State, *, variant: int = 0) -> State:
        if sleep_s:
            time.sleep(sleep_s)
        return step(state, variant)

    return run


tiny = workflow()
