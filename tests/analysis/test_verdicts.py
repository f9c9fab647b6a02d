"""Verdicts on two sweeps: by test, by margin, over pools, with equal repeats, and if nothing can be known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.prose import sentence
from wtb.analysis.comparison.changes import code_changes, graph_changed, setting_changes, variant_changes
from wtb.analysis.comparison.reasons import Facts, sentences
from wtb.analysis.comparison.regressions import Question, answer, of_sweep, pools
from wtb.analysis.comparison.verdicts import is_unclear, overall, passes
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.margins import Sides, hold
from wtb.display.text.comparisons import comparison, regression
from wtb.planning.metric_names import primary_of

NOTHING: dict[str, Any] = {
    "code": [],
    "variants": {"added": [], "removed": []},
    "combinations": {"common": 1, "added": 0, "removed": 0},
    "cases": {"common": 9, "added": [], "removed": [], "changed": []},
    "metrics": {"common": 1, "added": [], "removed": []},
    "settings": [],
    "graph": False,
}


def gains(*rows: list[float]) -> Floats:
    return np.array(rows, dtype=float)


def verdicts(question: Question, *pooled: list[int]) -> tuple[list[str], list[str]]:
    answers = answer({"m": question}, pooled)["m"]
    return [row.verdict for row in answers.rows], [pool.verdict for pool in answers.pools]


def noise(rows: int, cases: int, seed: int = 1, mean: float = 0.0) -> Floats:
    return np.random.default_rng(seed).normal(mean, 1.0, (rows, cases))


def test_a_clear_fall_is_worse_a_clear_rise_better_and_equal_scores_the_same() -> None:
    table = np.vstack([noise(1, 40, mean=-1), noise(1, 40, mean=1), np.zeros((1, 40)), noise(1, 40)])
    assert verdicts(Question(table)) == (["worse", "better", "same", "unclear"], [])


def test_a_fall_of_few_cases_is_unclear_and_never_a_pass() -> None:
    assert verdicts(Question(gains([-1, -1, -1, -1, 0, 0, 0]))) == (["unclear"], [])
    assert verdicts(Question(gains([-1, -1, -1, -1, -1, 0, 0]))) == (["worse"], [])
    assert verdicts(Question(gains([-1.0]))) == (["unclear"], [])
    assert verdicts(Question(gains([math.nan, math.nan]))) == (["cannot tell"], [])


def test_where_repeats_agreed_in_every_case_any_fall_counts() -> None:
    table = gains([-1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0] * 6, [-1, 1, 1, 1, 1, 1])
    assert verdicts(Question(table, repeatable=True)) == (["worse", "better", "same", "worse"], [])


def test_not_worse_is_said_where_less_than_the_margin_was_lost_for_certain() -> None:
    table = 0.1 * noise(1, 100)
    assert verdicts(Question(table, margin=0.05)) == (["not worse"], [])
    assert verdicts(Question(table, margin=0.005)) == (["unclear"], [])
    assert verdicts(Question(table - 0.04, margin=0.1)) == (["not worse"], []), "a loss that matters to nobody"
    assert verdicts(Question(table + 0.2, margin=0.1)) == (["better"], [])
    assert verdicts(Question(np.full((1, 6), -0.1), margin=0.2)) == (["not worse"], [])
    assert verdicts(Question(np.full((1, 6), -0.1), margin=0.1)) == (["worse"], [])
    assert verdicts(Question(np.full((1, 6), -0.1), margin=0.0)) == (["worse"], [])


def test_unclear_says_how_many_cases_its_margin_takes() -> None:
    (row,) = answer({"m": Question(noise(1, 50), margin=0.1)})["m"].rows
    spread = row.contrast.spread
    assert row.verdict == "unclear"
    assert row.cases_needed == pytest.approx((2.486 * spread / 0.1) ** 2, rel=0.02)
    (row,) = answer({"m": Question(noise(1, 50))})["m"].rows
    assert (row.verdict, row.cases_needed) == ("unclear", None)


def test_a_pool_shows_what_no_row_of_it_shows() -> None:
    table = noise(12, 40, seed=9, mean=-0.2)
    rows, pooled = verdicts(Question(table), list(range(12)))
    assert "worse" not in rows
    assert pooled == ["worse"]


def test_metrics_that_decide_share_one_error_and_the_others_have_their_own() -> None:
    first, other = noise(1, 30, seed=5, mean=-0.4), noise(1, 30, seed=6)
    alone = hold([Sides(first)])[0][0][0].worse
    both = hold([Sides(first), Sides(other)])[0][0][0].worse
    assert both == pytest.approx(2 * alone)
    apart = answer({"m": Question(first), "z": Question(other, decides=False)})
    assert apart["m"].rows[0].contrast.worse == alone
    of_many = hold([Sides(first), Sides(noise(20, 30))])[0][0][0].worse
    assert of_many == pytest.approx(2 * alone), "each has as much of it, however many rows the other has"


def test_rows_in_which_too_few_cases_differ_cost_the_others_nothing() -> None:
    fell = [-1.0] * 5 + [0.0] * 20
    quiet = [-1.0] * 4 + [0.0] * 21
    rows, _ = hold([Sides(gains(fell, *[quiet] * 23))])[0]
    assert rows[0].worse == 2**-5
    rows, _ = hold([Sides(gains(fell, fell, *[quiet] * 22))])[0]
    assert rows[0].worse == 2 * 2**-5


def test_a_sweep_is_no_better_known_than_its_rows_and_worse_where_a_pool_is() -> None:
    surest_last = ["worse", "cannot tell", "unclear", "better", "not worse", "same"]
    assert [overall(reversed(surest_last[first:])) for first in range(7)] == [*surest_last, "same"]
    worse, same = noise(12, 40, seed=9, mean=-0.2), np.zeros((12, 40))

    def verdict_of(**questions: Question) -> str:
        return of_sweep(answer(questions, [range(12)]), questions)

    assert verdict_of(m=Question(worse)) == "worse"
    assert verdict_of(m=Question(worse, decides=False), z=Question(same)) == "same"
    no_scores = np.full((12, 40), math.nan)
    assert verdict_of(m=Question(no_scores)) == "cannot tell"
    assert verdict_of(m=Question(no_scores, were=np.zeros(12, dtype=bool)), z=Question(same)) == "same"


def test_a_gate_that_is_unclear_stops_nobody_unless_it_is_strict() -> None:
    unclear = {"holds": None, "verdict": "unclear"}
    assert passes({"holds": True, "verdict": "not worse"})
    assert (passes(unclear), passes(unclear, strict=True), passes({"holds": None})) == (True, False, False)
    assert not is_unclear({"holds": None, "verdict": "cannot tell"})


def test_pools_are_what_shares_changed_code_and_all_together() -> None:
    choices = [{"a": a, "b": b} for a in ("x", "y", "z") for b in ("1", "2")]

    def pools_of(*changed: tuple[str, str]) -> list[tuple[str, tuple[int, ...]]]:
        changes = [{"node": node, "variant": name} for node, name in changed]
        return [(pool.what, pool.rows) for pool in pools(choices, changes)]

    every = ("all 6 combinations", (0, 1, 2, 3, 4, 5))
    assert pools_of() == [every]
    assert pools_of(("a", "y")) == [("the 2 combinations that share the changed node a", (2, 3)), every]
    assert pools_of(("a", "x"), ("a", "y")) == [
        ("the 4 combinations that share the changed node a", (0, 1, 2, 3)),
        (sentence("the {} combinations with the changed {}={}", 2, "a", "x"), (0, 1)),
        (sentence("the {} combinations with the changed {}={}", 2, "a", "y"), (2, 3)),
        every,
    ]
    assert pools_of(("c", "default"), ("d", "default")) == [
        ("all 6 combinations, which share the changed nodes c, d", every[1])
    ]
    assert pools(choices[:1], []) == []


def test_the_first_metric_decides_that_is_not_what_a_cell_takes() -> None:
    assert primary_of({}, ["latency", "cost", "f1", "recall"]) == "f1"
    assert primary_of({"primary": "recall"}, ["f1", "recall"]) == "recall"
    assert primary_of({"primary": None}, ["latency"]) == "latency"
    assert primary_of({}, []) is None


# Sentences


def figures(verdict: str, delta: float = -0.1, **more: Any) -> dict[str, Any]:
    gains = {"n_pairs": 25, "n_differ": 9, "before": 0.5, "after": 0.4, "delta": delta, "gain_low": -0.2}
    tests = {"p_worse": 0.5, "p_better": 0.5, "margin": None, "margin_shown": 0.29, "cases_needed": None}
    return {**gains, **tests, "decides": True, "because": None, "verdict": verdict, **more}


def row(verdict: str, delta: float = -0.1, **more: Any) -> dict[str, Any]:
    cells = {"newly_failed": 0, "fixed": 0, "verdict": "same", "p_worse": None, "because": None}
    metrics = {"m": figures(verdict, delta, **more)}
    return {"combination": {"a": "x"}, "verdict": verdict, "cells": cells, "metrics": metrics}


def facts(*rows: dict[str, Any], better: str = "higher", **more: Any) -> Facts:
    defaults: dict[str, Any] = {"cells": 9, "later": 9, "missing": (0, 0), "unpaired": 0, "unscored": 0}
    defaults |= {"metrics": {"m": better}, "primary": "m", "changed": NOTHING, "pools": []}
    return Facts(**{"rows": rows, **defaults, **more})


def test_nothing_is_said_where_nothing_is_different() -> None:
    assert sentences(facts(row("same", 0.0))) == []


def test_a_fall_over_a_pool_is_told_with_its_bound() -> None:
    pool = {**row("worse", -0.021, p_worse=0.003, gain_low=-0.034), "what": "the 12 combinations that share it"}
    assert sentences(facts(row("unclear"), pools=[pool]))[0] == (
        "m fell by 0.021 (95% lower bound -0.034, p = 0.003) over the 12 combinations that share it"
    )
    assert sentences(facts(row("unclear"), pools=[pool], better="lower"))[0].startswith(
        "m rose by 0.021 (95% upper bound 0.034, p = 0.003)"
    )


def test_unclear_is_worded_as_what_could_not_be_seen() -> None:
    assert sentences(facts(row("unclear"), row("unclear"))) == [
        sentence("{} differs in {} by what could be chance", "m", "2 combinations")
        + sentence(": {} can show that it lost less than {}", "25 cases", "0.29, and no less")
    ]
    assert sentences(facts(row("unclear", margin=0.05, cases_needed=841))) == [
        sentence("{} differs in {} by what could be chance", "m", "1 combination")
        + sentence(": {} can show that it lost less than {}", "25 cases", "0.29")
        + sentence("; its margin of {} takes about {}, so {} more", "0.05", 841, 816)
    ]


def test_exploratory_metrics_are_told_as_such_after_those_that_decide() -> None:
    unchanged = row("same", 0.0)
    unchanged["metrics"]["z"] = figures("worse", -0.3, decides=False, p_worse=0.01)
    assert sentences(facts(unchanged, metrics={"z": "higher", "m": "higher"})) == [
        "exploratory: z of a=x fell by 0.3, from 0.5 to 0.4 (p = 0.010)"
    ]


def test_what_is_left_out_is_said() -> None:
    cases = {"common": 3, "added": ["x"], "removed": [], "changed": ["a"]}
    changed = {**NOTHING, "combinations": {"common": 1, "added": 0, "removed": 2}, "cases": cases}
    changed["metrics"] = {"common": 0, "added": ["z"], "removed": []}
    assert sentences(facts(row("same", 0.0), changed=changed, missing=(1, 0), unpaired=1, later=19)) == [
        sentence("{} of {} are compared with nothing", 10, "19 cells"),
        sentence("{} that fail{} cannot be compared", "1 cell", "s"),
        sentence("left out: {} of the {} sweep only", "1 case", "later"),
        sentence("left out: {} of the {} sweep only", "2 combinations", "earlier"),
        sentence("left out: {} of which the input or what is expected was changed", "1 case"),
        sentence("left out: {} without an outcome in the {} sweep", "1 cell", "earlier"),
        sentence("only the {} sweep is scored by {}", "later", "z"),
    ]


def test_changes_are_told_by_node_variant_and_key() -> None:
    before, after = {"a": {"x": "1", "y": "2"}}, {"a": {"x": "9", "z": "3"}, "b": {"w": "4"}}
    assert code_changes(before, after) == [{"node": "a", "variant": "x", "before": "1", "after": "9", "causes": []}]
    assert variant_changes(before, after) == {
        "added": [{"node": "a", "variant": "z"}, {"node": "b", "variant": "w"}],
        "removed": [{"node": "a", "variant": "y"}],
    }
    earlier = {"sweep": "one", "session": "ann", "cases": "a", "folder": "/x", "seed": 0, "gates": []}
    earlier["run"] = {"share": True, "env": None}
    later = {"sweep": "two", "cases": "b", "folder": "/y", "seed": 1, "run": {"share": False, "env": None}}
    assert setting_changes(earlier, later) == [
        {"key": "seed", "before": 0, "after": 1},
        {"key": "run.share", "before": True, "after": False},
    ]


def test_a_graph_has_not_changed_by_its_variants_or_words() -> None:
    node = {"name": "a", "retries": 0, "variants": [{"name": "x"}]}
    graph = {"version": "1", "description": "old", "nodes": [node], "edges": []}
    others = {"version": "2", "description": "new", "nodes": [{**node, "variants": []}]}
    assert not graph_changed(graph, {**graph, **others})
    assert graph_changed(graph, {**graph, "nodes": [{**node, "retries": 1}]})


def compared(rows: list[Any], cells: list[Any]) -> dict[str, Any]:
    sweeps = {"before": {"name": "s", "id": "1"}, "after": {"name": "s", "id": "2"}, "changed": NOTHING}
    settings = {"margin": {"given": {}, "of_later": {}}, "noise_floor": None, "primary": "exact_match"}
    counts = {"cells": len(cells), "combinations": 1, "cases": 3}
    return {**sweeps, **settings, "compared": counts, "rows": rows, "cells": cells, "verdict": "worse", "because": []}


def cell(combination: dict[str, str], case: str, metric: str, diverged: str | None = None) -> dict[str, Any]:
    figures = {"before": "1", "after": "2", "delta": -1.0, "what": "worse", "executions": [1, 2]}
    return {"combination": combination, "case": case, "metric": metric, "diverged": diverged, **figures}


def test_a_comparison_keeps_its_metrics_and_verdicts_where_width_is_short() -> None:
    metric = {**figures("worse", -0.0123), "p_worse": 0.012, "before": 0.5123, "after": 0.5}
    combination = {"retrieve": "a long variant", "decide": "another variant"}
    row = {"combination": combination, "verdict": "worse", "metrics": {"exact_match": metric}}
    other = {**row, "combination": {"retrieve": "b", "decide": "c"}}
    document = compared([row, other], [cell(combination, "a case", "exact_match", "retrieve")])
    wide = comparison(document, 120).splitlines()
    short = comparison(document, 66).splitlines()
    assert "1 cell that differs, the worst first:" in wide
    assert any(line.endswith("0.5123    0.5  -0.0123  0.012  worse") for line in wide)
    assert any("exact_match" in line and line.endswith("-0.0123  worse") for line in short)
    assert any("exact_match worse" in line for line in short)
    assert max(map(len, short)) <= 66


def test_a_cell_that_differs_by_several_metrics_is_counted_once() -> None:
    both = [(1, "f1"), (2, "f1"), (3, "f1"), (1, "words"), (3, "words")]
    document = compared([], [cell({"add": "more"}, f"case {case}", metric) for case, metric in both])
    assert "3 cells that differ, the worst first:" in comparison(document, 120)
    two = comparison(document, 120, cells=2)
    assert "2 of 3 cells that differ, the worst first:" in two
    assert two.count("case 1") == 2  # a line for each metric that it differs by
    assert "case 3" not in two


@pytest.mark.parametrize(
    ("verdict", "first_line"),
    [
        (
            "unclear",
            "unclear against main" + sentence(" {}, a loss is neither shown nor ruled out", "(sweep 1): 9 cells"),
        ),
        (
            "same",
            sentence("no regression {}", "against main")
            + " (sweep 1)"
            + sentence("{} {} no difference", ":", "9 cells,"),
        ),
        ("not worse", "no regression against main (sweep 1): 9 cells, not worse"),
    ],
)
def test_what_could_not_be_seen_is_not_called_no_regression(verdict: str, first_line: str) -> None:
    counts = {"compared": {"cells": 9, "of": {"before": 9}}, "changed": NOTHING, "gates": [], "cells": []}
    document = {"before": {"name": "s", "id": "1"}, "baseline": "main", **counts, "verdict": verdict, "because": []}
    assert regression(document, 120).splitlines()[0] == first_line
