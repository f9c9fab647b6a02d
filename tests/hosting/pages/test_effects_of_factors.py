"""The effects of factors: on the page of a sweep, in the matrix and in the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosting.pages.site import Site, served
from tests.support import prose
from tests.support.project import Project

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLOW = """
import random

from wtb import END, Workflow, evaluator

wf = Workflow("qa", state=dict)


@wf.node
def retrieve(state, *, k: int = 3):
    return {"k": k}


@wf.node
def answer(state, *, model: str = "none", prompt: str = "none", style: str = "none"):
    return {"model": model, "prompt": prompt, "style": style}


retrieve.variant("deep", k=9)
wf.entry(retrieve)
wf.edge(retrieve, answer)
wf.edge(answer, END)


@evaluator(better="higher", scale=(0, 1))
def right(case, result):
    state = result.state
    score = 0.4 + 0.3 * (state["model"] == "large") + 0.2 * (state["k"] == 9 and state["prompt"] == "long")
    noise = random.Random(f"{case.id} {sorted(state.items())}").gauss(0, 0.05)
    return min(max(score + random.Random(case.id).gauss(0, 0.05) + noise, 0), 1)
"""
MIXED = """sweep: mixed
workflow: qa:wf
cases: cases.jsonl
vary:
  retrieve: all
  answer: [default, {model: [mini, large], prompt: [short, long]}]
evaluate: ["qa:right"]
"""
ONE_AT_A_TIME = """sweep: single
workflow: qa:wf
cases: cases.jsonl
combinations: one-at-a-time
vary:
  retrieve: all
  answer: {model: [mini, large], prompt: [short, long]}
baseline: {retrieve: default, answer: "model=mini, prompt=short"}
evaluate: ["qa:right"]
"""


@pytest.fixture(scope="module")
def serving(shared_project: Project, browser: Browser) -> Iterator[Site]:
    cases = "\n".join(json.dumps({"id": str(number), "input": {"x": number}}) for number in range(60))
    shared_project.write({"qa.py": FLOW, "cases.jsonl": cases, "mixed.yaml": MIXED, "single.yaml": ONE_AT_A_TIME})
    shared_project.inside("run", "mixed.yaml", "--quiet", check=0)
    shared_project.inside("run", "single.yaml", "--quiet", check=0)
    with served(shared_project, browser) as site:
        yield site


def attribution(project: Project, sweep: str) -> Any:
    return project.inside("report", sweep, "--format", "json", check=0).json["attribution"]["right"]


def test_the_page_and_the_matrix_show_factors_nested_ones_and_pairs(site: Site, shared_project: Project) -> None:
    document = attribution(shared_project, "mixed")
    first = document["sentences"][0]
    assert first.startswith("model explains ")
    assert ", answer 2" in first
    assert ", retrieve x prompt " in first
    matrix = " ".join(shared_project.inside("matrix", "mixed", check=0).stdout.split())
    for sentence in document["sentences"]:
        assert " ".join(sentence.split()) in matrix
    page = site.open("/sweeps/mixed?tab=effects")
    section = page.locator("section").filter(has=page.get_by_role("heading", name="Each factor by itself"))
    section.wait_for()
    text = " ".join(section.inner_text().split())
    assert first in text
    rows = section.locator("table").first.locator("tbody tr")
    assert rows.first.inner_text().split()[0] == "answer.model"
    assert prose.sentence("only in {} variants of {}", 4, "answer") in rows.first.inner_text()
    pairs = section.locator("table").nth(1).locator("tbody tr")
    assert pairs.first.inner_text().startswith("retrieve × answer.prompt")
    site.check_readable(page)


def test_a_one_at_a_time_sweep_shows_single_changes(site: Site, shared_project: Project) -> None:
    document = attribution(shared_project, "single")
    assert document["nodes"] == []
    large = next(effect for effect in document["simple"] if effect["variant"] == "large")
    assert (large["factor"], large["over"]) == ("answer.model", "mini")
    assert large["beside"] == {"retrieve": "default", "answer.prompt": "short"}
    page = site.open("/sweeps/single?tab=effects", width=390, dark=True)
    page.get_by_role("heading", name="Single changes").wait_for()
    text = " ".join(page.locator("main").inner_text().split())
    assert "mini → large retrieve=default answer.prompt=short" in text
    for sentence in document["sentences"]:
        assert " ".join(sentence.split()) in text
    site.check_readable(page)
