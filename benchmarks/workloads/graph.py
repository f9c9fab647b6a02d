"""The workload T as a graph of LangGraph. Node processes import it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from langgraph.graph import END, START, StateGraph

from benchmarks.workloads.chain import STEPS, VARIANTS, State
from wtb.authoring.code.import_paths import as_workflow
from wtb.authoring.workflow import Workflow
from wtb.integrations.langgraph import variants
from wtb.integrations.langgraph.adapt import Variants


def chain(nodes: Mapping[str, Callable[..., State]]) -> Any:
    """Return the builder of a graph that runs these nodes one after the other."""
    graph: Any = StateGraph(State)
    before = START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(before, name)
        before = name
    graph.add_edge(before, END)
    return graph


def swept() -> Variants:
    """Return A -> B -> C with four variants each, beside an unmodified graph."""
    sweep = variants(chain({name: partial(step, variant=0) for name, step in STEPS.items()}))
    for name, step in STEPS.items():
        for number in range(1, VARIANTS):
            sweep.add(name, f"v{number}", step, variant=number)
    return sweep


def workflow() -> Workflow:
    """Return the graph with its variants as a workflow."""
    return as_workflow(swept(), "benchmarks.workloads.graph:tiny")


tiny = swept()
