"""Cases of one source are not independent: tests and intervals count clusters, and few clusters cause a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import prose
from tests.support.bench import make_bench
from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.comparison.pairing import match
from wtb.analysis.matrix.attribution import attribute, pairwise
from wtb.analysis.matrix.build import build
from wtb.analysis.scores import Scores
from wtb.analysis.statistics import Design, compare
from wtb.authoring.workflow import Workflow
from wtb.core.errors import InputError
from wtb.store.database import Database
from wtb.store.tables import sweeps as tables

State = dict[str, Any]


def workflow() -> Workflow:
    wf = Workflow("clustered")

    @wf.node
    def step(state: State, *, gain: float = 0.0) -> State:
        return {"y": state["x"] + gain * state["favoured"]}

    step.variant("other", gain=1.0)
    wf.entry(step)
    return wf


def y(case: Any, result: Any) -> float:
    return float(result.state["y"])


def cases(clusters: int, *, prefix: str = "doc") -> list[State]:
    """Five cases of each source; `other` is better in all of two sources in three, and worse in no other."""
    inputs = [{"x": n % 7, "favoured": 0 if n // 5 % 3 == 0 else 1} for n in range(5 * clusters)]
    return [{"id": f"c{n}", "input": each, "cluster": f"{prefix} {n // 5}"} for n, each in enumerate(inputs)]


def ran(database: Database, folder: Path, case_list: list[State], **spec: Any) -> Any:
    spec |= {"evaluators": {"y": y}, "baseline": {}}
    bench = make_bench(database, folder, workflow(), case_list, {"step": "all"}, **spec)
    bench.run()
    return bench.row


def test_clusters_count_in_place_of_their_cases(database: Database, tmp_path: Path) -> None:
    alone = [{key: field for key, field in case.items() if key != "cluster"} for case in cases(6)]
    matrix, of_cases = (
        build(database, ran(database, tmp_path / str(number), case_list, equal_inputs="independent"))
        for number, case_list in enumerate((cases(6), alone))
    )
    assert (matrix["clusters"], of_cases["clusters"]) == (6, None)
    by_cluster, other = (document["rows"][1]["metrics"]["y"] for document in (matrix, of_cases))
    assert (by_cluster["delta"], by_cluster["n_pairs"]) == (other["delta"], 30)
    assert by_cluster["p"] == pytest.approx(2 * 1 / 2**4)  # four of the six clusters differ, all in one direction
    assert other["p"] < 0.001
    assert by_cluster["delta_ci"][0] < other["delta_ci"][0]
    warning = "the cases come from 6 clusters, on which intervals and tests rest: fewer than 15 are few"
    assert warning in matrix["warnings"]
    assert matrix["best"]["y"]["clear"] is False
    assert of_cases["best"]["y"]["clear"] is True


def test_fewer_than_six_clusters_are_not_tested(database: Database, tmp_path: Path) -> None:
    sweep = ran(database, tmp_path, cases(5))
    matrix = build(database, sweep)
    assert matrix["rows"][1]["metrics"]["y"]["p"] is None
    few = prose.sentence("the cases come from {} clusters: too few for any test; expected {} or more", 5, 6)
    assert few in matrix["warnings"]
    assert matrix["best"]["y"]["because"] == prose.sentence("{} clusters are too few; expected {} or more", 5, 6)
    assert pairwise(Scores(database, sweep), "y")["pairs"][0]["p"] is None
    assert attribute(Scores(database, sweep), "y")["nodes"][0]["p_adjusted"] > 0.05


def test_sweeps_are_compared_by_clusters_and_refused_where_these_differ(database: Database, tmp_path: Path) -> None:
    plain = [{key: field for key, field in case.items() if key != "cluster"} for case in cases(6)]
    first, second, third = (
        ran(database, tmp_path / str(number), case_list)
        for number, case_list in enumerate((cases(6), plain, cases(6, prefix="page")))
    )
    assert compare_sweeps(database, first, second)["verdict"] == "same"
    with pytest.raises(InputError, match=r"case 'c0' is in cluster 'doc 0' in sweep \w+ and in cluster 'page 0' in"):
        compare_sweeps(database, first, third)


def equal(inputs: int, ids: int, **more: Any) -> list[State]:
    """Cases of several ids for each input; `other` is better in two inputs of three."""
    return [
        {"id": f"c{n}-{number}", "input": {"x": n, "favoured": 0 if n % 3 == 0 else 1}, **more}
        for n in range(inputs)
        for number in range(ids)
    ]


def test_cases_with_equal_inputs_count_as_one(database: Database, tmp_path: Path) -> None:
    matrix = build(database, ran(database, tmp_path / "alike", equal(8, 5)))
    alone = build(database, ran(database, tmp_path / "alone", equal(8, 1)))
    each = build(database, ran(database, tmp_path / "each", equal(8, 5), equal_inputs="independent"))
    assert (matrix["clusters"], alone["clusters"], each["clusters"]) == (8, None, None)
    figures, of_inputs, of_cases = (document["rows"][1]["metrics"]["y"] for document in (matrix, alone, each))
    assert figures["p"] == of_inputs["p"] == pytest.approx(2 / 2**5)
    assert of_cases["p"] < 0.001
    assert matrix["best"]["y"]["clear"] is False
    (sentence,) = [warning for warning in matrix["warnings"] if "equal inputs" in warning]
    assert sentence == (
        prose.sentence(
            "{} the input of another case{}: cases with equal inputs count as one cluster, "
            "so figures rest on {} of cases (`equal_inputs: independent` counts each case)",
            "32 of 40 cases repeat",
            " (such as 'c0-0' and 'c0-1')",
            "8 clusters",
        )
    )
    assert not [warning for warning in (*alone["warnings"], *each["warnings"]) if "equal inputs" in warning]


def test_repeats_are_no_equal_inputs(database: Database, tmp_path: Path) -> None:
    matrix = build(database, ran(database, tmp_path, equal(8, 1), repeats=3))
    assert (matrix["clusters"], [warning for warning in matrix["warnings"] if "equal" in warning]) == (None, [])


def test_equal_inputs_count_as_one_against_a_baseline_that_does_not_know_it(database: Database, tmp_path: Path) -> None:
    """The baseline is of an earlier version, or has other cases, so that other cases have equal inputs in it."""
    alike = equal(8, 5)
    before, after, fewer = (ran(database, tmp_path, some) for some in (alike, alike, alike[1:]))
    independent = ran(database, tmp_path, alike, equal_inputs="independent")
    with database.write() as connection:
        connection.execute(tables.cases.update().where(tables.cases.c.sweep_id == before.id).values(cluster=None))
    for first, second in ((before, after), (after, before), (after, fewer), (fewer, after), (independent, after)):
        units = match(database, first, second).units
        assert len(set(units.tolist())) == 8
    assert match(database, after, independent).units is None, "the later sweep says that they are"
    assert compare_sweeps(database, before, after)["verdict"] == "same"


def test_clusters_that_cases_name_win_over_equal_inputs(database: Database, tmp_path: Path) -> None:
    alike = equal(8, 5)
    named = [{**case, "cluster": f"part {number % 10}"} for number, case in enumerate(alike)]
    matrix = build(database, ran(database, tmp_path / "named", named))
    assert matrix["clusters"] == 10
    (sentence,) = [warning for warning in matrix["warnings"] if "give them the same" in warning]
    assert sentence.startswith("40 of 40 cases have an input that a case of another `cluster` has (such as 'c0-0' and")
    plain, sweep = ran(database, tmp_path / "plain", alike), ran(database, tmp_path / "again", named)
    units = match(database, plain, sweep).units
    assert len(set(units.tolist())) == 10


def test_where_a_case_and_all_that_go_with_it_are_left_out_nothing_is_told() -> None:
    """This happens to a row that was added because of a case, if all cases are in the cluster of that case."""
    comparison = compare(np.zeros((2, 0)), Design(baseline=0, units=np.zeros(0, dtype=np.int64)))
    assert [(row.mean, row.delta, row.p) for row in comparison.rows] == [(None, None, None)] * 2
