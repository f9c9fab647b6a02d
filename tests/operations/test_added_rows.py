"""Combinations added to a sweep that has ended: reruns, shared work, figures and rejected input."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from tests.support.abc_flow import Abc, changed, node, ran, score, write_new
from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb import Workflow, evaluator
from wtb.analysis import sweep_ends
from wtb.authoring.code.import_paths import as_workflow
from wtb.core.errors import ConflictError, InputError
from wtb.integrations.langgraph import variants
from wtb.operations.context import Context
from wtb.operations.control.forks import add_fork
from wtb.operations.control.rollback import rollback
from wtb.operations.running.added_rows import AddedRow, add_row
from wtb.planning.binding import Bound, bind
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import SweepSpec, Variant
from wtb.store.control.forks import retry
from wtb.store.read import queries
from wtb.store.runs.submit import submit_again
from wtb.store.tables.schema import sweeps

Make = Callable[..., Abc]


class GraphState(TypedDict, total=False):
    x: int
    way: Annotated[list[str], operator.add]


@pytest.fixture
def abc(bench: Callable[..., Bench], tmp_path: Path) -> Make:
    def make(cases: int = 8, **spec: Any) -> Abc:
        return Abc(tmp_path, bench, cases, **spec)

    return make


def test_exactly_what_is_downstream_runs_once_for_every_case_and_nothing_upstream(abc: Make) -> None:
    flow = abc(repeats=2)
    write_new(flow)
    before = flow.matrix()
    runs = len(flow.bench.node_runs)
    added = flow.add(flow.execution("c3", b="loud"), {"b": "new"}, at="a")
    assert (added.combination, added.choices, added.base) == (2, {"b": "new"}, {"b": "loud"})
    assert (added.cells, len(added.executions), added.failed, added.node_runs) == (16, 16, 0, 32)
    flow.run()
    assert flow.ran == {"b": 16, "c": 16}
    assert len(flow.bench.node_runs) == runs + 32
    assert flow.bench.counts == {"succeeded": 48}
    assert flow.bench.status == "completed"
    ways = {tuple(cell.state["way"]) for cell in flow.bench.cells() if cell.combination == {"b": "new"}}
    assert ways == {("a", "b!!!!!!!!!!", "c")}
    after = flow.matrix()
    assert after["rows"][:2] == before["rows"]
    assert after["cells"]["total"] == 48


def test_a_row_that_is_best_by_far_is_exploratory_and_not_the_best(abc: Make) -> None:
    flow = abc()
    write_new(flow)
    before = flow.matrix()
    best = before["best"]["score"]
    flow.add(flow.execution("c3", b="loud"), {"b": "new"})
    meanwhile = flow.matrix()
    assert meanwhile["figures"] == "final"
    old_means = [[row["metrics"]["score"]["mean"] for row in rows[:2]] for rows in (meanwhile["rows"], before["rows"])]
    assert old_means[0] == old_means[1]
    figures = meanwhile["rows"][2]["metrics"]["score"]
    assert (figures["n"], figures["mean"], figures["p"]) == (0, None, None), "before its end the row has no figures"
    flow.run()
    matrix = flow.matrix()
    planned, row = matrix["rows"][:2], matrix["rows"][2]
    assert [combination.get("exploratory") for combination in planned] == [None, None]
    details = row["exploratory"]
    assert (details["suggested_by"], details["cases_left_out"], details["by"]) == ("c3", 1, "anna")
    assert (details["base"], details["changed"], details["reason"]) == ({"b": "loud"}, {"b": "new"}, "it looked good")
    figures = row["metrics"]["score"]
    assert (row["n"], figures["n"], figures["n_pairs"]) == (8, 7, 7)  # without the case that suggested it
    assert figures["mean"] == pytest.approx(13 + 0.01 * (sum(range(8)) - 3) / 7)
    assert figures["delta"] == pytest.approx(10)
    assert figures["p_adjusted"] > figures["p"]  # it is tried after the one that was planned
    assert (figures["ranks"], figures["common_mean"]) == (None, None)
    assert matrix["best"]["score"] == best | {"tried": best["tried"] + 1}
    assert best["clear"]
    assert best["combination"] == {"b": "loud"}
    assert all(2 not in front for front in matrix["front"].values())
    assert any("exploratory" in text and sentence("case {} suggested it", "c3") in text for text in matrix["warnings"])
    flow.bench.sweep_id = submit_again(flow.bench.database, flow.bench.row)
    repeated = flow.matrix()
    assert repeated["figures"] == "anytime"  # of the repeat nothing has run
    assert [bool(combination.get("exploratory")) for combination in repeated["rows"]] == [False, False, True]
    flow.run()
    assert flow.matrix()["best"]["score"]["tried"] == 4, "two rows, in two looks"


def test_the_rule_of_a_sweep_file_does_not_choose_it(abc: Make) -> None:
    flow = abc(best={"maximize": "score"})
    write_new(flow)
    flow.add(flow.execution("c3", b="loud"), {"b": "new"})
    flow.run()
    choice = flow.matrix()["choice"]
    assert (choice["combination"], choice["left_out"]) == ({"b": "loud"}, 1)


def test_a_fork_that_was_looked_at_first_says_what_differs(abc: Make) -> None:
    flow = abc()
    write_new(flow)
    origin = flow.execution("c3", b="loud")
    bound = flow.code(stored_spec(flow.bench.row))
    fork_id, _ = add_fork(flow.context, origin, bound=bound, at="a", variants={"b": "new"})
    added = flow.add(fork_id)
    assert (added.choices, added.suggested_by, added.cells) == ({"b": "new"}, "c3", 8)
    with pytest.raises(InputError, match=sentence("is a fork: it goes on from where it was forked")):
        flow.add(fork_id, at="a")


def test_values_that_a_person_typed_are_for_their_own_case(abc: Make) -> None:
    flow = abc()
    bound = flow.code(stored_spec(flow.bench.row))
    origin = flow.execution("c3", b="loud")
    fork_id, _ = add_fork(flow.context, origin, bound=bound, at="a", set={"x": 100}, variants={"b": "off"})
    with pytest.raises(InputError, match=sentence("values that a person typed: they hold for its own case only")):
        flow.add(fork_id)
    assert flow.bench.row.cells == 16


def test_a_node_that_nobody_varied_and_parameters_of_a_variant(abc: Make) -> None:
    flow = abc()
    added = flow.add(flow.execution("c1", b="default"), {"c": "late"})
    assert added.choices == {"b": "default", "c": "late"}
    flow.run()
    assert flow.ran == {"c": 8}
    second = flow.add(flow.execution("c2", b="loud"), {"b": {"name": "louder", "of": "loud", "suffix": "!!"}})
    assert (second.combination, second.choices) == (3, {"b": "louder", "c": "default"})
    flow.run()
    assert flow.ran == {"b": 8, "c": 16}
    rows = flow.matrix()["rows"]
    assert [row["combination"]["c"] for row in rows] == ["default", "default", "late", "default"]
    assert [bool(row.get("exploratory")) for row in rows] == [False, False, True, True]
    assert flow.matrix()["baseline"] == {"b": "default", "c": "default"}
    third = flow.add(flow.execution("c5", b="default", c="late"), {"b": "louder"})  # made from one that was added
    flow.run()
    row = flow.matrix()["rows"][third.combination]
    assert row["exploratory"]["cases_left_out"] == 2
    assert row["metrics"]["score"]["n"] == 6
    assert flow.ran == {"b": 8, "c": 24}  # from the same checkpoint the row before has run it
    shares = [row["metrics"]["score"] for row in flow.matrix()["rows"][2:]]
    assert shares[1]["p_adjusted"] / shares[1]["p"] > shares[0]["p_adjusted"] / shares[0]["p"]


def test_without_a_word_it_runs_here_with_the_code_that_was_given(abc: Make) -> None:
    flow = abc(cases=2)
    done = add_row(flow.context, flow.execution("c1", b="loud"), variants={"b": "off"}, code=flow.code)
    assert done.ended is not None
    assert (done.ended.status, done.status) == ("completed", "completed")
    assert flow.ran == {"b": 2, "c": 2}
    assert flow.bench.counts == {"succeeded": 6}


def test_the_same_row_twice_is_refused(abc: Make) -> None:
    flow = abc(cases=2)
    origin = flow.execution("c1", b="loud")
    flow.add(origin, {"b": "off"})
    with pytest.raises(ConflictError, match=sentence("has the row {} already; `wtb resume", "b=off")):
        flow.add(origin, {"b": "off"})
    assert flow.bench.row.cells == 6
    assert len(queries.choices(flow.bench.database, flow.bench.sweep_id)) == 3


def test_a_case_that_failed_before_has_failed_in_the_row_too_and_is_tried_again_with_it(abc: Make) -> None:
    flow = abc(cases=4, fails={2})
    assert flow.bench.counts == {"succeeded": 6, "failed": 2}
    added = flow.add(flow.execution("c1", b="loud"), {"b": "off"})
    assert (added.cells, len(added.executions), added.failed) == (4, 3, 1)
    flow.run()
    assert flow.ran == {"b": 3, "c": 3}
    failed = [cell for cell in flow.bench.cells() if cell.combination == {"b": "off"} and cell.status == "failed"]
    assert [(cell.case, cell.error) for cell in failed] == [("c2", "node 'a': ValueError: no such case")]
    (flow.folder / "fails-2").unlink()
    assert retry(flow.bench.database, flow.bench.sweep_id) == 3
    flow.run()
    assert flow.bench.counts == {"succeeded": 12}
    assert flow.ran == {"a": 1, "b": 6, "c": 6}


def test_a_cell_of_a_row_that_was_rolled_back_does_not_touch_the_row_made_from_it(abc: Make) -> None:
    flow = abc(cases=2)
    origin = flow.execution("c1", b="loud")
    flow.add(origin, {"b": "off"})
    flow.run()
    done = rollback(flow.context, origin, "a", bound=flow.bench.prepared.bound)
    assert done.superseded == ()
    assert flow.bench.counts == {"succeeded": 5, "pending": 1}


def add_to(sweep: Bench, workflow: Any, evaluators: Any, execution: str, variants: dict[str, Variant]) -> AddedRow:
    """Add a row to a sweep that is not of Abc, which then runs with it."""

    def code(spec: SweepSpec) -> Bound:
        return bind(spec, workflow, evaluators)

    context = Context(sweep.database, by="anna")
    added = add_row(context, execution, variants=variants, run=False, code=code)
    sweep.prepared = replace(sweep.prepared, bound=code(stored_spec(sweep.row)))
    return added


def test_whoever_never_comes_to_what_differs_ends_where_it_ended(bench: Callable[..., Bench], tmp_path: Path) -> None:
    wf = Workflow("ways")
    for name in ("route", "left", "right", "last"):
        wf.node(node(name, str(tmp_path)), name=name)
    wf["left"].variant("other", suffix="!")
    wf.entry("route")
    wf.branch("route", {"1": "left", "0": "right"}, by=lambda state: str(state["x"] % 2))
    wf.edge("left", "last")
    wf.edge("right", "last")
    cases = [{"id": f"c{x}", "input": {"x": x}} for x in range(4)]
    sweep = bench(wf, cases, {"route": ["default"]}, evaluators={"t:score": score})
    sweep.run()
    (tmp_path / "log").unlink()
    (cell,) = queries.cell_rows(sweep.database, sweep.sweep_id, case="c1")

    added = add_to(sweep, wf, {"t:score": score}, cell.execution_id, {"left": "other"})
    assert (added.cells, added.node_runs) == (4, 4)
    sweep.run()
    assert ran(tmp_path) == {"left": 2, "last": 2}
    assert sweep.counts == {"succeeded": 8}
    ways = [cell.state["way"] for cell in sweep.cells() if cell.combination["left"] == "other"]
    assert ways == [["route", "right", "last"], ["route", "left!", "last"]] * 2


def test_what_does_not_fit_is_refused_before_anything_is_written(abc: Make) -> None:
    flow = abc(cases=2)
    origin = flow.execution("c1", b="loud")
    refused: dict[str, dict[str, Variant]] = {
        "equals another one; expected another variant": {},
        "nothing differs from b=loud": {"b": "loud"},
        "has no node 'bb'; did you mean 'b'": {"bb": "off"},
        "node 'b' has no variant 'of'; did you mean 'off'": {"b": "of"},
    }
    for words, choices in refused.items():
        with pytest.raises(InputError, match=words):
            flow.add(origin, choices)
    with pytest.raises(InputError, match=sentence("node {} does not run after checkpoint", "'b'")):
        flow.add(origin, {"b": "off"}, at="b")
    assert flow.bench.row.cells == 4
    assert len(flow.bench.executions) == 6


def test_code_that_changed_under_a_name_is_refused(abc: Make) -> None:
    flow = abc(cases=2)
    other = Workflow("abc")
    for name in "abc":
        other.node(node(name, str(flow.folder)) if name == "b" else changed, name=name)
    other["b"].variant("loud", suffix="!")
    other["b"].variant("off", suffix="")
    other.entry("a")
    other.edge("a", "b")
    other.edge("b", "c")
    flow.wf = other
    with pytest.raises(ConflictError, match=sentence("the code of {} has changed since it was submitted", "c=default")):
        flow.add(flow.execution("c1", b="loud"), {"b": "off"})


def test_a_row_of_which_cells_are_open_and_a_cancelled_sweep_are_refused(abc: Make) -> None:
    flow = abc(cases=2)
    origin = flow.execution("c1", b="loud")
    rollback(flow.context, flow.execution("c0", b="loud"), "a", bound=flow.bench.prepared.bound)
    with pytest.raises(
        ConflictError,
        match=sentence("{} of the combination that the row is made from {} no outcome yet", "1 cell", "has"),
    ):
        flow.add(origin, {"b": "off"})
    assert len(queries.choices(flow.bench.database, flow.bench.sweep_id)) == 2
    flow.add(flow.execution("c1", b="default"), {"b": "off"})  # of the other row all have
    flow.bench.database.execute(sweeps.update().values(status="cancelled"))
    with pytest.raises(ConflictError, match=sentence("is cancelled")):
        flow.add(flow.execution("c1", b="default"), {"c": "late"})


def test_cases_of_the_same_cluster_are_left_out_with_it(bench: Callable[..., Bench], abc: Make) -> None:
    flow = abc(cases=1)
    listed = [{"id": f"c{x}", "input": {"x": x}, "cluster": f"k{x // 2}"} for x in range(8)]
    flow.bench = bench(flow.wf, listed, {"b": ["default", "loud"]}, evaluators={"t:score": score})
    flow.bench.run()
    flow.add(flow.execution("c3", b="loud"), {"b": "off"})
    flow.run()
    row = flow.matrix()["rows"][2]
    assert (row["exploratory"]["cases_left_out"], row["metrics"]["score"]["n"]) == (2, 6)


def word(name: str, folder: str) -> Callable[..., dict[str, Any]]:
    def run(state: GraphState, *, suffix: str = "") -> dict[str, Any]:
        with open(f"{folder}/log", "a") as log:
            log.write(f"{name}\n")
        return {"way": [name + suffix]}

    return run


def test_a_row_of_a_langgraph_graph_runs_what_is_downstream_and_nothing_upstream(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    graph = StateGraph(GraphState)
    for name in ("a", "b", "beside", "c"):
        graph.add_node(name, word(name, str(tmp_path)))
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_edge("a", "beside")
    graph.add_edge(["b", "beside"], "c")
    varied = variants(graph).add("b", "loud", suffix="!").add("b", "late", suffix="?")
    workflow = as_workflow(varied, "tests:graph")
    cases = [{"id": f"c{x}", "input": {"x": x}} for x in range(4)]
    sweep = bench(workflow, cases, {"b": ["default", "loud"]}, evaluators={"t:score": score})
    sweep.run()
    assert sweep.counts == {"succeeded": 8}
    (tmp_path / "log").unlink()
    cell, _ = queries.cell_rows(sweep.database, sweep.sweep_id, case="c1")

    added = add_to(sweep, workflow, {"t:score": score}, cell.execution_id, {"b": "late"})
    assert (added.cells, added.node_runs) == (4, 8)
    sweep.run()
    assert ran(tmp_path) == {"b": 4, "c": 4}  # what runs beside it is shared
    ways = [cell.state["way"] for cell in sweep.cells() if cell.combination == {"b": "late"}]
    assert ways == [["a", "b?", "beside", "c"]] * 4


@evaluator(better="higher", scale=(0, 1))
def is_loud(case: Any, result: Any) -> bool:
    return "b!" in result.state["way"]


def test_a_sweep_that_stops_when_enough_is_known_runs_the_whole_row(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wf = Workflow("ab")
    for name in "ab":
        wf.node(node(name, str(tmp_path)), name=name)
    wf["b"].variant("loud", suffix="!")
    wf["b"].variant("off", suffix="")
    wf.entry("a")
    wf.edge("a", "b")
    cases = [{"id": f"c{x}", "input": {"x": x}} for x in range(6)]
    vary, evaluators = {"b": ["default", "loud"]}, {"t:loud": is_loud}
    sweep = bench(wf, cases, vary, evaluators=evaluators, stop="when_known", run={"concurrency": 1})
    sweep.run()
    assert sweep.counts == {"succeeded": 12}

    (cell, *_) = [row for row in queries.cell_rows(sweep.database, sweep.sweep_id) if row.status == "succeeded"]
    added = add_to(sweep, wf, evaluators, cell.execution_id, {"b": "off"})
    monkeypatch.setattr(sweep_ends, "reason_to_stop", lambda *args: pytest.fail("nobody asks whether enough is known"))
    assert sweep_ends.stop_where_known(sweep.database, sweep.row) is None
    assert sweep.run().status == "completed"
    assert sweep.counts == {"succeeded": 18}
    assert len(added.executions) == 6
