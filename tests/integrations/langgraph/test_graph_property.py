"""For any LangGraph graph, WTB gives each cell the result of `invoke`, and runs nothing twice.

Cells are compared with plain LangGraph, which runs the same graph with the cell's variants in it, and with
`share: false`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.execution.test_tree_property import QUICK, Make, comparable, compare, score
from tests.integrations.langgraph.graph_alone import alone
from tests.integrations.langgraph.graph_sketches import GraphSketch, graph_sketches
from tests.integrations.langgraph.sketched_graphs import graph_of, variant_of
from tests.support.amounts import examples
from wtb.authoring.code.calling import Caller
from wtb.authoring.code.import_paths import as_workflow
from wtb.authoring.context.attempt_record import CaseView
from wtb.authoring.workflow import Workflow
from wtb.core.failures import Failure
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import NodeTask, Position
from wtb.core.values import Value
from wtb.execution.engine.executor import Surroundings
from wtb.execution.engine.protocol import Engine, Joined, Root, Task, begin, engine_of, join
from wtb.integrations.langgraph.adapt import variants
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces


def workflow_of(sketch: GraphSketch) -> Workflow:
    graph = variants(graph_of(sketch, {}))
    for node in sketch.varied:
        for number in range(1, len(sketch.ways(node))):
            graph.add(node, f"w{number}", variant_of(sketch, node, number))
    return as_workflow(graph, "generated")


def choice_of(combination: Mapping[str, str]) -> dict[str, int]:
    return {node: 0 if variant == "default" else int(variant[1:]) for node, variant in combination.items()}


def drawn(many: int) -> settings:
    checks = [HealthCheck.too_slow]
    return settings(
        max_examples=examples(many), deadline=None, derandomize=True, phases=QUICK, suppress_health_check=checks
    )


@drawn(15)
@given(graph_sketches())
def test_the_tree_gives_each_cell_what_langgraph_gives_it(memory_bench: Make, sketch: GraphSketch) -> None:
    vary = {node: ["default", *(f"w{number}" for number in range(1, len(sketch.ways(node))))] for node in sketch.varied}
    spec: dict[str, Any] = {"repeats": sketch.repeats, "evaluators": {"score": score}}
    cases = [{"id": str(x), "input": {"x": x}} for x in range(sketch.cases)]

    tree = memory_bench(workflow_of(sketch), cases, vary, **spec, run={"concurrency": 3})

    compare(tree, lambda cell: alone(sketch, choice_of(cell.combination), int(cell.case)))


# The engine by itself


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    caller = Caller()
    folder = tmp_path_factory.mktemp("engine")
    yield Surroundings(caller, None, Workspaces(FileStore(folder / "files"), folder / "attempts"))
    caller.close()


class Drive:
    """Runs a cell by engines alone, a new one at every call, as in other processes; positions go through JSON."""

    def __init__(self, workflow: Workflow, choice: Mapping[str, str], x: int, surroundings: Surroundings) -> None:
        self.workflow, self.choice, self.surroundings = workflow, choice, surroundings
        value = Value.of(x)
        self.root = Root(CaseView("case", (), {"x": value.data}))
        self.state: dict[str, Value] = {"x": value}
        self.position = Position(0, ())
        self.path: list[str] = []
        self.failures: list[Failure] = []

    def to_end(self, shuffled: random.Random) -> None:
        """Run the tasks of each step in any order, and all of them even if one fails, as the runner does."""
        self.take(begin(self.engine, self.state, self.root))
        while self.position.next and not self.failures:
            tasks = list(self.position.tasks)
            shuffled.shuffle(tasks)
            results = {task.key: self.run(task) for task in tasks}
            if not self.failures:
                writes = [(task.key, results[task.key]) for task in self.position.tasks]
                ran = [task.node for task in self.position.tasks]
                self.take(join(self.engine, self.state, self.position, writes, self.root))
                self.path += [] if self.failures else ran

    @property
    def engine(self) -> Engine:
        return engine_of(self.workflow)

    def take(self, joined: Joined | Failure) -> None:
        if isinstance(joined, Failure):
            self.failures.append(joined)
            return
        self.state = joined.after(self.state, joined.changed)
        self.position = Position.read(json.loads(json.dumps(joined.position.document())))

    def run(self, of: NodeTask) -> Mapping[str, Value]:
        """Run a task and return its writes, or nothing if every attempt failed."""
        rules = self.workflow[of.node].rules
        variant = self.choice.get(of.node, "default")
        for attempt in range(1, rules.retries + 2):
            task = Task(
                of.node, variant, self.state, self.position, self.root,
                number=of.number, key=of.key, attempt=attempt,
            )  # fmt: skip
            node_result = self.engine.run(task, self.surroundings)
            if node_result.writes is not None:
                return node_result.writes
            if node_result.failure is not None and node_result.failure.final:
                break
        assert node_result.failure is not None
        self.failures.append(node_result.failure)
        return {}


@drawn(120)
@given(graph_sketches(), st.integers(0, 3), st.randoms(use_true_random=False), st.data())
def test_the_engine_takes_the_steps_that_langgraph_takes(
    surroundings: Surroundings, sketch: GraphSketch, x: int, shuffled: random.Random, data: st.DataObject
) -> None:
    ways = {node: data.draw(st.sampled_from(range(len(sketch.ways(node))))) for node in sketch.varied}
    expected = alone(sketch, ways, x)

    variant_of = {node: f"w{way}" if way else "default" for node, way in ways.items()}
    drive = Drive(workflow_of(sketch), variant_of, x, surroundings)
    drive.to_end(shuffled)

    assert drive.path == list(expected.path)
    if expected.error is None:
        assert drive.failures == []
        assert comparable({key: decode(value.data) for key, value in drive.state.items()}) == comparable(
            expected.state or {}
        )
    else:
        assert [str(failure) for failure in drive.failures if str(failure).startswith(expected.error)]
