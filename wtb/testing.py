"""For tests of workflows: canned variants, and single nodes and cells run in one line.

stub(wf["retrieve"], returns={"docs": []})
assert run_node(wf, "retrieve", {"question": "?"})["docs"]
assert run_cell(wf, {"question": "?"}, retrieve="bm25").state["answer"]
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wtb.authoring.code.calling import Caller
from wtb.authoring.code.resolve import as_workflow
from wtb.authoring.context.attempt_record import CaseView
from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.authoring.nodes import Node, Variant
from wtb.core.errors import InputError, NodeError
from wtb.core.questions import Answer, Answers, place
from wtb.core.serialization.codec import decode, encode
from wtb.core.tree.checkpoints import Position, shown
from wtb.core.values import Value
from wtb.execution.engine.executor import Surroundings
from wtb.execution.engine.protocol import Task, engine_of
from wtb.operations.sweep import Sweep
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces


def stub(
    node: Node, *, returns: Mapping[str, Any] | None = None, raises: BaseException | None = None, name: str = "stub"
) -> Variant:
    """Add a variant that returns the same update each time, or raises. Raises InputError where the name is taken."""
    if name in node.variants:
        raise InputError(f"node {node.name!r} has a variant {name!r} already; give this one another name=")

    def canned(state: Any) -> Mapping[str, Any] | None:
        if raises is not None:
            raise raises
        return returns

    added: Variant = node.variant(name, canned, description="canned")
    return added


def run_node(
    workflow: Any,
    node: str,
    state: Mapping[str, Any],
    *,
    variant: str | None = None,
    params: Mapping[str, Any] | None = None,
    seed: int = 0,
    answers: Sequence[Any] = (),
) -> dict[str, Any]:
    """Run one node on a state, as a sweep would: what it writes is encoded, checked and decoded again.

    workflow: a Workflow, or a LangGraph graph; of one within it, test that graph by itself.
    answers: to what it asks people, in their order; a text is both the choice and the feedback, an Answer is itself,
    and anything else is the value of one (`given`). Raises NodeError with the failure and the frames of the node's own
    code, and where it asks more.
    """
    workflow = as_workflow(workflow, "workflow")
    if node in workflow.nodes and node not in workflow.starts:
        raise InputError(f"node {node!r} is of a graph within: give run_node that graph, and the node's name in it")
    chosen = workflow[node][variant or workflow[node].default]
    values = {name: Value.of(value) for name, value in state.items()}
    encoded = {name: value.data for name, value in values.items()}
    task = Task(
        node,
        chosen.name,
        values,
        Position(0, (node,)),
        CaseView("test", (), encoded),
        seed=seed,
        params={**workflow.params, **(params or {})},
        timeout=workflow[node].rules.timeout,
        answers=_by_place(node, answers),
        interactive=bool(answers),
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
    return {name: decode(value.data) for name, value in shown(result.writes or {}).items()}


def _by_place(node: str, answers: Sequence[Any]) -> Answers:
    given = map(_answer, answers)
    return {place(kind, node, number): one for number, one in enumerate(given) for kind in ("ask", "action")}


def _answer(given: Any) -> Answer:
    if isinstance(given, Answer):
        return given
    if isinstance(given, str):
        return Answer("approve", given, given, "test")
    return Answer("approve", by="test", value=encode(given).decode())


def run_cell(
    workflow: Any, input: Mapping[str, Any], *, params: Mapping[str, Any] | None = None, **choices: str
) -> CellResult:
    """Run one cell in memory, from its input to the end; `choices` are variants by node, others are the default.

    workflow: a Workflow, or a LangGraph graph. A node of a graph within is chosen by `**{"sub.node": "variant"}`.
    Returns its result, whose `error` says why it failed, where it did. Raises InputError.
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
        (cell,) = sweep.run(db=database, files=Path(folder)).cells
    database.close()
    return CellResult(cell["state"], error=cell["error"]) if cell["error"] else reached[0]
