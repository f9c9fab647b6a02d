"""The matrix as people see it: the answer in words, tables that fit, and nothing that a name can break."""

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
from wtb.display import labels, markdown
from wtb.display.matrix import columns, figures, sentences, summary, table
from wtb.display.matrix import csv as csvfile
from wtb.display.report.html.page import render_matrix
from wtb.display.tables import grid

RAG = {"chunk": ["paragraph", "sentence", "window"], "retrieve": ["default", "bm25", "tfidf", "dense"]}
ABC = {node: [f"{node.lower()}{i}" for i in range(1, 5)] for node in "ABC"}
MANY_NODES = {f"stage_{i}": ["default", "alternative"] for i in range(7)}
UNGAINLY = {
    "a node with a rather long name": ["x" * 60, "y" * 60],
    "检索": ["默认的检索方法", "另一种检索方法"],
}


def document(
    vary: dict[str, list[str]],
    metrics: dict[str, str],
    *,
    cases: int = 20,
    baseline: bool = True,
    lead: float = 0.0,
) -> dict[str, Any]:
    """A document as the contract has it, of made-up scores; the last combination leads by `lead`."""
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
        found = compare(
            scores, Design(baseline=0 if baseline else None, better="lower" if better == "lower" else "higher")
        )
        for row, estimate in zip(rows, found.rows, strict=True):
            row["metrics"][metric] = dataclasses.asdict(estimate)
        if found.best is not None:
            best[metric] = best_of(found, combinations, Tried(len(combinations)))
    total = len(rows) * cases
    statuses = ("pending", "running", "waiting", "cancelled", "skipped", "set_aside")
    counts = {"executed": 840, "unshared": 1920, "attempts": 845}
    made = {
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
    return documents.whole_matrix(made)


ONE = {"ndcg": "higher"}
TWO = {"ndcg": "higher", "latency": "lower"}
SEVEN = {f"a_metric_with_a_long_name_{i}": "higher" for i in range(7)}
DOCUMENTS = {  # made when a test asks for them: their statistics take a second
    "64 combinations": partial(document, ABC, ONE),
    "24 combinations, 2 metrics": partial(document, {**RAG, "query": ["short", "long"]}, TWO),
    "7 metrics": partial(document, RAG, SEVEN),
    "many nodes": partial(document, MANY_NODES, ONE),
    "ungainly names": partial(document, UNGAINLY, TWO),
    "no baseline": partial(document, RAG, TWO, baseline=False),
    "no evaluators": partial(document, RAG, {}),
    "one combination": partial(document, {"answer": ["default"]}, ONE),
    "one case": partial(document, RAG, TWO, cases=1),
    "nothing varied": partial(document, {}, ONE),
}


@cache
def named_document(name: str) -> dict[str, Any]:
    """One of DOCUMENTS, which tests do not change."""
    return DOCUMENTS[name]()


@pytest.fixture(name="given")
def given_document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return named_document(request.param)


Render = Callable[[dict[str, Any]], str]
ALL_FORMS = pytest.mark.parametrize(
    "render", [table.render, markdown.matrix, render_matrix], ids=["table", "markdown", "html"]
)
ALL = pytest.mark.parametrize("given", DOCUMENTS, indirect=True)


# Terminal


@ALL
@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_line_is_wider_than_the_terminal(given: dict[str, Any], width: int) -> None:
    text = table.render(given, width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "\x1b" not in text


@ALL
def test_every_shown_row_can_be_told_apart_at_80_columns(given: dict[str, Any]) -> None:
    rows = summary.shortened(given, given["rows"])
    shown, _ = columns.fit(given, rows, [], [], 60)
    named = [column for column in shown if column.is_name]
    assert len({tuple(column.cells[i] for column in named) for i in range(len(rows))}) == len(rows)


def test_the_best_and_the_baseline_are_marked_with_words() -> None:
    lines = table.render(document(RAG, ONE, lead=0.3)).splitlines()
    assert any(line.startswith("Best by ndcg: chunk=window retrieve=dense (0.6") for line in lines)
    assert " over the baseline, p=0.001)." in " ".join(lines)
    assert re.match(r"★ best +window +dense ", next(line for line in lines if "★ best " in line))
    assert sum("★" in line for line in lines) == 1
    assert [line for line in lines if " paragraph  default " in line and " baseline " in line]


def test_a_leader_by_chance_is_not_called_the_best() -> None:
    text = table.render(document(RAG, ONE))
    assert prose.sentence("No clear winner by {}:", "ndcg") in text
    assert "but that could be chance" in " ".join(text.split())
    assert "☆ leads" in text
    assert "★" not in text


def test_every_combination_that_could_be_the_best_is_marked() -> None:
    given = document({"answer": ["a", "b", "c"]}, ONE)
    given["best"]["ndcg"]["candidates"] = [{"answer": "a"}, {"answer": "c"}]
    given["best"]["ndcg"] |= {"combination": {"answer": "c"}, "rival": {"answer": "a"}, "clear": False}
    text = table.render(given)
    assert "2 of 3 combinations could be best." in text
    assert [line.split()[:2] for line in text.splitlines() if "☆" in line] == [["2", "☆"], ["0", "☆"]]
    assert text.count("☆ leads") == 1
    assert markdown.matrix(given).count("**☆") == 2
    assert static(render_matrix(given)).count("<td>☆") == 2
    flags = [line["best"] for line in csv.DictReader(io.StringIO(csvfile.render(given)))]
    assert flags.count("yes") == 2


def test_what_has_too_few_scores_is_not_ranked_and_what_leads_is_first() -> None:
    given = document({"answer": ["a", "b", "c"]}, ONE)
    given["best"]["ndcg"] |= {"combination": {"answer": "a"}, "rival": {"answer": "b"}, "clear": False}
    given["best"]["ndcg"] |= {"unranked": [{"answer": "c"}], "candidates": [{"answer": "a"}, {"answer": "b"}]}
    assert [row["combination"]["answer"] for row in summary.ranked(given, "ndcg")] == ["a", "b", "c"]
    said = sentences.answer(given, "ndcg")
    assert prose.sentence("{} combinations could be best", "both") in said
    assert said.endswith("Not ranked: 1 with a score in less than 95% of the cases.")
    given["best"]["ndcg"] |= {"combination": None, "rival": None, "because": "no case has a score of all of them"}
    assert sentences.answer(given, "ndcg").startswith("No combination can be called best by ndcg: no case has a score")
    assert sentences.headline(given, "ndcg") == prose.sentence("Nothing can be called best by {}", "ndcg")


def test_what_luck_adds_to_the_best_is_said() -> None:
    given = document({"answer": ["a", "b", "c"]}, ONE, lead=0.3)
    given["best"]["ndcg"]["winner"] = {"mean": 0.612, "ci": (0.55, 0.65), "shrunken": 0.601}
    assert sentences.noise(given, "ndcg").endswith(
        "on new cases expect about 0.601 of it rather than 0.612 (95% interval 0.550 to 0.650)."
    )
    given["best"]["ndcg"]["winner"]["shrunken"] = 0.6119
    assert "lucky" not in sentences.noise(given, "ndcg")


def test_rows_come_best_first_also_where_lower_is_better() -> None:
    given = document(RAG, {"latency": "lower"})
    means = [row["metrics"]["latency"]["mean"] for row in summary.ranked(given, "latency")]
    assert means == sorted(means)


def test_a_long_list_shows_the_top_and_the_baseline_and_says_what_it_leaves_out() -> None:
    given = document(ABC, ONE, lead=0.3)
    given["rows"][0]["metrics"]["ndcg"]["mean"] = 0.0
    text = table.render(given)
    rows = re.findall(r"^(?:★ best)? +(a\d)  (b\d)  (c\d)", text, flags=re.MULTILINE)
    assert len(rows) == 21
    assert rows[-1] == ("a1", "b1", "c1")
    assert prose.sentence("{} more combinations; all: wtb matrix {} --format csv", 43, "3f9a") in text


def test_the_width_decides_on_the_columns() -> None:
    given = document({**RAG, "query": ["short", "long"]}, ONE)

    def headers(width: int) -> list[str]:
        lines = table.render(given, width=width).splitlines()
        return lines[next(i for i, line in enumerate(lines) if "──" in line) - 1].split()

    everything = ["chunk", "retrieve", "query", "n", "failed", "ndcg↑", "±", "Δ", "p", "cost", "p50"]
    assert headers(120) == ["#", *everything]
    assert headers(81) == ["#", *everything[:-2]]
    assert headers(50)[-2:] == ["ndcg↑", "Δ"]


def test_several_metrics_share_a_table_if_they_fit() -> None:
    given = document(RAG, TWO, lead=0.3)
    assert table.render(given).count("──\n") == 1
    assert table.render(given, width=26).count("──\n") == 2
    assert re.search(r"window +dense .*★0\.6\d\d +\+0\.\d+\* +★-0\.0\d\d +-0\.\d+\*", table.render(given))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_every_metric_has_its_difference_whatever_the_width(width: int) -> None:
    names = ["first_metric", "second_metric", "third_metric", "fourth_metric"]
    text = table.render(document(RAG, dict.fromkeys(names, "higher"), lead=0.3), width=width)
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
    names, legend = labels.labels(LONG, width)
    assert len(set(names)) == len(LONG)
    assert max(map(cell_len, names)) <= width
    said = "\n".join(legend)
    assert "all with: model=small" in said
    assert all(
        name in said or any(name in one for one in names) for name in ("verbose and friendly", "cross-encoder-tiny")
    )


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.text(max_size=9)), min_size=1, max_size=9, unique_by=repr),
    st.integers(6, 60),
)
@settings(max_examples=200, deadline=None)
def test_names_of_combinations_fit_and_differ(given: list[dict[str, str]], width: int) -> None:
    given = [{node: texts.printable(variant) for node, variant in choices.items()} for choices in given]
    names, _ = labels.labels(given, width)
    assert max(map(cell_len, names)) <= max(width, cell_len("the workflow as it is"))
    same = {str(sorted(choices.items())): name for choices, name in zip(given, names, strict=True)}
    assert len(set(same.values())) == len({tuple(sorted(choices.items())) for choices in given})


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
    text = table.render(named_document("64 combinations"))
    assert "Cells: 1,278 of 1,280 succeeded, 2 failed." in text
    assert prose.sentence("Node runs: {} executed, {} without sharing{}.", 840, "1,920", " (56% saved)") in text
    assert "Cost: $0.250 spent, $0.600 without sharing; 1,234 tokens in, 56 out." in text


def test_colour_adds_nothing_but_colour() -> None:
    given = document(RAG, TWO, lead=0.3)
    coloured = re.sub(r"\x1b\[[0-9;]*m", "", table.render(given, color=True))
    assert [line.rstrip() for line in coloured.splitlines()] == table.render(given).splitlines()
    assert coloured != table.render(given, color=True)


@ALL_FORMS
def test_warnings_are_shown(render: Render) -> None:
    assert "the code is mixed" in render({**named_document("one case"), "warnings": ["the code is mixed"]})


# What is said


@pytest.mark.parametrize("render", [partial(table.render, width=200), markdown.matrix], ids=["table", "markdown"])
def test_loop_lag_is_named_below_the_latency_where_it_matters(render: Render) -> None:
    given = document(RAG, ONE)
    node = next(iter(RAG))
    lag_s = {"calm": 0.0049, "busy": 0.0624, "late": 0.005, "sync": None, "slow": 0.03, "slower": 0.05}
    given["node_runs"]["by_node"][node]["lag_s"] = lag_s
    text = " ".join(render(given).split())
    named = f"{node}=busy 62 ms, {node}=slower 50 ms, {node}=slow 30 ms and 1 more"
    assert prose.sentence("Loop lag on average, which is part of the latency: {}", named) in text
    given["node_runs"]["by_node"][node]["lag_s"] = {"calm": 0.0049, "sync": None}
    assert "Loop lag" not in render(given)


def test_two_that_score_the_same_are_said_to() -> None:
    given = document({"a": ["x", "y"]}, ONE)
    given["best"]["ndcg"] |= {"lead": 0.0, "because": "they score the same in all 20 cases that both have"}
    said = sentences.answer(given, "ndcg")
    assert said.startswith("No clear winner by ndcg: both combinations could be best. ")
    assert "): they score the same in all 20 cases that both have. The candidates differ by at most 0.051:" in said


def test_the_next_step_is_conditional_and_names_the_cheapest() -> None:
    tied = document({"a": ["x", "y"]}, ONE)
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
    given = document(RAG, {})
    given["cells"] |= {"succeeded": 0, "failed": 240}
    assert prose.sentence("{}, so no combination can be called best.", "No cell has succeeded") in render(
        given
    ).replace("\n", " ")


@pytest.mark.parametrize(
    ("mean", "text"),
    [(5.5e-9, "5.500e-9"), (5.5e-6, "0.00000550"), (123456.0, "123456"), (5.5e12, "5.500e12"), (-2e9, "-2.000e9")],
)
def test_tiny_and_huge_scores_keep_their_digits(mean: float, text: str) -> None:
    given = document({"a": ["x", "y"]}, ONE)
    for row, factor in zip(given["rows"], (1, 0.5), strict=True):
        row["metrics"]["ndcg"] |= {"mean": mean * factor, "ci": None, "delta": mean * (factor - 1), "delta_ci": None}
    digits = figures.decimals(given, "ndcg")
    assert figures.number(mean, digits) == text
    assert figures.signed(abs(mean), digits) == f"+{text.lstrip('-')}"
    assert float(figures.signed(0.0, digits)) == 0
    for render in (table.render, markdown.matrix, render_matrix):
        assert text in render(given)


def test_a_count_gives_way_to_a_node_of_its_name() -> None:
    given = document({"n": ["x", "y"], "cost": ["x", "y"]}, {"m": "higher"})
    lines = table.render(given, width=120).splitlines()
    (header,) = (line.split() for line in lines if line.endswith("p50"))
    assert (header[1:4], header[-2]) == (["n", "cost", "cells"], "USD")
    assert "| n | cost | cells | failed |" in markdown.matrix(given)


def test_cost_is_not_said_twice() -> None:
    given = document(RAG, {"cost": "lower"})
    (head,) = (line.split() for line in table.render(given, width=120).splitlines() if line.endswith("p50"))
    assert [name for name in head if name.startswith("cost")] == ["cost↓"]
    assert static(render_matrix(given)).count('<th class="number">cost</th>') == 0


def test_nothing_scored_is_said() -> None:
    given = document(RAG, ONE)
    for row in given["rows"]:
        row["metrics"]["ndcg"] = dict.fromkeys(row["metrics"]["ndcg"])
    given["best"] = {}
    assert sentences.answer(given, "ndcg") == prose.sentence("Nothing is scored by {}", "ndcg.")
    for render in (table.render, markdown.matrix, csvfile.render):
        assert "nan" not in render(given).lower()
    assert "nan" not in Tags(render_matrix(given)).text.lower()


def test_with_one_combination_there_is_no_contest() -> None:
    answer = sentences.answer(named_document("one combination"), "ndcg")
    assert answer.startswith("Only one combination is scored by ndcg: answer=default (0.")
    assert "ahead" not in table.render(named_document("one combination"))


def test_a_combination_that_alone_has_enough_scores_is_ranked_and_not_the_only_one_scored() -> None:
    given = document(RAG, ONE)
    first, *others = (row["combination"] for row in given["rows"])
    given["best"]["ndcg"] |= {"combination": first, "clear": False, "rival": None, "candidates": [first]}
    given["best"]["ndcg"]["unranked"] = others
    assert sentences.answer(given, "ndcg").startswith("Only one combination is ranked by ndcg: ")
    assert sentences.headline(given, "ndcg").endswith(" is ranked by ndcg")


def test_a_best_of_fewer_cases_says_so() -> None:
    given = document(RAG, ONE, lead=0.3)
    given["rows"][-1]["metrics"]["ndcg"]["n"] = 5
    assert prose.sentence("scored in {} of {} cases", 5, 20) in sentences.answer(given, "ndcg")


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
    ("usd", "text"),
    [(None, "–"), (0.0, "$0.00"), (0.000123, "$0.000123"), (0.25, "$0.250"), (1234.5, "$1,234.50")],
)
def test_money_shows_what_little_there_is(usd: float | None, text: str) -> None:
    assert texts.money(usd) == text


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=6, unique=True), st.integers(4, 14))
@settings(max_examples=200, deadline=None)
def test_names_that_differ_still_differ_when_cut(names: list[str], width: int) -> None:
    names = list(dict.fromkeys(map(texts.printable, names)))
    found = labels.cut(names, max(width, labels.least_width(names)))
    assert found is None or len(set(found)) == len(names)
    assert all(cell_len(name) <= max(width, labels.least_width(names)) for name in found or ())


# Other formats


class Tags(HTMLParser):
    """The tags of a page, and whether each is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(page)

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
    given = document({HOSTILE: [HOSTILE, "=1+1"]}, {HOSTILE: "higher"}, lead=0.3)
    given["sweep"] |= {"id": HOSTILE, "name": HOSTILE, "status": HOSTILE}
    return given | {"warnings": [HOSTILE]}


def static(page: str) -> str:
    """What a page shows without scripts."""
    return page.partition('<script type="application/json"')[0].partition("<body>")[2]


@ALL
def test_html_is_one_page_that_needs_nothing(given: dict[str, Any]) -> None:
    page = render_matrix(given)
    tags = Tags(page)
    assert not tags.open
    assert tags.seen.count("script") == 2, "the data, and the script that shows them"
    assert not {"img", "iframe"} & set(tags.seen)
    assert "http" not in static(page)
    assert tags.seen.count("table") == len(summary.tabled(given))
    rows = [len(summary.shortened(given, summary.ranked(given, metric))) for metric in summary.tabled(given)]
    assert static(page).count("<tr") == sum(rows) + len(rows)


def test_html_escapes_every_name() -> None:
    page = render_matrix(hostile())
    assert Tags(page).seen.count("script") == 2
    assert "&lt;script&gt;" in static(page)
    assert '="<' not in static(page)
    assert "\x1b" not in page


@ALL
def test_markdown_has_a_table_for_each_metric(given: dict[str, Any]) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown.matrix(given))
    assert sum(token.type == "table_open" for token in tokens) == len(summary.tabled(given))


def test_markdown_shows_names_as_they_are() -> None:
    text = markdown.matrix(hostile())
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    rows = [token for token in tokens if token.type == "tr_open"]
    cells = [token for token in tokens if token.type in ("td_open", "th_open")]
    assert len(rows) == 3
    assert len(cells) % 3 == 0
    assert "<script" not in text
    assert "@someone" not in text
    shown = [
        "".join(child.content for child in token.children or () if child.type != "html_inline")
        for token in tokens
        if token.type == "inline" and token.level > 2
    ]
    assert texts.printable(HOSTILE) in shown


def test_a_terminal_obeys_no_name() -> None:
    text = table.render(hostile())
    assert "\x1b" not in text
    assert max(map(cell_len, text.splitlines())) <= 80


@ALL
def test_csv_gives_back_every_figure(given: dict[str, Any]) -> None:
    lines = list(csv.DictReader(io.StringIO(csvfile.render(given))))
    metrics = summary.tabled(given)
    assert len(lines) == len(given["rows"]) * len(metrics)
    for line, (row, metric) in zip(lines, itertools.product(given["rows"], metrics), strict=True):
        assert {node: line[f"node.{node}"] for node in row["combination"]} == row["combination"]
        assert line["metric"] == (metric or "")
        assert float(line["cost_usd"]) == row["cost_usd"]
        if metric is None:
            continue
        found = row["metrics"][metric]
        for column, key in [(each, each) for each in ("n", "n_pairs", "mean", "delta", "p_adjusted")] + [
            ("p_uncorrected", "p")
        ]:
            assert line[column] == ("" if found[key] is None else str(found[key]))
        assert "p" not in line, "an uncorrected p beside a corrected interval would be read as its p"
        low, high = found["ci"] or ("", "")
        assert (line["ci_low"], line["ci_high"]) == (str(low), str(high))


def test_csv_runs_no_formula() -> None:
    lines = list(csv.DictReader(io.StringIO(csvfile.render(hostile()))))
    assert [line[f"node.{HOSTILE}"] for line in lines] == [HOSTILE, "'=1+1"]
    assert all(float(line["mean"]) > 0 for line in lines)
    minus = document({"answer": ["-1", "@x", "+x", "\tx"]}, ONE, cases=5)
    found = csv.DictReader(io.StringIO(csvfile.render(minus)))
    assert [line["node.answer"] for line in found] == ["'-1", "'@x", "'+x", "'\tx"]


@ALL_FORMS
def test_a_sweep_without_rows_can_be_shown(render: Render) -> None:
    given = document(RAG, ONE) | {"rows": [], "best": {}, "baseline": None}
    assert "nightly" in render(given)
    assert csvfile.render(given).count("\n") == 1


# One question


def test_metrics_that_do_not_decide_are_exploratory() -> None:
    given = document(RAG, {"ndcg": "higher", "recall": "higher", "latency": "lower"})
    ndcg, recall, latency = sentences.answers(given)
    assert "by ndcg" in ndcg
    assert "exploratory" not in ndcg
    assert "by recall (exploratory)" in recall
    assert "by latency (exploratory)" in latency
    assert sentences.decides(given) == [
        prose.sentence("Decided by {} (first evaluator). Change with `primary:` in the sweep file.", "ndcg")
    ]
    assert sentences.decides({**given, "primary_named": True}) == []
    assert sentences.decides(document(RAG, TWO)) == [], "what cells take decides only where it is asked for"


# What failures cost


@pytest.mark.parametrize(
    "render",
    [partial(table.render, width=200), markdown.matrix, lambda given: static(render_matrix(given))],
    ids=["table", "markdown", "html"],
)
def test_what_failures_cost_stands_beside_what_success_costs(render: Render) -> None:
    given = document(RAG, ONE)
    assert "per success" not in render(given)
    given["rows"][1] |= {"cost_failed_usd": 1.25, "cost_per_success_usd": 0.1375}
    said = render(given)
    assert "per success" in said
    assert "$1.25" in said
    assert "$0.138" in said


def test_a_csv_has_the_costs_of_failures() -> None:
    (first, *_) = csv.DictReader(io.StringIO(csvfile.render(document(RAG, ONE))))
    assert {"cost_usd", "cost_failed_usd", "cost_per_success_usd"} <= first.keys()
