"""Run one cell of a sweep over a generated graph in plain LangGraph, and record its node runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.errors import GraphRecursionError, InvalidUpdateError

from tests.execution.test_tree_property import Alone
from tests.integrations.langgraph.graph_sketches import GraphSketch
from tests.integrations.langgraph.sketched_graphs import graph_of

COLLISION = "InvalidUpdateError: At key 'acc'"


@dataclass
class Streamed:
    """A task as LangGraph's stream shows it."""

    node: str
    inputs: Any
    wrote: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Leaf:
    """A task that is a node run. errors: it fails with the first of these that occurs."""

    node: str
    errors: list[str]


@dataclass
class Trace:
    """The result of a cell, read from LangGraph's stream.

    A step of WTB is one step of each graph that is under way: a graph that is a node of a step and has three steps of
    its own makes three of it. frames: tasks by place, step and id. leaves: node runs by step of WTB. unjoined: what the
    steps fail with that cannot be joined.
    """

    stepped: set[str]
    frames: dict[tuple[str, ...], dict[int, dict[str, Streamed]]] = field(default_factory=dict)
    leaves: dict[int, list[Leaf]] = field(default_factory=dict)
    unjoined: dict[int, list[str]] = field(default_factory=dict)

    def read(self, graph: Any, inputs: Mapping[str, Any]) -> None:
        ran_out = False
        try:
            for place, event in graph.stream(inputs, stream_mode="debug", subgraphs=True):
                payload = event["payload"]
                tasks = self.frames.setdefault(place, {}).setdefault(event["step"], {})
                if event["type"] == "task":
                    tasks[payload["id"]] = Streamed(payload["name"], payload["input"])
                elif event["type"] == "task_result":
                    tasks[payload["id"]].wrote = payload["result"]
        except GraphRecursionError:
            ran_out = True
        end = self.walk((), "", 0)
        if ran_out:
            self.unjoined.setdefault(end - 1, []).append("RoutingError: Recursion limit of")

    def walk(self, place: tuple[str, ...], name: str, start: int) -> int:
        """Count the steps of a graph that starts at a step. Return the step after it."""
        at, before = start, dict[str, tuple[int, Leaf | None]]()
        for _, tasks in sorted(self.frames.get(place, {}).items()):
            ends: dict[str, tuple[int, Leaf | None]] = {}
            for key, task in tasks.items():
                node, within = f"{name}.{task.node}" if name else task.node, (*place, f"{task.node}:{key}")
                if task.node == "bad":  # a path led to it that is not there
                    end, leaf = before[task.inputs["by"]]
                    (self.unjoined.setdefault(end - 1, []) if leaf is None else leaf.errors).append("KeyError: '3'")
                elif node in self.stepped:
                    ends[key] = self.walk(within, node, at), None
                else:
                    leaf = Leaf(node, self.errors_of(task, within))
                    self.leaves.setdefault(at, []).append(leaf)
                    ends[key] = at + 1, leaf
            at, before = max((end for end, _ in ends.values()), default=at), ends
            if collides(tasks):
                self.unjoined.setdefault(at - 1, []).append(COLLISION)
        return at

    def errors_of(self, task: Streamed, within: tuple[str, ...]) -> list[str]:
        """Return the errors of a task, including those of the graph that it runs as a whole."""
        inner = [steps for place, steps in self.frames.items() if place[: len(within)] == within]
        those = [tasks for steps in inner for tasks in steps.values()]
        wrote = [task.wrote, *(streamed.wrote for tasks in those for streamed in tasks.values())]
        errors = [error for update in wrote for error in update.get("bad", ())]
        return [*errors, *(COLLISION for tasks in those if collides(tasks))]

    @property
    def ends(self) -> tuple[int, tuple[str, ...]]:
        """The step that fails and its possible errors; if none fails, the step after the last and ()."""
        failed = {
            step: [f"node {leaf.node!r}: {error}" for leaf in leaves for error in leaf.errors]
            for step, leaves in self.leaves.items()
        }
        steps = [step for step, errors in failed.items() if errors]
        if (first := min([*steps, *self.unjoined], default=None)) is None:
            return len(self.leaves), ()
        return first, tuple(failed.get(first) or self.unjoined[first])

    def steps(self) -> list[list[str]]:
        """Return the node runs of each joined step; those of one node follow each other."""
        return [in_order(self.leaves[step]) for step in range(self.ends[0])]


def collides(tasks: Mapping[str, Streamed]) -> bool:
    return sum("acc" in task.wrote for task in tasks.values()) > 1


def in_order(leaves: list[Leaf]) -> list[str]:
    nodes = [leaf.node for leaf in leaves]
    return sorted(nodes, key=nodes.index)


def alone(sketch: GraphSketch, choice: Mapping[str, int], x: int) -> Alone:
    """Run one cell in plain LangGraph."""
    trace = Trace(sketch.stepped())
    trace.read(graph_of(sketch, choice, reports=True), {"x": x})
    last, errors = trace.ends
    path = tuple(node for step in trace.steps() for node in step)
    path_alone = Alone("failed" if errors else "succeeded", None, path, errors or None)
    try:
        path_alone.state = asyncio.run(graph_of(sketch, choice).ainvoke({"x": x}))
    except (ValueError, KeyError, InvalidUpdateError, GraphRecursionError):
        assert errors, "LangGraph fails where the stream tells of no failure"
    else:
        assert not errors, f"LangGraph fails by none of {errors}"
    walked: tuple[Any, ...] = ()
    for step in range(last + bool(errors)):
        count: Counter[str] = Counter()
        for leaf in trace.leaves.get(step, ()):
            if not leaf.errors:
                path_alone.prefixes.append((walked, leaf.node, count[leaf.node], choice.get(leaf.node, 0)))
            count[leaf.node] += 1
        walked = (*walked, tuple((node, number, choice.get(node, 0)) for node, number in count.items()))
    return path_alone
