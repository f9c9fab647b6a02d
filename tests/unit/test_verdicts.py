"""Verdicts on two sweeps: by tolerance, by test, by the fewness of cases, and where nothing can be told."""

from __future__ import annotations

from typing import Any

import pytest

from wtb.changes import code_changes, graph_changed, may_change_results, setting_changes, variant_changes
from wtb.render.comparisons import comparison
from wtb.verdicts import Facts, of_metric, of_row, of_sweep, sentences

NOTHING: dict[str, Any] = {
    "code": [],
    "variants": {"added": [], "removed": []},
    "combinations": {"common": 1, "added": 0, "removed": 0},
    "cases": {"common": 9, "added": [], "removed": [], "changed": []},
    "metrics": {"common": 1, "added": [], "removed": []},
    "settings": [],
    "graph": False,
}


def found(
    delta: float | None, p: float | None = 1.0, n: int = 9, tolerance: float | None = None, differ: int = 9
) -> dict[str, Any]:
    figures = {"n_pairs": n, "n_differ": differ, "before": 0.5, "after": 0.4}
    return {**figures, "delta": delta, "p_adjusted": p, "tolerance": tolerance}


def verdict(one: dict[str, Any], better: str = "higher", *, measured: bool = False, changed: bool = True) -> Any:
    return of_metric(better, one, changed=changed, was_scored=True, measured=measured)[0]


@pytest.mark.parametrize(("better", "fall"), [("higher", -0.1), ("lower", 0.1)])
def test_a_significant_fall_is_worse_and_a_rise_is_better(better: str, fall: float) -> None:
    assert verdict(found(fall, 0.01), better) == "worse"
    assert verdict(found(-fall, 0.01), better) == "better"
    assert verdict(found(fall, 0.2), better) == verdict(found(-fall, 0.2), better) == "unclear"
    assert verdict(found(0.0), better) == "same"


def test_a_tolerance_decides_alone_whether_a_fall_counts() -> None:
    assert verdict(found(0.5 - 0.6, 0.001, tolerance=0.1)) == "same"
    assert verdict(found(-0.1001, 0.9, tolerance=0.1)) == "worse"
    assert verdict(found(-1e-9, 0.9, tolerance=0.0)) == "worse"
    assert verdict(found(0.1, 0.001, tolerance=0.1)) == "better"


def test_where_no_test_could_tell_any_fall_counts_but_no_rise() -> None:
    said = of_metric("higher", found(-0.1, differ=5), changed=True, was_scored=True)
    assert said == ("worse", "with 5 cases that differ no test can tell, so any fall counts")
    assert verdict(found(0.1, differ=5)) == "unclear"
    assert verdict(found(-0.1, 0.0625, differ=6)) == "unclear"  # 2 ** -5 could have been significant
    assert verdict(found(-0.1, None, n=1, differ=1)) == "worse"


def test_where_nothing_was_changed_a_fall_of_few_cases_may_be_noise() -> None:
    said = of_metric("higher", found(-0.1, differ=5), changed=False, was_scored=True)
    assert said[0] == "unclear"
    assert str(said[1]).startswith("nothing that WTB records was changed")
    assert verdict(found(-0.1, 0.01), changed=False) == "worse"
    assert not may_change_results(NOTHING)
    judged_by = [{"key": key} for key in ("environment.python", "gates", "tolerance.m", "best.maximize")]
    assert not may_change_results({**NOTHING, "settings": judged_by})
    assert may_change_results({**NOTHING, "settings": [{"key": "seed"}]})
    for key, more in {"code": [{}], "graph": True, "cases": {**NOTHING["cases"], "changed": ["a"]}}.items():
        assert may_change_results({**NOTHING, key: more})


def test_measured_times_of_few_cases_are_no_reason_for_an_alarm() -> None:
    assert verdict(found(0.1, differ=3), "lower", measured=True) == "unclear"
    assert verdict(found(0.1, 0.001), "lower", measured=True) == "worse"


def test_a_row_is_as_bad_as_its_worst_metric_and_a_failed_cell_is_worse_than_any() -> None:
    none = {"newly_failed": 0, "mended": 0}

    def row(*verdicts: str, gone: bool = False, succeeded: bool = True, **counts: int) -> str:
        metrics = {str(n): {"verdict": one} for n, one in enumerate(verdicts)}
        return of_row({**none, **counts}, metrics, gone=gone, succeeded=succeeded)

    assert row("better", "worse") == "worse"
    assert row("better", newly_failed=1) == "worse"
    assert row("better", "unclear") == "unclear"
    assert row("same", mended=1) == row("same", "better") == "better"
    assert row("same", "cannot tell") == "same"
    assert row("same", "cannot tell", gone=True) == "cannot tell"
    assert row("cannot tell") == row(succeeded=False) == "cannot tell"
    assert row("cannot tell", mended=1) == "better"
    assert row() == "same"


def facts(*verdicts: str, **more: Any) -> Facts:
    rows = [{"verdict": one, "cells": {"newly_failed": 0, "mended": 0}, "metrics": {}} for one in verdicts]
    known: dict[str, Any] = {"cells": 9, "later": 9, "missing": (0, 0), "unpaired": 0, "unscored": 0}
    return Facts(**{"rows": rows, "metrics": {}, "changed": NOTHING, **known, **more})


def test_a_sweep_is_worse_before_it_is_untold_and_untold_before_it_is_better() -> None:
    assert of_sweep(facts("better", "cannot tell", "worse")) == "worse"
    assert of_sweep(facts("better", "cannot tell")) == "cannot tell"
    assert of_sweep(facts("same", missing=(0, 1))) == "cannot tell"
    assert of_sweep(facts("same", missing=(1, 0))) == "same"
    assert of_sweep(facts("same", cells=0)) == "cannot tell"
    assert of_sweep(facts("better", "unclear")) == "unclear"
    assert of_sweep(facts("better", "same")) == "better"
    assert of_sweep(facts("same", changed={**NOTHING, "metrics": {"added": [], "removed": ["m"]}})) == "cannot tell"


def test_nothing_is_said_where_nothing_is_different() -> None:
    assert sentences(facts("same")) == []


def test_what_is_left_out_is_said() -> None:
    cases = {"common": 3, "added": ["x"], "removed": [], "changed": ["a"]}
    changed = {**NOTHING, "combinations": {"common": 1, "added": 0, "removed": 2}, "cases": cases}
    changed["metrics"] = {"common": 0, "added": ["m"], "removed": []}
    assert sentences(facts("same", changed=changed, missing=(1, 0), unpaired=1, later=19)) == [
        "10 of 19 cells are compared with nothing",
        "1 cell that fails cannot be compared",
        "left out: 1 case of the later sweep only",
        "left out: 2 combinations of the earlier sweep only",
        "left out: 1 case of which the input or what is expected was changed",
        "left out: 1 cell without an outcome in the earlier sweep",
        "only the later sweep is scored by m",
    ]


def test_a_fall_within_its_tolerance_is_no_silence() -> None:
    ones = [found(-0.1, tolerance=0.2), found(-0.05, tolerance=0.2), found(0.1, tolerance=0.2), found(0.0)]
    rows = [
        {"verdict": "same", "cells": {"newly_failed": 0, "mended": 0}, "metrics": {"m": {**one, "verdict": "same"}}}
        for one in [*ones, found(0.0, differ=0)]
    ]
    assert sentences(facts(rows=rows, metrics={"m": "higher"})) == [
        "m differs in 1 combination by case, and not by its mean",
        "m fell in 2 combinations by up to 0.1, within its tolerance",
        "m rose in 1 combination by up to 0.1, which could be chance",
    ]


def test_changes_are_told_by_node_variant_and_key() -> None:
    before, after = {"a": {"x": "1", "y": "2"}}, {"a": {"x": "9", "z": "3"}, "b": {"w": "4"}}
    assert code_changes(before, after) == [{"node": "a", "variant": "x", "before": "1", "after": "9"}]
    assert variant_changes(before, after) == {
        "added": [{"node": "a", "variant": "z"}, {"node": "b", "variant": "w"}],
        "removed": [{"node": "a", "variant": "y"}],
    }
    was = {
        "sweep": "one",
        "session": "ann",
        "cases": "a",
        "folder": "/x",
        "seed": 0,
        "run": {"share": True, "env": None},
        "gates": [],
    }
    now = {"sweep": "two", "cases": "b", "folder": "/y", "seed": 1, "run": {"share": False, "env": None}}
    assert setting_changes(was, now) == [
        {"key": "seed", "before": 0, "after": 1},
        {"key": "run.share", "before": True, "after": False},
    ]


def test_a_graph_has_not_changed_by_its_variants_or_words() -> None:
    node = {"name": "a", "retries": 0, "variants": [{"name": "x"}]}
    graph = {"version": "1", "description": "old", "nodes": [node], "edges": []}
    assert not graph_changed(
        graph, {**graph, "version": "2", "description": "new", "nodes": [{**node, "variants": []}]}
    )
    assert graph_changed(graph, {**graph, "nodes": [{**node, "retries": 1}]})


def test_a_comparison_keeps_its_metrics_and_verdicts_where_width_is_short() -> None:
    one = {**found(-0.0123), "verdict": "worse", "because": "could be chance", "before": 0.5123, "after": 0.5}
    combination = {"retrieve": "a long variant", "decide": "another variant"}
    row = {"combination": combination, "verdict": "worse", "metrics": {"exact_match": one}}
    other = {**row, "combination": {"retrieve": "b", "decide": "c"}}
    changes = {
        "before": "1",
        "after": "2",
        "delta": -1.0,
        "what": "worse",
        "diverged": "retrieve",
        "executions": [1, 2],
    }
    document = {
        "before": {"name": "s", "id": "1"},
        "after": {"name": "s", "id": "2"},
        "changed": NOTHING,
        "compared": {"cells": 1, "combinations": 1, "cases": 1},
        "tolerance": {"given": {}, "of_later": {}},
        "rows": [row, other],
        "cells": [{"combination": combination, "case": "a case", "metric": "exact_match", **changes}],
        "verdict": "worse",
        "because": [],
    }
    wide = comparison(document, 120).splitlines()
    short = comparison(document, 66).splitlines()
    assert "1 cell that differs, the worst first:" in wide
    assert any(line.endswith("0.5123    0.5  -0.0123  1.000  worse") for line in wide)
    assert any("exact_match" in line and line.endswith("-0.0123  worse") for line in short)
    assert any("exact_match worse" in line for line in short)
    assert max(map(len, short)) <= 66


def test_a_cell_that_differs_by_several_metrics_is_counted_once() -> None:
    def cell(case: int, metric: str) -> dict[str, Any]:
        figures = {"before": "1", "after": "2", "delta": -1.0, "what": "worse", "diverged": None, "executions": [1, 2]}
        return {"combination": {"add": "more"}, "case": f"case {case}", "metric": metric, **figures}

    document = {
        "before": {"name": "s", "id": "1"},
        "after": {"name": "s", "id": "2"},
        "changed": NOTHING,
        "compared": {"cells": 3, "combinations": 1, "cases": 3},
        "tolerance": {"given": {}, "of_later": {}},
        "rows": [],
        "cells": [cell(1, "f1"), cell(2, "f1"), cell(3, "f1"), cell(1, "words"), cell(3, "words")],
        "verdict": "worse",
        "because": [],
    }
    assert "3 cells that differ, the worst first:" in comparison(document, 120)
    two = comparison(document, 120, cells=2)
    assert "2 of 3 cells that differ, the worst first:" in two
    assert two.count("case 1") == 2  # a line for each metric that it differs by
    assert "case 3" not in two
