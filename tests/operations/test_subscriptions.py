"""Callbacks of a program that embeds WTB get each event once and in order, even if they raise."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.support.prose import sentence
from wtb import Bench, Workflow
from wtb.core.errors import InputError
from wtb.store.log import add_event, subject

PATIENCE_S = 30.0


def asking() -> Workflow:
    wf = Workflow("asking")

    @wf.node
    def ask(state: dict[str, Any], ctx: wtb.Context) -> dict[str, Any]:
        return {"sure": ctx.ask("Are you sure?", options=["yes", "no"]).choice}

    wf.entry(ask)
    return wf


def doubling() -> Workflow:
    wf = Workflow("doubling")
    wf.entry(wf.node(lambda state: {"y": 2 * state["x"]}, name="double"))
    return wf


@pytest.fixture
def bench(prepared_url: str, tmp_path: Path) -> Iterator[Bench]:
    with wtb.open(prepared_url, by="ana", files=tmp_path / "files") as opened:
        yield opened


def test_a_subscription_gets_all_events_from_then_on_and_none_twice(bench: Bench) -> None:
    bench.start(doubling(), {"x": 1}).wait()
    events: list[Any] = []
    threads: set[threading.Thread] = set()

    def note(event: Any) -> None:
        events.append(event)
        threads.add(threading.current_thread())

    with bench.subscribe(note):
        cases = [{"id": str(x), "input": {"x": x}} for x in range(20)]
        sweep = bench.run(wtb.Sweep(workflow=doubling(), cases=cases, vary={"double": "all"}, name="twenty"))
        run = bench.start(doubling(), {"x": 3}).wait()

    assert [event for event in events if event["sweep"] == sweep.id] == list(sweep.log())
    assert [event for event in events if event["execution"] == run.id] == [e for e in run.log() if e["execution"]]
    assert len({event["id"] for event in events}) == len(events)
    assert [event["id"] for event in events] == sorted(event["id"] for event in events)
    assert len(threads) == 1
    assert threads.isdisjoint({threading.current_thread()})


def test_nothing_comes_after_unsubscribe(bench: Bench) -> None:
    events: list[Any] = []
    subscription = bench.subscribe(events.append, kinds=["execution."])
    bench.start(doubling(), {"x": 1}).wait()
    subscription.unsubscribe()
    assert [event["kind"] for event in events] == ["execution.started", "execution.completed"]
    assert not subscription.is_active

    bench.start(doubling(), {"x": 2}).wait()
    subscription.unsubscribe()  # once more does no harm

    assert len(events) == 2


def test_an_error_of_a_callback_stops_neither_it_nor_the_others(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    kinds: list[str] = []

    def fail(event: Any) -> None:
        kinds.append(event["kind"])
        raise ValueError("no such dashboard")

    other_events: list[Any] = []
    with caplog.at_level(logging.ERROR, "wtb"), bench.subscribe(fail), bench.subscribe(other_events.append):
        run = bench.start(doubling(), {"x": 1}).wait()

    assert run.status == "completed"
    assert kinds == [event["kind"] for event in other_events] != []
    assert "no such dashboard" in caplog.text


def test_a_callback_may_answer_and_end_its_own_subscription(bench: Bench) -> None:
    kinds: list[str] = []
    started, answered = threading.Event(), threading.Event()
    runs: list[wtb.ExecutionHandle] = []

    def answer(event: Any) -> None:
        kinds.append(event["kind"])
        if event["kind"] == "approval.asked" and started.wait(PATIENCE_S):
            runs[0].wait().answer("yes")
        if event["kind"] == "approval.answered":
            subscription.unsubscribe()
            answered.set()

    subscription = bench.subscribe(answer, kinds=["approval", "execution.completed"])
    run = bench.start(asking(), {})
    runs.append(run)
    started.set()
    assert answered.wait(PATIENCE_S)
    assert run.wait(PATIENCE_S).state["sure"] == "yes"
    subscription.unsubscribe()
    assert kinds == ["approval.asked", "approval.answered"]


def test_a_run_that_ended_before_is_followed_where_it_opens_again(bench: Bench) -> None:
    run = bench.start(doubling(), {"x": 1}).wait()
    kinds: list[str] = []
    with bench.subscribe(lambda event: kinds.append(event["kind"]), kinds=["rollback", "execution", "node_run"]):
        run.rollback(run.history().checkpoints[0].id)
        run.resume().wait()

    assert kinds[:2] == ["rollback.begun", "execution.rolled_back"]
    assert kinds[-3:] == ["node_run.started", "node_run.succeeded", "execution.completed"]


def test_events_that_an_older_transaction_holds_up_come_before_the_end(bench: Bench) -> None:
    if bench.database.is_sqlite:
        pytest.skip("SQLite has one writer")
    cases = [{"id": "1", "input": {"x": 1}}]
    sweep = bench.run(wtb.Sweep(workflow=doubling(), cases=cases, vary={"double": "all"}))
    events: list[Any] = []
    subscription = bench.subscribe(events.append)
    closing = threading.Thread(target=subscription.unsubscribe)
    with bench.database.engine.connect() as slow:
        transaction = slow.begin()
        add_event(slow, subject("default", sweep.id), "sweep.pinned", {})
        run = bench.start(doubling(), {"x": 1})
        run.wait()
        closing.start()
        transaction.commit()
    closing.join()
    assert [event["kind"] for event in events if event["execution"] == run.id][-1] == "cell.succeeded"


def test_values_and_severities_are_those_that_were_asked_for(bench: Bench) -> None:
    values: list[Any] = []
    warnings: list[Any] = []
    with (
        bench.subscribe(lambda event: values.append(event["data"]["values"]), kinds=["node_run.succ"], values=True),
        bench.subscribe(warnings.append, severity="warning"),
    ):
        bench.start(doubling(), {"x": 4}).wait()
    assert values == [{"y": 8}]
    assert warnings == []
    with pytest.raises(InputError, match=sentence("{} is not a severity", "'loud'")):
        bench.subscribe(warnings.append, severity="loud")


def test_closing_the_bench_ends_its_subscriptions(prepared_url: str, tmp_path: Path) -> None:
    with wtb.open(prepared_url, files=tmp_path / "files") as bench:
        subscription = bench.subscribe(lambda event: None)
    assert not subscription.is_active
