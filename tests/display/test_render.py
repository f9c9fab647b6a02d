"""The matrix in all forms: the answer as text, tables that fit, and safe display of hostile names."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import re
from collections.abc import Callable
from functools import cache, partial
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len

from tests.support import documents, prose
from wtb.analysis.matrix.estimates import best_of
from wtb.analysis.search_history import Tried
from wtb.analysis.statistics import Design, compare
from wtb.core import texts
from wtb.display import csv as csvfile
from wtb.display import figures, markdown, matrix_table, sentences, summary, tables
from wtb.display.report.report_files import render_matrix
from wtb.display.tables import grid

RAG = {"chunk": ["paragraph", "sentence", "window"], "retrieve": ["default", "bm25", "tfidf", "dense"]}
ABC = {node: [f"{node.lower()}{i}" for i in range(1, 5)] for node in "ABC"}
MANY_NODES = {f"stage_{i}": ["default", "alternative"] for i in range(7)}
UNGAINLY = {"a node with a rather long name": ["x" * 60, "y" * 60], "检索": ["默认的检索方法", "另一种检索方法"]}


def document(
    vary: dict[str, list[str]], metrics: dict[str, str], *, cases: int = 20, baseline: bool = True, lead: float = 0.0
) -> dict[str, Any]:
    """A document that follows the contract, with invented scores; the last combination leads by `lead`."""
    rng = np.random.default_rng(0)
    combinations = [dict(zip(vary, names, strict=True)) for names in itertools.product(*vary.values())]
    rows: list[dict[str, Any]] = [
        {
            "combination": combination,
            "n": cases,
            "failed": i % 3,
            "cost_usd": 0.0012 * i,
            "cost_failed_usd": 0.0,
            "cost_per_success_usd": 0.0012 * i,
            "latency_s": {"p50": 0.012 * i, "p95": 0.12 * i},
            "metrics": {},
        }
        for i, combination in enumerate(combinations)
    ]
    best = {}
    for metric, better in metrics.items():
        scores = rng.uniform(0.2, 0.4, size=(len(rows), cases))
        scores[-1] += lead if better == "higher" else -lead
        comparison = compare(
            scores, Design(baseline=0 if baseline else None, better="lower" if better == "lower" else "higher")
        )
        for row, estimate in zip(rows, comparison.rows, strict=True):
            row["metrics"][metric] = dataclasses.asdict(estimate)
        if comparison.best is not None:
            best[metric] = best_of(comparison, combinations, Tried(len(combinations)))
    total = len(rows) * cases
    statuses = ("pending", "running", "waiting", "cancelled", "skipped", "set_aside")
    counts = {"executed": 840, "unshared": 1920, "attempts": 845}
    fields = {
        "version": 1,
        "sweep": {
            "id": "3f9a",
            "name": "nightly",
            "status": "completed",
            "started_at": "2026-01-01T00:00:00+00:00",
            "finished_at": "2026-01-01T00:01:00+00:00",
        },
        "cells": {"total": total, "succeeded": total - 2, "failed": 2, **dict.fromkeys(statuses, 0)},
        "node_runs": {**counts, "by_node": {node: {**counts, "lag_s": {}} for node in vary}},
        "cost": {"usd": 0.25, "unshared_usd": 0.6, "tokens_in": 1234, "tokens_out": 56},
        "baseline": combinations[0] if baseline else None,
        "rows": rows,
        "primary": next(iter(metrics), None),
        "primary_named": False,
        "best": best,
        "metrics": {metric: {"better": better} for metric, better in metrics.items()},
    }
    return documents.whole_matrix(fields)


NDCG = {"ndcg": "higher"}
TWO = {"ndcg": "higher", "latency": "lower"}
SEVEN = {f"a_metric_with_a_long_name_{i}": "higher" for i in range(7)}
DOCUMENTS = {  # made when a test asks for them: their statistics take a second
    "64 combinations": partial(document, ABC, NDCG),
    "24 combinations, 2 metrics": partial(document, {**RAG, "query": ["short", "long"]}, TWO),
    "7 metrics": partial(document, RAG, SEVEN),
    "many nodes": partial(document, MANY_NODES, NDCG),
    "ungainly names": partial(document, UNGAINLY, TWO),
    "no baseline": partial(document, RAG, TWO, baseline=False),
    "no evaluators": partial(document, RAG, {}),
    "one combination": partial(document, {"answer": ["default"]}, NDCG),
    "one case": partial(document, RAG, TWO, cases=1),
    "nothing varied": partial(document, {}, NDCG),
}


@cache
def named_document(name: str) -> dict[str, Any]:
    """One of DOCUMENTS, which tests must not change."""
    return DOCUMENTS[name]()


@pytest.fixture(name="matrix")
def requested_document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return named_document(request.param)


Render = Callable[[dict[str, Any]], str]
ALL_FORMS = pytest.mark.parametrize(
    "render", [matrix_table.render, markdown.matrix, render_matrix], ids=["table", "markdown", "html"]
)
ALL = pytest.mark.parametrize("matrix", DOCUMENTS, indirect=True)


# Terminal


@ALL
@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_line_is_wider_than_the_terminal(matrix: dict[str, Any], width: int) -> None:
    text = matrix_table.render(matrix, width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "\x1b" not in text


@ALL
def test_every_shown_row_can_be_told_apart_at_80_columns(matrix: dict[str, Any]) -> None:
    rows = summary.shortened(matrix, matrix["rows"])
    columns, _ = matrix_table.fit(matrix, rows, [], [], 60)
    named = [column for column in columns if column.is_name]
    assert len({tuple(column.cells[i] for column in named) for i in range(len(rows))}) == len(rows)


def test_the_best_and_the_baseline_are_marked_with_words() -> None:
    lines = matrix_table.render(document(RAG, NDCG, lead=0.3)).splitlines()
    assert any(line.startswith("Best by ndcg: chunk=window retrieve=dense (0.6") for line in lines)
    assert " over the baseline, p=0.001)." in " ".join(lines)
    assert re.match(r"★ best +window +dense ", next(line for line in lines if "★ best " in line))
    assert sum("★" in line for line in lines) == 1
    assert [line for line in lines if " paragraph  default " in line and " baseline " in line]


def test_a_leader_by_chance_is_not_called_the_best() -> None:
    text = matrix_table.render(document(RAG, NDCG))
    assert prose.sentence("No clear winner by {}:", "ndcg") in text
    assert "but that could be chance" in " ".join(text.split())
    assert "☆ leads" in text
    assert "★" not in text


def test_every_combination_that_could_be_the_best_is_marked() -> None:
    matrix = document({"answer": ["a", "b", "c"]}, NDCG)
    matrix["best"]["ndcg"]["candidates"] = [{"answer": "a"}, {"answer": "c"}]
    matrix["best"]["ndcg"] |= {"combination": {"answer": "c"}, "rival": {"answer": "a"}, "clear": False}
    text = matrix_table.render(matrix)
    assert "2 of 3 combinations could be best." in text
    assert [line.split()[:2] for line in text.splitlines() if "☆" in line] == [["2", "☆"], ["0", "☆"]]
    assert text.count("☆ leads") == 1
    assert markdown.matrix(matrix).count("**☆") == 2
    assert static(render_matrix(matrix)).count("<td>☆") == 2
    flags = [line["best"] for line in csv.DictReader(io.StringIO(csvfile.render(matrix)))]
    assert flags.count("yes") == 2


def test_what_has_too_few_scores_is_not_ranked_and_what_leads_is_first() -> None:
    matrix = document({"answer": ["a", "b", "c"]}, NDCG)
    matrix["best"]["ndcg"] |= {"combination": {"answer": "a"}, "rival": {"answer": "b"}, "clear": False}
    matrix["best"]["ndcg"] |= {"unranked": [{"answer": "c"}], "candidates": [{"answer": "a"}, {"answer": "b"}]}
    assert [row["combination"]["answer"] for row in summary.ranked(matrix, "ndcg")] == ["a", "b", "c"]
    text = sentences.answer(matrix, "ndcg")
    assert prose.sentence("{} combinations could be best", "both") in text
    assert text.endswith("Not ranked: 1 with a score in less than 95% of the cases.")
    matrix["best"]["ndcg"] |= {"combination": None, "rival": None, "because": "no case has a score of all of them"}
    assert sentences.answer(matrix, "ndcg").startswith("No combination can be called best by ndcg: no case has a score")
    assert sentences.headline(matrix, "ndcg") == prose.sentence("Nothing can be called best by {}", "ndcg")


def test_what_luck_adds_to_the_best_is_said() -> None:
    matrix = document({"answer": ["a", "b", "c"]}, NDCG, lead=0.3)
    matrix["best"]["ndcg"]["winner"] = {"mean": 0.612, "ci": (0.55, 0.65), "shrunken": 0.601}
    assert sentences.noise(matrix, "ndcg").endswith(
        "on new cases expect about 0.601 of it rather than 0.612 (95% interval 0.550 to 0.650)."
    )
    matrix["best"]["ndcg"]["winner"]["shrunken"] = 0.6119
    assert "lucky" not in sentences.noise(matrix, "ndcg")


def test_rows_come_best_first_also_where_lower_is_better() -> None:
    matrix = document(RAG, {"latency": "lower"})
    means = [row["metrics"]["latency"]["mean"] for row in summary.ranked(matrix, "latency")]
    assert means == sorted(means)


def test_a_long_list_shows_the_top_and_the_baseline_and_says_what_it_leaves_out() -> None:
    matrix = document(ABC, NDCG, lead=0.3)
    matrix["rows"][0]["metrics"]["ndcg"]["mean"] = 0.0
    text = matrix_table.render(matrix)
    rows = re.findall(r"^(?:★ best)? +(a\d)  (b\d)  (c\d)", text, flags=re.MULTILINE)
    assert len(rows) == 21
    assert rows[-1] == ("a1", "b1", "c1")
    assert prose.sentence("{} more combinations; all: wtb matrix {} --format csv", 43, "3f9a") in text


def test_the_width_decides_on_the_columns() -> None:
    matrix = document({**RAG, "query": ["short", "long"]}, NDCG)

    def headers(width: int) -> list[str]:
        lines = matrix_table.render(matrix, width=width).splitlines()
        return lines[next(i for i, line in enumerate(lines) if "──" in line) - 1].split()

    everything = ["chunk", "retrieve", "query", "n", "failed", "ndcg↑", "±", "Δ", "p", "cost", "p50"]
    assert headers(120) == ["#", *everything]
    assert headers(81) == ["#", *everything[:-2]]
    assert headers(50)[-2:] == ["ndcg↑", "Δ"]


def test_several_metrics_share_a_table_if_they_fit() -> None:
    matrix = document(RAG, TWO, lead=0.3)
    assert matrix_table.render(matrix).count("──\n") == 1
    assert matrix_table.render(matrix, width=26).count("──\n") == 2
    assert re.search(r"window +dense .*★0\.6\d\d +\+0\.\d+\* +★-0\.0\d\d +-0\.\d+\*", matrix_table.render(matrix))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_every_metric_has_its_difference_whatever_the_width(width: int) -> None:
    names = ["first_metric", "second_metric", "third_metric", "fourth_metric"]
    text = matrix_table.render(document(RAG, dict.fromkeys(names, "higher"), lead=0.3), width=width)
    lines = text.splitlines()
    heads = [lines[number - 1] for number, line in enumerate(lines) if line.startswith("──")]
    assert [name for name in names if not any(name in head for head in heads)] == []
    assert sum(head.count("Δ") for head in heads) == len(names)


LONG = [
    {
        "retriever": f"dense-embedding-{kind}-large",
        "reranker": f"cross-encoder-{size}",
        "model": "small",
        "prompt": prompt,
    }
    for kind in ("news", "wiki")
    for size in ("base", "tiny")
    for prompt in ("terse", "verbose and friendly")
]


@pytest.mark.parametrize("width", [6, 16, 30, 45, 60, 80, 200])
def test_combinations_have_names_that_differ_in_any_width(width: int) -> None:
    names, legend = tables.labels(LONG, width)
    assert len(set(names)) == len(LONG)
    assert max(map(cell_len, names)) <= width
    text = "\n".join(legend)
    assert "all with: model=small" in text
    assert all(
        name in text or any(name in label for label in names) for name in ("verbose and friendly", "cross-encoder-tiny")
    )


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.text(max_size=9)), min_size=1, max_size=9, unique_by=repr),
    st.integers(6, 60),
)
@settings(max_examples=200, deadline=None)
def test_names_of_combinations_fit_and_differ(rows: list[dict[str, str]], width: int) -> None:
    rows = [{node: texts.printable(variant) for node, variant in choices.items()} for choices in rows]
    names, _ = tables.labels(rows, width)
    assert max(map(cell_len, names)) <= max(width, cell_len("the workflow as it is"))
    same = {str(sorted(choices.items())): name for choices, name in zip(rows, names, strict=True)}
    assert len(set(same.values())) == len({tuple(sorted(choices.items())) for choices in rows})


@pytest.mark.parametrize("width", [60, 80, 100])
def test_what_has_no_room_beside_stands_below(width: int) -> None:
    headers = ["id", "case", "combination", "status", "reason", "execution"]
    rows = [
        [f"1ng78a258zyns2g4{n:06}", f"c{n}", "", "succeeded", "because of it", "1ng78a258zyns2g4"] for n in range(8)
    ]
    text = grid(headers, rows, width, whole={"id", "status", "execution"}, combinations={"combination": LONG})
    assert max(map(cell_len, text.splitlines())) <= width
    assert text.count("because of it") == text.count("1ng78a258zyns2g4 ") + text.count("1ng78a258zyns2g4\n") == 8
    assert ("reason because of it" in text) == (width < 80)


def test_totals_tell_cells_sharing_and_money() -> None:
    text = matrix_table.render(named_document("64 combinations"))
    assert "Cells: 1,278 of 1,280 succeeded, 2 failed." in text
    assert prose.sentence("Node runs: {} executed, {} without sharing{}.", 840, "1,920", " (56% saved)") in text
    assert "Cost: $0.250 spent, $0.600 without sharing; 1,234 tokens in, 56 out." in text


def test_colour_adds_nothing_but_colour() -> None:
    matrix = document(RAG, TWO, lead=0.3)
    coloured = re.sub(r"\x1b\[[0-9;]*m", "", matrix_table.render(matrix, color=True))
    assert [line.rstrip() for line in coloured.splitlines()] == matrix_table.render(matrix).splitlines()
    assert coloured != matrix_table.render(matrix, color=True)


@ALL_FORMS
def test_warnings_are_shown(render: Render) -> None:
    assert "the code is mixed" in render({**named_document("one case"), "warnings": ["the code is mixed"]})


# Sentences


@pytest.mark.parametrize(
    "render", [partial(matrix_table.render, width=200), markdown.matrix], ids=["table", "markdown"]
)
def test_loop_lag_is_named_below_the_latency_where_it_matters(render: Render) -> None:
    matrix = document(RAG, NDCG)
    node = next(iter(RAG))
    lag_s = {"calm": 0.0049, "busy": 0.0624, "late": 0.005, "sync": None, "slow": 0.03, "slower": 0.05}
    matrix["node_runs"]["by_node"][node]["lag_s"] = lag_s
    text = " ".join(render(matrix).split())
    named = f"{node}=busy 62 ms, {node}=slower 50 ms, {node}=slow 30 ms and 1 more"
    assert prose.sentence("Loop lag on average, which is part of the latency: {}", named) in text
    matrix["node_runs"]["by_node"][node]["lag_s"] = {"calm": 0.0049, "sync": None}
    assert "Loop lag" not in render(matrix)


def test_two_that_score_the_same_are_said_to() -> None:
    matrix = document({"a": ["x", "y"]}, NDCG)
    matrix["best"]["ndcg"] |= {"lead": 0.0, "because": "they score the same in all 20 cases that both have"}
    text = sentences.answer(matrix, "ndcg")
    assert text.startswith("No clear winner by ndcg: both combinations could be best. ")
    assert "): they score the same in all 20 cases that both have. The candidates differ by at most 0.051:" in text


def test_the_next_step_is_conditional_and_names_the_cheapest() -> None:
    tied = document({"a": ["x", "y"]}, NDCG)
    best = tied["best"]["ndcg"]
    best |= {"lead": 0.05, "because": "that could be chance", "cases_needed": [419, 1690], "differ_at_most": 0.14}
    for row, cost in zip(tied["rows"], (0.002, 0.001), strict=True):
        row["cost_per_success_usd"] = cost
    assert sentences.answer(tied, "ndcg").endswith(
        "but that could be chance. If the lead of 0.050 is real, about 420 cases settle it (80%); if half of it, "
        "1,700. The candidates differ by at most 0.140: if that does not matter, ship any of them, or the cheapest: y."
    )
    best |= {"cases_needed": [2400, None]}
    assert prose.sentence(
        "about {} cases settle it (80%); if {}, {}.", "2,400", "half of it", "more than can be run"
    ) in sentences.answer(tied, "ndcg")
    best |= {"differ_at_most": 0.00002}
    assert prose.sentence("differ by at most {}: if", "0.00002") in sentences.answer(tied, "ndcg")
    best |= {"differ_at_most": 0.0}
    assert prose.sentence("The candidates do not differ: ship any of them") in sentences.answer(tied, "ndcg")
    best |= {"cases_needed": None, "differ_at_most": None}
    assert sentences.answer(tied, "ndcg").endswith("real, showing it takes more cases than can be run.")
    best |= {"p": None}
    assert sentences.answer(tied, "ndcg").endswith("but that could be chance.")


@ALL_FORMS
def test_where_all_cells_failed_every_form_says_so(render: Render) -> None:
    matrix = document(RAG, {})
    matrix["cells"] |= {"succeeded": 0, "failed": 240}
    assert prose.sentence("{}, so no combination can be called best.", "No cell has succeeded") in render(
        matrix
    ).replace("\n", " ")


@pytest.mark.parametrize(
    ("mean", "text"),
    [(5.5e-9, "5.500e-9"), (5.5e-6, "0.00000550"), (123456.0, "123456"), (5.5e12, "5.500e12"), (-2e9, "-2.000e9")],
)
def test_tiny_and_huge_scores_keep_their_digits(mean: float, text: str) -> None:
    matrix = document({"a": ["x", "y"]}, NDCG)
    for row, factor in zip(matrix["rows"], (1, 0.5), strict=True):
        row["metrics"]["ndcg"] |= {"mean": mean * factor, "ci": None, "delta": mean * (factor - 1), "delta_ci": None}
    digits = figures.decimals(matrix, "ndcg")
    assert figures.number(mean, digits) == text
    assert figures.signed(abs(mean), digits) == f"+{text.lstrip('-')}"
    assert float(figures.signed(0.0, digits)) == 0
    for render in (matrix_table.render, markdown.matrix, render_matrix):
        assert text in render(matrix)


def test_a_count_gives_way_to_a_node_of_its_name() -> None:
    matrix = document({"n": ["x", "y"], "cost": ["x", "y"]}, {"m": "higher"})
    lines = matrix_table.render(matrix, width=120).splitlines()
    (header,) = (line.split() for line in lines if line.endswith("p50"))
    assert (header[1:4], header[-2]) == (["n", "cost", "cells"], "USD")
    assert "| n | cost | cells | failed |" in markdown.matrix(matrix)


def test_cost_is_not_said_twice() -> None:
    matrix = document(RAG, {"cost": "lower"})
    (head,) = (line.split() for line in matrix_table.render(matrix, width=120).splitlines() if line.endswith("p50"))
    assert [name for name in head if name.startswith("cost")] == ["cost↓"]
    assert static(render_matrix(matrix)).count('<th class="number">cost</th>') == 0


def test_nothing_scored_is_said() -> None:
    matrix = document(RAG, NDCG)
    for row in matrix["rows"]:
        row["metrics"]["ndcg"] = dict.fromkeys(row["metrics"]["ndcg"])
    matrix["best"] = {}
    assert sentences.answer(matrix, "ndcg") == prose.sentence("Nothing is scored by {}", "ndcg.")
    for render in (matrix_table.render, markdown.matrix, csvfile.render):
        assert "nan" not in render(matrix).lower()
    assert "nan" not in Tags(render_matrix(matrix)).text.lower()


def test_with_one_combination_there_is_no_contest() -> None:
    answer = sentences.answer(named_document("one combination"), "ndcg")
    assert answer.startswith("Only one combination is scored by ndcg: answer=default (0.")
    assert "ahead" not in matrix_table.render(named_document("one combination"))


def test_a_combination_that_alone_has_enough_scores_is_ranked_and_not_the_only_one_scored() -> None:
    matrix = document(RAG, NDCG)
    first, *unranked = (row["combination"] for row in matrix["rows"])
    matrix["best"]["ndcg"] |= {"combination": first, "clear": False, "rival": None, "candidates": [first]}
    matrix["best"]["ndcg"]["unranked"] = unranked
    assert sentences.answer(matrix, "ndcg").startswith("Only one combination is ranked by ndcg: ")
    assert sentences.headline(matrix, "ndcg").endswith(" is ranked by ndcg")


def test_a_best_of_fewer_cases_says_so() -> None:
    matrix = document(RAG, NDCG, lead=0.3)
    matrix["rows"][-1]["metrics"]["ndcg"]["n"] = 5
    assert prose.sentence("scored in {} of {} cases", 5, 20) in sentences.answer(matrix, "ndcg")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0, "0.0 ms"),
        (0.0056, "5.6 ms"),
        (0.136, "136 ms"),
        (1.234, "1.23 s"),
        (90, "90.0 s"),
        (300, "5.0 min"),
    ],
)
def test_durations_come_in_the_unit_that_suits(seconds: float | None, text: str) -> None:
    assert texts.duration(seconds) == text


@pytest.mark.parametrize(
    ("usd", "text"), [(None, "–"), (0.0, "$0.00"), (0.000123, "$0.000123"), (0.25, "$0.250"), (1234.5, "$1,234.50")]
)
def test_money_shows_what_little_there_is(usd: float | None, text: str) -> None:
    assert texts.money(usd) == text


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=6, unique=True), st.integers(4, 14))
@settings(max_examples=200, deadline=None)
def test_names_that_differ_still_differ_when_cut(names: list[str], width: int) -> None:
    names = list(dict.fromkeys(map(texts.printable, names)))
    cut_names = tables.cut(names, max(width, tables.least_width(names)))
    assert cut_names is None or len(set(cut_names)) == len(names)
    assert all(cell_len(name) <= max(width, tables.least_width(names)) for name in cut_names or ())


# Other formats


class Tags(HTMLParser):
    """The tags of a page, and whether each is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if self.open[-1:] not in (["style"], ["script"]) else ""


HOSTILE = '<script>alert("x")</script>|a\\|b\n\x1b[31m`_*@someone'


def hostile() -> dict[str, Any]:
    matrix = document({HOSTILE: [HOSTILE, "=1+1"]}, {HOSTILE: "higher"}, lead=0.3)
    matrix["sweep"] |= {"id": HOSTILE, "name": HOSTILE, "status": HOSTILE}
    return matrix | {"warnings": [HOSTILE]}


def static(page: str) -> str:
    """The content of a page without scripts."""
    return page.partition('<script type="application/json"')[0].partition("<body>")[2]


@ALL
def test_html_is_one_page_that_needs_nothing(matrix: dict[str, Any]) -> None:
    page = render_matrix(matrix)
    tags = Tags(page)
    assert tags.seen.count("script") == 2, "the data, and the script that shows them"
    assert not {"img", "iframe"} & set(tags.seen)
    assert "http" not in static(page)
    assert tags.seen.count("table") == len(summary.tabled(matrix))
    rows = [len(summary.shortened(matrix, summary.ranked(matrix, metric))) for metric in summary.tabled(matrix)]
    assert static(page).count("<tr") == sum(rows) + len(rows)


def test_html_escapes_every_name() -> None:
    page = render_matrix(hostile())
    assert Tags(page).seen.count("script") == 2
    assert "&lt;script&gt;" in static(page)
    assert '="<' not in static(page)
    assert "\x1b" not in page


@ALL
def test_markdown_has_a_table_for_each_metric(matrix: dict[str, Any]) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown.matrix(matrix))
    assert sum(token.type == "table_open" for token in tokens) == len(summary.tabled(matrix))


def test_markdown_shows_names_as_they_are() -> None:
    text = markdown.matrix(hostile())
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    rows = [token for token in tokens if token.type == "tr_open"]
    cells = [token for token in tokens if token.type in ("td_open", "th_open")]
    assert len(rows) == 3
    assert len(cells) % 3 == 0
    assert "<script" not in text
    assert "@someone" not in text
    names = [
        "".join(child.content for child in token.children or () if child.type != "html_inline")
        for token in tokens
        if token.type == "inline" and token.level > 2
    ]
    assert texts.printable(HOSTILE) in names


def test_a_terminal_obeys_no_name() -> None:
    text = matrix_table.render(hostile())
    assert "\x1b" not in text
    assert max(map(cell_len, text.splitlines())) <= 80


@ALL
def test_csv_gives_back_every_figure(matrix: dict[str, Any]) -> None:
    lines = list(csv.DictReader(io.StringIO(csvfile.render(matrix))))
    metrics = summary.tabled(matrix)
    assert len(lines) == len(matrix["rows"]) * len(metrics)
    for line, (row, metric) in zip(lines, itertools.product(matrix["rows"], metrics), strict=True):
        assert {node: line[f"node.{node}"] for node in row["combination"]} == row["combination"]
        assert line["metric"] == (metric or "")
        assert float(line["cost_usd"]) == row["cost_usd"]
        if metric is None:
            continue
        figures = row["metrics"][metric]
        for column, key in [(each, each) for each in ("n", "n_pairs", "mean", "delta", "p_adjusted")] + [
            ("p_uncorrected", "p")
        ]:
            assert line[column] == ("" if figures[key] is None else str(figures[key]))
        assert "p" not in line, "an uncorrected p beside a corrected interval would be read as its p"
        low, high = figures["ci"] or ("", "")
        assert (line["ci_low"], line["ci_high"]) == (str(low), str(high))


def test_csv_runs_no_formula() -> None:
    lines = list(csv.DictReader(io.StringIO(csvfile.render(hostile()))))
    assert [line[f"node.{HOSTILE}"] for line in lines] == [HOSTILE, "'=1+1"]
    assert all(float(line["mean"]) > 0 for line in lines)
    minus = document({"answer": ["-1", "@x", "+x", "\tx"]}, NDCG, cases=5)
    reader = csv.DictReader(io.StringIO(csvfile.render(minus)))
    assert [line["node.answer"] for line in reader] == ["'-1", "'@x", "'+x", "'\tx"]


@ALL_FORMS
def test_a_sweep_without_rows_can_be_shown(render: Render) -> None:
    matrix = document(RAG, NDCG) | {"rows": [], "best": {}, "baseline": None}
    assert "nightly" in render(matrix)
    assert csvfile.render(matrix).count("\n") == 1


# One question


def test_metrics_that_do_not_decide_are_exploratory() -> None:
    matrix = document(RAG, {"ndcg": "higher", "recall": "higher", "latency": "lower"})
    ndcg, recall, latency = sentences.answers(matrix)
    assert "by ndcg" in ndcg
    assert "exploratory" not in ndcg
    assert "by recall (exploratory)" in recall
    assert "by latency (exploratory)" in latency
    assert sentences.decides(matrix) == [
        prose.sentence("Decided by {} (first evaluator). Change with `primary:` in the sweep file.", "ndcg")
    ]
    assert sentences.decides({**matrix, "primary_named": True}) == []
    assert sentences.decides(document(RAG, TWO)) == [], "what cells take decides only where it is asked for"


# What failures cost


@pytest.mark.parametrize(
    "render",
    [partial(matrix_table.render, width=200), markdown.matrix, lambda matrix: static(render_matrix(matrix))],
    ids=["table", "markdown", "html"],
)
def test_what_failures_cost_stands_beside_what_success_costs(render: Render) -> None:
    matrix = document(RAG, NDCG)
    assert "per success" not in render(matrix)
    matrix["rows"][1] |= {"cost_failed_usd": 1.25, "cost_per_success_usd": 0.1375}
    text = render(matrix)
    assert "per success" in text
    assert "$1.25" in text
    assert "$0.138" in text


def test_a_csv_has_the_costs_of_failures() -> None:
    (first, *_) = csv.DictReader(io.StringIO(csvfile.render(document(RAG, NDCG))))
    assert {"cost_usd", "cost_failed_usd", "cost_per_success_usd"} <= first.keys()
