"""An existing app from nothing to a matrix by factors: prompts in files, models, temperatures, two retrievers."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

import wtb
from tests.support.project import Project
from tests.support.prose import sentence

# As people have it: no word of WTB in it.
APP = '''
"""Answers questions about the shop."""

PRICES = {"mini": 1, "large": 4, "huge": 9}

async def search(question: str, *, exact: bool) -> list[str]:
    return [question] if exact else [question, question.upper()]

async def complete(prompt: str, documents: list[str], *, model: str, temperature: float) -> str:
    return f"{prompt.splitlines()[0]} {' '.join(documents)} ({model}, {temperature}, {PRICES[model]})"
'''
BENCH = """
from wtb import END, Workflow

from app import complete, search

wf = Workflow("shop")

@wf.node
async def retrieve(state, *, exact: bool = True):
    return {"documents": await search(state["question"], exact=exact)}

retrieve.variant("loose", exact=False)

@wf.node
async def answer(state, *, prompt: str = "Answer.", model: str = "mini", temperature: float = 0.0):
    text = await complete(prompt, state["documents"], model=model, temperature=temperature)
    return {"answer": text}

wf.entry(retrieve)
wf.edge(retrieve, answer)
wf.edge(answer, END)
"""
SWEEP = """\
workflow: bench:wf
cases: cases.csv
vary:
  retrieve: all
  answer:
    prompt: [file://prompts/plain.md, file://prompts/terse.md, file://prompts/cited.md]
    model: [mini, large, huge]
    temperature: [0, 0.7]
evaluate:
  - contains: {field: answer}
baseline: {answer.prompt: plain.md, answer.model: large}
gates: [contains.mean >= 0]
"""
PROMPTS = {
    "prompts/plain.md": "Answer the question of the customer.\n",
    "prompts/terse.md": "Answer in one sentence.\nNever more.\n",
    "prompts/cited.md": "Answer, and cite the documents.\n",
}


@pytest.fixture
def shop(empty_project: Project) -> Project:
    cases = "id,question,expected\na,returns?,RETURNS?\nb,opening hours?,sentence\n"
    empty_project.write({"app.py": APP, "bench.py": BENCH, "sweep.yaml": SWEEP, "cases.csv": cases, **PROMPTS})
    return empty_project


def test_an_existing_app_has_a_matrix_of_36_combinations_by_factors(shop: Project) -> None:
    assert len(SWEEP.splitlines()) <= 15
    plan = shop.inside("plan", "sweep.yaml", check=0).stdout
    assert "36 combinations x 2 cases" in plan
    assert "answer: 18 grid points" in plan
    assert "answer.model: mini, large, huge (3 levels)" in plan
    assert "baseline: retrieve=default answer.prompt=plain.md#" in plan

    matrix = shop.json("run", "sweep.yaml", "--quiet")
    assert (matrix["cells"]["succeeded"], len(matrix["rows"])) == (72, 36)
    assert matrix["node_runs"]["executed"] == 2 * 2 + 36 * 2  # what retrieves is shared
    answer = {"answer.prompt": "plain.md#894edc11", "answer.model": "large", "answer.temperature": "0"}
    assert wtb_labels(matrix["baseline"]) == {"retrieve": "default", **answer}

    header, *lines = csv.reader(io.StringIO(shop.inside("matrix", "sweep", "--format", "csv", check=0).stdout))
    columns = ["factor.answer.prompt", "factor.answer.model", "factor.answer.temperature"]
    places = [header.index(column) for column in columns]
    levels = {tuple(line[place] for place in places) for line in lines}
    assert len(levels) == 18
    assert {level[1:] for level in levels} == {(m, t) for m in ("mini", "large", "huge") for t in ("0", "0.7")}

    table = shop.inside("matrix", "sweep", check=0, env={"COLUMNS": "140"}).stdout
    assert "answer.prompt" in table
    report = shop.folder / "report.html"
    shop.inside("report", "sweep", "--output", report, check=0)
    assert "answer.temperature" in report.read_text("utf-8")


def wtb_labels(choices: dict[str, str]) -> dict[str, str]:
    from wtb.core.factors import labels_of

    return labels_of(choices)


def test_a_part_runs_by_levels_and_continues_without_the_files(shop: Project) -> None:
    part = ("--combination", "answer.model=mini", "--combination", "answer.prompt=terse.md", "--limit", "1")
    matrix = shop.json("run", "sweep.yaml", *part, "--quiet")
    assert len(matrix["rows"]) == 4
    for name in PROMPTS:
        (shop.folder / name).unlink()
    cell = shop.cells("sweep")[0]
    assert cell["state"]["answer"].startswith("Answer in one sentence.")
    change = ("--at", "retrieve", "--variant", "answer.temperature=0.25", "--format", "json")
    forked = shop.inside("fork", cell["execution"], *change, check=0).json
    document = shop.json("show", forked["execution"]["id"])
    assert "(mini, 0.25, 1)" in document["state"]["answer"]
    added = shop.inside("combination", "add", cell["execution"], *change[:-2], check=0)
    assert "answer.temperature=0.25" in added.stdout + added.stderr


def test_an_edited_prompt_is_compared_with_what_it_was(shop: Project) -> None:
    part = ("--combination", "answer.model=mini", "--quiet")
    shop.inside("run", "sweep.yaml", *part, check=0)
    before = shop.json("list")["sweeps"][0]["id"]
    shop.write({"prompts/terse.md": "Say no word.\nNever more.\n"})
    shop.inside("run", "sweep.yaml", *part, check=0)
    after = shop.json("list")["sweeps"][0]["id"]

    compared = shop.inside("compare", before, after, "--format", "json").json
    assert compared["changed"]["combinations"] == {"common": 12, "added": 0, "removed": 0}
    assert compared["changed"]["variants"] == {"added": [], "removed": []}
    assert (compared["changed"]["code"], compared["changed"]["settings"]) == ([], [])
    (file,) = compared["changed"]["files"]
    assert file["path"] == "prompts/terse.md"
    assert file["difference"][-3:] == ["-Answer in one sentence.", "+Say no word.", " Never more."]
    text = shop.inside("compare", before, after).stdout
    assert "+Say no word." in text
    markdown = shop.inside("compare", before, after, "--format", "md").stdout
    assert "````diff\n--- prompts/terse.md" in markdown


GRAPH = """
from operator import add
from typing import Annotated, TypedDict

from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph

class State(TypedDict):
    question: str
    answer: str

def answer(state: State, model: str = "mini", *, temperature: float = 0.0) -> dict:
    return {"answer": f"{model} at {temperature}"}

inner = StateGraph(State)
inner.add_node("answer", answer)
inner.add_edge(START, "answer")
inner.add_edge("answer", END)

builder = StateGraph(State)
builder.add_node("agent", inner.compile())
builder.add_node("shout", RunnableLambda(lambda state: {"answer": state["answer"].upper()}))
builder.add_edge(START, "agent")
builder.add_edge("agent", "shout")
builder.add_edge("shout", END)
graph = builder.compile()
"""
RUNNABLE = "node 'shout': a RunnableLambda"
NOT_HOT = ("'temperature'", "'hot'", "float")


def write_graph(project: Project, vary: dict[str, Any]) -> None:
    sweep = {"workflow": "graphs:graph", "cases": [{"id": "a", "input": {"question": "?"}}], "vary": vary}
    project.write({"graphs.py": GRAPH, "sweep.yaml": json.dumps(sweep)})


@pytest.mark.nodes("langgraph")
@pytest.mark.parametrize(
    "vary",
    [
        {"agent.answer": {"model": ["mini", "large"], "temperature": [0, 0.5]}},
        {"agent.answer.model": ["mini", "large"], "agent.answer.temperature": [0, 0.5]},
    ],
)
def test_nodes_of_a_langgraph_graph_have_factors(empty_project: Project, vary: dict[str, Any]) -> None:
    write_graph(empty_project, vary)
    empty_project.inside("run", "sweep.yaml", "--quiet", check=0)
    cells = empty_project.cells("sweep")
    labels = [" at ".join(wtb_labels(cell["combination"]).values()) for cell in cells]
    assert labels == ["mini at 0", "mini at 0.5", "large at 0", "large at 0.5"]
    assert [cell["state"]["answer"] for cell in cells] == [label.upper() for label in labels]


@pytest.mark.nodes("langgraph")
@pytest.mark.parametrize(
    ("vary", "problem"),
    [
        ({"shout": {"loud": [1, 2]}}, sentence("{} takes no parameters: only functions have them", RUNNABLE)),
        ({"agent.answer.modle": ["a"]}, "takes no parameter 'modle'; did you mean 'model'? (it takes: model, temp"),
        ({"agent.answer.temperature": [0, "hot"]}, sentence("parameter {} is {}; expected {}", *NOT_HOT)),
    ],
)
def test_what_a_node_of_langgraph_does_not_take_is_refused(
    empty_project: Project, vary: dict[str, Any], problem: str
) -> None:
    write_graph(empty_project, vary)
    assert problem in empty_project.inside("run", "sweep.yaml", check=2).stderr


def test_a_sweep_in_python_has_factors_and_columns_of_them(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.folder)
    wf = wtb.Workflow("doubling")

    @wf.node
    def answer(state: Any, *, prompt: str = "", factor: int = 1) -> dict[str, Any]:
        return {"text": prompt.strip() * factor}

    wf.entry(answer)
    wf.edge(answer, wtb.END)
    grid = {"prompt": ["file://prompts/plain.md", "Short."], "factor": [1, 2]}
    sweep = wtb.Sweep(workflow=wf, cases=[{"id": "a", "input": {}}], vary={"answer": grid})
    handle = sweep.run(db="sqlite:///:memory:")
    frame = handle.to_pandas(state=["text"])
    assert list(frame["answer.factor"]) == ["1", "2", "1", "2"]
    assert frame[frame["answer.prompt"] == "Short."]["text"].tolist() == ["Short.", "Short.Short."]
