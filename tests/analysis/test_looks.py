"""Figures before the end of a sweep, through the product: what matrix, evidence and gates say then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
import sqlalchemy as sa
from msgspec import structs

from tests.support.prose import sentence
from wtb.analysis.early_stop import reason_to_stop
from wtb.analysis.gates import judge
from wtb.analysis.matrix.build import build
from wtb.analysis.running_totals import leaders
from wtb.authoring.context.node_context import Context
from wtb.authoring.edges import END
from wtb.authoring.evaluation.evaluators import evaluator
from wtb.authoring.workflow import Workflow
from wtb.cli.run.sweeps import exit_code
from wtb.core.tree.run_order import case_order
from wtb.display.matrix import sentences, table
from wtb.display.report import junit
from wtb.display.report.evidence import gather
from wtb.display.report.html.page import render as report
from wtb.display.text.progress import watched
from wtb.display.views.progress import Standing
from wtb.store.control import sweeps as control
from wtb.store.database import Database
from wtb.store.growth.retry import retry
from wtb.store.read import queries, tallies
from wtb.store.tables.schema import cells, sweeps
from wtb_scheduler import rounds
from wtb_scheduler.rounds import run_round

Make = Callable[..., Any]


class State(TypedDict, total=False):
    x: int
    right: bool


def workflow(fails: Callable[[int], bool] = lambda x: False) -> Workflow:
    """One node, whose variant `good` is right in nine of ten cases, `fair` in half of them and the default in none."""
    made = Workflow("answers", state=State)

    @made.node
    def answer(state: State, *, least: int = 10) -> State:
        if fails(state["x"]):
            raise ValueError("not this one")
        return {"right": state["x"] % 10 >= least}

    answer.variant("fair", least=5)
    answer.variant("good", least=1)
    answer.variant("good2", least=1)
    made.entry(answer)
    made.edge(answer, END)
    return made


def right(case: Any, result: Any) -> bool:
    return bool(result.state["right"])


def size(case: Any, result: Any) -> float:
    return float(case.input["x"])


CASES = [{"id": str(x), "input": {"x": x}} for x in range(60)]
ALL = {"answer": ["default", "fair", "good"]}
IN_TURN = {"concurrency": 1}


@pytest.fixture
def sweep(bench: Make) -> Callable[..., Any]:
    """60 cases under three combinations, one slot, so that cases end in the order in which they begin."""

    def make(**spec: Any) -> Any:
        wf = workflow(spec.pop("fails", lambda x: False))
        evaluators = {"tests:right": right, "tests:size": size}
        return bench(wf, CASES, ALL, evaluators=evaluators, run=IN_TURN, **spec)

    return make


def matrix(made: Any) -> dict[str, Any]:
    return build(made.database, made.row)


def test_cases_begin_in_the_order_that_the_seed_gives(sweep: Make) -> None:
    made = sweep(seed=5)
    made.run()
    begun = [row.case_number for row in sorted(made.executions, key=lambda row: row.id) if row.origin == "root"]
    assert begun == case_order([None] * 60, 5)
    ended = sorted(made.node_runs, key=lambda run: run["started_at"])
    case_of = {row.id: row.case_number for row in made.executions}
    assert list(dict.fromkeys(case_of[run["execution_id"]] for run in ended)) == begun


def test_a_sweep_that_has_not_ended_shows_what_holds_whenever_one_looks(sweep: Make) -> None:
    made = sweep()
    assert made.run(node_runs=90).status == "paused"
    found = matrix(made)
    seen = found["as_of"]["cases"]
    assert found["figures"] == "anytime"
    assert found["as_of"] == {"cases": seen, "of": 60, "because": sentence("the sweep is paused")}
    assert 28 <= seen <= 30
    for row in found["rows"]:
        assert seen <= row["as_of"] <= 30
        for one in row["metrics"].values():
            assert (one["p"], one["p_adjusted"], one["effect"], one["detectable"], one["ranks"]) == (None,) * 5
    assert found["metrics"]["right"]["interval"] == "betting"
    assert found["metrics"]["size"]["interval"] == "asymptotic"
    best = found["best"]["right"]
    assert (best["p"], best["winner"], best["cases_needed"]) == (None, None, None)
    assert {"answer": "default"} not in best["candidates"]
    assert {"answer": "good"} in best["candidates"]
    assert sentence("as of {} of {} cases", seen, 60) in " ".join(found["warnings"])


def test_figures_of_the_end_come_with_the_end(sweep: Make) -> None:
    made = sweep()
    made.run(node_runs=90)
    assert made.run(node_runs=None).status == "completed"
    found = matrix(made)
    assert (found["figures"], found["as_of"]) == ("final", None)
    assert found["best"]["right"]["clear"]
    assert found["best"]["right"]["p"] < 0.001
    assert found["metrics"]["right"]["interval"] is None
    assert found["rows"][0]["as_of"] is None


def test_a_sweep_that_was_cancelled_keeps_figures_that_hold_whenever_one_looked(sweep: Make) -> None:
    made = sweep()
    made.run(node_runs=90)
    before = matrix(made)
    control.cancel(made.database, made.sweep_id, reason="enough", by="somebody")
    found = matrix(made)
    assert found["as_of"] == {**before["as_of"], "because": sentence("the sweep was cancelled")}
    assert found["best"] == before["best"], "cells that were cancelled have not ended, so nothing counts beyond them"


def test_what_is_beyond_a_case_that_has_not_ended_does_not_count(sweep: Make) -> None:
    made = sweep()
    made.run()
    order = case_order([None] * 60, 0)
    slow = (cells.c.sweep_id == made.sweep_id, cells.c.case_number == order[12], cells.c.combination == 1)
    with made.database.write() as connection:
        connection.execute(cells.update().where(*slow).values(status="running", finished_at=None))
    found = matrix(made)
    assert found["as_of"] == {"cases": 12, "of": 60, "because": sentence("{} cell{} to run again", 1, " is")}
    assert [row["as_of"] for row in found["rows"]] == [60, 12, 60]
    assert [row["metrics"]["right"]["n_pairs"] for row in found["rows"]] == [0, 12, 60]


def test_retried_cells_are_part_of_the_plan(sweep: Make) -> None:
    broken = {7, 8}
    made = sweep(fails=lambda x: x in broken)
    made.run()
    assert matrix(made)["figures"] == "final"
    broken.clear()
    assert retry(made.database, made.sweep_id) == 6
    assert matrix(made)["figures"] == "anytime"
    made.run()
    assert matrix(made)["figures"] == "final"
    assert made.counts == {"succeeded": 180}


def test_every_form_tells_the_same_before_the_end(sweep: Make) -> None:
    made = sweep(gates=["right.mean >= 0.1"])
    made.run(node_runs=90)
    evidence = gather(made.database, made.row)
    found = evidence["matrix"]
    assert evidence["pairs"]["right"] == {"rows": [], "pairs": []}
    assert sentence("shown at its end") in evidence["attribution"]["right"]["because"]
    said = f"as of {found['as_of']['cases']} of 60 cases"
    assert said in sentences.answer(found, "right")
    assert said in junit.render(evidence)
    shown = table.render({**found, "gates": evidence["gates"]}, width=120)
    assert said in shown
    assert "Holm" not in shown
    assert said in report(evidence)
    assert judge(made.database, made.row, found)[0]["holds"] is None


def test_who_watches_sees_what_the_matrix_says(sweep: Make) -> None:
    made = sweep()
    made.run(node_runs=90)
    found, shown = matrix(made), leaders(made.database, made.row)
    assert shown["as_of"] == found["as_of"]
    assert shown["best"]["right"]["candidates"] == found["best"]["right"]["candidates"]
    look = watched(Standing(made.database, made.sweep_id, None).read(), 120)
    assert f"as of {found['as_of']['cases']} of 60 cases, 2 could be best" in look
    made.run(node_runs=None)
    shown = leaders(made.database, made.row)
    assert shown["as_of"] is None
    assert shown["best"]["right"] == {
        "combination": {"answer": "good"}, "n": 60, "mean": 0.9, "clear": True, "candidates": [{"answer": "good"}]
    }  # fmt: skip


def test_who_watches_sees_exploratory_metrics_corrected_as_in_the_matrix(bench: Make) -> None:
    @evaluator(scale=dict.fromkeys(map(str, range(40)), (0, 1)))
    def each(case: Any, result: Any) -> dict[str, bool]:
        return {str(number): right(case, result) for number in range(40)}

    made = bench(workflow(), CASES, ALL, evaluators={"tests:each": each}, run=IN_TURN)
    for count in range(114, 151, 6):
        made.run(node_runs=count)
        found, shown = matrix(made)["best"], leaders(made.database, made.row)["best"]
        told = {metric: (best["clear"], best["candidates"]) for metric, best in found.items()}
        assert {metric: (best["clear"], best["candidates"]) for metric, best in shown.items()} == told
        if told["each.0"] != told["each.1"]:
            return
    pytest.fail("one of many exploratory metrics tells as much as the one that decides")


def test_old_sweeps_have_the_same_order(sweep: Make) -> None:
    """Nothing of it is stored, so nothing has to be there."""
    made = sweep(seed=9)
    made.run(node_runs=45)
    numbers = [number for number, status in _by_case(made) if status == {"succeeded"}]
    assert set(numbers) <= set(case_order([None] * 60, 9)[:15])
    assert matrix(made)["as_of"]["cases"] == len(numbers)


def _by_case(made: Any) -> list[tuple[int, set[str]]]:
    query = sa.select(cells.c.case_number, cells.c.status).where(cells.c.sweep_id == made.sweep_id)
    found: dict[int, set[str]] = {}
    with made.database.read() as connection:
        for number, status in connection.execute(query):
            found.setdefault(number, set()).add(status)
    assert queries.cell_counts(made.database, made.sweep_id)
    return sorted(found.items())


# Stopping when enough is known


class Held:
    """Nodes of cases beyond a place in the order wait until the test lets go of them."""

    def __init__(self, cases: int, seed: int = 0) -> None:
        self.free = threading.Event()
        self.waiting = threading.Event()
        self.beyond = {str(number) for number in case_order([None] * len(CASES), seed)[cases:]}

    def __call__(self, case: str) -> None:
        if case in self.beyond and not self.free.is_set():
            self.waiting.set()
            self.free.wait(30)


def held_workflow(held: Held) -> Workflow:
    made = Workflow("answers", state=State)

    @made.node
    def answer(state: State, ctx: Context, *, least: int = 10) -> State:
        held(ctx.case.id)
        return {"right": state["x"] % 10 >= least}

    answer.variant("good", least=1)
    made.entry(answer)
    made.edge(answer, END)
    return made


def until_status(made: Any, status: str) -> None:
    ends = time.monotonic() + 30
    while made.status != status:
        assert time.monotonic() < ends, made.row
        threading.Event().wait(0.02)


def test_a_sweep_stops_by_itself_when_the_best_is_known(bench: Make) -> None:
    held = Held(20)
    run = {"concurrency": 1, "grace": "1ms"}
    wf = held_workflow(held)
    made = bench(wf, CASES, {"answer": "all"}, evaluators={"tests:right": right}, run=run, stop="when_known")
    started = made.start()
    until_status(made, "completed")
    held.free.set()
    while not started.wait(5):
        pass
    ended = started.finish()
    assert ended.status == "completed"
    assert str(ended.reason) == made.row.reason
    assert str(ended.reason).startswith("known: answer=good is best by right, as of ")
    assert made.counts["succeeded"] + made.counts["skipped"] == 120
    assert made.counts["skipped"] >= 70
    found = matrix(made)
    assert found["as_of"]["because"] == sentence("the sweep stopped when enough was known")
    assert found["best"]["right"]["clear"]
    assert found["as_of"]["cases"] <= 20
    assert [event["data"]["reason"] for event in made.events if event["kind"] == "sweep.completed"] == [ended.reason]
    assert exit_code({**found, "gates": []}, ended) == 0


@pytest.mark.parametrize(
    "stored", [{"margin": {"right": 0.3}}, {"best": {"maximize": "right", "indifferent": 0.3}}, {}]
)
def test_what_is_within_the_margin_of_every_other_is_known(bench: Make, stored: dict[str, Any]) -> None:
    """Sweeps of earlier versions have the margin as `best.indifferent`."""
    twins = {"answer": ["good", "good2"]}
    made = bench(workflow(), CASES, twins, evaluators={"tests:right": right}, run=IN_TURN, stop="when_known")
    made.run(node_runs=100)
    row = structs.replace(made.row, spec={**made.row.spec, **stored})
    assert (sentence("behind any other by {}", "right") in str(reason_to_stop(made.database, row))) == bool(stored)


def test_the_scheduler_stops_what_workers_run(database: Database, bench: Make) -> None:
    if database.is_sqlite:
        pytest.skip("workers need PostgreSQL")
    made = bench(workflow(), CASES, ALL, evaluators={"tests:right": right}, run=IN_TURN, stop="when_known")
    made.run(node_runs=150)
    control.go_on(database, made.sweep_id, by="somebody")
    with database.write() as connection:
        connection.execute(sweeps.update().values(queued=True))
    assert run_round(database, lambda tasks, retried: None)["finished"] == 1
    assert made.status == "completed"
    assert made.counts["skipped"] > 0
    assert run_round(database, lambda tasks, retried: None)["finished"] == 0
    assert matrix(made)["figures"] == "anytime"


def test_a_round_gives_work_before_it_counts_and_counts_for_a_while(
    database: Database, bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a million cells take to be counted nobody waits for: after workers were killed that had cost minutes."""
    if database.is_sqlite:
        pytest.skip("workers need PostgreSQL")
    made = bench(workflow(), CASES, ALL, evaluators={"tests:right": right}, run=IN_TURN)
    made.run(node_runs=150)
    control.go_on(database, made.sweep_id, by="somebody")
    with database.write() as connection:
        connection.execute(sweeps.update().values(queued=True))
    done: list[str] = []
    add = tallies._add

    def slow(*given: Any) -> None:
        add(*given)
        done.append("counted")
        time.sleep(rounds.TALLY_S)

    monkeypatch.setattr(tallies, "_add", slow)
    monkeypatch.setattr(tallies, "_LEAST", 10)
    monkeypatch.setattr(rounds, "TALLY_S", 0.01)
    for _ in range(2):
        run_round(database, lambda tasks, retried: done.append("published"))
    assert done == ["published", "counted", "published", "counted"]
    monkeypatch.setattr(tallies, "_add", add)
    assert tallies.tally(database, made.sweep_id)
    assert tallies.whole_at(database, made.sweep_id) is not None
