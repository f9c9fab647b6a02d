"""Cases of one source are not independent: tests and intervals rest on clusters; few of these are said to be few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import make_bench
from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.matrix.attribution import attribute, pairwise
from wtb.analysis.matrix.build import build
from wtb.analysis.scores import Scores
from wtb.authoring.edges import END
from wtb.authoring.workflow import Workflow
from wtb.core.errors import InputError
from wtb.store.database import Database

State = dict[str, Any]


def workflow() -> Workflow:
    made = Workflow("clustered")

    @made.node
    def step(state: State, *, gain: float = 0.0) -> State:
        return {"y": state["x"] + gain * state["favoured"]}

    step.variant("other", gain=1.0)
    made.entry(step)
    made.edge(step, END)
    return made


def y(case: Any, result: Any) -> float:
    return float(result.state["y"])


def cases(clusters: int, *, prefix: str = "doc") -> list[State]:
    """Five cases of each source; `other` is better in all of two sources in three, and worse in no other."""
    return [
        {
            "id": f"c{n}",
            "input": {"x": n % 7, "favoured": 0 if n // 5 % 3 == 0 else 1},
            "cluster": f"{prefix} {n // 5}",
        }
        for n in range(5 * clusters)
    ]


def ran(database: Database, folder: Path, given: list[State]) -> Any:
    bench = make_bench(database, folder, workflow(), given, {"step": "all"}, evaluators={"y": y}, baseline={})
    bench.run()
    return bench.row


def test_clusters_count_in_place_of_their_cases(database: Database, tmp_path: Path) -> None:
    alone = [{key: value for key, value in case.items() if key != "cluster"} for case in cases(6)]
    matrix, of_cases = (
        build(database, ran(database, tmp_path / str(number), given)) for number, given in enumerate((cases(6), alone))
    )
    assert (matrix["clusters"], of_cases["clusters"]) == (6, None)
    found, other = (document["rows"][1]["metrics"]["y"] for document in (matrix, of_cases))
    assert (found["delta"], found["n_pairs"]) == (other["delta"], 30)
    assert found["p"] == pytest.approx(2 * 1 / 2**4)  # four of the six clusters differ, all in one direction
    assert other["p"] < 0.001
    assert found["delta_ci"][0] < other["delta_ci"][0]
    said = "the cases come from 6 clusters, on which intervals and tests rest: fewer than 15 are few"
    assert said in matrix["warnings"]
    assert matrix["best"]["y"]["clear"] is False
    assert of_cases["best"]["y"]["clear"] is True


def test_fewer_than_six_clusters_are_not_tested(database: Database, tmp_path: Path) -> None:
    sweep = ran(database, tmp_path, cases(5))
    matrix = build(database, sweep)
    assert matrix["rows"][1]["metrics"]["y"]["p"] is None
    assert "the cases come from 5 clusters: too few for any test; expected 6 or more" in matrix["warnings"]
    assert matrix["best"]["y"]["because"] == "5 clusters are too few to tell; expected 6 or more"
    assert pairwise(Scores(database, sweep), "y")["pairs"][0]["p"] is None
    assert attribute(Scores(database, sweep), "y")["nodes"][0]["p_adjusted"] > 0.05


def test_sweeps_are_compared_by_clusters_and_refused_where_these_differ(database: Database, tmp_path: Path) -> None:
    plain = [{key: value for key, value in case.items() if key != "cluster"} for case in cases(6)]
    first, second, third = (
        ran(database, tmp_path / str(number), given)
        for number, given in enumerate((cases(6), plain, cases(6, prefix="page")))
    )
    assert compare_sweeps(database, first, second)["verdict"] == "same"
    with pytest.raises(InputError, match=r"case 'c0' is in cluster 'doc 0' in sweep \w+ and in cluster 'page 0' in"):
        compare_sweeps(database, first, third)
