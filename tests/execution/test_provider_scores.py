"""Failures of providers in evaluators: they are retried, never graded, and counted apart from wrong answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
import sqlalchemy as sa

from tests.support import model_provider as provider_of
from tests.support.bench import Bench
from tests.support.model_provider import Fault, ModelProvider, limited, model_provider
from tests.support.prose import sentence
from wtb import END, FinalError, Workflow, evaluator
from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.matrix.build import build
from wtb.core import failures
from wtb.display.sentences import totals
from wtb.store.tables.schema import scores

Make = Callable[..., Bench]
CASES = [{"id": f"c{x}", "input": {"q": f"question {x}"}} for x in range(20)]


@pytest.fixture
def provider() -> Iterator[ModelProvider]:
    with model_provider() as running:
        yield running


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "PAUSES_S", (0.01, 0.01))


@pytest.fixture
def make(provider: ModelProvider, bench: Make) -> Iterator[Callable[..., Bench]]:
    """Run a sweep whose evaluator calls the provider; `wrap` turns the client's error into another."""
    client: Any = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="k", max_retries=0)

    def run(cases: int = 1, wrap: Callable[[Exception], Exception] | None = None, timeout: float = 60) -> Bench:
        wf = Workflow("scored")

        def copy(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
            return {"a": state["q"]}

        wf.entry(copied := wf.node(copy))
        wf.edge(copied, END)

        @evaluator(better="higher", scale=(0, 1), timeout=timeout)
        def helpful(case: Any, result: Any) -> float:
            chat: Any = [{"role": "user", "content": result.state["a"]}]
            try:
                client.chat.completions.create(model="m", messages=chat)
            except openai.APIError as error:
                if wrap is not None:
                    raise wrap(error) from error
                raise
            return 1.0

        sweep = bench(wf, CASES[:cases], {}, evaluators={"helpful": helpful})
        assert sweep.run().status == "completed"
        return sweep

    yield run
    client.close()


def scored(sweep: Bench) -> list[tuple[float | None, str | None]]:
    query = sa.select(scores.c.value, scores.c.error).where(scores.c.sweep_id == sweep.sweep_id)
    return [(score, error) for score, error in sweep.database.tuples(query)]


@pytest.mark.parametrize(
    "fault", [limited("0.001"), Fault(503), provider_of.OVERLOADED, provider_of.RESET, provider_of.CUT_JSON]
)
def test_an_evaluator_is_called_again_after_a_failure_of_its_provider(
    provider: ModelProvider, make: Callable[..., Bench], fault: Fault
) -> None:
    provider.fault = lambda number, text: fault if number < 2 else None
    assert scored(make()) == [(1.0, None)]
    assert len(provider.requests) == 3


@pytest.mark.parametrize("wrap", [None, lambda error: RuntimeError("no score")])
def test_a_score_that_a_provider_prevents_is_missing_and_counted(
    provider: ModelProvider, make: Callable[..., Bench], wrap: Any
) -> None:
    provider.fault = lambda number, text: Fault(503) if text == "question 0" else None
    sweep = make(cases=4, wrap=wrap)
    errors = [error for score, error in scored(sweep) if score is None]
    assert [error.partition(":")[0] for error in errors if error] == [
        "lost to provider openai, which has an internal error (503)"
    ]
    report = build(sweep.database, sweep.row)
    assert (report["rows"][0]["metrics"]["helpful"]["mean"], report["rows"][0]["metrics"]["helpful"]["n"]) == (1.0, 3)
    assert (report["provider"]["scores"], report["provider"]["lost"], report["rows"][0]["failed"]) == (1, 0, 0)
    assert any(text.startswith("1 score was lost to a provider") for text in report["warnings"])
    assert sentence("Provider failures: ") + "0 attempts, 1 score lost" + sentence("; no cells were lost.") in totals(
        report
    )
    assert len(provider.requests) == 3 + 3


@pytest.mark.parametrize(
    ("fault", "wrap", "timeout", "lost"),
    [
        (provider_of.UNAUTHORIZED, None, 60, True),  # waiting does not help
        (limited("30"), None, 2, True),  # no time is left to wait
        (Fault(503), lambda error: FinalError("enough"), 60, True),
        (provider_of.TOO_LONG, None, 60, False),  # a result, and no failure of the provider
    ],
)
def test_a_call_that_another_try_does_not_help_is_made_once(
    provider: ModelProvider, make: Callable[..., Bench], fault: Fault, wrap: Any, timeout: float, lost: bool
) -> None:
    provider.fault = lambda number, text: fault
    ((score, error),) = scored(make(wrap=wrap, timeout=timeout))
    assert score is None
    assert error is not None
    assert error.startswith("lost to provider openai") is lost
    assert len(provider.requests) == 1


@pytest.mark.parametrize(("lost", "verdict"), [(1, "same"), (4, "unclear")])
def test_lost_scores_are_no_regression(
    provider: ModelProvider, make: Callable[..., Bench], lost: int, verdict: str
) -> None:
    before = make(cases=20)
    provider.fault = lambda number, text: Fault(503) if text in [f"question {x}" for x in range(lost)] else None
    after = make(cases=20)
    comparison = compare_sweeps(before.database, before.row, after.row)
    assert comparison["verdict"] == verdict
    assert comparison["because"] == [
        sentence("{} of {} lost to the provider in the {} sweep", f"{lost / 20:.0%}", "cells", "later")
    ]
