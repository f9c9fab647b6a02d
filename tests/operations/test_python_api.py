"""Live objects read the database each time, records never change, and methods that block have async versions."""

from __future__ import annotations

import asyncio
import copy
import importlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

import wtb
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb import Bench, Progress, Sweep, Workflow
from wtb.core.errors import ConflictError, InputError
from wtb.operations.control.continuation import BackgroundRun
from wtb.operations.running.local import begin
from wtb.operations.running.preparing import prepare_single
from wtb.store.tables.schema import sweeps

T = TypeVar("T")
FLOW = """
from wtb import Workflow
wf = Workflow("trial")
wf.entry(wf.node(lambda state: {"y": 2}, name="double"))
"""
SWEEP_FILE = """
sweep: trial
workflow: flow_of_trial:wf
cases: [{id: one, input: {x: 1}}]
vary: {double: all}
"""
WAITING = """
import time
from pathlib import Path
from wtb import Workflow
wf = Workflow("waiting")
def wait(state):
    while not Path(state["seen"]).exists():
        time.sleep(0.01)
    return {}
wf.entry(wf.node(wait, name="wait"))
"""
ASKING = """
from wtb import Workflow
wf = Workflow("asking")
def ask(state, ctx):
    return {"a": ctx.ask("Which?", options=["x", "y"]).choice}
wf.entry(wf.node(ask, name="ask"))
"""
TWO = [{"id": "one", "input": {"x": 1}}, {"id": "two", "input": {"x": 2}}]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with wtb.open(f"sqlite:///{tmp_path / 'wtb.db'}", by="ana") as opened:
        yield opened


def doubling() -> Workflow:
    wf = Workflow("doubling")
    wf.entry(wf.node(lambda state: {"y": 2 * state["x"]}, name="double"))
    return wf


def asking() -> Workflow:
    wf = Workflow("asking")
    wf.entry(wf.node(lambda state, ctx: {"a": ctx.ask("Which?", options=["x", "y"]).choice}, name="a"))
    return wf


def doubled() -> Sweep:
    return Sweep(workflow=doubling(), cases=TWO, vary={"double": "all"}, evaluate=[{"exact_match": {"field": "y"}}])


def test_a_handle_reads_again_and_a_record_stays(bench: Bench) -> None:
    run = bench.start(asking(), {}).wait(60)
    before = run.record
    run.answer("x").wait(60)
    assert (before.status, run.record.status, run.state) == ("waiting", "completed", {"a": "x"})
    with pytest.raises(FrozenInstanceError):
        before.status = "completed"  # type: ignore[misc]


def test_a_part_of_a_sweep_runs_in_the_session_of_the_bench(bench: Bench) -> None:
    bench.create_session("trial", usd=1.0)
    seen: list[Progress] = []
    with wtb.open(bench.database, session="trial") as other:
        part = other.run(doubled(), case="two", progress=seen.append)
        assert [cell["case"] for cell in part.cells()] == ["two"]
    assert bench.sweep("doubling").record.session == "trial"
    assert bench.plan(doubled(), limit=1)["cells"] == 1
    assert (seen[-1].sweep, seen[-1].cells, seen[-1].done) == (part.id, 1, 1)


def test_what_is_no_sweep_or_no_execution_is_refused(bench: Bench) -> None:
    run = bench.start(doubling(), {"x": 1}).wait(60)
    with pytest.raises(InputError, match=sentence("is a single execution and no sweep")):
        bench.sweep(run.id)
    sweep = bench.run(doubled())
    with pytest.raises(InputError, match=sentence("which has many executions")):
        bench.execution(sweep.id)
    with pytest.raises(InputError, match="no cell is of case 'two'"):
        sweep.execution("two", {"double": "thrice"})
    with pytest.raises(ConflictError, match="is completed"):
        sweep.cancel()


def test_a_cell_that_is_one_of_several_is_not_chosen(bench: Bench) -> None:
    sweep = bench.run(Sweep(workflow=doubling(), cases=TWO, vary={"double": "all"}, repeats=2))
    with pytest.raises(InputError, match="several cells are of case 'two'"):
        sweep.execution("two")
    assert sweep.execution("two", repeat=1).state["y"] == 4


def test_a_pilot_of_a_published_workflow_is_rejected(bench: Bench) -> None:
    with pytest.raises(InputError, match=sentence("a pilot runs the workflow's code here: plan without `published`")):
        bench.plan({"workflow": "doubling", "cases": TWO, "vary": {"double": "all"}}, published=True, pilot=1)


def test_a_wait_ends_in_time(bench: Bench) -> None:
    gate = threading.Event()
    run = bench.start(gated(gate), {"x": 1, "waits": True}, run={"pool": "thread"})
    assert run.wait(0.05).status in ("pending", "running")
    gate.set()
    assert run.wait(60).status == "completed"


def test_executions_are_rolled_back_forked_and_carried_elsewhere(bench: Bench, tmp_path: Path) -> None:
    run = bench.start(doubling(), {"x": 1}, breakpoints=["after double"]).wait(60)
    other = run.fork("double", set={"x": 5}, reason="to see")
    assert (other.status, other.record.origin, other.state["x"]) == ("paused", "manual", 5)
    archive = run.export(tmp_path / "run.wtb")
    assert Path(archive["file"]).exists()
    back = bench.import_execution(tmp_path / "run.wtb", name="again")
    assert bench.execution(back["execution"]).state == run.state


def test_a_service_waits_and_follows_without_blocking_the_loop(bench: Bench) -> None:
    async def serve() -> tuple[list[str], int]:
        run = await asyncio.to_thread(bench.start, asking(), {})
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        await run.wait_async(60)
        [question] = run.questions()
        await asyncio.to_thread(run.answer, question.record.options[0])
        kinds = [event["kind"] async for event in run.follow_async(kinds=["approval", "sweep.c"], interval_s=0.05)]
        ticking.cancel()
        return kinds, ticks

    kinds, ticks = asyncio.run(serve())
    assert kinds == ["approval.asked", "approval.answered", "sweep.completed"]
    assert ticks > 3


def test_a_task_that_follows_can_be_cancelled(bench: Bench) -> None:
    gate = threading.Event()
    run = bench.start(gated(gate), {"x": 1, "waits": True}, run={"pool": "thread"})

    async def follow() -> list[str]:
        return [event["kind"] async for event in run.follow_async(interval_s=0.05)]

    async def serve() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(follow(), 0.3)

    asyncio.run(serve())
    assert run.status in ("pending", "running")
    gate.set()
    assert run.wait(60).status == "completed"


def test_progress_that_raises_leaves_no_run_behind(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a callback with a fault, when it raises, then the sweep is paused and can be resumed."""
    seen = tmp_path / "seen"
    (tmp_path / "flow_that_waits.py").write_text(WAITING)
    monkeypatch.syspath_prepend(tmp_path)

    def show(progress: Progress) -> None:
        seen.touch()
        raise ZeroDivisionError

    cases = [{"id": id, "input": {"seen": str(seen)}} for id in ("one", "two")]
    sweep = Sweep(workflow="flow_that_waits:wf", cases=cases, vary={"wait": "all"}, run={"concurrency": 1})
    with pytest.raises(ZeroDivisionError):
        bench.run(sweep, progress=show)
    paused = bench.sweep(bench.sweeps()[0].id)
    assert paused.status == "paused"
    assert paused.resume().wait(60).record.counts["succeeded"] == 2


def test_files_of_a_bench_are_where_it_keeps_them(tmp_path: Path) -> None:
    wf = Workflow("notes")
    wf.entry(wf.node(lambda state, ctx: {"n": (ctx.workspace / "a.txt").write_text("abc")}, name="write"))
    wf.edge("write", wf.node(lambda state, ctx: {"text": (ctx.workspace / "a.txt").read_text()}, name="read"))
    with wtb.open(f"sqlite:///{tmp_path / 'wtb.db'}", files=tmp_path / "elsewhere") as bench:
        fork = bench.start(wf, {}).wait(60).fork("write")
        assert fork.resume().wait(60).state["text"] == "abc"


def test_following_what_was_imported_ends(bench: Bench, tmp_path: Path) -> None:
    bench.start(doubling(), {"x": 1}).wait(60).export(tmp_path / "one.wtb")
    imported = bench.import_execution(tmp_path / "one.wtb")
    kinds = [event["kind"] for event in bench.execution(imported["id"]).follow(interval_s=0.05)]
    assert "execution.imported" in kinds


def test_what_is_refused_leaves_no_database_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        wtb.submit(tmp_path / "missing.yaml", db=f"sqlite:///{tmp_path / 'wtb.db'}")
    with pytest.raises(InputError, match=sentence("workers need PostgreSQL")):
        wtb.submit(doubled(), db=f"sqlite:///{tmp_path / 'wtb.db'}")
    assert not (tmp_path / "wtb.db").exists()


def test_what_a_record_holds_does_not_change(bench: Bench) -> None:
    sweep = bench.run(doubled())
    record, execution = sweep.record, sweep.execution("one").record
    for mapping in (record.counts, execution.combinations[0]):
        with pytest.raises(TypeError, match="does not support item assignment"):
            mapping["succeeded"] = 0  # type: ignore[index]
    assert record.counts == {**record.counts}
    assert copy.deepcopy(record) == record
    assert len({record, sweep.record}) == 1
    assert json.dumps({**execution.combinations[0]}) == '{"double": "default"}'


def test_every_operation_of_a_bench_is_in_its_session(bench: Bench, tmp_path: Path) -> None:
    bench.create_session("trial")
    elsewhere = bench.run(doubled())
    bench.start(doubling(), {"x": 1}).wait(60).export(tmp_path / "one.wtb")
    trial = wtb.open(bench.database, session="trial")
    inside = trial.run(doubled())
    for handle in (inside, elsewhere):
        handle.set_baseline("main")
    assert [baseline["sweep"]["id"] for baseline in trial.baselines()] == [inside.id]
    assert trial.baseline("main")["sweep"]["id"] == inside.id
    assert trial.compare("main", elsewhere.id)["before"]["id"] == inside.id
    assert elsewhere.compare("main")["before"]["id"] == elsewhere.id
    assert [record.id for record in trial.sweeps()] == [inside.id]
    assert len(bench.sweeps()) == 2
    imported = trial.import_execution(tmp_path / "one.wtb")
    assert sum(bench.session("trial")["sweeps_by_status"].values()) == 2, imported
    assert trial.remove_baseline("main") == inside.id
    assert bench.baseline("main")["sweep"]["id"] == elsewhere.id


def test_a_schedule_of_a_bench_is_in_its_session(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flow_of_trial.py").write_text(FLOW)
    (tmp_path / "trial.yaml").write_text(SWEEP_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    bench.create_session("trial")
    trial = wtb.open(bench.database, session="trial")
    assert trial.add_schedule("nightly", tmp_path / "trial.yaml", cron="0 3 * * *")["session"] == "trial"
    assert [schedule["name"] for schedule in trial.schedules()] == ["nightly"]
    assert bench.schedules("default") == []


def test_a_session_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence("there is no session {}", "'missing'")):
        wtb.open(f"sqlite:///{tmp_path / 'wtb.db'}", session="missing")


def test_resuming_changes_nothing_where_a_check_fails(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a paused execution of a submitted sweep, when its workers cannot be notified, then it is still paused."""

    class Refusing:
        url = None

        def check(self) -> None:
            raise InputError("that is no broker")

        def close(self) -> None: ...

    entry_point = SimpleNamespace(load=lambda: lambda url: Refusing())
    monkeypatch.setattr("wtb.operations.context.entry_points", lambda **_: [entry_point])
    sweep = doubled()
    sweep_id = sweep.prepare().submit(bench.database, bench.backend.workspaces, queued=True)
    execution = bench.sweep(sweep_id).execution("one", {"double": "default"})
    execution.pause()
    bound = sweep.prepare().bound
    monkeypatch.setattr("wtb.operations.running.continuing.rebind", lambda *_: bound)
    with pytest.raises(InputError, match="that is no broker"):
        bench.sweep(sweep_id).resume()
    assert execution.status == "paused"


def gated(gate: threading.Event) -> Workflow:
    """A workflow whose second node waits for a gate in cases that say so."""
    wf = Workflow("gated")

    def wait(state: dict[str, Any]) -> dict[str, Any]:
        return {"open": gate.wait(60) if state.get("waits") else True}

    wf.entry(wf.node(lambda state: {"y": state["x"]}, name="first"))
    wf.edge("first", wf.node(wait, name="second"))
    return wf


def test_a_fork_resumes_in_the_background(bench: Bench) -> None:
    gate = threading.Event()
    run = bench.start(gated(gate), {"x": 1}, run={"pool": "thread"}).wait(60)
    fork = run.fork("first", set={"waits": True}).resume()
    assert fork.status in ("pending", "running")
    gate.set()
    assert (fork.wait(60).status, fork.state["open"], run.status) == ("completed", True, "completed")


def test_a_handle_waits_for_what_another_one_resumed(bench: Bench) -> None:
    gate = threading.Event()
    wf = gated(gate)
    run = bench.start(wf, {"x": 1, "waits": True}, breakpoints=["second"], run={"pool": "thread"}).wait(60)
    assert run.status == "paused"
    bench.execution(run.id, workflow=wf).resume()
    opening = threading.Timer(0.2, gate.set)
    opening.start()
    assert run.wait(60).status == "completed"
    opening.join()


def test_tasks_that_wait_leave_the_threads_of_the_loop_free(bench: Bench) -> None:
    """Given a loop with 4 threads, when 100 tasks wait and follow, then none of its threads is taken by them."""
    gate = threading.Event()
    run = bench.start(gated(gate), {"x": 1, "waits": True}, run={"pool": "thread"})

    class Counted(ThreadPoolExecutor):
        submitted = 0

        def submit(self, *args: Any, **kwargs: Any) -> Any:
            self.submitted += 1
            return super().submit(*args, **kwargs)

    async def follow() -> str:
        return [event["kind"] async for event in run.follow_async()][-1]

    async def serve() -> tuple[set[str], set[str], int]:
        threads = Counted(4)
        asyncio.get_running_loop().set_default_executor(threads)
        waiting = [asyncio.create_task(bench.execution(run.id).wait_async(60)) for _ in range(50)]
        following = [asyncio.create_task(follow()) for _ in range(50)]
        await asyncio.sleep(0)
        await asyncio.to_thread(gate.set)
        ended = {execution.status for execution in await asyncio.gather(*waiting)}
        return ended, set(await asyncio.gather(*following)), threads.submitted

    assert asyncio.run(serve()) == ({"completed"}, {"sweep.completed"}, 1)


def test_following_an_execution_ends_with_it(bench: Bench) -> None:
    gate = threading.Event()
    cases = [{"id": "quick", "input": {"x": 1}}, {"id": "slow", "input": {"x": 2, "waits": True}}]
    sweep = Sweep(workflow=gated(gate), cases=cases, vary={"first": "all"}, run={"pool": "thread", "concurrency": 2})
    with ThreadPoolExecutor(1) as other:
        ran = other.submit(bench.run, sweep)
        try:
            handle = eventually(lambda: bench.sweep("gated"))
            quick = eventually(lambda: handle.execution("quick"))
            kinds = [event["kind"] for event in quick.follow(interval_s=0.05)]
            assert ("execution.completed" in kinds, handle.status) == (True, "running")
        finally:
            gate.set()
        assert ran.result(60).status == "completed"


def eventually(find: Callable[[], T]) -> T:
    """Poll until something is found, and return it."""
    found: list[T] = []

    def try_to_find() -> bool:
        with suppress(InputError):
            found.append(find())
        return bool(found)

    until(try_to_find, "it to exist")
    return found[0]


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "asking_flow.py").write_text(ASKING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "asking_flow", raising=False)  # of another test
    return "asking_flow:wf"


def test_a_single_execution_runs_on_by_the_answer_to_its_question(bench: Bench, importable: str) -> None:
    """Given a single execution that waits, when a question is answered by its handle or by all, then it completes."""
    first, second, third = (bench.start(importable, {}).wait(60) for _ in range(3))
    question = bench.question(first.id)
    assert question.answer("x").choice == "x"
    assert (first.wait(60).status, first.state) == ("completed", {"a": "x"})
    bench.answer_all("y", sweep=second.id)
    assert (second.wait(60).status, second.state) == ("completed", {"a": "y"})
    assert third.questions()[0].answer("x", run=False).continuation is not None
    assert third.wait(60).status == "pending"
    assert third.resume().wait(60).status == "completed"


def test_code_that_has_changed_is_refused_before_an_answer_is_recorded(
    bench: Bench, importable: str, tmp_path: Path
) -> None:
    run = bench.start(importable, {}).wait(60)
    (tmp_path / "asking_flow.py").write_text(ASKING.replace("Which?", "Which one?"))
    sys.modules.pop("asking_flow")
    importlib.invalidate_caches()
    question = bench.question(run.id)
    for answer in (lambda: question.answer("x"), lambda: bench.answer_all("x")):
        with pytest.raises(ConflictError, match=sentence("has changed since it was submitted")):
            answer()
    assert (question.record.status, run.status) == ("open", "waiting")


def test_notices_of_a_run_in_the_background_are_warnings(bench: Bench) -> None:
    gate, warned = threading.Event(), list[str]()
    context = replace(bench.backend, warn=warned.append)
    prepared = prepare_single(gated(gate), {"x": 1, "waits": True}, run={"pool": "thread"})
    run = begin(context, prepared)
    background = BackgroundRun(context, run, grace=1.0)
    run.progress.add_notice("there is no room")
    gate.set()
    assert background.wait(60)
    background.check()
    assert warned == [sentence("there is no {}", "room")]


def test_what_would_be_destroyed_is_told_and_stays(bench: Bench) -> None:
    bench.create_session("trial")
    with wtb.open(bench.database, session="trial") as other:
        sweep = other.run(doubled())
    run = bench.start(asking(), {}).wait(60)
    assert sweep.preview_delete().counts["cells"] == 2
    assert bench.preview_delete_session("trial").cells == 2
    assert run.preview_cancel().cells == 1
    assert bench.preview_answers("x").texts == ["Which?"]
    assert (sweep.status, run.status, len(bench.questions())) == ("completed", "waiting", 1)


def test_the_api_takes_what_commands_take(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence("{} cells; at most {} are allowed, unless max_cells is more", 2, 1)):
        bench.run(doubled(), max_cells=1)
    sweep = bench.run(doubled(), concurrency=1, max_cells=2)
    assert bench.database.row(sa.select(sweeps.c.spec))["spec"]["run"]["concurrency"] == 1  # type: ignore[index]
    run = bench.start(doubling(), {"x": 1}).wait(60)
    assert [record.id for record in bench.sweeps(singles=True)] == [run.id, sweep.id]
    assert "calls" in run.details(calls=True)["path"][0]  # type: ignore[typeddict-item]
    assert sweep.tree(limit=1)["cases_left_out"] == 1
    assert sweep.costs(since=datetime.now(UTC) + timedelta(days=1))["rows"] == []
    assert run.questions(closed=True, limit=1) == []
    file = run.export(tmp_path / "run.wtb")["file"]
    with pytest.raises(InputError, match=sentence("max_bytes allows {} at most", 10)):
        bench.import_execution(file, max_bytes=10)
    with pytest.raises(ConflictError, match=sentence("none of its cells has failed")):
        run.retry(failed_only=True)
    bench.set_baseline("main", sweep.id)
    assert bench.regress(doubled(), "main", case="two", looked_into=0).ran.sweep.cells == 1
