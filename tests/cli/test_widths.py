"""Terminals of 60, 80 and 100 columns: no line is wider, and no two rows of a table look alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from rich.cells import cell_len

from tests.support.project import Project

FLOW = """
from typing import TypedDict

from wtb import END, Context, Workflow


class State(TypedDict, total=False):
    question: str
    passages: list
    answer: str


wf = Workflow("retrieval_augmented_generation", state=State)


@wf.node
def split_documents(state: State, ctx: Context, *, by: int = 1) -> dict:
    return {"passages": [state["question"]] * by}


@wf.node
def retrieve_passages(state: State, ctx: Context, *, by: int = 1) -> dict:
    ctx.cost(usd=0.001 * by, tokens_in=100)
    (ctx.workspace / "retrieved_passages_of_the_question.txt").write_text("found", "utf-8")
    return {"passages": state["passages"] * by}


@wf.node
def classify_the_question(state: State, ctx: Context, *, by: int = 1) -> dict:
    return {}


@wf.node
def generate_the_answer(state: State, ctx: Context, *, by: int = 1) -> dict:
    if by == 2 and "3" in state["question"]:
        raise ValueError("the model that generates answers has refused to say anything at all about this question")
    return {"answer": state["question"] + " yes" * by * len(state["passages"])}


nodes = [split_documents, retrieve_passages, classify_the_question, generate_the_answer]
for node in nodes:
    node.variant("dense-embedding-news-large", by=2)
wf.entry(split_documents)
for one, other in zip(nodes, nodes[1:]):
    wf.edge(one, other)
wf.edge(generate_the_answer, END)

asking = Workflow("asking")


@asking.node
def review(state, ctx):
    return {"said": ctx.ask("Is this good enough to be sent to the customer, or is there anything to be added?").choice}


asking.entry(review)
asking.edge(review, END)


def length_of_answer(case, result):
    return float(len(result.state["answer"]))


def similarity_to_expected(case, result):
    return float(len(result.state["passages"])) / 7
"""
SWEEP = """
sweep: retrieval_of_every_night
workflow: flow:wf
cases: cases.jsonl
vary:
  split_documents: all
  retrieve_passages: all
  classify_the_question: all
  generate_the_answer: all
baseline:
  split_documents: default
  retrieve_passages: default
  classify_the_question: default
  generate_the_answer: default
evaluate: [flow:length_of_answer, flow:similarity_to_expected, latency]
"""
CASES = "".join(
    json.dumps({"id": f"question-about-the-weather-{n}", "input": {"question": f"Will it rain on day {n}?"}}) + "\n"
    for n in range(4)
)


NAME = "retrieval_of_every_night"


class Wide(Project):
    """A folder with a sweep of long names that ran, one of its executions, and one that waits for a person."""

    execution = other = single = ""

    def show(self, width: int, *words: str) -> str:
        return self.inside(*words, env={"COLUMNS": str(width), "LINES": "40"}).stdout


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wide]:
    project = Wide(tmp_path_factory.mktemp("wide") / "project")
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": CASES})
    project.write({"asks.yaml": "sweep: asks\nworkflow: flow:asking\ncases: cases.jsonl\nvary: {review: all}\n"})
    project.inside("run", "sweep.yaml", "--quiet", check=1)
    project.inside("run", "asks.yaml", "--quiet", check=1)
    project.single = project.inside("start", "flow:asking", "--set", "question=x", check=1).stderr.split()[1]
    cells = project.json("show", "retrieval_of_every_night", "--cells")["cells"]
    project.execution, project.other = cells[0]["execution"], cells[5]["execution"]
    project.inside("baseline", "set", "nightly", "retrieval_of_every_night", "--anyway", check=0)
    fork = project.inside("fork", project.execution, "--at", "split_documents", "--set", "question=y").stdout.strip()
    project.inside("rollback", fork, "--to", "retrieve_passages")
    project.inside("admin", "budget", "set", "--project", "default", "--usd", "100", check=0)
    named = ("the-retrieval-of-every-night", "small.yaml", "--cron", "0 3 * * *", "--tz", "Europe/Berlin")
    project.write({"small.yaml": SWEEP.replace(NAME, "small") + "combinations: one-at-a-time\n"})
    project.inside("schedule", "add", *named, "--baseline", "nightly", check=0)
    project.inside("schedule", "run-now", named[0])
    yield project
    project.close()


COMMANDS = [
    ["list", "--all"],
    ["status", NAME],
    ["show", NAME],
    ["show", NAME, "--cells"],
    ["show", NAME, "--cells", "--failed"],
    ["matrix", NAME],
    ["log", NAME, "--kind", "cell"],
    ["log", NAME, "--summary"],
    ["tree", NAME],
    ["costs", NAME, "--by", "node,variant"],
    ["costs", NAME, "--by", "sweep,node"],
    ["plan", "sweep.yaml"],
    ["workflow", "show", "flow:wf"],
    ["approvals"],
    ["approvals", "--each"],
    ["baseline", "list"],
    ["baseline", "show", "nightly"],
    ["admin", "budget", "list"],
    ["schedule", "list"],
    ["schedule", "show", "the-retrieval-of-every-night"],
    ["schedule", "history", "the-retrieval-of-every-night"],
    ["compare", NAME, "small"],
    ["compare", "small", NAME],
    ["admin", "session", "list"],
    ["admin", "session", "show", "default"],
    ["admin", "gc", "--dry-run"],
    ["series", NAME],
    ["doctor"],
    ["show", "EXECUTION"],
    ["show", "EXECUTION", "--calls"],
    ["status", "EXECUTION"],
    ["history", "EXECUTION"],
    ["tree", "EXECUTION"],
    ["files", "EXECUTION"],
    ["files", "EXECUTION", "--diff", "OTHER"],
    ["diff", "EXECUTION", "OTHER"],
    ["status", "SINGLE"],
    ["show", "SINGLE"],
    ["history", "SINGLE"],
]


@pytest.mark.parametrize("width", [60, *(pytest.param(width, marks=pytest.mark.slow) for width in (80, 100))])
def test_no_line_of_any_command_is_wider_than_the_terminal(wide: Wide, width: int) -> None:
    ids = {"EXECUTION": wide.execution, "OTHER": wide.other, "SINGLE": wide.single}
    problems = []
    for command in COMMANDS:
        text = wide.show(width, *(ids.get(word, word) for word in command))
        problems += [] if text else [f"wtb {' '.join(command)} says nothing"]
        for line in text.splitlines():
            if cell_len(line) > width and "wtb " not in line:  # a command stays on one line, so that it can be copied
                problems.append(f"wtb {' '.join(command)}: {line}")
    assert problems == []


def rows(text: str) -> list[list[str]]:
    """Return the rows of each table, without its head, its legend and its footer."""
    tables: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("──"):
            tables.append([])
            inside = True
        elif not line or line.startswith(("short for", "variants of", "all with", "#", "⋮")):
            inside = False
        elif inside and not re.match(r"  \S", line):
            tables[-1].append(line)
    return tables


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_two_combinations_look_alike(wide: Wide, width: int) -> None:
    """Case, combination and figures tell cells apart, without the ids of executions."""
    cells = rows(wide.show(width, "show", NAME, "--cells"))[0]
    combinations = [re.split(r"  (?:succeeded|failed)  ", line)[0] for line in cells]
    assert len(combinations) == 64
    assert len(set(combinations)) == 64
    matrix = rows(wide.show(width, "matrix", NAME))
    for table in matrix:
        named = [re.split(r"  +4  ", line.removeprefix("☆ leads").removeprefix("☆").strip())[0] for line in table]
        assert len(set(named)) == len(named) > 4


def test_the_tree_is_drawn_without_a_break(wide: Wide) -> None:
    """A line of the tree that continues downwards meets a character in the next line."""
    text = wide.show(60, "tree", NAME)
    lines = text.splitlines()
    for line, next_line in pairwise(lines):
        for at, sign in enumerate(line):
            if sign in "├│" and (len(next_line) <= at or next_line[at] not in "├│└"):
                raise AssertionError(f"column {at} breaks off:\n{line}\n{next_line}")
