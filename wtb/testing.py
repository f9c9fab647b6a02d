"""For tests of workflows: stubs, and single nodes and cells run in one line."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wtb.authoring.code.calling import Caller
from wtb.authoring.code.import_paths import as_workflow
from wtb.authoring.context.attempt_record import CaseView
from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.authoring.nodes import Node, Variant
from wtb.core.errors import InputError, NodeError
from wtb.core.questions import Answer, Answers, place
from wtb.core.serialization.codec import decode, encode
from wtb.core.tree.checkpoints import Position, visible_state
from wtb.core.values import Params, State, Value
from wtb.execution.engine.executor import Surroundings
from wtb.execution.engine.protocol import Root, Settings, Task, engine_of
from wtb.handles.local_sweep import Sweep
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces

__all__ = ["Answer", "CellResult", "ScoredCase", "run_cell", "run_node", "stub"]


def stub(
    node: Node, *, returns: State | None = None, raises: BaseException | None = None, name: str = "stub"
) -> Variant:
    """Add a variant that returns the same update each time, or raises.

    Args:
        node: The node.
        returns: What it writes, by key of the state.
        raises: An error to raise instead.
        name: The variant's name.

    Returns:
        The variant.

    Raises:
        InputError: If the node has a variant of that name already.

    Example:
        >>> from wtb import END, Workflow
        >>> from wtb.testing import run_cell, stub
        >>> wf = Workflow("answers")
        >>> retrieve = wf.node(lambda state: {"docs": 1 / 0}, name="retrieve")
        >>> count = wf.node(lambda state: {"count": len(state["docs"])}, name="count")
        >>> wf.entry(retrieve)
        >>> wf.edge(retrieve, count)
        >>> wf.edge(count, END)
        >>> variant = stub(wf["retrieve"], returns={"docs": ["a", "b"]})
        >>> run_cell(wf, {"question": "Why?"}, retrieve="stub").state["count"]
        2
    """
    if name in node.variants:
        raise InputError(f"node {node.name!r} has a variant {name!r} already; give this one another name=")

    def canned(state: Any) -> State | None:
        if raises is not None:
            raise raises
        return returns

    added: Variant = node.variant(name, canned, description="canned")
    return added


def run_node(
    workflow: Any,
    node: str,
    state: State,
    *,
    variant: str | None = None,
    params: Params | None = None,
    seed: int = 0,
    answers: Sequence[Any] = (),
) -> dict[str, Any]:
    """Run one node on a state, as a sweep would: what it writes is encoded, checked and decoded again.

    Args:
        workflow: A Workflow, or a LangGraph graph. Test a node of a subgraph with that graph.
        node: The node's name.
        state: Values by key.
        variant: The variant's name; by default the node's default.
        params: What the node finds in `ctx.params`, beside the workflow's own.
        seed: What `ctx.rng` starts from.
        answers: Answers to what it asks people, in order. A text is both the choice and the feedback, an Answer is
            itself, and anything else is the value of one (`given`).

    Returns:
        What the node wrote, by key of the state.

    Raises:
        InputError: For an unknown node or variant.
        NodeError: If it fails, with the frames of its own code; also if it asks more questions than `answers` has.

    Example:
        >>> from wtb import Workflow
        >>> from wtb.testing import run_node
        >>> wf = Workflow("greeting")
        >>> @wf.node
        ... def greet(state, ctx, *, word: str = "Hello"):
        ...     return {"text": f"{word}, {state['name']}!"}
        >>> curt = greet.variant("curt", word="Hi")
        >>> run_node(wf, "greet", {"name": "Ana"}, variant="curt")
        {'text': 'Hi, Ana!'}
    """
    workflow = as_workflow(workflow, "workflow")
    if node in workflow.nodes and node not in workflow.facts().starts:
        raise InputError(f"node {node!r} is of a graph within: give run_node that graph, and the node's name in it")
    chosen = workflow[node][variant or workflow[node].default]
    values = {name: Value.of(value) for name, value in state.items()}
    encoded = {name: value.data for name, value in values.items()}
    task = Task(
        node,
        chosen.name,
        values,
        Position(0, (node,)),
        Root(CaseView("test", (), encoded), params={**workflow.params, **(params or {})}, seed=seed),
        timeout=workflow[node].rules.timeout,
        answers=_by_place(node, answers),
        settings=Settings(interactive=bool(answers)),
    )
    caller = Caller()
    with tempfile.TemporaryDirectory(prefix="wtb-") as folder:
        workspaces = Workspaces(FileStore(Path(folder) / "files"), Path(folder) / "attempts")
        result = engine_of(workflow).run(task, Surroundings(caller, workflow.resources, workspaces))
    caller.close()
    if result.failure is not None:
        raise NodeError(f"{result.failure}\n{result.failure.trace}".rstrip())
    if result.question is not None:
        raise NodeError(f"node {node!r} asks {result.question.text!r}; give run_node(..., answers=[...]) one more")
    return {name: decode(value.data) for name, value in visible_state(result.writes or {}).items()}


def _by_place(node: str, answers: Sequence[Any]) -> Answers:
    given = map(_answer, answers)
    return {place(kind, node, number): one for number, one in enumerate(given) for kind in ("ask", "action")}


def _answer(given: Any) -> Answer:
    if isinstance(given, Answer):
        return given
    if isinstance(given, str):
        return Answer("approve", given, given, "test")
    return Answer("approve", by="test", value=encode(given).decode())


def run_cell(workflow: Any, input: State, *, params: Params | None = None, **choices: str) -> CellResult:
    """Run one cell in memory, from its input to the end.

    Args:
        workflow: A Workflow, or a LangGraph graph.
        input: Values by key of the state.
        params: What nodes find in `ctx.params`, beside the workflow's own.
        **choices: Variant by node; other nodes do what their default does. A node of a subgraph is chosen by
            `**{"sub.node": "variant"}`.

    Returns:
        Its result; `error` says why it failed, if it did.

    Raises:
        InputError: For an unknown node or variant, or an input that the workflow does not take.

    Example:
        >>> from wtb import END, Workflow
        >>> from wtb.testing import run_cell
        >>> wf = Workflow("doubling")
        >>> double = wf.node(lambda state: {"y": 2 * state["x"]}, name="double")
        >>> wf.entry(double)
        >>> wf.edge(double, END)
        >>> run_cell(wf, {"x": 21}).state
        {'x': 21, 'y': 42}
    """
    plain = as_workflow(workflow, "workflow").apply(choices)
    plain.breakpoints = ()
    reached: list[CellResult] = []

    def keep(case: ScoredCase, result: CellResult) -> bool:
        reached.append(result)
        return True

    sweep = Sweep(
        workflow=plain,
        cases=[{"id": "test", "input": dict(input)}],
        vary={node.name: [node.default] for node in plain.nodes.values()},
        params=dict(params or {}),
        evaluate=[keep],
        run={"concurrency": 1},
    )
    database = Database("sqlite:///:memory:")
    with tempfile.TemporaryDirectory(prefix="wtb-") as folder:
        (cell,) = sweep.run(db=database, files=Path(folder)).cells()
    database.close()
    return CellResult(cell["state"], error=cell["error"]) if cell["error"] else reached[0]
