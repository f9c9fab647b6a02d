"""The bot of action nodes in LangGraph: autonomous, and with a person who accepts, restarts or aborts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wtb
from examples.langgraph.bot.graph import compose
from wtb import Bench, ExecutionHandle

PATTERN = r"[\w.-]+@[\w-]+\.[a-z]+"
TO_REVIEW = ("address", "a name, an @ and a domain", r"\w+@", PATTERN)  # the third does not fit the samples


@pytest.fixture
def bench(prepared_url: str, tmp_path: Path) -> Iterator[Bench]:
    with wtb.open(prepared_url, by="ana", files=tmp_path / "files") as opened:
        yield opened


def start(bench: Bench, mode: str) -> ExecutionHandle:
    request = {"request": "Collect every mail address."}
    return bench.start(compose().compile(name="bot"), request, mode=mode).wait()


def at_review(bench: Bench) -> ExecutionHandle:
    run = start(bench, "interactive")
    for response in TO_REVIEW:
        run.answer("approve", feedback=response).wait()
    return run


def question_of(run: ExecutionHandle) -> str:
    [question] = run.questions()
    return str(question.record.question)


def test_by_itself_it_ends_approved(bench: Bench) -> None:
    run = start(bench, "autonomous")
    assert (run.status, run.state["outcome"]) == ("completed", "approved")


def test_a_pattern_that_does_not_fit_leads_back_and_one_with_backslashes_stays_as_it_was_typed(bench: Bench) -> None:
    run = at_review(bench)
    assert (question_of(run), run.state["pattern"], run.state["tries"]) == ("Use this pattern?", PATTERN, 2)
    assert run.history().path.count("build") == 2


@pytest.mark.parametrize(("choice", "outcome"), [("accept", "approved"), ("abort", "aborted")])
def test_a_decision_ends_the_run(bench: Bench, choice: str, outcome: str) -> None:
    run = at_review(bench)
    run.answer(choice).wait()
    assert (run.status, run.state["outcome"]) == ("completed", outcome)


def test_restart_asks_from_the_first_prompt_again_with_what_was_said(bench: Bench) -> None:
    run = at_review(bench)
    run.answer("restart", feedback="I meant the days").wait()
    assert question_of(run).endswith("(I meant the days)")
    run.answer("approve", feedback="date").wait()
    assert run.state["kind"] == "date"


def test_a_rollback_to_a_stage_asks_it_again(bench: Bench) -> None:
    run = at_review(bench)
    run.rollback("explore")
    run.resume().wait()
    assert question_of(run).startswith("Build: ")


def test_runs_keep_apart(bench: Bench) -> None:
    runs: list[Any] = [start(bench, "interactive") for _ in range(2)]
    runs[0].answer("approve", feedback="date").wait()
    assert (question_of(runs[0]).partition(":")[0], question_of(runs[1]).partition(":")[0]) == ("Explore", "Shape")
