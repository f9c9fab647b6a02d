"""Views of a matrix: headings that sort, filters by level, groups, and pivot tables, all held by a link."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosting.pages.site import Site, reported, served
from tests.support.project import Project
from wtb.display.row_view import make_pivot

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

FLOW = """
import random

from wtb import END, Workflow, evaluator

wf = Workflow("helpdesk", state=dict)
PRICE = {"mini": 0.001, "medium": 0.004, "large": 0.02}


@wf.node
def retrieve(state, *, k: int = 3):
    return {"k": k}


@wf.node
def answer(state, ctx, *, model: str = "mini", prompt: str = "none", temperature: float = 0):
    ctx.cost(usd=PRICE[model])
    return {"model": model, "prompt": prompt, "temperature": temperature}


wf.entry(retrieve)
wf.edge(retrieve, answer)
wf.edge(answer, END)


@evaluator(better="higher", scale=(0, 1))
def right(case, result):
    state = result.state
    score = 0.35 + {"mini": 0, "medium": 0.2, "large": 0.25}[state["model"]] + 0.1 * (state["k"] == 10)
    score += 0.05 * (state["temperature"] == 0) + 0.03 * len(state["prompt"]) / 20
    noise = random.Random(f"{case.id} {sorted(state.items())}").gauss(0, 0.03)
    return min(max(score + random.Random(case.id).gauss(0, 0.05) + noise, 0), 1)


@evaluator(better="lower")
def size(case, result):
    return len(result.state["prompt"])
"""
LONG = "answer-only-from-the-documents-and-cite-them-version"
PROMPTS = [f"prompts/{LONG}-1.md", f"prompts/{LONG}-2.md", "prompts/short.md"]
SWEEP = """sweep: {name}
workflow: flow:wf
cases: cases.jsonl
vary:
  retrieve: {{k: [3, 10]}}
  answer:
    model: [mini, medium, large]
    prompt: [{prompts}]
    temperature: [0, 0.7]
margin: {{right: 0.1}}
evaluate: ["flow:right", "flow:size"]
run: {{pool: thread}}
{more}
"""
MANY = """sweep: many
workflow: flow:wf
cases: cases.jsonl
vary:
  retrieve: {k: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}
  answer: {model: [mini, large], temperature: [0, 1]}
evaluate: ["flow:right"]
run: {pool: thread}
"""
SINGLE = """sweep: single
workflow: flow:wf
cases: cases.jsonl
vary: {retrieve: {k: [10, 3, 1]}}
evaluate: ["flow:right"]
run: {pool: thread}
"""


@pytest.fixture(scope="module")
def viewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("viewed"))
    prompts = ", ".join(f"file://{path}" for path in PROMPTS)
    holes = "exclude: [{answer.model: large, answer.temperature: 0.7}]"
    project.write(
        {
            "flow.py": FLOW,
            "cases.jsonl": "\n".join(json.dumps({"id": f"Q{n:02}", "input": {"x": n}}) for n in range(24)),
            **{path: f"Answer. {path} " * (number + 1) for number, path in enumerate(PROMPTS)},
            "wide.yaml": SWEEP.format(name="wide", prompts=prompts, more=""),
            "holes.yaml": SWEEP.format(name="holes", prompts=prompts, more=holes),
            "many.yaml": MANY,
            "single.yaml": SINGLE,
        }
    )
    for name in ("wide", "holes", "many", "single"):
        project.inside("run", f"{name}.yaml", "-q", check=0)
    yield project
    project.close()


@pytest.fixture(scope="module")
def serving(viewed: Project, browser: Browser) -> Iterator[Site]:
    with served(viewed, browser) as site:
        yield site


def table_of(page: Page) -> Locator:
    table = page.locator("main .scroll table").first
    table.wait_for()
    return table


def numbers(page: Page) -> list[int]:
    """The numbers of the rows that the table shows, from top to bottom."""
    table_of(page)
    return [
        int(text)
        for text in page.locator("main .scroll table").first.locator("tbody tr td:first-child").all_inner_texts()
    ]


def view(project: Project, sweep: str, *options: str) -> Any:
    return project.inside("matrix", sweep, *options, "--format", "json", check=0).json["view"]


def test_headings_sort_by_click_and_by_key_and_the_link_keeps_it(site: Site, viewed: Project) -> None:
    page = site.open("/sweeps/wide")
    heading = table_of(page).get_by_role("columnheader", name="cost")
    assert heading.get_attribute("aria-sort") is None
    heading.get_by_role("button").click()
    page.wait_for_url("**sort=cost")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert numbers(page) == view(viewed, "wide", "--sort", "cost")["rows"]
    heading.get_by_role("button").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**sort=cost%3Adesc")
    assert heading.get_attribute("aria-sort") == "descending"
    table_of(page).get_by_role("columnheader", name="answer.model").get_by_role("button").click()
    page.wait_for_url("**sort=answer.model")
    assert heading.get_attribute("aria-sort") is None
    page.reload()
    assert numbers(page) == view(viewed, "wide", "--sort", "answer.model")["rows"]
    assert page.get_by_label("Sort").first.input_value() == "answer.model"
    table_of(page).get_by_role("columnheader", name="right ↑").get_by_role("button").click()
    page.wait_for_url("**sort=right")
    assert numbers(page) == view(viewed, "wide", "--sort", "right")["rows"], "the best first"


def test_levels_filter_and_group_rows_as_the_command_does(site: Site, viewed: Project) -> None:
    page = site.open("/sweeps/wide")
    table_of(page)
    for factor, levels in {"answer.model": ["mini", "large"], "retrieve.k": ["10"]}.items():
        chips = page.locator("details.choices").filter(has_text=factor)
        chips.locator("summary").click()
        for level in levels:
            chips.get_by_label(level, exact=True).check()
        chips.locator("summary").click()
        assert chips.locator("summary").inner_text() == f"{factor}: {', '.join(levels)}"
    page.get_by_label("Group by").select_option("answer.model")
    page.wait_for_url("**group=answer.model**")
    options = ("--where", "answer.model=mini", "--where", "answer.model=large", "--where", "retrieve.k=10")
    document = view(viewed, "wide", *options, "--group-by", "answer.model")
    rows = numbers(page)
    half = len(rows) // 2
    assert [set(rows[:half]), set(rows[half:])] == [set(group["rows"]) for group in document["groups"]]
    page.get_by_role("status").get_by_text("12 of 36 combinations. Filters change no statistic").wait_for()
    assert page.get_by_role("grid").get_attribute("aria-rowcount") in (None, "12")
    page.reload()
    assert numbers(page) == rows
    site.check_readable(page)
    page.get_by_role("button", name="Show all").click()
    page.wait_for_url(lambda url: "where" not in url)
    assert len(numbers(page)) == 36


def test_a_filter_changes_no_figure_of_a_row(site: Site) -> None:
    page = site.open("/sweeps/wide?sort=number")
    before = table_of(page).locator("tbody tr").nth(7).inner_text()
    page = site.open("/sweeps/wide?sort=number&where=answer.model%3Dmedium%26retrieve.k%3D3")
    assert before in table_of(page).locator("tbody tr").all_inner_texts()


def test_alternatives_of_several_factors_show_the_rows_that_the_command_shows(
    site: Site, viewed: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither more rows, as each factor by itself would, nor fewer; other filters and a reload keep them."""
    opened: list[str] = []
    monkeypatch.setattr("wtb.cli.results.matrix.open_page", lambda path, db: opened.append(path))
    options = ("--where", "answer.model=mini,retrieve.k=10", "--where", "answer.model=large retrieve.k=3")
    document = view(viewed, "wide", *options, "--where", "answer.temperature=0")
    viewed.inside("matrix", "wide", *options, "--where", "answer.temperature=0", "--open", check=0)
    page = site.open(opened[0])
    page.get_by_role("status").get_by_text(f"{len(document['rows'])} of 36 combinations").wait_for()
    page.get_by_text("answer.model=mini retrieve.k=10 or answer.model=large retrieve.k=3:").wait_for()
    assert set(numbers(page)) == set(document["rows"])
    assert 0 < len(document["rows"]) < 12
    site.check_readable(page)
    chips = page.locator("details.choices").filter(has_text="answer.temperature")
    chips.locator("summary").click()
    chips.get_by_label("0", exact=True).uncheck()
    every = view(viewed, "wide", *options)["rows"]
    page.get_by_role("status").get_by_text(f"{len(every)} of 36 combinations").wait_for()
    page.reload()
    assert set(numbers(page)) == set(every)
    page.get_by_role("button", name="Show all").click()
    page.wait_for_url(lambda url: "where" not in url)


@pytest.mark.parametrize("measure", ["cost", "latency"])
def test_a_pivot_table_is_of_cost_and_latency_as_the_command_has_it(site: Site, viewed: Project, measure: str) -> None:
    pivot = view(viewed, "wide", "--pivot", "answer.model", "--metric", measure)["pivot"]
    page = site.open("/sweeps/wide?pivot=answer.model")
    page.locator("table.pivot").wait_for()
    page.get_by_role("combobox", name="Measure").select_option(measure)
    page.wait_for_url(f"**measure={measure}*")
    page.locator("table.pivot").get_by_text("cost" if measure == "cost" else "latency (p50)").first.wait_for()
    texts = [cell.inner_text() for cell in page.locator("table.pivot tbody td a").all()]
    means = [cell["mean"] for line in pivot["cells"] for cell in line]
    if measure == "cost":
        assert [float(text.strip("$")) for text in texts] == pytest.approx(means, rel=0.01)
    else:
        assert len(texts) == len(means)
        assert all(text.endswith(("ms", "µs")) for text in texts)
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_good_enough_and_levels_filter_together(site: Site, viewed: Project) -> None:
    document = view(viewed, "wide", "--within", "--where", "answer.temperature=0")
    page = site.open("/sweeps/wide?good=1&where=answer.temperature%3D0")
    page.get_by_role("status").get_by_text(f"{len(document['rows'])} of 36 combinations").wait_for()
    assert page.get_by_label("Only shown to be within 0.1 of the best").is_checked()


MODULE = "document.querySelector('script[src]').src.replace('main.js', 'lib/matrix_view.js')"
PIVOT = (
    "async ([module, matrix, rows, factors, metric]) => (await import(module)).pivotOf(matrix, rows, factors, metric)"
)
CHANGED = "(cells) => cells.map((cell) => getComputedStyle(cell).backgroundColor)"


def rounded(pivot: Any) -> Any:
    """A pivot table with figures to nine digits, since sums differ in the last ones."""
    return json.loads(json.dumps(pivot), parse_float=lambda text: f"{float(text):.9g}")


@pytest.mark.parametrize("sweep", ["wide", "holes", "single", "many"])
def test_page_and_command_average_alike(site: Site, viewed: Project, sweep: str) -> None:
    page = site.open(f"/sweeps/{sweep}")
    module = page.evaluate(MODULE)
    matrix = viewed.inside("matrix", sweep, "--format", "json", check=0).json
    matrix["rows"][0]["stopped"] = {"by": "ana", "reason": "", "at": "", "cases": 3}
    matrix["rows"][1]["metrics"]["right"] |= {"mean": None, "ci": None}
    matrix["rows"][2]["metrics"]["right"]["ci"] = None
    factors = list(matrix["rows"][0]["levels"])
    numbers = list(range(len(matrix["rows"])))
    for keys in ([factor] for factor in factors) if len(factors) < 2 else (factors[:2], factors[1::-1], factors[-1:]):
        for metric in ("right", "latency"):
            of_page = page.evaluate(PIVOT, [module, matrix, numbers, keys, metric])
            assert rounded(of_page) == rounded(make_pivot(matrix, numbers, keys, metric))


def test_a_pivot_table_shows_figures_colours_and_the_rows_behind_a_cell(site: Site, viewed: Project) -> None:
    page = site.open("/sweeps/wide")
    table_of(page)
    page.get_by_label("Pivot").select_option("answer.prompt")
    page.locator(".pair select").nth(1).select_option("answer.model")
    page.wait_for_url("**pivot=answer.prompt%2Canswer.model")
    page.reload()
    table = page.locator("table.pivot")
    table.wait_for()
    pivot = view(viewed, "wide", "--pivot", "answer.prompt", "answer.model")["pivot"]
    assert table.locator("thead tr").nth(1).locator("th").all_inner_texts() == ["answer.prompt", *pivot["columns"]]
    assert table.locator("tbody th").all_inner_texts() == pivot["lines"]
    cells = [cell for line in pivot["cells"] for cell in line]
    assert table.locator("td a").all_inner_texts() == [f"{cell['mean']:.3f}" for cell in cells]
    first = " ".join(table.locator("tbody td").first.inner_text().split())
    assert first == f"{cells[0]['mean']:.3f} {cells[0]['ci'][0]:.3f} to {cells[0]['ci'][1]:.3f}"
    colours = table.locator("tbody td").evaluate_all(CHANGED)
    best = max(range(9), key=lambda number: cells[number]["mean"])
    worst = min(range(9), key=lambda number: cells[number]["mean"])
    assert len(set(colours)) > 3
    assert colours[best] != colours[worst]
    page.get_by_text("mean over the combinations that share the levels, 4 in each cell").last.wait_for()
    site.check_readable(page)
    table.locator("td a").nth(best).click()
    page.wait_for_url(lambda url: "pivot" not in url)
    assert set(numbers(page)) == set(cells[best]["rows"])


def test_the_metric_decides_what_is_better_in_colours(site: Site) -> None:
    page = site.open("/sweeps/wide?pivot=answer.prompt&metric=size")
    table = page.locator("table.pivot")
    table.wait_for()
    means = [float(text.replace(",", "")) for text in table.locator("td a").all_inner_texts()]
    shares = table.locator("tbody td").evaluate_all(
        "(all) => all.map((one) => Number(one.style.getPropertyValue('--share')))"
    )
    assert shares[means.index(min(means))] == 100, "less is better"
    assert shares[means.index(max(means))] == 0


def test_excluded_combinations_leave_cells_empty_or_unbalanced_and_this_is_said(site: Site) -> None:
    page = site.open("/sweeps/holes?pivot=answer.model,answer.temperature")
    table = page.locator("table.pivot")
    table.wait_for()
    assert table.locator("td a").count() == 5
    assert page.get_by_text("Cells average different levels").count() == 0
    site.go(page, "/sweeps/holes?pivot=answer.model")
    page.get_by_text("Cells average different levels of the other factors").wait_for()
    assert page.locator("table.pivot tbody td small").filter(has_text="combinations").count() == 3


@pytest.mark.parametrize(
    ("path", "width", "dark"),
    [
        ("wide?pivot=answer.prompt,answer.model", 390, True),
        ("many?pivot=retrieve.k,answer.model", 1280, False),
        ("many?group=answer.model&sort=retrieve.k", 390, True),
        ("single?pivot=retrieve.k", 1280, False),
        ("wide?where=answer.model%3Dlarge&sort=cost:desc", 390, True),
    ],
)
def test_views_are_readable_on_phones_and_in_the_dark(site: Site, path: str, width: int, dark: bool) -> None:
    page = site.open(f"/sweeps/{path}", width=width, dark=dark)
    table_of(page)
    page.get_by_role("grid").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "only the table scrolls"
    site.check_readable(page)


def test_an_address_with_factors_that_there_are_not_shows_all_rows(site: Site) -> None:
    page = site.open(
        "/sweeps/wide?where=gone%3D1%26answer.model%3Dhuge&group=gone&pivot=gone,answer.modl&sort=gone:desc"
    )
    assert len(numbers(page)) == 36


def test_the_report_has_the_same_views_and_needs_no_server(site: Site, viewed: Project, tmp_path: Path) -> None:
    with reported(site, viewed, "wide", tmp_path) as (page, address):
        page.goto(f"{address}#?pivot=answer.prompt,answer.model&where=retrieve.k%3D10")
        table = page.locator("#matrix table.pivot")
        table.wait_for()
        pivot = view(viewed, "wide", "--pivot", "answer.prompt", "answer.model", "--where", "retrieve.k=10")["pivot"]
        assert table.locator("td a").all_inner_texts() == [f"{c['mean']:.3f}" for line in pivot["cells"] for c in line]
        page.locator("#matrix").get_by_label("Pivot").select_option("")
        rows = page.locator("#matrix table:not(.metrics)")
        rows.get_by_role("columnheader", name="cost").get_by_role("button").click()
        shown = list(map(int, rows.locator("tbody tr td:first-child").all_inner_texts()))
        assert shown == view(viewed, "wide", "--where", "retrieve.k=10", "--sort", "cost")["rows"]
        assert "sort=cost" in page.url
