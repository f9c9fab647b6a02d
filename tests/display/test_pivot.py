"""Views of a matrix: their rows, the order, the averages of pivot tables, and their width."""

from __future__ import annotations

import csv
import io
import itertools
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from tests.display.test_render import document
from tests.support.prose import sentence
from wtb.analysis.statistics.intervals import intervals
from wtb.core.errors import InputError
from wtb.display import csv as csvfile
from wtb.display import markdown, matrix_table, pivot_text, row_view
from wtb.display.row_view import ViewOptions, make_view

FACTORS = {
    "retrieve.k": ["2", "10"],
    "answer.model": ["mini", "medium", "large"],
    "answer.prompt": ["answer-only-from-the-doc#363b6759", "answer-only-from-the-doc#1abb6b2a", "short.md#10e612a2"],
    "answer.temperature": ["0", "0.7"],
}


def grid(factors: dict[str, list[str]], metrics: dict[str, str] | None = None) -> dict[str, Any]:
    """The matrix of all combinations of levels."""
    matrix = document(
        {"row": [str(n) for n in range(len([*itertools.product(*factors.values())]))]}, metrics or {"right": "higher"}
    )
    for row, levels in zip(matrix["rows"], itertools.product(*factors.values()), strict=True):
        by_node: dict[str, list[str]] = {}
        for factor, level in zip(factors, levels, strict=True):
            node, _, parameter = factor.partition(".")
            by_node.setdefault(node, []).append(f"{parameter}={level}")
        row["combination"] = {node: ", ".join(pairs) for node, pairs in by_node.items()}
    matrix["baseline"] = matrix["rows"][0]["combination"]
    matrix["best"] = {}
    matrix["primary"] = next(iter(metrics or {"right": "higher"}))
    return matrix


def viewed(matrix: Any, numbers: set[int] | None = None, **options: Any) -> Any:
    matrix["view"] = make_view(matrix, ViewOptions(**options), numbers)
    return matrix["view"]


def means(matrix: Any) -> list[float]:
    return [row["metrics"]["right"]["mean"] for row in matrix["rows"]]


def test_a_cell_is_the_mean_of_the_combinations_that_share_both_levels() -> None:
    matrix = grid(FACTORS)
    pivot = viewed(matrix, pivot=["answer.model", "retrieve.k"])["pivot"]
    assert (pivot["lines"], pivot["columns"]) == (["mini", "medium", "large"], ["2", "10"])
    for line, model in zip(pivot["cells"], pivot["lines"], strict=True):
        for cell, k in zip(line, pivot["columns"], strict=True):
            rows = [
                row
                for row in matrix["rows"]
                if row["combination"]["retrieve"] == f"k={k}" and f"model={model}," in row["combination"]["answer"]
            ]
            figures = [row["metrics"]["right"] for row in rows]
            assert len(cell["rows"]) == len(rows) == 6
            assert cell["mean"] == pytest.approx(np.mean([figure["mean"] for figure in figures]))
            assert cell["ci"] == pytest.approx(np.mean([figure["ci"] for figure in figures], axis=0))
    assert pivot["balanced"]


def test_combinations_with_other_cases_are_left_out_of_means_and_counted() -> None:
    matrix = grid({"a.x": ["1", "2"], "a.y": ["1", "2"]})
    matrix["rows"][0]["stopped"] = {"by": "ana", "reason": "", "at": "", "cases": 3}
    matrix["rows"][1]["exploratory"] = {"cases_left_out": 1}
    matrix["rows"][3]["metrics"]["right"] |= {"mean": None, "ci": None}
    pivot = viewed(matrix, pivot=["a.x", "a.y"])["pivot"]
    (first, second), (third, fourth) = pivot["cells"]
    assert (first["mean"], first["rows"], first["left_out"]) == (None, [], [0])
    assert (second["mean"], second["left_out"]) == (None, [1])
    assert (third["mean"], third["rows"]) == (means(matrix)[2], [2])
    assert (fourth["mean"], fourth["left_out"]) == (None, [3])
    text = " ".join(pivot_text.render(matrix).split())
    assert (
        sentence("{} {} left out: stopped, added after results were seen, or without a figure.", 3, "combinations")
        in text
    )


def test_cells_that_average_other_levels_of_other_factors_are_said_to() -> None:
    matrix = grid({"a.x": ["1", "2"], "a.y": ["1", "2"]})
    assert viewed(matrix, pivot=["a.x"])["pivot"]["balanced"]
    del matrix["rows"][3]  # excluded
    pivot = viewed(matrix, pivot=["a.x"])["pivot"]
    assert [len(line[0]["rows"]) for line in pivot["cells"]] == [2, 1]
    assert not pivot["balanced"]
    text = " ".join(pivot_text.render(matrix).split())
    assert sentence("Cells average different levels of the other factors") in text
    assert "(2)" in text, "how many are behind a cell stands in it, since they differ"


def test_a_combination_that_was_excluded_leaves_its_cell_empty() -> None:
    matrix = grid({"a.x": ["1", "2"], "a.y": ["1", "2"]})
    del matrix["rows"][3]
    pivot = viewed(matrix, pivot=["a.x", "a.y"])["pivot"]
    assert pivot["cells"][1][1] == {"mean": None, "ci": None, "rows": [], "left_out": []}
    assert pivot["balanced"], "the factors of the table are all that differ"
    assert pivot_text.render(matrix).splitlines()[5].split()[-1] == "–"


def test_a_factor_that_some_variants_lack_has_a_level_without() -> None:
    matrix = grid({"a.x": ["1", "2"]})
    matrix["rows"][1]["combination"] = {"a": "plain"}
    pivot = viewed(matrix, pivot=["a.x"])["pivot"]
    assert pivot["lines"] == ["1", None]
    assert "\nwithout " in pivot_text.render(matrix)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_interval_of_a_cell_holds_the_true_mean_in_95_percent_however_rows_go_together(share: float) -> None:
    rng = np.random.default_rng(1)
    cases, rows, sweeps = 30, 4, 1_000
    hits = 0
    for _ in range(sweeps):
        common = rng.normal(size=(1, cases)) * np.sqrt(share)
        bounds = intervals(common + rng.normal(size=(rows, cases)) * np.sqrt(1 - share))
        low, high = np.nanmean(bounds, axis=0)
        hits += low <= 0 <= high
    assert hits / sweeps > 0.935


@pytest.mark.parametrize("levels", [["0.5", "10", "9", "-1", "1e1"], ["1e1", "-1", "10", "9", ".5"]])
def test_levels_stand_by_number_if_all_are_numbers_else_as_declared(levels: list[str]) -> None:
    pivot = viewed(grid({"a.x": levels}), pivot=["a.x"])["pivot"]
    assert [float(level) for level in pivot["lines"]] == [-1, 0.5, 9, 10, 10]
    pivot = viewed(grid({"a.x": ["z", *levels]}), pivot=["a.x"])["pivot"]
    assert pivot["lines"] == ["z", *levels]


def test_rows_are_sorted_by_what_is_asked_and_unknown_figures_come_last() -> None:
    matrix = grid(FACTORS, {"right": "higher", "size": "lower"})
    matrix["rows"][4]["metrics"]["right"]["mean"] = None
    matrix["rows"][5]["cost_usd"] = None
    scored = [number for number in range(36) if number != 4]
    best = sorted(scored, key=lambda number: -matrix["rows"][number]["metrics"]["right"]["mean"])
    assert viewed(matrix, sort="right")["rows"] == [*best, 4]
    assert viewed(matrix, sort="right:asc")["rows"] == [*reversed(best), 4]
    sizes = [matrix["rows"][number]["metrics"]["size"]["mean"] for number in viewed(matrix, sort="size")["rows"]]
    assert sizes == sorted(sizes)
    assert viewed(matrix, sort="cost")["rows"][-1] == viewed(matrix, sort="cost:desc")["rows"][-1] == 5
    assert viewed(matrix, sort="latency:desc")["rows"][0] == 35
    assert viewed(matrix, sort="number:desc")["rows"] == [*reversed(range(36))]
    models = [
        matrix["rows"][n]["combination"]["answer"].partition(",")[0]
        for n in viewed(matrix, sort="answer.model")["rows"]
    ]
    assert [model for model, _ in itertools.groupby(models)] == ["model=mini", "model=medium", "model=large"]


def test_groups_stand_in_the_order_of_levels_and_the_best_first_within() -> None:
    matrix = grid(FACTORS)
    view = viewed(matrix, {*range(30)}, group_by=["answer.model", "retrieve.k"])
    assert [tuple(group["levels"].values()) for group in view["groups"]] == [
        (model, k) for model in ("mini", "medium", "large") for k in ("2", "10")
    ][: len(view["groups"])]
    assert view["rows"] == [number for group in view["groups"] for number in group["rows"]]
    for group in view["groups"]:
        figures = [means(matrix)[number] for number in group["rows"]]
        assert figures == sorted(figures, reverse=True)


def test_a_view_changes_no_figure_and_every_form_shows_its_rows_only() -> None:
    matrix = grid(FACTORS)
    before = matrix_table.render(matrix, 200)
    lines = [line.split() for line in before.splitlines() if line.split()[:1] and line.split()[0].isdecimal()]
    numbers = sorted(int(line[0]) for line in lines[:2])
    viewed(matrix, {*numbers}, where=["answer.model=mini"], sort="number:desc")
    table_text = matrix_table.render(matrix, 200)
    of_view = [line.split() for line in table_text.splitlines() if line.split()[:1] and line.split()[0].isdecimal()]
    assert [int(line[0]) for line in of_view if line[1] != "of"] == numbers[::-1]
    assert {tuple(line[:9]) for line in of_view if line[1] != "of"} == {tuple(line[:9]) for line in lines[:2]}
    caption = "2 of 36 combinations: answer.model=mini."
    assert caption in table_text
    assert sentence("intervals, tests and corrections are those of all {} combinations", 36) in " ".join(
        table_text.split()
    )
    assert [line["row"] for line in csv.DictReader(io.StringIO(csvfile.render(matrix)))] == [
        str(n) for n in numbers[::-1]
    ]
    text = markdown.matrix(matrix)
    assert caption in text.replace("\\", "")
    assert text.count("\n| ") == 4


def test_a_view_with_no_row_left_says_so() -> None:
    matrix = grid(FACTORS)
    viewed(matrix, set(), where=["answer.model=mini"], pivot=["answer.model"])
    assert sentence("No combination is left by the filters.") in pivot_text.render(matrix)
    assert pivot_text.as_csv(matrix).count("\n") == 1
    assert "0 of 36 combinations" in pivot_text.as_markdown(matrix)
    viewed(matrix, set(), where=["answer.model=mini"])
    assert "0 of 36 combinations" in matrix_table.render(matrix)
    assert "0 of 36 combinations" in markdown.matrix(matrix)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sort": "kost"}, sentence("sort: {} is no metric, figure or factor{}", "'kost'", "; did you mean 'cost'?")),
        (
            {"sort": "right:up"},
            sentence("sort: {} is no metric, figure or factor{}", "'right:up'", "; did you mean 'right'?"),
        ),
        (
            {"group_by": ["answer.modl"]},
            sentence("{}: the sweep has no factor {}", "group_by", "'answer.modl'")
            + sentence("; did you mean '{}'?", "answer.model"),
        ),
        ({"pivot": ["answer.model"] * 2}, sentence("{} names a factor twice", "pivot")),
        ({"pivot": [*FACTORS][:3]}, sentence("pivot has {} factors; expected one or two", 3)),
        (
            {"pivot": ["answer.model"], "metric": "rihgt"},
            sentence("the sweep has no metric {}", "'rihgt'") + sentence("; did you mean '{}'?", "right"),
        ),
        (
            {"within": True},
            sentence("within: {} has no margin; set `margin: {}` in the sweep file", "right", "{right: 0.05}"),
        ),
    ],
)
def test_what_no_view_can_be_is_refused_with_what_is_near(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as refused:
        make_view(grid(FACTORS), ViewOptions(**options))  # type: ignore[arg-type]
    assert problem in str(refused.value)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize(
    "factors", [["answer.prompt", "answer.model"], ["answer.model", "answer.prompt"], ["retrieve.k"]]
)
def test_pivot_tables_fit_and_every_level_is_named(width: int, factors: list[str]) -> None:
    matrix = grid(FACTORS)
    viewed(matrix, pivot=factors)
    text = pivot_text.render(matrix, width)
    assert max(map(cell_len, text.splitlines())) <= width
    for factor in factors:
        for level in FACTORS[factor]:
            assert level in text.replace("\n", ""), "whole, or in the legend"


@pytest.mark.parametrize("width", [40, 80])
def test_64_levels_stand_in_tables_below_each_other(width: int) -> None:
    matrix = grid({"a.k": [str(number) for number in range(64)], "a.on": ["false", "true"]})
    viewed(matrix, pivot=["a.on", "a.k"])
    lines = pivot_text.render(matrix, width).splitlines()
    assert max(map(cell_len, lines)) <= width
    heads = [line.split()[3:] for line in lines if line.startswith("a.on")]
    assert [level for head in heads for level in head] == [str(number) for number in range(64)]


@pytest.mark.parametrize("metric", ["cost", "latency"])
def test_costs_and_durations_have_pivot_tables_too(metric: str) -> None:
    matrix = grid(FACTORS)
    pivot = viewed(matrix, pivot=["answer.model"], metric=metric)["pivot"]
    (first,) = pivot["cells"][0]
    of = [row["cost_usd"] if metric == "cost" else row["latency_s"]["p50"] for row in matrix["rows"]]
    assert first["mean"] == pytest.approx(np.mean([of[number] for number in first["rows"]]))
    assert first["ci"] is None
    assert ("$0.01" if metric == "cost" else " ms") in pivot_text.render(matrix)


def test_csv_of_a_pivot_table_has_a_line_for_each_cell_in_full_precision() -> None:
    matrix = grid(FACTORS)
    pivot = viewed(matrix, pivot=["answer.prompt", "answer.model"])["pivot"]
    lines = list(csv.DictReader(io.StringIO(pivot_text.as_csv(matrix))))
    assert len(lines) == 9
    assert [float(line["mean"]) for line in lines] == [cell["mean"] for cells in pivot["cells"] for cell in cells]
    assert {(line["answer.prompt"], line["answer.model"]) for line in lines} == {
        *itertools.product(FACTORS["answer.prompt"], FACTORS["answer.model"])
    }
    assert row_view.words(matrix) == []
