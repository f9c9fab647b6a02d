"""The runner waits for failing providers and never grades their failures: real clients, a faulty provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest
import sqlalchemy as sa

from tests.support import model_provider as provider_of
from tests.support.attempts import attempts
from tests.support.bench import Bench
from tests.support.model_provider import Fault, ModelProvider, answer_to, limited, model_provider
from tests.support.prose import sentence
from wtb import END, Workflow
from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.kept_matrix import judged
from wtb.analysis.matrix.build import build
from wtb.core import provider_faults
from wtb.display import csv, matrix_table
from wtb.integrations.models import record_calls
from wtb.store.control.forks import retry
from wtb.store.tables.schema import node_runs

Make = Callable[..., Bench]
CASES = [
    {"id": f"c{x}", "input": {"q": f"question {x}"}, "expected": {"a": answer_to(f"question {x}")}} for x in range(40)
]
EXACT = [{"exact_match": {"field": "a"}}]
NOW = "0.001"
CLIENTS: list[Any] = []
FAULTS = [
    provider_of.LIMITED,
    limited(NOW),
    Fault(500),
    Fault(503),
    provider_of.OVERLOADED,
    provider_of.RESET,
    provider_of.CUT_JSON,
    provider_of.CUT_BODY,
]


@pytest.fixture
def provider() -> Iterator[ModelProvider]:
    with model_provider() as running:
        yield running
        while CLIENTS:
            CLIENTS.pop().close()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_faults, "FIRST_WAIT_S", 0.01)


def openai_client(provider: ModelProvider) -> openai.OpenAI:
    CLIENTS.append(openai.OpenAI(base_url=f"{provider.url}/v1", api_key="k", max_retries=0))
    client: openai.OpenAI = CLIENTS[-1]
    return client


def asking(provider: ModelProvider, **rules: Any) -> Workflow:
    """One node that asks OpenAI's client by default, and Anthropic's as `claude`."""
    wf = Workflow("asking")
    gpt = openai_client(provider)
    claude = anthropic.Anthropic(base_url=provider.url, api_key="k", max_retries=0)
    CLIENTS.append(claude)

    def ask(state: dict[str, Any], ctx: Any, *, by: str = "gpt") -> dict[str, Any]:
        chat: Any = [{"role": "user", "content": state["q"]}]
        if by == "gpt":
            reply = record_calls(gpt, prices={}).chat.completions.create(model="m", messages=chat)
            return {"a": reply.choices[0].message.content}
        message: Any = record_calls(claude).messages.create(model="m", max_tokens=99, messages=chat)
        return {"a": message.content[0].text}

    node = wf.node(ask, **rules)
    node.variant("claude", by="claude")
    wf.entry(node)
    wf.edge(node, END)
    return wf


def rows_of(bench: Bench) -> list[dict[str, Any]]:
    report = build(bench.database, bench.row)
    return [
        {"mean": row["metrics"]["exact_match"]["mean"], "n": row["n"], "failed": row["failed"]}
        for row in report["rows"]
    ]


def test_faults_in_many_calls_change_no_result(provider: ModelProvider, run_sweep: Make) -> None:
    """Every fourth call fails, each time in another way, and the node has no retries."""
    turns = iter(range(10_000))

    def fault(number: int, text: str) -> Fault | None:
        return FAULTS[next(turns) % len(FAULTS)] if number % 4 == 0 else None

    provider.fault = fault
    bench = run_sweep(asking(provider), CASES, {"ask": "all"}, evaluate=EXACT)
    assert bench.counts == {"succeeded": 80}
    assert rows_of(bench) == [{"mean": 1.0, "n": 40, "failed": 0}] * 2
    assert len(provider.requests) > 100
    postponed = [event for event in bench.events if event["kind"] == "attempt.postponed"]
    assert len(postponed) == len(provider.requests) - 80
    assert {event["data"]["fault"]["reason"] for event in postponed} == {
        "rate_limit", "server_error", "overloaded", "connection", "invalid_response",
    }  # fmt: skip
    assert {event["data"]["fault"]["provider"] for event in postponed} == {"openai", "anthropic"}


def test_waiting_uses_up_no_retry_and_draws_the_same_numbers(provider: ModelProvider, run_sweep: Make) -> None:
    provider.fault = lambda number, text: limited(NOW) if number < 5 else None
    drawn: list[float] = []
    wf = Workflow("drawing")
    gpt = openai_client(provider)

    def draw(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        drawn.append(ctx.rng.random())
        gpt.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}])
        if len(drawn) == 6:
            raise ValueError("a fault of the node's own")
        return {"a": "right"}

    node = wf.node(draw, retries=1, backoff=0.001)
    wf.entry(node)
    wf.edge(node, END)
    bench = run_sweep(wf, CASES[:1], {})
    assert [cell.failure for cell in bench.cells()] == [None]
    assert bench.counts == {"succeeded": 1}
    assert len(drawn) == 7
    assert len(set(drawn[:6])) == 1
    assert drawn[6] != drawn[0]


def test_the_time_that_a_provider_states_is_waited(provider: ModelProvider, run_sweep: Make) -> None:
    provider.fault = lambda number, text: limited("0.4") if number == 0 else None
    bench = run_sweep(asking(provider), CASES[:1], {})
    (event,) = [event for event in bench.events if event["kind"] == "attempt.postponed"]
    assert 0.4 <= event["data"]["wait_s"] < 0.5
    first, second = sorted(at for (at,) in bench.database.tuples(_attempts(bench)))
    assert second - first >= 0.4


def _attempts(bench: Bench) -> Any:
    joined = attempts.join(node_runs, node_runs.c.id == attempts.c.node_run_id)
    return sa.select(attempts.c.started_at).select_from(joined).where(node_runs.c.sweep_id == bench.sweep_id)


def test_a_provider_that_stays_away_pauses_the_sweep_and_nothing_is_lost(provider: ModelProvider, bench: Make) -> None:
    provider.fault = lambda number, text: provider_of.OVERLOADED
    sweep = bench(asking(provider), CASES, {"ask": "all"}, evaluate=EXACT, run={"provider_wait": 0.2, "concurrency": 4})
    ended = sweep.run()
    assert (ended.status, sweep.status) == ("paused", "paused")
    assert ended.reason in [
        f"waiting for provider {name}, which is overloaded (529)" for name in ("openai", "anthropic")
    ]
    assert sweep.counts == {"pending": 80}
    assert len(provider.requests) < 80
    provider.fault = lambda number, text: None
    assert sweep.run().status == "completed"
    assert sweep.counts == {"succeeded": 80}
    assert rows_of(sweep) == [{"mean": 1.0, "n": 40, "failed": 0}] * 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (provider_of.UNAUTHORIZED, sentence("rejects the credentials") + " (401)"),
        (provider_of.FORBIDDEN, sentence("rejects the credentials") + " (403)"),
        (provider_of.NO_MODEL, sentence("does not have the model") + " (404)"),
        (provider_of.NO_QUOTA, sentence("reports an exhausted quota") + " (429)"),
    ],
)
def test_what_a_person_has_to_correct_pauses_the_sweep_after_a_few_calls(
    provider: ModelProvider, bench: Make, fault: Fault, words: str
) -> None:
    provider.fault = lambda number, text: fault
    sweep = bench(asking(provider), CASES, {}, evaluate=EXACT, run={"concurrency": 4})
    ended = sweep.run()
    assert (ended.status, ended.reason) == ("paused", f"waiting for provider openai, which {words}")
    assert sweep.counts == {"pending": 40}
    assert len(provider.requests) <= 4 * 3
    provider.fault = lambda number, text: None
    assert sweep.run().status == "completed"
    assert sweep.counts == {"succeeded": 40}


def test_a_request_that_always_fails_while_others_are_served_is_lost_alone(
    provider: ModelProvider, bench: Make
) -> None:
    provider.fault = lambda number, text: Fault(500) if text == "question 3" else None
    sweep = bench(asking(provider), CASES, {}, evaluate=EXACT)
    assert sweep.run().status == "completed"
    assert sweep.counts == {"succeeded": 39, "failed": 1}
    (lost,) = [cell for cell in sweep.cells() if cell.status == "failed"]
    assert lost.failure is not None
    assert (lost.case, lost.failure["kind"], lost.failure["provider"]["status"]) == ("c3", "provider", 500)
    assert lost.scores == {}
    assert rows_of(sweep) == [{"mean": 1.0, "n": 40, "failed": 0}]


def test_what_waits_in_vain_again_is_lost_so_that_the_sweep_can_end(provider: ModelProvider, bench: Make) -> None:
    provider.fault = lambda number, text: Fault(500) if text == "question 0" else None
    sweep = bench(asking(provider), CASES[:1], {}, evaluate=EXACT, run={"provider_wait": 0.1})
    assert sweep.run().status == "paused"
    assert sweep.run().status == "completed"
    assert sweep.counts == {"failed": 1}


def test_a_node_that_may_be_skipped_is_not_skipped_for_a_provider(provider: ModelProvider, bench: Make) -> None:
    provider.fault = lambda number, text: provider_of.UNAUTHORIZED
    sweep = bench(asking(provider, on_error="skip"), CASES[:2], {}, evaluate=EXACT)
    assert sweep.run().status == "paused"


@pytest.mark.parametrize("fault", [provider_of.TOO_LONG, provider_of.FILTERED])
def test_what_the_provider_rejects_for_its_content_is_graded(
    provider: ModelProvider, bench: Make, fault: Fault
) -> None:
    provider.fault = lambda number, text: fault if text == "question 3" else None
    sweep = bench(asking(provider), CASES[:4], {}, evaluate=EXACT)
    assert sweep.run().status == "completed"
    assert rows_of(sweep) == [{"mean": 0.75, "n": 4, "failed": 1}]


def with_lost(provider: ModelProvider, bench: Make, lost: int, **spec: Any) -> Bench:
    """Run a sweep in which `claude` loses this many of 40 cells."""

    def fault(number: int, text: str) -> Fault | None:
        return Fault(500) if text in [f"question {x}" for x in range(lost)] else None

    provider.fault = fault
    sweep = bench(asking(provider), CASES, {"ask": ["claude"]}, evaluate=EXACT, **spec)
    assert sweep.run().status == "completed"
    return sweep


def test_lost_cells_are_counted_apart_and_bounded_by_a_gate(provider: ModelProvider, bench: Make) -> None:
    gates = ["provider_failures <= 0.02", "provider_failures <= 0.2", "failed == 0", "exact_match.mean >= 1"]
    sweep = with_lost(provider, bench, 1, gates=gates)
    report = judged(sweep.database, sweep.row)
    assert (report["rows"][0]["failed"], report["rows"][0].get("lost_to_provider")) == (0, 1)
    assert (report["provider"]["lost"], report["provider"]["share"]) == (1, 1 / 40)
    assert report["provider"]["attempts"] == len(provider.requests) - 39
    assert [gate["holds"] for gate in report["gates"]] == [False, True, True, None]  # the lost cell may have been wrong
    (warning,) = [text for text in report["warnings"] if "lost to a provider" in text]
    assert warning.startswith("1 cell was lost to a provider (2.5% of all) and left out, not graded")
    assert not any("count as 0" in text for text in report["warnings"])
    for text in (matrix_table.render(report), csv.render(report)):
        assert "provider" in text


@pytest.mark.parametrize(("lost", "verdict"), [(0, "same"), (2, "same"), (6, "unclear")])
def test_an_outage_changes_no_verdict_or_makes_it_unclear(
    provider: ModelProvider, bench: Make, lost: int, verdict: str
) -> None:
    before, after = (with_lost(provider, bench, count) for count in (0, lost))
    comparison = compare_sweeps(before.database, before.row, after.row)
    assert comparison["verdict"] == verdict
    assert comparison["because"] == (
        [sentence("{} of {} lost to the provider in the {} sweep", f"{lost / 40:.0%}", "cells", "later")]
        if lost
        else []
    )
    assert comparison["cells"] == []


def test_a_sweep_that_waits_for_a_provider_is_unclear(provider: ModelProvider, bench: Make) -> None:
    before = with_lost(provider, bench, 0)
    provider.fault = lambda number, text: provider_of.UNAUTHORIZED if number > 60 else None
    after = bench(asking(provider), CASES, {"ask": ["claude"]}, evaluate=EXACT)
    assert after.run().status == "paused"
    comparison = compare_sweeps(before.database, before.row, after.row)
    assert comparison["verdict"] == "unclear"
    assert sentence("of {} lost to the provider in the {} sweep", "cells", "later") in comparison["because"][0]


def test_lost_cells_alone_are_run_again(provider: ModelProvider, bench: Make) -> None:
    sweep = with_lost(provider, bench, 2)
    provider.fault = lambda number, text: None
    calls_before = len(provider.requests)
    assert retry(sweep.database, sweep.sweep_id, kind="budget") == 0
    assert retry(sweep.database, sweep.sweep_id, kind="provider") == 2
    assert sweep.run().status == "completed"
    assert sweep.counts == {"succeeded": 40}
    assert len(provider.requests) - calls_before == 2


@pytest.mark.parametrize("repeats_the_call", [False, True])
def test_a_node_that_catches_the_error_and_answers_is_reported(
    provider: ModelProvider, bench: Make, repeats_the_call: bool
) -> None:
    failed = set[str]()

    def fault(number: int, text: str) -> Fault | None:
        if text in ("question 0", "question 1") and text not in failed:
            failed.add(text)
            return provider_of.LIMITED
        return None

    provider.fault = fault
    wf = Workflow("catching")
    gpt = record_calls(openai_client(provider), prices={})

    def ask(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        def answer() -> Any:
            return gpt.chat.completions.create(model="m", messages=[{"role": "user", "content": state["q"]}])

        try:
            reply = answer()
        except openai.RateLimitError:
            if not repeats_the_call:
                return {"a": "I do not know"}
            reply = answer()
        return {"a": reply.choices[0].message.content}

    node = wf.node(ask)
    wf.entry(node)
    wf.edge(node, END)
    sweep = bench(wf, CASES[:8], {}, evaluate=EXACT)
    assert sweep.run().status == "completed"
    report = build(sweep.database, sweep.row)
    reported = 0 if repeats_the_call else 2
    assert report["provider"]["answered_after_failure"] == reported
    assert any(sentence("{} answered after a failed call", "2 node runs") in text for text in report["warnings"]) is (
        reported > 0
    )
    events = [event for event in sweep.events if event["kind"] == "node.answered_after_failure"]
    assert [event["severity"] for event in events] == ["warning"] * reported
