"""Matrix, attribution and pairs of a real sweep, on both databases, odd data included."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypedDict

from wtb.analysis.matrix.attribution import attribute, pairwise
from wtb.analysis.scores import Scores
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END

Make = Callable[..., Any]
CASES = [{"id": str(x), "input": {"x": x}} for x in range(8)]


class State(TypedDict, total=False):
    x: int
    a: int
    b: int


def workflow() -> Workflow:
    """Variants of `a` add most, those of `b` little; `c=broken` fails for the last case."""
    wf = Workflow("sums", state=State)

    @wf.node
    def first(state: State, *, k: int = 0) -> State:
        if k == 9 and state["x"] == 7:
            raise ValueError("not this one")
        return {"a": k}

    @wf.node
    def second(state: State, *, k: int = 0) -> State:
        return {"b": k}

    first.variant("more", k=5)
    first.variant("broken", k=9)
    second.variant("more", k=1)
    wf.entry(first)
    wf.edge(first, second)
    wf.edge(second, END)
    return wf


def score(case: Any, result: Any) -> dict[str, Any]:
    state = result.state
    noise = (state["x"] * 7 + state["a"] * 3 + state["b"]) % 5 / 100
    figures = {"sum": state["a"] + state["b"] + state["x"] / 2 + noise, "same": 1.0}
    return figures | ({"seldom": 1.0} if state["x"] == 0 and state["a"] == 5 else {})


def test_a_real_sweep_has_its_evidence(run_sweep: Make) -> None:
    best = {"maximize": "score.sum", "subject_to": "failed == 0"}
    vary = {"first": "all", "second": "all"}
    bench = run_sweep(workflow(), CASES, vary, evaluators={"tests:score": score}, best=best)
    matrix = bench.matrix()
    names = [row["combination"] for row in matrix["rows"]]
    assert matrix["best"]["score.sum"]["combination"] == {"first": "more", "second": "more"}
    assert matrix["best"]["score.sum"]["rival"] == {"first": "broken", "second": "default"}, "it is better"
    assert (matrix["best"]["score.sum"]["clear"], matrix["best"]["score.sum"]["hangs_on"]) == (False, 2)
    assert [row["first"] for row in matrix["best"]["score.sum"]["unranked"]] == ["broken", "broken"]
    assert matrix["choice"]["combination"] == {"first": "more", "second": "more"}
    assert matrix["choice"]["left_out"] == 2
    assert names.index({"first": "broken", "second": "more"}) not in matrix["front"]["score.sum"]

    document = attribute(Scores(bench.database, bench.row), "score.sum")
    assert (document["cases"], document["missing"]) == (8, 2)
    assert [node["node"] for node in document["nodes"]] == ["first", "second"]
    assert document["sentences"][0] == "first explains 98% of the spread by score.sum, second 2%."

    pairs = pairwise(Scores(bench.database, bench.row), "score.sum", limit=3)
    means = [matrix["rows"][number]["metrics"]["score.sum"]["mean"] for number in pairs["rows"]]
    baseline = names.index(matrix["baseline"])
    assert means == sorted(means, reverse=True)
    assert pairs["rows"][-1] == baseline
    assert [(pair["a"], pair["b"]) for pair in pairs["pairs"]] == list(itertools.combinations(pairs["rows"], 2))
    assert pairs["pairs"][-1]["delta"] == matrix["rows"][pairs["rows"][-2]]["metrics"]["score.sum"]["delta"]

    for metric, reason in (
        ("score.same", "all combinations have the same mean by score.same"),
        ("score.seldom", "one case has scores by score.seldom of several combinations"),
        ("unknown", "nothing is scored by unknown"),
    ):
        assert attribute(Scores(bench.database, bench.row), metric)["because"] == f"cannot tell: {reason}"
    assert pairwise(Scores(bench.database, bench.row), "unknown") == {"rows": [], "pairs": []}
