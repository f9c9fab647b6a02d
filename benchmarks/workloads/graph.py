"""The workload T as a graph of LangGraph. Node processes import it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from langgraph.graph import END, START, StateGraph

from benchmarks.workloads.chain import STEPS, VARIANTS, State
from wtb.authoring.code.resolve import as_workflow
from wtb.authoring.workflow import Workflow
from wtb.integrations.langgraph import variants
from wtb.integrations.langgraph.authoring.adapt import Variants


def chain(nodes: Mapping[str, Callable[..., State]]) -> Any:
    """A builder of a graph that does these nodes one after the other."""
    graph: Any = StateGraph(State)
    before = START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(before, name)
        before = name
    graph.add_edge(before, END)
    return graph


def swept() -> Variants:
    """A -> B -> C, four variants each, as they stand beside an unmodified graph."""
    made = variants(chain({name: partial(step, variant=0) for name, step in STEPS.items()}))
    for name, step in STEPS.items():
        for number in range(1, VARIANTS):
            made.add(name, f"v{number}", step, variant=number)
    return made


def workflow() -> Workflow:
    """The same, as WTB takes it."""
    return as_workflow(swept(), "benchmarks.workloads.graph:tiny")


tiny = swept()
