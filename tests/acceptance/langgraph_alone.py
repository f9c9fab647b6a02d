"""The LangGraph examples as LangGraph itself runs them, with each of their variants: what a sweep is held against."""

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
    """What a loop over LangGraph comes to: final states by cell, and the node runs with and without shared prefixes."""

    states: dict[Cell, dict[str, Any]]
    executed: int
    unshared: int


def cases(spec: SweepSpec) -> dict[str, Case]:
    return {case.id: case for case in read_cases(spec.cases, spec.folder, spec.located, load)}


def with_node(builder: StateGraph, node: str, fn: Any) -> StateGraph:
    """A copy of a graph in which one node, perhaps of a subgraph, does its work with another function."""
    name, _, inner = node.partition(".")
    known = builder.nodes[name]
    if inner:
        fn = with_node(known.runnable.builder, inner, fn).compile()
    made = copy.copy(builder)
    made.nodes = {
        **builder.nodes,
        name: replace(known, runnable=StateGraph(builder.state_schema).add_node(name, fn).nodes[name].runnable),
    }
    return made


def run(builder: StateGraph, given: Mapping[str, Any], *answers: Any) -> dict[str, Any]:
    """The final state; of each question in turn the answer that is given, "send" where none is left."""
    compiled, thread = builder.compile(checkpointer=InMemorySaver()), {"configurable": {"thread_id": "1"}}
    state = compiled.invoke(given, thread)
    left = iter(answers)
    while "__interrupt__" in state:
        state = compiled.invoke(Command(resume=next(left, "send")), thread)
    return state


def all_combinations(spec: SweepSpec, limit: int) -> Alone:
    """Every combination over the first cases. Node runs that begin alike, variant by variant, are counted once."""
    states: dict[Cell, dict[str, Any]] = {}
    runs: dict[Any, int] = {}
    unshared = 0
    for refs in product(*spec.vary.values()):
        chosen = {node: ref for node, ref in zip(spec.vary, refs, strict=True) if isinstance(ref, VariantRef)}
        builder = load(spec.workflow)
        for node, ref in chosen.items():
            if not ref.is_own:
                builder = with_node(builder, node, _function(builder, node, ref))
        names = tuple(ref.name for ref in chosen.values())
        for case in islice(cases(spec).values(), limit):
            path: tuple[Any, ...] = ()
            steps, states[case.id, names] = _followed(builder, case.input)
            for step in steps:
                path += tuple((node, chosen[node].name if node in chosen else "") for node in step)
                runs[case.id, path] = len(step)
                unshared += len(step)
    return Alone(states, sum(runs.values()), unshared)


def _function(builder: StateGraph, node: str, ref: VariantRef) -> Any:
    fn = load(ref.source) if ref.source else builder.nodes[node].runnable.func
    return partial(fn, **ref.params) if ref.params else fn


def _followed(builder: StateGraph, given: Mapping[str, Any]) -> tuple[list[list[str]], dict[str, Any]]:
    """The nodes of each step, one as often as it has tasks, and the final state."""
    told = list(builder.compile().stream(given, stream_mode=["debug", "values"]))
    tasks: Iterator[dict[str, Any]] = (said for mode, said in told if mode == "debug" and said["type"] == "task")
    steps = [[task["payload"]["name"] for task in same] for _, same in groupby(tasks, itemgetter("step"))]
    return steps, next(said for mode, said in reversed(told) if mode == "values")
