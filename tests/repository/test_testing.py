"""`wtb.testing`: helpers for the tests of users."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

from wtb import END, Context, InputError, Workflow
from wtb.core.errors import NodeError
from wtb.testing import run_cell, run_node, stub


class State(TypedDict, total=False):
    question: str
    docs: list[str]
    answer: str


@pytest.fixture
def workflow() -> Workflow:
    wf = Workflow("qa", state=State, params={"loud": False})

    @wf.node
    def retrieve(state: State, ctx: Context, *, k: int = 1) -> dict[str, Any]:
        (ctx.workspace / "seen.txt").write_text(state["question"], "utf-8")
        return {"docs": ["a", "b", "c"][:k]}

    retrieve.variant("deep", k=3)

    @wf.node
    async def answer(state: State, ctx: Context) -> dict[str, Any]:
        text = f"{state['question']} {','.join(state['docs'])} {(ctx.workspace / 'seen.txt').read_text('utf-8')}"
        return {"answer": text.upper() if ctx.params["loud"] else text}

    wf.entry(retrieve)
    wf.edge(retrieve, answer)
    wf.edge(answer, END)
    return wf


def test_a_node_runs_by_itself_and_gives_what_it_writes(workflow: Workflow) -> None:
    assert run_node(workflow, "retrieve", {"question": "why?"}) == {"docs": ["a"]}
    assert run_node(workflow, "retrieve", {"question": "why?"}, variant="deep") == {"docs": ["a", "b", "c"]}


def test_a_failing_node_raises_with_its_own_frames(workflow: Workflow) -> None:
    with pytest.raises(NodeError, match="KeyError: 'docs'") as failed:
        run_node(workflow, "answer", {"question": "why?"})
    assert "test_testing.py" in str(failed.value)


def test_a_cell_runs_to_its_end_with_files_and_params(workflow: Workflow) -> None:
    cell_result = run_cell(workflow, {"question": "why?"}, params={"loud": True}, retrieve="deep")
    assert cell_result.state["answer"] == "WHY? A,B,C WHY?"
    assert cell_result.path == ("retrieve", "answer")
    assert cell_result.error is None


def test_a_stub_stands_in_for_a_node(workflow: Workflow) -> None:
    stub(workflow["answer"], returns={"answer": "42"})
    assert run_cell(workflow, {"question": "why?"}, answer="stub").state["answer"] == "42"


def test_a_stub_that_raises_fails_the_cell(workflow: Workflow) -> None:
    stub(workflow["answer"], raises=RuntimeError("down"), name="broken")
    cell_result = run_cell(workflow, {"question": "why?"}, answer="broken")
    assert cell_result.error == "node 'answer': RuntimeError: down"
    assert cell_result.state == {"question": "why?", "docs": ["a"]}


def test_an_unknown_variant_is_refused_with_a_near_match(workflow: Workflow) -> None:
    with pytest.raises(InputError, match="did you mean 'deep'"):
        run_cell(workflow, {"question": "why?"}, retrieve="dep")
