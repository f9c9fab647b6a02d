"""Totals of costs and attempts agree with what the nodes of a sweep did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.attempts import attempts
from tests.support.bench import CASES
from tests.support.prose import sentence
from wtb import Context, evaluator
from wtb.analysis.failure_causes import may_help
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.failures import Failure
from wtb.core.scoring.measure import Measure, Score
from wtb.display import markdown, matrix_table, sentences
from wtb.display.report.report_files import render_matrix
from wtb.display.report.sweep_evidence import failures
from wtb.display.text.sweeps import status as render_status
from wtb.display.views.sweeps import standing_document, status_document
from wtb.store.control.rescore import scored_executions, write_scores
from wtb.store.read.aggregates import node_run_totals
from wtb.store.read.queries import usd_spent
from wtb.store.tables.schema import node_runs

Make = Callable[..., Any]
State = dict[str, Any]


def test_sharing_never_seems_to_cost_money(run_sweep: Make) -> None:
    wf = Workflow("spending")

    @wf.node(retries=1)
    def shared(state: State, ctx: Context) -> State:
        ctx.cost(usd=1.0)
        if ctx.attempt == 1:
            raise OSError("try again")
        return {"a": 1}

    @wf.node
    def last(state: State, ctx: Context) -> State:
        ctx.cost(usd=0.25)
        raise ValueError("never succeeds")

    last.variant("other", lambda state: {"b": 1})
    wf.entry(shared)
    wf.edge(shared, last)
    wf.edge(last, END)
    bench = run_sweep(wf, vary={"last": "all"})
    document = bench.matrix()
    assert document["cost"]["usd"] == 2.25
    assert document["cost"]["unshared_usd"] == 4.25  # both cells make both attempts of `shared`, and one that of `last`
    assert "Cost: $2.25 spent, $4.25 without sharing." in sentences.totals(document)
    assert document["cost"]["usd"] == status_document(bench.database, bench.row)["cost"]["usd"]


def test_what_was_spent_is_what_its_attempts_say_whatever_came_of_them(run_sweep: Make) -> None:
    """Totals sum node runs of one attempt by their own rows, and all other node runs by their attempts."""
    wf = Workflow("spending")

    @wf.node(retries=2)
    def ask(state: State, ctx: Context) -> State:
        ctx.cost(usd=0.5 + state["x"], tokens_in=10 * ctx.attempt, tokens_out=state["x"])
        if ctx.attempt <= state["x"]:  # the case 3 fails for good
            raise OSError("try again")
        return {"a": 1}

    @wf.node
    def last(state: State, ctx: Context, *, usd: float = 0.25) -> State:
        ctx.cost(usd=usd)
        return {"b": 1}

    last.variant("dear", usd=4.0)
    wf.entry(ask)
    wf.edge(ask, last)
    wf.edge(last, END)
    bench = run_sweep(wf, [{"id": str(x), "input": {"x": x}} for x in range(4)], {"last": "all"})
    of_cells = sa.select(attempts, node_runs.c.cells).join(node_runs, node_runs.c.id == attempts.c.node_run_id)
    attempt_rows = bench.database.rows(of_cells.where(node_runs.c.sweep_id == bench.sweep_id))
    assert Counter(row["status"] for row in attempt_rows) == {"succeeded": 9, "failed": 6}

    totals = node_run_totals(bench.database, bench.sweep_id)
    sums = (sum(row[name] for row in attempt_rows) for name in ("usd", "tokens_in", "tokens_out"))
    assert totals.spent == (*sums, sum(row["usd"] * row["cells"] for row in attempt_rows))
    assert totals.forks == (0, 0, 0, 0)
    assert [(row[:2], *map(int, row[2:5]), row[-1]) for row in totals.counts] == [
        (("ask", "default"), 3, 6, 9, 0),
        (("last", "default"), 3, 3, 3, 0),
        (("last", "dear"), 3, 3, 3, 0),
    ]
    assert usd_spent(bench.database, bench.sweep_id) == sum(row["usd"] for row in attempt_rows)
    (default, dear) = bench.matrix()["rows"]
    failed_usd = sum(row["usd"] for row in attempt_rows if row["failure"])
    assert default["cost_failed_usd"] == dear["cost_failed_usd"] == failed_usd


def guessing() -> Workflow:
    wf = Workflow("guessing")
    node = wf.node(lambda state, *, k=1: {"y": k}, name="guess")
    node.variant("far", k=100)
    wf.entry(node)
    return wf


def distance(case: Any, result: Any) -> float:
    return abs(float(result.state["y"]))


def test_a_metric_whose_direction_nobody_declared_is_warned_of_once_and_shown_with_its_arrow(run_sweep: Make) -> None:
    @evaluator(better="lower")
    def steps(case: Any, result: Any) -> int:
        return len(result.path)

    @evaluator(better={"near": "lower"})
    def several(case: Any, result: Any) -> dict[str, int]:
        return {"near": 1, "other": 2}

    bench = run_sweep(guessing(), CASES, {"guess": "all"}, evaluators={"d": distance, "s": steps, "several": several})
    document = bench.matrix()
    declared = {name: metric["declared"] for name, metric in document["metrics"].items()}
    assert declared == {"distance": False, "steps": True, "several.near": True, "several.other": False}
    (warning,) = document["warnings"]
    assert sentence("which values of {} are better is not declared", "distance, several.other") in warning
    assert '@evaluator(better="lower")' in warning
    page = render_matrix(document).partition("<script")[0]
    for text in (matrix_table.render(document, 200), markdown.matrix(document), page):
        plain_text = text.replace("</bdi>", "").replace(" ↑", "↑").replace(" ↓", "↓")
        assert "distance↑" in plain_text
        assert "steps↓" in plain_text
        assert text.count("is not declared, so higher counts as better") == 1


def test_a_direction_that_is_declared_later_counts_once_the_sweep_is_scored_again(run_sweep: Make) -> None:
    bench = run_sweep(guessing(), CASES, {"guess": "all"}, evaluators={"distance": distance})
    assert bench.matrix()["best"]["distance"]["combination"] == {"guess": "far"}
    scored_rows = [row for rows in scored_executions(bench.database, bench.sweep_id) for row in rows]
    values = {0: 1.0, 1: 100.0}
    new_scores = [(row, [Score("distance", values[row.combinations[0]], Measure("lower"))]) for row in scored_rows]
    write_scores(bench.database, bench.row, new_scores)
    document = bench.matrix()
    assert document["best"]["distance"]["combination"] == {"guess": "default"}
    assert document["warnings"] == []


def failing(error: Callable[[int], Exception]) -> Workflow:
    """A workflow in which every third case fails, with either of its two variants."""
    wf = Workflow("failing")

    def answered(state: State, *, k: int = 0) -> State:
        if state["x"] % 3 == 0:
            raise error(state["x"])
        return {"y": k}

    node = wf.node(answered, name="answer")
    node.variant("other", k=1)
    wf.entry(node)
    return wf


NINE = [{"id": f"c{n}", "input": {"x": n}} for n in range(9)]


def test_why_cells_failed_is_told_by_cause_with_the_command_that_shows_one(run_sweep: Make) -> None:
    errors = {0: ValueError("no answer to 'a'"), 3: ValueError("no answer to 'b'"), 6: ConnectionError("no route")}
    bench = run_sweep(failing(errors.__getitem__), NINE, {"answer": "all"})
    summary = bench.matrix()["failures"]
    assert summary == status_document(bench.database, bench.row)["failures"]
    first, second = summary["causes"]
    assert (first["cells"], first["node"], first["type"], first["retry"]) == (4, "answer", "ValueError", False)
    assert first["combinations"] == [0, 1]
    assert first["example"]["case"] in ("c0", "c3")
    assert first["example"]["command"] == f"wtb show {first['example']['execution']}"
    assert (second["cells"], second["type"], second["retry"]) == (2, "ConnectionError", True)
    following = {"why": "6 cells failed", "command": f"wtb retry {bench.sweep_id}"}
    assert status_document(bench.database, bench.row)["next"] == following
    document = bench.matrix()
    status = render_status(status_document(bench.database, bench.row), 200)
    for text in (matrix_table.render(document, 200), status, render_matrix(document)):
        assert sentence("{} cells failed", 4) + ": answer: ValueError: " + sentence("no answer {}", "to") in text
        assert first["example"]["command"] in text
        assert "2 cells failed: answer: ConnectionError: no route" in text
    assert "4 cells failed" in markdown.matrix(document)
    assert failures(bench.database, bench.row)["cells"] == summary["causes"]
    listed = status_document(bench.database, bench.row, cases=1)["failures"]
    cases = [case for cause in listed["causes"] for case in cause["cases"]]
    assert [(case["case"], case["cells"]) for case in cases] == [("c0", 2), ("c6", 2)]
    failed = {row.id for row in bench.executions if row.status == "failed"}
    assert {case["execution"] for case in cases} <= failed
    assert [cause["text"] for cause in listed["causes"]] == ["no answer to", "no route"]
    status_text = render_status(status_document(bench.database, bench.row, cases=1), 200)
    assert "cases c0 (2 cells) and 2 more cells" in status_text
    assert "c3 (2 cells)" in render_status(status_document(bench.database, bench.row, cases=2), 200)


def test_a_retry_that_would_fail_again_is_not_offered(run_sweep: Make) -> None:
    bench = run_sweep(failing(lambda x: KeyError(x)), NINE, {"answer": "all"})
    document = status_document(bench.database, bench.row)
    assert document["next"] is None
    status_text = render_status(document, 200)
    assert "6 cells failed: answer: KeyError: 0" in status_text
    assert sentence("Trying again gives the same errors: correct their cause first.") in status_text
    assert "wtb retry" not in status_text
    (failed, *_) = [row for row in bench.executions if row.status == "failed"]
    assert not [command for command in standing_document(bench.database, failed)["commands"] if "retry" in command]


@pytest.mark.parametrize(
    ("failure", "asks", "helps"),
    [
        (Failure("error", "ConnectionError", "no route"), False, True),
        (Failure("error", "RateLimitError", "slow down"), False, True),
        (Failure("timeout", "NodeTimeout", "late"), False, True),
        (Failure("killed", "ProcessDied", "signal 9", final=True), False, True),
        (Failure("error", "ValueError", "no JSON"), False, False),
        (Failure("error", "ValueError", "no JSON"), True, True),  # another answer of a model may have some
        (Failure("error", "TypeError", "missing argument"), True, False),
        (Failure("error", "ConnectionError", "gone", final=True), True, False),  # by the workflow
        (Failure("state", "StateError", sentence("cannot be stored")), True, False),
        (Failure("routing", "RoutingError", "no edge"), True, False),
    ],
)
def test_another_try_may_help_unless_the_same_input_gives_the_same(failure: Failure, asks: bool, helps: bool) -> None:
    assert may_help(failure, asks_models=asks) is helps
