"""Async node runs that share an event loop do not change each other's results."""

from __future__ import annotations

import pytest

from tests.execution.test_shared_processes import TOGETHER, kinds
from tests.support.flows import Flows, events_of, failures

RUNS = 8
EIGHT = {"cases": RUNS, "run": {"concurrency": RUNS}}
NEIGHBOURS = (
    TOGETHER
    + """
async def slowly(value):
    await asyncio.sleep(0.1)
    return value


@wf.node(timeout=20.0)
async def a(state, ctx):
    loop = asyncio.get_running_loop()
    if ctx.attempt == 1:
        await together(8)
    if state["n"] == 3:
        ACT
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(slowly(n)) for n in range(3)]
    results = await asyncio.gather(slowly(4), slowly(5), return_exceptions=True)
    number = await asyncio.to_thread(lambda: state["n"])
    return {"result": f"{number} {[task.result() for task in tasks]} {results}"}
"""
)


def innocent(number: int) -> str:
    return f"{number} [0, 1, 2] [4, 5]"


ACTS = {
    "cancels all tasks": (
        "for task in asyncio.all_tasks(): task is asyncio.current_task() or task.cancel()",
        innocent(3),
    ),
    "cancels all tasks and itself": ("for task in asyncio.all_tasks(): task.cancel()", "CancelledError"),
    "waits for all tasks": ("await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})", innocent(3)),
    "stops the loop": ("loop.stop()", "RuntimeError: Event loop stopped"),
    "exits in a callback": ("loop.call_soon(sys.exit, 'no key'); await asyncio.sleep(9)", "SystemExit: no key"),
    "exits in a task": ("await asyncio.create_task(slowly(sys.exit(3)))", "SystemExit: 3"),
    "shuts down the executor": ("await loop.shutdown_default_executor()", "Executor shutdown has been called"),
    "closes the loop": ("loop.close()", "Cannot close a running event loop"),
    "handles exceptions": (
        "loop.set_exception_handler(lambda *args: os._exit(9)); await asyncio.sleep(0.05)",
        innocent(3),
    ),
    "blocks the loop": ("time.sleep(1.5)", innocent(3)),
}


@pytest.mark.parametrize(("act", "expected"), ACTS.values(), ids=ACTS)
def test_a_neighbour_changes_no_result(flows: Flows, act: str, expected: str) -> None:
    bench = flows.run(NEIGHBOURS.replace("ACT", act), **EIGHT)
    cells = {cell.case: cell for cell in bench.cells()}
    culprit = cells.pop("c3")
    assert {case: cell.state.get("result") for case, cell in cells.items()} == {
        f"c{number}": innocent(number) for number in range(RUNS) if number != 3
    }
    outcome = str(culprit.failure["type"] + ": " + culprit.failure["message"]) if culprit.failure else None
    assert expected in (outcome or culprit.state["result"])
    assert kinds(bench)["lost"] <= 1  # that of the culprit: no neighbour was repeated


def test_what_cancels_a_neighbour_by_name_runs_alone_from_then_on(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
TASKS = []


@wf.node
async def a(state, ctx):
    TASKS.append(asyncio.create_task(asyncio.sleep(0.3)))
    say("ran", f"{state['n']} {ctx.attempt}")
    if ctx.attempt == 1:
        await together(8)
        await asyncio.sleep(0.05)
    if state["n"] == 3:
        for task in TASKS:
            task.cancel()
        return {"result": "cancelled"}
    await asyncio.gather(TASKS[-1], return_exceptions=True)
    return {"result": "slept"}
"""
    )
    bench = flows.run(text, **EIGHT)
    results = {cell.case: cell.state for cell in bench.cells() if cell.status == "succeeded"}
    assert results.pop("c3")["result"] == "cancelled"
    assert [state["result"] for state in results.values()] == ["slept"] * (RUNS - 1)
    assert kinds(bench) == {"lost": RUNS}
    assert len(events_of(bench, "attempt.lost")) == RUNS
    assert sorted(flows.lines_of("ran")) == [f"{number} {attempt}" for number in range(RUNS) for attempt in (1, 2)]


def test_a_request_that_neighbours_wait_for_together_may_be_cancelled_with_its_first_run(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
CACHE = {}


async def fetch():
    await asyncio.sleep(1.0)
    return 14


@wf.node
async def impatient(state, ctx):
    CACHE["key"] = asyncio.create_task(fetch())
    await together(2)
    async with asyncio.timeout(0.1):
        await CACHE["key"]


@wf.node
async def patient(state, ctx):
    if ctx.attempt == 1:
        await together(2)
    if "key" not in CACHE:
        CACHE["key"] = asyncio.create_task(fetch())
    return {"a": await CACHE["key"]}
"""
    )
    sides = "\nfor node in (impatient, patient):\n    wf.entry(node)\n    wf.edge(node, END)\n"
    run = {"concurrency": 2}
    bench = flows.run(text, vary={"impatient": "all", "patient": "all"}, end=sides, run=run)
    assert [kind for kind, _ in failures(bench)].count("lost") == 1
    assert kinds(bench)["error"] == 1  # the timeout of the impatient one


def test_a_run_that_cancels_itself_fails_by_itself(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
@wf.node
async def a(state, ctx):
    say("ran", f"{state['n']} {ctx.attempt}")
    if ctx.attempt == 1:
        await together(8)
    if state["n"] == 3:
        raise asyncio.CancelledError("of its own")
    return {"a": 14}
"""
    )
    bench = flows.run(text, **EIGHT)
    (cell,) = [cell for cell in bench.cells() if cell.status != "succeeded"]
    assert cell.case == "c3"
    assert cell.failure is not None
    assert (cell.failure["type"], cell.failure["message"]) == ("CancelledError", "of its own")
    assert kinds(bench) == {"lost": 1, "error": 1}
    assert len(flows.lines_of("ran")) == RUNS + 1


def test_a_timeout_while_a_neighbour_blocked_the_loop_is_no_failure(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
@wf.node
async def a(state, ctx):
    if ctx.attempt == 1:
        await together(8)
    if state["n"] == 3:
        time.sleep(1.0)
        return {"result": 3}
    async with asyncio.timeout(0.4):
        await asyncio.sleep(0.1)
    return {"result": state["n"]}
"""
    )
    bench = flows.run(text, **EIGHT)
    assert {cell.case: cell.state.get("result") for cell in bench.cells()} == {f"c{n}": n for n in range(RUNS)}
    assert set(kinds(bench)) <= {"lost"}


def test_a_loop_that_can_run_no_more_costs_the_neighbours_no_retry(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
@wf.node
async def a(state, ctx):
    if ctx.attempt == 1:
        await together(8)
    if state["n"] == 3:
        asyncio.get_running_loop()._selector.close()
    await asyncio.sleep(0.2)
    return {"a": 14}
"""
    )
    bench = flows.run(text, **EIGHT)
    assert {cell.case for cell in bench.cells() if cell.status != "succeeded"} == {"c3"}
    assert kinds(bench)["lost"] == RUNS


@pytest.mark.parametrize("pool", ["process", "thread"])
def test_a_run_that_stops_the_loop_fails_at_once_on_threads_too(flows: Flows, pool: str) -> None:
    text = "@wf.node\nasync def a(state):\n    asyncio.get_running_loop().stop()\n    await asyncio.sleep(600)"
    run = {"pool": pool, "per_process": 1}
    bench = flows.run(text, run=run)
    (cell,) = bench.cells()
    assert cell.failure is not None
    assert cell.failure["message"].startswith("Event loop stopped before Future completed")
