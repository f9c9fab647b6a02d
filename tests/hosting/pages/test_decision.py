"""The decision of a sweep on its page: what to ship, what gates say, and which rows are good enough."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.hosting.pages.site import Site, served
from tests.support.project import Project
from tests.support.prose import sentence

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLOW = """
from wtb import END, Workflow

wf = Workflow("helpdesk", state=dict)


@wf.node
def answer(state, ctx, *, loses: int = 0, usd: float = 0.01):
    ctx.cost(usd=usd)
    return {"a": "no" if state["x"] < loses else "yes"}


answer.variant("cheap", usd=0.001)
answer.variant("bad", loses=60, usd=0.0001)
wf.entry(answer)
wf.edge(answer, END)
"""
CASES = [{"id": f"Q{number:03}", "input": {"x": number}, "expected": "yes"} for number in range(120)]
SWEEP = """
sweep: {name}
workflow: flow:wf
cases: cases.jsonl
vary: {{answer: all}}
evaluate: [{{exact_match: {{field: a}}}}]
{margin}
gates: ["exact_match.mean >= {least}", "failed == 0"]
run: {{pool: thread}}
"""


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("decided"))
    margin = "margin: {exact_match: 0.1}"
    project.write(
        {
            "flow.py": FLOW,
            "cases.jsonl": "\n".join(map(json.dumps, CASES)),
            "good.yaml": SWEEP.format(name="good", margin=margin, least=0.9),
            "nightly.yaml": SWEEP.format(name="nightly", margin="", least=1.1),
        }
    )
    project.inside("run", "good.yaml", "-q")
    project.inside("run", "nightly.yaml", "-q", check=1)
    yield project
    project.close()


@pytest.fixture(scope="module")
def serving(decided: Project, browser: Browser) -> Iterator[Site]:
    with served(decided, browser) as site:
        yield site


def test_the_cheapest_that_is_good_enough_is_recommended_first(site: Site) -> None:
    page = site.open("/sweeps/good")
    card = page.get_by_role("region", name="The decision")
    card.get_by_text("Recommended: answer=cheap").wait_for()
    text = card.inner_text()
    assert sentence("Both gates hold.") in text
    assert "It is shown to be within 0.1 of the best. Ties with 1 other; this is the cheapest." in text
    words = " ".join(text.split())
    assert "exact_match 1.000, 95% interval from 0.969 to 1.000" in words
    assert "cost per answer $0.00100" in words
    assert "median time" in words
    assert "is-good" in (card.get_attribute("class") or "")
    top = card.bounding_box()
    table = page.locator("table").first.bounding_box()
    assert top is not None
    assert table is not None
    assert top["y"] < table["y"]
    site.check_readable(page)


def test_rows_are_filtered_by_whether_they_are_good_enough(site: Site) -> None:
    page = site.open("/sweeps/good")
    rows = page.locator("main table").first.locator("tbody tr")
    rows.nth(2).wait_for()
    assert [rows.nth(number).locator(".within").inner_text() for number in range(3)] == ["yes", "yes", "no"]
    page.get_by_label("Only shown to be within 0.1 of the best").check()
    rows.nth(2).wait_for(state="detached")
    assert rows.count() == 2
    assert "good=1" in page.url


def test_the_page_of_a_sweep_whose_gate_failed_is_not_green(site: Site) -> None:
    page = site.open("/sweeps/nightly")
    card = page.get_by_role("region", name="The decision")
    card.get_by_text("Do not ship: 1 gate of 2 failed.").wait_for()
    text = card.inner_text()
    assert "exact_match.mean >= 1.1 (1)" in text
    assert "Recommended" not in text
    assert "is-bad" in (card.get_attribute("class") or "")
    assert page.get_by_text("☆ leads").count() == 0, "two rows are alike"


def test_a_list_shows_scores_and_gates(site: Site) -> None:
    page = site.open("/")
    nightly = page.get_by_role("row").filter(has_text="nightly")
    nightly.get_by_text("✗ failed").wait_for()
    assert "1.000" in nightly.inner_text()
    page.get_by_role("row").filter(has_text="good").get_by_text("✓ hold").wait_for()
    site.check_readable(page)


def test_the_heat_map_names_cases_and_explains_its_colours(site: Site) -> None:
    page = site.open("/sweeps/good", dark=True)
    page.locator(".legend").get_by_text("exact_match 0.000").wait_for()
    assert page.locator(".axis span").first.inner_text() == "Q000"
    assert page.locator(".axis span").count() > 3
    heat, table = page.locator(".heat").bounding_box(), page.locator("main table").first.bounding_box()
    assert heat is not None
    assert table is not None
    assert heat["y"] < table["y"]
    site.check_readable(page)


def test_nothing_of_a_decision_is_lost_on_a_phone(site: Site) -> None:
    page = site.open("/sweeps/nightly", width=390)
    page.get_by_text("Do not ship: 1 gate of 2 failed.").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    site.check_readable(page)


def test_two_rows_say_whether_one_is_as_good(site: Site, decided: Project) -> None:
    stdout = decided.inside("compare", "good", "--row", "1", "--other", "0").stdout
    assert sentence("within {} of row {}: {}", "0.1", 0, "yes (at most") in stdout
    worse = decided.inside("compare", "good", "--row", "2", "--other", "0").stdout
    assert sentence("within {} of row {}: {}", "0.1", 0, "no (at least") in worse
    page = site.open("/sweeps/good/compare?row=1&other=0")
    page.get_by_text("within 0.1 of the other").wait_for()
    assert page.locator(".within").inner_text() == "yes"


def test_a_matrix_as_csv_tells_what_is_good_enough(decided: Project) -> None:
    lines = decided.inside("matrix", "good", "--format", "csv").stdout.splitlines()
    assert lines[0].endswith(",within,behind_low,behind_high,row")
    assert [line.split(",")[-4] for line in lines[1:]] == ["yes", "yes", "no"]
