"""The LangGraph examples with each of their variants, run by LangGraph itself, as a reference for sweeps."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby, islice, product
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.types import Command

from wtb.authoring.code.import_paths import load
from wtb.planning.cases import Case, read_cases
from wtb.planning.sweep_spec import SweepSpec, VariantRef, load_spec

FOLDER = Path(__file__).parents[2] / "examples" / "langgraph"
SWEEPS = {name: load_spec(FOLDER / name / "sweep.yaml") for name in ("agent", "approval", "retrieval")}

Cell = tuple[str, tuple[str, ...]]  # a case, and the names of the variants


class Alone(NamedTuple):
    """The outcome of a loop over LangGraph: final states by cell, and node runs with and without shared prefixes."""

    states: dict[Cell, dict[str, Any]]
    executed: int
    unshared: int


def cases(spec: SweepSpec) -> dict[str, Case]:
    return {case.id: case for case in read_cases(spec.cases, spec.folder, spec.located, load)}


def with_node(builder: StateGraph, node: str, fn: Any) -> StateGraph:
    """Return a copy of a graph in which one node, possibly of a subgraph, has another function."""
    name, _, inner = node.partition(".")
    original = builder.nodes[name]
    if inner:
        fn = with_node(original.runnable.builder, inner, fn).compile()
    changed = copy.copy(builder)
    runnable = StateGraph(builder.state_schema).add_node(name, fn).nodes[name].runnable
    changed.nodes = builder.nodes | {name: replace(original, runnable=runnable)}
    return changed


def run(builder: StateGraph, inputs: Mapping[str, Any], *answers: Any) -> dict[str, Any]:
    """Return the final state. Questions get the answers in turn, and "send" after the last one."""
    compiled, thread = builder.compile(checkpointer=InMemorySaver()), {"configurable": {"thread_id": "1"}}
    state = compiled.invoke(inputs, thread)
    remaining = iter(answers)
    while "__interrupt__" in state:
        state = compiled.invoke(Command(resume=next(remaining, "send")), thread)
    return state


def all_combinations(spec: SweepSpec, limit: int) -> Alone:
    """Run every combination over the first cases. Node runs with equal prefixes of variants count once."""
    states: dict[Cell, dict[str, Any]] = {}
    runs: dict[Any, int] = {}
    unshared = 0
    for refs in product(*spec.vary.values()):
        by_node = {node: ref for node, ref in zip(spec.vary, refs, strict=True) if isinstance(ref, VariantRef)}
        builder = load(spec.workflow)
        for node, ref in by_node.items():
            if not ref.is_own:
                builder = with_node(builder, node, _function(builder, node, ref))
        names = tuple(ref.name for ref in by_node.values())
        for case in islice(cases(spec).values(), limit):
            path: tuple[Any, ...] = ()
            steps, states[case.id, names] = _followed(builder, case.input)
            for step in steps:
                path += tuple((node, by_node[node].name if node in by_node else "") for node in step)
                runs[case.id, path] = len(step)
                unshared += len(step)
    return Alone(states, sum(runs.values()), unshared)


def _function(builder: StateGraph, node: str, ref: VariantRef) -> Any:
    fn = load(ref.source) if ref.source else builder.nodes[node].runnable.func
    return partial(fn, **ref.params) if ref.params else fn


def _followed(builder: StateGraph, inputs: Mapping[str, Any]) -> tuple[list[list[str]], dict[str, Any]]:
    """Return the nodes of each step, each as often as it has tasks, and the final state."""
    updates = list(builder.compile().stream(inputs, stream_mode=["debug", "values"]))
    tasks: Iterator[dict[str, Any]] = (
        payload for mode, payload in updates if mode == "debug" and payload["type"] == "task"
    )
    steps = [[task["payload"]["name"] for task in same] for _, same in groupby(tasks, itemgetter("step"))]
    return steps, next(payload for mode, payload in reversed(updates) if mode == "values")
