"""Verdicts on two sweeps: by tolerance, by test, by the fewness of cases, and where nothing can be told."""

from __future__ import annotations

from typing import Any

import pytest

from wtb.changes import code_changes, graph_changed, setting_changes, variant_changes
from wtb.verdicts import Facts, of_metric, of_row, of_sweep, sentences

NOTHING = {"combinations": {"common": 1, "added": 0, "removed": 0}}
NOTHING["cases"] = {"common": 9, "added": [], "removed": [], "changed": []}  # type: ignore[dict-item]


def found(delta: float | None, p: float | None = 1.0, n: int = 9, tolerance: float | None = None) -> dict[str, Any]:
    return {"n_pairs": n, "delta": delta, "p_adjusted": p, "tolerance": tolerance, "before": 0.5, "after": 0.4}


def verdict(
    one: dict[str, Any], better: str = "higher", *, metric: str = "m", differing: int = 9, family: int = 1
) -> Any:
    return of_metric(metric, better, one, differing=differing, family=family, was_scored=True)[0]


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
    said = of_metric("m", "higher", found(-0.1), differing=5, family=1, was_scored=True)
    assert said == ("worse", "with 5 cases that differ no test can tell, so any fall counts")
    assert verdict(found(0.1), differing=5) == "unclear"
    assert verdict(found(-0.1, 0.0625), differing=6) == "unclear"  # 2 ** -5 could have been significant
    assert verdict(found(-0.1), differing=6, family=2) == "worse"  # corrected for two tests it could not
    assert verdict(found(-0.1, None, n=1), differing=1, family=0) == "worse"


def test_measured_times_of_few_cases_are_no_reason_for_an_alarm() -> None:
    assert verdict(found(0.1), "lower", metric="latency", differing=3) == "unclear"
    assert verdict(found(0.1, 0.001), "lower", metric="latency") == "worse"


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
    known: dict[str, Any] = {"cells": 9, "missing": (0, 0), "unpaired": 0, "unscored": 0, "changed": NOTHING}
    return Facts(rows=rows, metrics={}, **{**known, **more})


def test_a_sweep_is_worse_before_it_is_untold_and_untold_before_it_is_better() -> None:
    assert of_sweep(facts("better", "cannot tell", "worse")) == "worse"
    assert of_sweep(facts("better", "cannot tell")) == "cannot tell"
    assert of_sweep(facts("same", missing=(0, 1))) == "cannot tell"
    assert of_sweep(facts("same", missing=(1, 0))) == "same"
    assert of_sweep(facts("same", cells=0)) == "cannot tell"
    assert of_sweep(facts("better", "unclear")) == "unclear"
    assert of_sweep(facts("better", "same")) == "better"
    assert of_sweep(facts("same", lost=["m"])) == "cannot tell"


def test_nothing_is_said_where_nothing_is_different() -> None:
    assert sentences(facts("same")) == []


def test_what_is_left_out_is_said() -> None:
    cases = {"common": 3, "added": ["x"], "removed": [], "changed": ["a"]}
    changed = {"combinations": {"common": 1, "added": 0, "removed": 2}, "cases": cases}
    assert sentences(facts("same", changed=changed, missing=(1, 0), new=["m"], unpaired=1)) == [
        "1 cell that fails cannot be compared",
        "left out: 1 case of the later sweep only",
        "left out: 2 combinations of the earlier sweep only",
        "left out: 1 case of which the input or what is expected was changed",
        "left out: 1 cell without an outcome in the earlier sweep",
        "only the later sweep is scored by m",
    ]


def test_changes_are_told_by_node_variant_and_key() -> None:
    before, after = {"a": {"x": "1", "y": "2"}}, {"a": {"x": "9", "z": "3"}, "b": {"w": "4"}}
    assert code_changes(before, after) == [{"node": "a", "variant": "x", "before": "1", "after": "9"}]
    assert variant_changes(before, after) == {
        "added": [{"node": "a", "variant": "z"}, {"node": "b", "variant": "w"}],
        "removed": [{"node": "a", "variant": "y"}],
    }
    was = {"sweep": "one", "cases": "a", "folder": "/x", "seed": 0, "run": {"share": True, "env": None}, "gates": []}
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
