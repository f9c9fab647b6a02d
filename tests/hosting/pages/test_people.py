"""Estimates of human ratings by row, on the page of a sweep and in the report that it saves."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosting.pages.site import Site, served
from tests.support.project import Project

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = "<img src=x onerror='window.ran=1'>"
CASES = 130
FLOW = f"""
from wtb import Workflow, evaluator

wf = Workflow("answers")


@wf.node
def answer(state, *, more: int = 0):
    return {{"x": state["x"] + more}}


answer.variant({HOSTILE!r}, more=1)
answer.variant("unlabelled", more=2)
wf.entry(answer)


@evaluator(better="higher", scale=(0, 1))
def helpful(case, result):
    return float(result.state["x"] % 3 != 0)


@evaluator(better="higher")
def size(case, result):
    return result.state["x"]
"""


@pytest.fixture(scope="module")
def labelled(shared_project: Project) -> Project:
    """Of one row 120 cases have a label, which is no matter of few; of another 20, of a third none."""
    cases = [{"id": f"c{number}", "input": {"x": number}} for number in range(CASES)]
    spec = {"sweep": "asked", "workflow": "answers:wf", "cases": cases, "vary": {"answer": "all"}}
    spec["evaluate"] = ["answers:helpful", "answers:size"]
    shared_project.write({"answers.py": FLOW, "sweep.yaml": json.dumps(spec)})
    shared_project.inside("run", "sweep.yaml", "-q", check=0)
    with (shared_project.folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["case", "answer", "rater", "label"])
        for variant, count in (("default", 120), (HOSTILE, 20)):
            writer.writerows([f"c{number}", variant, HOSTILE, float(number % 4 != 0)] for number in range(count))
    shared_project.inside("label", "import", "asked", "labels.csv", "--metric", "helpful", check=0)
    return shared_project


@pytest.fixture(scope="module")
def serving(labelled: Project, browser: Browser) -> Iterator[Site]:
    with served(labelled, browser) as site:
        yield site


def estimates(labelled: Project) -> list[dict[str, Any]]:
    (table,) = labelled.inside("matrix", "asked", "--format", "json", check=0).json["people"]
    rows: list[dict[str, Any]] = table["rows"]
    return rows


def figures_of(row: dict[str, Any]) -> list[str]:
    ends = "{:.3f} to {:.3f}".format(*row["ci"])
    return [f"{row['labels']}{'*' if row['few_labels'] else ''}", f"{row['mean']:.3f}", ends]


def test_the_page_of_a_sweep_shows_what_people_would_say_of_the_metric_that_they_labelled(
    site: Site, labelled: Project
) -> None:
    page = site.open("/sweeps/asked?metric=helpful&sort=number")
    section = page.locator("section").filter(has=page.get_by_role("heading", name="Estimated human labels: helpful"))
    section.wait_for()
    expected = estimates(labelled)
    assert [row["few_labels"] for row in expected] == [False, True]
    section.get_by_text("140 labels of 1 rater").wait_for()
    rows = section.locator("tbody tr").all()
    for row, line in zip(expected, rows, strict=True):
        text = line.inner_text()
        assert [figure for figure in figures_of(row) if figure not in text] == []
    assert HOSTILE in rows[1].inner_text()
    assert section.get_by_text("fewer than 100 labels").count() == 1
    site.check_readable(page)
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out of a telephone"
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_label("Metric").select_option("size")
    section.wait_for(state="detached")


def test_the_report_shows_it_too(site: Site, labelled: Project) -> None:
    labelled.inside("report", "asked", "--output", "report.html", check=0)
    page = site.open("/sweeps/asked")
    alone = page.context.new_page()
    alone.goto((labelled.folder / "report.html").as_uri())
    rows = alone.locator("#people tbody tr")
    rows.first.wait_for()
    for row in estimates(labelled):
        text = rows.filter(has_text=row["combination"]["answer"]).inner_text()
        assert [figure for figure in figures_of(row) if figure not in text] == []
    assert alone.evaluate("window.ran") is None
    site.check_readable(alone)
    alone.close()
