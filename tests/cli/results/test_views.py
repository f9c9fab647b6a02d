"""Filters, order, groups and pivot tables of `wtb matrix`, and rows that options name by their levels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

FLOW = """
from wtb import END, Workflow, evaluator

wf = Workflow("shop", state=dict)


@wf.node
def retrieve(state, *, k: int = 3):
    return {"k": k}


@wf.node
def answer(state, ctx, *, model: str = "mini", temperature: float = 0):
    ctx.cost(usd=0.01 if model == "mini" else 0.2)
    return {"answer": f"{model} {temperature} {state['k']}"}


wf.entry(retrieve)
wf.edge(retrieve, answer)
wf.edge(answer, END)


@evaluator(better="higher", scale=(0, 1))
def right(case, result):
    return 0.5 + 0.2 * result.state["answer"].startswith("large") + 0.01 * result.state["k"] + 0.001 * int(case.id)
"""
SWEEP = """sweep: shop
workflow: flow:wf
cases: cases.jsonl
vary:
  retrieve.k: [3, 9]
  answer: {model: [mini, large], temperature: [0, 0.7]}
margin: {right: 0.1}
evaluate: ["flow:right"]
run: {pool: thread}
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("shop"))
    cases = "\n".join(json.dumps({"id": str(n), "input": {"x": n}}) for n in range(12))
    project.write({"flow.py": FLOW, "cases.jsonl": cases, "sweep.yaml": SWEEP})
    project.inside("run", "sweep.yaml", "-q", check=0)
    yield project
    project.close()


def test_a_view_leaves_the_document_as_it_is(shop: Project) -> None:
    whole = shop.json("matrix", "shop")
    outcome = shop.inside(
        "matrix", "shop", "--where", "answer.model=mini", "--sort", "right:asc", "-f", "json", check=0
    )
    view = outcome.json["view"]
    assert {**outcome.json, "view": None} == {**whole, "view": None}
    assert [whole["rows"][number]["levels"]["answer.model"] for number in view["rows"]] == ["mini"] * 4
    means = [whole["rows"][number]["metrics"]["right"]["mean"] for number in view["rows"]]
    assert means == sorted(means)


def test_pairs_of_one_filter_hold_together_and_filters_on_one_factor_are_alternatives(shop: Project) -> None:
    def rows(*options: str) -> list[int]:
        numbers: list[int] = shop.json("matrix", "shop", *options)["view"]["rows"]
        return sorted(numbers)

    both = rows("--where", "answer.model=mini,answer.temperature=0")
    assert both == rows("--where", "answer.model=mini", "--where", "answer.temperature=0")
    assert len(both) == 2
    either = rows("--where", "answer.model=mini", "--where", "answer.model=large")
    assert either == list(range(8))
    assert rows("--within") == [
        number
        for number, row in enumerate(shop.inside("matrix", "shop", "-f", "json").json["rows"])
        if row["metrics"]["right"]["within"]["shown"]
    ]


def test_the_table_has_numbers_that_every_option_takes_like_the_combination_itself(shop: Project) -> None:
    lines = [line.split() for line in shop.text("matrix", "shop", "--sort", "number").splitlines()]
    rows = {line[0]: line for line in lines if line[:1] and line[0].isdecimal() and {"mini", "large"} & {*line}}
    assert sorted(rows) == [str(number) for number in range(8)]
    named = "retrieve.k=9,answer.model=large,answer.temperature=0.7"
    assert "9 large 0.7" in " ".join(rows["7"])
    other = "answer.model=mini,answer.temperature=0,retrieve.k=3"
    for by_number, by_name in (
        (("matrix", "shop", "--baseline", "7"), ("matrix", "shop", "--baseline", named)),
        (
            ("show", "shop", "--outputs", "--row", "7", "--limit", "2"),
            ("show", "shop", "--outputs", "--row", named, "--limit", "2"),
        ),
        (
            ("show", "shop", "--outputs", "--differ", "7", "--differ", "0"),
            ("show", "shop", "--outputs", "--differ", named, "--differ", other),
        ),
        (("compare", "shop", "--row", "7", "--other", "0"), ("compare", "shop", "--row", named, "--other", other)),
    ):
        documents = [shop.json(*command) for command in (by_number, by_name)]
        assert documents[0] == documents[1]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("matrix", "shop", "--where", "answer.model=minni"), "where: 'answer.model' has no level 'minni'"),
        (("matrix", "shop", "--where", "answer.modl=mini"), sentence("did you mean '{}'?", "answer.model")),
        (("matrix", "shop", "--where", "mini"), "where 'mini': expected a filter such as retrieve.k=9 answer.model="),
        (("matrix", "shop", "--baseline", "answer.model=mini"), "baseline 'answer.model=mini' is 4 rows: 0 (retrieve"),
        (("matrix", "shop", "--baseline", "8"), "8"),
        (("matrix", "shop", "--baseline", "-1"), "baseline"),
        (("matrix", "shop", "extra"), sentence("{} is one argument too many", "'extra'")),
        (("matrix", "shop", "--pivot", "a", "b"), sentence("{}: the sweep has no factor {}", "pivot", "'a'")),
        (("matrix", "shop", "--sort", "cost", "-f", "svg"), sentence("--format {} shows the whole matrix", "svg")),
        (
            ("report", "shop", "--sort", "cost", "-o", "report.html"),
            sentence("--where, --within and --sort are for md, csv"),
        ),
        (("show", "shop", "--outputs", "--row", "answer.model=mini"), "rows 'answer.model=mini' is 4 rows"),
        (("show", "shop", "--outputs", "--row", "answer.model=huge"), sentence("has no level {}", "'huge'")),
        (("show", "shop", "--outputs", "--row", "8"), sentence("{} {}: the sweep has the rows 0 to {}", "rows", 8, 7)),
        (("show", "shop", "--outputs", "--differ", "0"), sentence("differ is {}; expected two combinations", 0)),
        (
            ("show", "shop", "--outputs", "--differ", "0", "--differ", "0"),
            sentence("differ is {}; expected two combinations", "0, 0"),
        ),
    ],
)
def test_what_no_row_or_view_can_be_is_refused(shop: Project, command: tuple[str, ...], message: str) -> None:
    assert message in " ".join(shop.inside(*command, check=2).stderr.split())


@pytest.mark.parametrize(
    "factors",
    [
        ("--pivot", "answer.model", "answer.temperature"),
        ("--pivot", "answer.model,answer.temperature"),
        ("--pivot", "answer.model", "--pivot", "answer.temperature"),
    ],
)
def test_a_pivot_table_in_every_form(shop: Project, factors: tuple[str, ...]) -> None:
    pivot = shop.json("matrix", "shop", *factors)["view"]["pivot"]
    assert (pivot["lines"], pivot["columns"], pivot["balanced"]) == (["mini", "large"], ["0", "0.7"], True)
    assert [[len(cell["rows"]) for cell in line] for line in pivot["cells"]] == [[2, 2], [2, 2]]
    lines = csv.DictReader(io.StringIO(shop.text("matrix", "shop", *factors, "-f", "csv")))
    assert [float(line["mean"]) for line in lines] == [cell["mean"] for line in pivot["cells"] for cell in line]
    text = shop.text("matrix", "shop", *factors)
    markdown = shop.text("matrix", "shop", *factors, "-f", "md")
    for cell in (cell for line in pivot["cells"] for cell in line):
        assert f"{cell['mean']:.3f} [" in text
        assert f"{cell['mean']:.3f} [" in markdown
    assert sentence("mean over the combinations that share the levels, {} in each cell", 2) in " ".join(text.split())


def test_a_report_in_markdown_is_filtered_and_sorted(shop: Project) -> None:
    text = shop.text("report", "shop", "--format", "md", "--where", "answer.model=large", "--sort", "retrieve.k:desc")
    rows = [line.split("|")[2:4] for line in text.splitlines() if line.startswith("| ") and "large" in line]
    assert [row[0].strip() for row in rows] == ["9", "9", "3", "3"]
    assert "4 of 8 combinations: answer.model=large." in text.replace("\\", "")
    assert "| mini |" not in text


def test_open_leads_to_the_same_view(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from urllib.parse import parse_qs, urlsplit

    opened: list[str] = []
    monkeypatch.setattr("wtb.cli.results.matrix.open_page", lambda path, db: opened.append(path))
    options = ("--where", "answer.model=mini", "--where", "retrieve.k=9", "--sort", "cost", "--baseline", "2")
    shop.inside("matrix", "shop", *options, "--pivot", "answer.model", "answer.temperature", "--open", check=0)
    query = {key: values[0] for key, values in parse_qs(urlsplit(opened[0]).query).items()}
    assert query == {
        "baseline": "2",
        "where": "answer.model=mini&retrieve.k=9",
        "sort": "cost",
        "pivot": "answer.model,answer.temperature",
        "metric": "right",
    }
    options = ("--where", "answer.model=mini,retrieve.k=9", "--where", "retrieve.k=3,answer.model=large")
    shop.inside("matrix", "shop", *options, "--where", "answer.temperature=0", "--open", check=0)
    (where,) = parse_qs(urlsplit(opened[1]).query)["where"]
    assert where == "answer.temperature=0;answer.model=mini&retrieve.k=9;retrieve.k=3&answer.model=large"
    shop.inside("matrix", "shop", "--pivot", "answer.model", "--metric", "cost", "--open", check=0)
    assert parse_qs(urlsplit(opened[2]).query) == {"pivot": ["answer.model"], "measure": ["cost"]}
