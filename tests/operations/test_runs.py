"""Single executions as things of their own: found by how they ended, by their workflow and page by page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import wtb
from tests.support.prose import sentence
from wtb import Bench, Context, Workflow
from wtb.core.errors import InputError
from wtb.store.database import Database


def workflow(name: str = "greeting") -> Workflow:
    """Fail, ask or end, depending on the input."""
    wf = Workflow(name, version="3")

    @wf.node
    def greet(state: dict[str, Any], ctx: Context) -> dict[str, Any]:
        if state.get("fails"):
            raise ValueError("no voice")
        if state.get("asks"):
            ctx.ask("May I?")
        return {"text": f"Hello, {state['name']}"}

    wf.entry(greet)
    return wf


@pytest.fixture
def bench(database: Database) -> Iterator[Bench]:
    with wtb.open(database) as opened:
        yield opened


def ran(bench: Bench, **state: Any) -> str:
    return bench.start(workflow(), {"name": "Ana", **state}, run={"pool": "thread"}).wait(60).id


def test_runs_are_listed_by_how_they_ended(bench: Bench) -> None:
    done, failed, waiting, paused = (
        ran(bench),
        ran(bench, fails=True),
        ran(bench, asks=True),
        bench.start(workflow(), {"name": "Bo"}, breakpoints=["greet"], run={"pool": "thread"}).wait(60).id,
    )
    cancelled = ran(bench, asks=True)
    bench.execution(cancelled).cancel("not needed")
    listed = {record.id: record for record in bench.executions()}
    statuses = {id: listed[id].status for id in (done, failed, waiting, paused, cancelled)}
    assert list(statuses.values()) == ["completed", "failed", "waiting", "paused", "cancelled"]
    for id, status in statuses.items():
        assert [record.id for record in bench.executions(status=status)] == [id]
        assert [record.id for record in bench.sweeps(status=status, singles=True)] == [id]
        assert bench.execution(id).status == status
    assert listed[failed].error == "node 'greet': ValueError: no voice"
    assert str(listed[cancelled].reason).endswith("not needed")
    assert listed[done].error is None
    assert listed[done].execution is not None


def test_a_run_that_is_retried_or_rolled_back_has_the_status_of_what_it_does_now(bench: Bench) -> None:
    run = bench.start(workflow(), {"name": "Ana", "fails": True}, run={"pool": "thread"}).wait(60)
    assert [record.status for record in bench.executions()] == ["failed"]
    run.rollback(str(run.history().checkpoints[0].id))
    assert [record.status for record in bench.executions()] == ["paused"]
    run.resume(set={"fails": False})
    run.wait(60)
    assert [(record.status, record.error) for record in bench.executions()] == [("completed", None)]


def test_runs_are_found_by_their_workflow_session_and_time_and_page_by_page(bench: Bench) -> None:
    ids = [ran(bench) for _ in range(3)]
    other = bench.start(workflow("other"), {"name": "Bo"}, run={"pool": "thread"}).wait(60).id
    cases = [{"id": "one", "input": {"name": "Bo"}}]
    sweep = bench.run(wtb.Sweep(workflow=workflow(), cases=cases, vary={"greet": "all"}, run={"pool": "thread"}))
    assert [record.id for record in bench.executions(workflow="greeting")] == ids[::-1]
    assert [record.id for record in bench.executions(workflow="other")] == [other]
    assert bench.executions(workflow="nothing") == bench.executions(project="nothing") == []
    assert len(bench.executions(since=datetime.now(UTC) - timedelta(hours=1))) == 4
    assert bench.executions(since=datetime.now(UTC) + timedelta(hours=1)) == []
    pages, after = [], None
    while page := bench.executions(limit=2, after=after):
        pages.append([record.id for record in page])
        after = page[-1].id
    assert pages == [[other, ids[2]], [ids[1], ids[0]]]
    assert [record.id for record in bench.sweeps()] == [sweep.id]
    assert [record.id for record in bench.sweeps(singles=True, after=other)] == ids[::-1]
    execution = bench.execution(ids[1]).record.id
    assert [record.id for record in bench.executions(after=execution)] == [ids[0]]


def test_what_is_no_status_of_a_run_is_an_error_with_those_there_are(bench: Bench) -> None:
    with pytest.raises(
        InputError,
        match=sentence("{} is not a status of a {}", "'faild'", "run") + sentence("; did you mean '{}'", "failed"),
    ) as error:
        bench.executions(status="faild")
    assert "waiting" in str(error.value)
    with pytest.raises(InputError, match=sentence("{} is not a status of a {}", "'waiting'", "sweep")):
        bench.sweeps(status="waiting")
    with pytest.raises(InputError, match=sentence("there is no sweep {}", "'nothing'")):
        bench.executions(after="nothing")
    with pytest.raises(InputError, match=sentence("there is no session {}", "'nobody'")):
        bench.executions(session="nobody")
