"""Figures before the end of a sweep, in the matrix, the evidence and the gates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
import sqlalchemy as sa
from msgspec import structs

from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.analysis.gates import judge
from wtb.analysis.running_totals import leaders
from wtb.analysis.sweep_ends import reason_to_stop
from wtb.authoring.context.node_context import Context
from wtb.authoring.evaluation.evaluators import evaluator
from wtb.authoring.workflow import Workflow
from wtb.cli.run.outcome import exit_code
from wtb.core.errors import StoreError
from wtb.core.serialization.user_modules import without_user_code
from wtb.core.tree.run_order import case_order
from wtb.display import matrix_table, sentences
from wtb.display.report import junit
from wtb.display.report.report_files import render as report
from wtb.display.report.sweep_evidence import gather
from wtb.display.text.sweeps import watched
from wtb.display.views.progress import Standing
from wtb.store.control import sweeps as control
from wtb.store.control.forks import retry
from wtb.store.database import Database
from wtb.store.read import queries, tallies
from wtb.store.tables.schema import cells, sweeps
from wtb_scheduler import loop, rounds
from wtb_scheduler.loop import run_until
from wtb_scheduler.rounds import run_round

Make = Callable[..., Any]


class State(TypedDict, total=False):
    x: int
    right: bool


def workflow(fails: Callable[[int], bool] = lambda x: False) -> Workflow:
    """One node, whose variant `good` is right in nine of ten cases, `fair` in half of them and the default in none."""
    wf = Workflow("answers", state=State)

    @wf.node
    def answer(state: State, *, least: int = 10) -> State:
        if fails(state["x"]):
            raise ValueError("not this one")
        return {"right": state["x"] % 10 >= least}

    answer.variant("fair", least=5)
    answer.variant("good", least=1)
    answer.variant("good2", least=1)
    wf.entry(answer)
    return wf


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


def test_cases_begin_in_the_order_that_the_seed_gives(sweep: Make) -> None:
    bench = sweep(seed=5)
    bench.run()
    started_cases = [row.case_number for row in bench.executions if row.origin == "root"]
    assert started_cases == case_order([None] * 60, 5)
    ended = sorted(bench.node_runs, key=lambda run: run["started_at"])
    case_of = {row.id: row.case_number for row in bench.executions}
    assert list(dict.fromkeys(case_of[run["execution_id"]] for run in ended)) == started_cases


def test_a_sweep_that_has_not_ended_shows_what_holds_whenever_one_looks(sweep: Make) -> None:
    bench = sweep()
    assert bench.run(node_runs=90).status == "paused"
    document = bench.matrix()
    seen = document["as_of"]["cases"]
    assert document["figures"] == "anytime"
    assert document["as_of"] == {"cases": seen, "of": 60, "because": sentence("the sweep is paused")}
    assert 28 <= seen <= 30
    for row in document["rows"]:
        assert seen <= row["as_of"] <= 30
        for figures in row["metrics"].values():
            assert {figures[key] for key in ("p", "p_adjusted", "effect", "detectable", "ranks")} == {None}
    assert document["metrics"]["right"]["interval"] == "betting"
    assert document["metrics"]["size"]["interval"] == "asymptotic"
    best = document["best"]["right"]
    assert (best["p"], best["winner"], best["cases_needed"]) == (None, None, None)
    assert {"answer": "default"} not in best["candidates"]
    assert {"answer": "good"} in best["candidates"]
    assert sentence("as of {} of {} cases", seen, 60) in " ".join(document["warnings"])


def test_figures_of_the_end_come_with_the_end(sweep: Make) -> None:
    bench = sweep()
    bench.run(node_runs=90)
    assert bench.run(node_runs=None).status == "completed"
    document = bench.matrix()
    assert (document["figures"], document["as_of"]) == ("final", None)
    assert document["best"]["right"]["clear"]
    assert document["best"]["right"]["p"] < 0.001
    assert document["metrics"]["right"]["interval"] is None
    assert document["rows"][0]["as_of"] is None


def test_a_sweep_that_was_cancelled_keeps_figures_that_hold_whenever_one_looked(sweep: Make) -> None:
    bench = sweep()
    bench.run(node_runs=90)
    before = bench.matrix()
    control.cancel(bench.database, bench.sweep_id, reason="enough", by="somebody")
    document = bench.matrix()
    assert document["as_of"] == {**before["as_of"], "because": sentence("the sweep was cancelled")}
    assert document["best"] == before["best"], "cells that were cancelled have not ended, so nothing counts beyond them"


def test_what_is_beyond_a_case_that_has_not_ended_does_not_count(sweep: Make) -> None:
    bench = sweep()
    bench.run()
    order = case_order([None] * 60, 0)
    slow = (cells.c.sweep_id == bench.sweep_id, cells.c.case_number == order[12], cells.c.combination == 1)
    with bench.database.write() as connection:
        connection.execute(cells.update().where(*slow).values(status="running", finished_at=None))
    document = bench.matrix()
    assert document["as_of"] == {"cases": 12, "of": 60, "because": sentence("{} cell{} to run again", 1, " is")}
    assert [row["as_of"] for row in document["rows"]] == [60, 12, 60]
    assert [row["metrics"]["right"]["n_pairs"] for row in document["rows"]] == [0, 12, 60]


def test_retried_cells_are_part_of_the_plan(sweep: Make) -> None:
    broken = {7, 8}
    bench = sweep(fails=lambda x: x in broken)
    bench.run()
    assert bench.matrix()["figures"] == "final"
    broken.clear()
    assert retry(bench.database, bench.sweep_id) == 6
    assert bench.matrix()["figures"] == "anytime"
    bench.run()
    assert bench.matrix()["figures"] == "final"
    assert bench.counts == {"succeeded": 180}


def test_every_form_tells_the_same_before_the_end(sweep: Make) -> None:
    bench = sweep(gates=["right.mean >= 0.1"])
    bench.run(node_runs=90)
    evidence = gather(bench.database, bench.row)
    document = evidence["matrix"]
    assert evidence["pairs"]["right"] == {"rows": [], "pairs": []}
    assert sentence("shown at its end") in evidence["attribution"]["right"]["because"]
    as_of = f"as of {document['as_of']['cases']} of 60 cases"
    assert as_of in sentences.answer(document, "right")
    assert as_of in junit.render(evidence)
    text = matrix_table.render({**document, "gates": evidence["gates"]}, width=120)
    assert as_of in text
    assert "Holm" not in text
    assert as_of in report(evidence)
    assert judge(bench.database, bench.row, document)[0]["holds"] is None


def test_who_watches_sees_what_the_matrix_says(sweep: Make) -> None:
    bench = sweep()
    bench.run(node_runs=90)
    document, live = bench.matrix(), leaders(bench.database, bench.row)
    assert live["as_of"] == document["as_of"]
    assert live["best"]["right"]["candidates"] == document["best"]["right"]["candidates"]
    look = watched(Standing(bench.database, bench.sweep_id, None).read(), 120)
    assert f"as of {document['as_of']['cases']} of 60 cases, 2 could be best" in look
    bench.run(node_runs=None)
    live = leaders(bench.database, bench.row)
    assert live["as_of"] is None
    assert live["best"]["right"] == {
        "combination": {"answer": "good"}, "n": 60, "mean": 0.9, "clear": True, "candidates": [{"answer": "good"}]
    }  # fmt: skip


def test_who_watches_sees_exploratory_metrics_corrected_as_in_the_matrix(bench: Make) -> None:
    @evaluator(scale=dict.fromkeys(map(str, range(40)), (0, 1)))
    def each(case: Any, result: Any) -> dict[str, bool]:
        return {str(number): right(case, result) for number in range(40)}

    sweep = bench(workflow(), CASES, ALL, evaluators={"tests:each": each}, run=IN_TURN)
    for count in range(114, 151, 6):
        sweep.run(node_runs=count)
        by_metric, live = sweep.matrix()["best"], leaders(sweep.database, sweep.row)["best"]
        expected = {metric: (best["clear"], best["candidates"]) for metric, best in by_metric.items()}
        assert {metric: (best["clear"], best["candidates"]) for metric, best in live.items()} == expected
        if expected["each.0"] != expected["each.1"]:
            return
    pytest.fail("one of many exploratory metrics tells as much as the one that decides")


def test_old_sweeps_have_the_same_order(sweep: Make) -> None:
    """The order is not stored, so old sweeps lack nothing."""
    bench = sweep(seed=9)
    bench.run(node_runs=45)
    numbers = [number for number, status in _by_case(bench) if status == {"succeeded"}]
    assert set(numbers) <= set(case_order([None] * 60, 9)[:15])
    assert bench.matrix()["as_of"]["cases"] == len(numbers)


def _by_case(bench: Any) -> list[tuple[int, set[str]]]:
    query = sa.select(cells.c.case_number, cells.c.status).where(cells.c.sweep_id == bench.sweep_id)
    statuses: dict[int, set[str]] = {}
    with bench.database.read() as connection:
        for number, status in connection.execute(query):
            statuses.setdefault(number, set()).add(status)
    assert queries.cell_counts(bench.database, bench.sweep_id)
    return sorted(statuses.items())


# Stopping when enough is known


class BlockedNodes:
    """Block nodes of cases beyond a place in the order until the test sets `free`."""

    def __init__(self, cases: int, seed: int = 0) -> None:
        self.free = threading.Event()
        self.waiting = threading.Event()
        self.beyond = {str(number) for number in case_order([None] * len(CASES), seed)[cases:]}

    def __call__(self, case: str) -> None:
        if case in self.beyond and not self.free.is_set():
            self.waiting.set()
            self.free.wait(30)


def blocking_workflow(block: BlockedNodes) -> Workflow:
    wf = Workflow("answers", state=State)

    @wf.node
    def answer(state: State, ctx: Context, *, least: int = 10) -> State:
        block(ctx.case.id)
        return {"right": state["x"] % 10 >= least}

    answer.variant("good", least=1)
    wf.entry(answer)
    return wf


def until_status(bench: Any, status: str) -> None:
    until(lambda: bench.status == status, f"its status to be {status}", pause=0.02)


def test_a_sweep_stops_by_itself_when_the_best_is_known(bench: Make) -> None:
    block = BlockedNodes(20)
    run = {"concurrency": 1, "grace": "1ms"}
    wf = blocking_workflow(block)
    sweep = bench(wf, CASES, {"answer": "all"}, evaluators={"tests:right": right}, run=run, stop="when_known")
    started = sweep.start()
    until_status(sweep, "completed")
    block.free.set()
    while not started.wait(5):
        pass
    ended = started.finish()
    assert ended.status == "completed"
    assert str(ended.reason) == sweep.row.reason
    assert str(ended.reason).startswith("known: answer=good is best by right, as of ")
    assert sweep.counts["succeeded"] + sweep.counts["skipped"] == 120
    assert sweep.counts["skipped"] >= 70
    document = sweep.matrix()
    assert document["as_of"]["because"] == sentence("the sweep stopped when enough was known")
    assert document["best"]["right"]["clear"]
    assert document["as_of"]["cases"] <= 20
    assert [event["data"]["reason"] for event in sweep.events if event["kind"] == "sweep.completed"] == [ended.reason]
    assert exit_code({**document, "gates": []}, ended) == 0


@pytest.mark.parametrize(
    "stored", [{"margin": {"right": 0.3}}, {"best": {"maximize": "right", "indifferent": 0.3}}, {}]
)
def test_what_is_within_the_margin_of_every_other_is_known(bench: Make, stored: dict[str, Any]) -> None:
    """Sweeps of earlier versions have the margin as `best.indifferent`."""
    twins = {"answer": ["good", "good2"]}
    sweep = bench(workflow(), CASES, twins, evaluators={"tests:right": right}, run=IN_TURN, stop="when_known")
    sweep.run(node_runs=100)
    row = structs.replace(sweep.row, spec={**sweep.row.spec, **stored})
    assert (sentence("behind any other by {}", "right") in str(reason_to_stop(sweep.database, row))) == bool(stored)


def left_to_workers(database: Database, bench: Make, **options: Any) -> Any:
    """A sweep with 150 finished node runs, whose remaining ones workers execute."""
    if database.is_sqlite:
        pytest.skip("workers need PostgreSQL")
    sweep = bench(workflow(), CASES, ALL, evaluators={"tests:right": right}, run=IN_TURN, **options)
    sweep.run(node_runs=150)
    control.resume(database, sweep.sweep_id, by="somebody")
    with database.write() as connection:
        connection.execute(sweeps.update().values(queued=True))
    return sweep


def test_the_scheduler_stops_what_workers_run(database: Database, bench: Make) -> None:
    sweep = left_to_workers(database, bench, stop="when_known")
    assert run_round(database, lambda tasks, retried: None)["finished"] == 1
    assert sweep.status == "completed"
    assert sweep.counts["skipped"] > 0
    assert run_round(database, lambda tasks, retried: None)["finished"] == 0
    assert sweep.matrix()["figures"] == "anytime"


def test_a_round_gives_work_before_it_counts_and_counts_for_a_while(
    database: Database, bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting a million cells must not delay tasks: after workers were killed, it had cost minutes."""
    sweep = left_to_workers(database, bench)
    done: list[str] = []
    add = tallies._add

    def slow(*args: Any) -> None:
        add(*args)
        done.append("counted")
        time.sleep(rounds.TALLY_S)

    monkeypatch.setattr(tallies, "_add", slow)
    monkeypatch.setattr(tallies, "_LEAST", 10)
    monkeypatch.setattr(rounds, "TALLY_S", 0.01)
    for _ in range(2):
        run_round(database, lambda tasks, retried: done.append("published"))
    assert done == ["published", "counted", "published", "counted"]
    monkeypatch.setattr(tallies, "_add", add)
    assert tallies.tally(database, sweep.sweep_id)
    assert tallies.whole_at(database, sweep.sweep_id) is not None


def test_rounds_do_not_wait_for_the_upkeep(database: Database, bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting a million cells, or building their matrix, had delayed the work of killed workers."""
    left_to_workers(database, bench)
    counting, may_count, ending, gone_on = (threading.Event() for _ in range(4))
    rounds_meanwhile: list[str] = []
    add = tallies._add

    def slow(*args: Any) -> None:
        counting.set()
        assert may_count.wait(30)
        add(*args)

    def deliver(*tasks: Any) -> None:
        if counting.is_set():
            rounds_meanwhile.append("published")
        if len(rounds_meanwhile) == 3:
            gone_on.set()

    monkeypatch.setattr(tallies, "_add", slow)
    with without_user_code(None):
        scheduler = threading.Thread(target=run_until, args=(ending, database, deliver, 0.01, lambda line: None))
        scheduler.start()
        try:
            assert gone_on.wait(30), "rounds wait for the upkeep"
        finally:
            may_count.set()
            ending.set()
            scheduler.join()


def test_an_upkeep_that_fails_for_longer_than_a_round_is_reported_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database.is_sqlite:
        pytest.skip("workers need PostgreSQL")
    done, ending = threading.Semaphore(0), threading.Event()
    failures, lines = 0, list[str]()

    def fail(database: Database) -> int:
        nonlocal failures
        for _ in range(2):  # rounds meanwhile
            assert done.acquire(timeout=30)
        failures += 1
        if failures == 3:
            ending.set()
        raise StoreError("a table is damaged")

    monkeypatch.setattr(loop, "keep_up", fail)
    with without_user_code(None):
        run_until(ending, database, lambda *tasks: done.release(), 0.01, lines.append)
    assert lines == ["scheduler: a table is damaged"]
