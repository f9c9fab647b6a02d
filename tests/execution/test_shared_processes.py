"""Node processes shared by async node runs: a harmful run does no lasting harm to others."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.attempts import attempts
from tests.support.bench import Bench
from tests.support.flows import PATIENCE_S, Flows, events_of, failures, states
from tests.support.invariants import lives
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.analysis.matrix.build import build
from wtb.authoring.context.attempt_record import CaseView
from wtb.config.run_options import Run
from wtb.core.errors import InputError, WTBError
from wtb.core.serialization.codec import decode
from wtb.core.stop import Stopped
from wtb.core.texts import took
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Value
from wtb.display.text.executions import execution as execution_text
from wtb.display.views.costs import costs_document
from wtb.display.views.executions import execution_document
from wtb.execution.engine import resource_usage
from wtb.execution.engine.protocol import Result, Root, Task
from wtb.execution.journal import Lost
from wtb.execution.sandbox.pool import SUSPECTS, InProcesses, _places
from wtb.execution.sandbox.process_pool import Pool
from wtb.execution.sandbox.shared_process import GUILTY_RUNS, Isolation, RunKey
from wtb.execution.sandbox.shared_worker import Lag
from wtb.store.read import queries
from wtb.store.read.costs import Which
from wtb.store.tables.schema import executions, node_runs

MANY = 64
WIDE: dict[str, Any] = {"cases": MANY, "run": {"concurrency": MANY, "per_process": MANY}}
TOGETHER = """
STARTED, ALL = [], asyncio.Event()


async def together(count):
    \"\"\"Wait until so many node runs are in this process.\"\"\"
    STARTED.append(None)
    if len(STARTED) == count:
        ALL.set()
    await ALL.wait()
"""


def read_attempts(bench: Bench) -> list[dict[str, Any]]:
    """Return every attempt with the number of its case, in the order of cases and attempts."""
    query = (
        sa.select(attempts, executions.c.case_number)
        .join(node_runs, node_runs.c.id == attempts.c.node_run_id)
        .join(executions, executions.c.id == node_runs.c.execution_id)
        .order_by(executions.c.case_number, attempts.c.number)
    )
    with bench.database.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def kinds(bench: Bench) -> Counter[str]:
    return Counter(kind for kind, _ in failures(bench))


@pytest.mark.nodes("started")
def test_many_async_node_runs_share_a_process(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
@wf.node
async def a(state):
    await together(64)
    return {"pid": os.getpid()}
"""
    )
    bench = flows.run(text, **WIDE)
    assert len({state["pid"] for state in states(bench)}) == 1


class Startable:
    """A node process that is ready when a test releases it."""

    def __init__(self) -> None:
        self.is_ready = threading.Event()
        self.spent, self.request_count = False, 0

    def ready(self) -> None:
        assert self.is_ready.wait(PATIENCE_S)

    def lives(self) -> bool:
        return True

    def close(self) -> None:
        """There is nothing to end."""


def test_a_process_takes_more_than_its_crowd_only_until_another_one_is_ready() -> None:
    started = [Startable(), Startable()]
    first, second = started
    first.is_ready.set()
    pool: Pool[Any] = Pool(iter(started).__next__, max_processes=2, runs=100, places=8, crowd=2)
    with ExitStack() as places:
        assert [places.enter_context(pool.lend()) for _ in range(3)] == [first] * 3
        second.is_ready.set()
        until(lambda: pool._starting == 0, "the second process")
        assert [places.enter_context(pool.lend()) for _ in range(3)] == [second] * 3


def test_async_node_runs_spread_over_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert {slots: _places(Run(), slots)[1] for slots in (1, 8, 64, 200, 1000)} == {
        1: 16,
        8: 16,
        64: 16,
        200: 50,
        1000: 128,
    }
    assert _places(Run(per_process=7), 64) == (7, 7)


@pytest.mark.parametrize("node", ["wf.node\nasync def a", "wf.node(threads=8)\ndef a"], ids=["async", "threads"])
def test_a_shared_process_stays_warm(flows: Flows, node: str) -> None:
    text = f"@{node}(state):\n    return {{'pid': os.getpid()}}"
    bench = flows.run(text, cases=100, run={"concurrency": 4})
    assert len({state["pid"] for state in states(bench)}) == 1


def test_a_sweep_that_wants_a_fresh_process_for_every_node_run_shares_none(flows: Flows) -> None:
    text = "@wf.node\nasync def a(state):\n    return {'pid': os.getpid()}"
    bench = flows.run(text, cases=6, run={"concurrency": 3, "recycle": {"runs": 1}})
    assert len({state["pid"] for state in states(bench)}) == 6


def test_no_more_share_a_process_than_the_sweep_says(flows: Flows) -> None:
    text = """
STARTED = []


@wf.node
async def a(state):
    STARTED.append(None)
    say("begun", "")
    while (HERE / "begun").stat().st_size < 64:  # in all processes: none ends before the last has begun
        await asyncio.sleep(0.01)
    return {"shared": len(STARTED)}
"""
    bench = flows.run(text, cases=MANY, run={"concurrency": MANY, "per_process": 16})
    assert max(state["shared"] for state in states(bench)) <= 16


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("@wf.node(durable=True)\nasync def a(state): ...", id="durable"),
        pytest.param("@wf.node\nasync def a(state): ...\n@wf.tool\ndef book(): ...", id="a tool without a reverse"),
        pytest.param("@wf.node\ndef a(state): ...", id="sync"),
    ],
)
def test_what_must_not_be_lost_or_held_up_shares_no_process(flows: Flows, text: str) -> None:
    run = flows.bench(text).start()
    assert isinstance(run.code, InProcesses)
    assert not run.code.shares("a", "default")
    until(lambda: run.wait(1.0), "the sweep to end")
    run.finish()


def test_none_shares_a_process_where_the_sweep_says_so(flows: Flows) -> None:
    text = """
@wf.node
async def a(state):
    say("began", os.getpid())
    while len(open(HERE / "began").readlines()) < 4:
        await asyncio.sleep(0.01)
    return {"pid": os.getpid()}
"""
    bench = flows.run(text, cases=4, run={"concurrency": 4, "per_process": 1})
    assert len({state["pid"] for state in states(bench)}) == 4


@pytest.mark.parametrize("places", [0, -1])
def test_fewer_than_one_node_run_in_a_process_is_refused_before_any_work(flows: Flows, places: int) -> None:
    with pytest.raises(InputError, match=r"run\.per_process"):
        flows.bench("@wf.node\nasync def a(state): ...", run={"per_process": places})


# Crashes

CRASH = (
    TOGETHER
    + """
RUNNING = set()


@wf.node
async def a(state, ctx):
    RUNNING.add(state["n"])
    say("ran", f"{state['n']} {ctx.attempt} {len(RUNNING)}")
    if ctx.attempt == 1:
        await together(64)
    if state["n"] == 7:
        CRASH
    if ctx.attempt == 1:
        await asyncio.sleep(600)
    RUNNING.discard(state["n"])
    return {"draw": ctx.rng.random(), "attempt": ctx.attempt}
"""
)


@pytest.mark.parametrize(
    ("crash", "word"),
    [
        pytest.param("os._exit(3)", sentence("ended with exit code {}", 3), id="exit"),
        pytest.param("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV", id="segfault"),
    ],
)
def test_a_crash_costs_the_others_in_the_process_no_retry(flows: Flows, crash: str, word: str) -> None:
    bench = flows.run(CRASH.replace("CRASH", crash), **WIDE)
    cells = {cell.case: cell for cell in bench.cells()}
    guilty = cells.pop("c7")
    assert guilty.status == "set_aside"
    assert guilty.failure is not None
    assert word in guilty.failure["message"]
    assert all(cell.status == "succeeded" for cell in cells.values())
    assert kinds(bench) == {"lost": MANY, "killed": 3}
    assert len(events_of(bench, "attempt.lost")) == MANY


def test_suspects_run_alone_until_the_guilty_one_is_known(flows: Flows) -> None:
    bench = flows.run(CRASH.replace("CRASH", "os._exit(3)"), **WIDE)
    ran = [tuple(map(int, line.split())) for line in flows.lines_of("ran")]
    assert [(attempt, running) for number, attempt, running in ran if number == 7][1:] == [(2, 1), (3, 1), (4, 1)]
    assert all(cell.status == "succeeded" for cell in bench.cells() if cell.case != "c7")


def test_few_suspects_run_alone_at_a_time(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
@wf.node
async def a(state, ctx):
    if ctx.attempt == 1:
        await together(64)
        os._exit(3)
    say("alone", state["n"])
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
"""
    )
    bench = flows.bench(text, **WIDE)
    run = bench.start()
    assert isinstance(run.code, InProcesses)
    until(lambda: len(flows.lines_of("alone")) >= SUSPECTS, "suspects to have begun")
    assert run.code.pool._count == SUSPECTS
    (flows.code / "go").touch()
    until(lambda: run.wait(1.0), "the sweep to end")
    run.finish()
    assert kinds(bench) == {"lost": MANY}


def test_an_attempt_after_a_lost_one_draws_the_same_random_numbers(flows: Flows) -> None:
    bench = flows.run(CRASH.replace("CRASH", "os._exit(3)"), **WIDE)
    draws = {cell.case: cell.state["draw"] for cell in bench.cells() if cell.status == "succeeded"}
    calm = flows.run(CRASH.replace("CRASH", "pass").replace("sleep(600)", "sleep(0)"), **WIDE)
    assert draws == {case: draw for case, draw in ((c.case, c.state["draw"]) for c in calm.cells()) if case != "c7"}


def test_what_innocent_lost_attempts_cost_is_shown_apart(flows: Flows) -> None:
    spending = CRASH.replace("CRASH", "ctx.cost(usd=2.0); os._exit(3)").replace(
        "    if ctx.attempt == 1:\n        await together",
        "    ctx.cost(usd=0.25)\n    if ctx.attempt == 1:\n        await together",
    )
    bench = flows.run(spending, **WIDE)
    (costs,) = costs_document(bench.database, ["node"], Which())["rows"]
    assert (costs["innocent_attempts"], costs["innocent_usd"]) == (MANY, MANY * 0.25 + 2.0)
    assert (costs["failed_attempts"], costs["failed_usd"]) == (3, 3 * 2.25)
    assert costs["usd"] == costs["innocent_usd"] + costs["failed_usd"] + (MANY - 1) * 0.25
    (row,) = build(bench.database, bench.row)["rows"]
    assert row["cost_innocent_usd"] == costs["innocent_usd"]
    assert row["cost_per_success_usd"] == pytest.approx(0.25 + row["cost_failed_usd"] / (MANY - 1))


def keys(count: int, variant: str = "default") -> list[RunKey]:
    return [RunKey(f"e{number}", 0, "a", "a", variant) for number in range(count)]


def test_the_innocent_share_again_once_the_guilty_one_is_known() -> None:
    isolation, (first, second, third) = Isolation(), keys(3)
    isolation.suspect([first, second, third])
    isolation.acquit(first)
    assert [isolation.is_alone(key) for key in (first, second, third)] == [False, True, True]
    isolation.convict(second)
    assert [isolation.is_alone(key) for key in (first, second, third)] == [False, True, False]


def test_a_variant_that_is_guilty_again_and_again_shares_no_process() -> None:
    isolation, runs = Isolation(), keys(GUILTY_RUNS + 1)
    for key in runs[:GUILTY_RUNS]:
        assert not isolation.is_alone(runs[-1])
        isolation.convict(key)
    assert isolation.is_alone(runs[-1])
    assert not isolation.is_alone(keys(1, "other")[0])


# Deadlines

SIDE_BY_SIDE = """
for one in (stubborn, calm):
    wf.entry(one)
    wf.edge(one, END)
"""


def test_a_coroutine_is_cancelled_at_its_deadline_and_the_others_continue(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
@wf.node(timeout=0.2)
async def a(state, ctx):
    if state["n"] == 7:
        try:
            await asyncio.sleep(600)
        finally:
            say("cleaned", state["n"])
    return {"pid": os.getpid()}
"""
    )
    bench = flows.run(text, **WIDE)
    assert flows.lines_of("cleaned") == ["7"]
    assert kinds(bench) == {"timeout": 1}
    assert len({cell.state["pid"] for cell in bench.cells() if cell.status == "succeeded"}) == 1


STUBBORN = (
    TOGETHER
    + """
@wf.node(timeout=1.5, retries=1, backoff=0.0)
async def stubborn(state, ctx):
    if ctx.attempt == 1:
        await together(64)
    say("ran", f"{os.getpid()} {state['n']}")
    while state["n"] == 7 and not (HERE / "enough").exists():
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass


@wf.node
async def calm(state, ctx):
    if ctx.attempt == 1:
        await together(64)
        await asyncio.sleep(600)
    return {"attempt": ctx.attempt}
"""
)


def test_what_ignores_its_cancellation_ends_the_process_and_only_itself_for_good(flows: Flows) -> None:
    bench = flows.run(
        STUBBORN,
        cases=32,
        vary={"calm": "all", "stubborn": "all"},
        end=SIDE_BY_SIDE,
        run=WIDE["run"],
    )
    assert {cell.case for cell in bench.cells() if cell.status != "succeeded"} == {"c7"}
    assert kinds(bench) == {"timeout": 2, "lost": 32}
    of_stubborn = [line.split()[0] for line in flows.lines_of("ran") if line.endswith(" 7")]
    assert len(set(of_stubborn)) == 2
    assert not any(lives(int(pid)) for pid in of_stubborn)


BLOCKING = (
    TOGETHER
    + """
@wf.node(timeout=2.0)
async def stubborn(state, ctx):
    if ctx.attempt == 1:
        await together(64)
        await asyncio.sleep(0.1)


@wf.node
async def calm(state, ctx):
    if ctx.attempt == 1:
        await together(64)
        if state["n"] == 7:
            time.sleep(600)  # here
        await asyncio.sleep(600)
    return {"pid": os.getpid()}
"""
)


def test_what_blocks_the_event_loop_is_to_blame_for_the_deadlines_of_others(flows: Flows) -> None:
    bench = flows.run(
        BLOCKING,
        cases=32,
        vary={"calm": "all", "stubborn": "all"},
        end=SIDE_BY_SIDE,
        run=WIDE["run"],
    )
    assert all(cell.status == "succeeded" for cell in bench.cells())
    assert kinds(bench) == {"lost": 64}


def test_what_lets_nothing_else_run_makes_all_in_the_process_suspects(flows: Flows) -> None:
    code = BLOCKING.replace("time.sleep(600)  # here", "__import__('re').match('(a+)+$', 'a' * 60 + 'b')")
    sides = {"calm": "all", "stubborn": "all"}
    bench = flows.run(code, cases=32, vary=sides, end=SIDE_BY_SIDE, run=WIDE["run"])
    assert all(cell.status == "succeeded" for cell in bench.cells())
    assert kinds(bench) == {"lost": 64}
    assert all(sentence("let nothing else run") in message for _, message in failures(bench))


def test_an_async_node_that_blocks_the_loop_is_named_with_its_line(flows: Flows) -> None:
    text = """
@wf.node
async def a(state):
    time.sleep(2.0)  # here
"""
    bench = flows.run(text)
    path = flows.code / f"{flows.name}.py"
    line = path.read_text().splitlines().index("    time.sleep(2.0)  # here") + 1
    (event,) = events_of(bench, "node.log")
    assert (event["level"], event["node"], event["place"]) == ("warning", "a", f"{path}:{line}")
    (attempt,) = read_attempts(bench)
    assert attempt["stderr"].startswith("warning: node 'a' holds up the event loop that it shares")
    assert f"{path}:{line}" in attempt["stderr"]


class Warned:
    """A run whose node is `busy`, with its warnings."""

    node = "busy"

    def __init__(self) -> None:
        self.warnings: list[tuple[str, float]] = []

    def warn(self, message: str, place: str, *, lag_s: float) -> None:
        self.warnings.append((message, lag_s))


def test_a_node_that_keeps_the_loop_busy_is_named_once_with_the_lag() -> None:
    lag, run, other = Lag(), Warned(), Warned()
    other.node = "calm"
    for _ in range(20):
        lag.note(0.085)
        lag.note_run(run, "flow.py:7")  # type: ignore[arg-type]
    lag.note_run(other, "flow.py:9")  # type: ignore[arg-type]
    ((message, seconds),) = run.warnings
    assert message.startswith("node 'busy' holds up the event loop that it shares, at flow.py:7: node runs wait 85 ms")
    assert seconds == pytest.approx(0.085)
    assert other.warnings == []


def test_a_loop_that_is_seldom_late_is_no_reason_for_a_warning() -> None:
    lag, run = Lag(), Warned()
    for seconds in [0.001] * 19 + [0.2] + [0.001] * 20:
        lag.note(seconds)
        lag.note_run(run, "flow.py:7")  # type: ignore[arg-type]
    assert run.warnings == []


def lags(bench: Bench) -> list[float | None]:
    """Return the lag of each node run, in the order of cases."""
    query = (
        sa.select(node_runs.c.lag_s)
        .join(executions, executions.c.id == node_runs.c.execution_id)
        .order_by(executions.c.case_number)
    )
    with bench.database.read() as connection:
        return list(connection.scalars(query))


def test_a_node_that_burns_time_shows_as_lag_of_all_that_share_its_loop(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
@wf.node
async def a(state):
    await together(2)
    for _ in range(8):
        if state["n"] == 0:
            time.sleep(0.05)
        await asyncio.sleep(0 if state["n"] == 0 else 0.05)
"""
    )
    bench = flows.run(text, cases=2, run={"concurrency": 2, "per_process": 2})
    burned, waited = lags(bench)
    assert burned is not None
    assert waited is not None
    assert min(burned, waited) > 0.01
    lag = build(bench.database, bench.row)["node_runs"]["by_node"]["a"]["lag_s"]
    assert lag == {"default": pytest.approx((burned + waited) / 2)}
    (id,) = (row["id"] for row in bench.rows(executions) if row["case_number"] == 1)
    document = execution_document(bench.database, queries.find_execution(bench.database, id))
    assert document["path"][0]["lag_s"] == waited
    assert took(waited) in execution_text(document, 200)


def test_a_loop_that_nothing_blocks_is_hardly_late_and_a_sync_node_has_no_lag(flows: Flows) -> None:
    text = """
@wf.node
async def a(state):
    await asyncio.sleep(0.2)


@a.variant("sync")
def sync(state):
    pass
"""
    bench = flows.run(text, cases=4, run={"concurrency": 8, "per_process": 8})
    lag_times = lags(bench)
    measured = [seconds for seconds in lag_times if seconds is not None]
    assert len(measured) == len(lag_times) // 2 == 4
    assert min(measured) < 0.005


# Memory


@pytest.mark.nodes("started")
def test_a_node_run_that_finds_no_memory_is_tried_alone(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
@wf.node
async def a(state, ctx):
    if ctx.attempt == 1:
        await together(64)
    say("ran", f"{os.getpid()} {state['n']}")
    if state["n"] == 7:
        bytearray(8_000_000_000)
    await asyncio.sleep(0.2)
    return {"pid": os.getpid()}
"""
    )
    bench = flows.run(text, cases=MANY, run={"concurrency": MANY, "per_process": MANY, "rlimits": {"memory": "2GB"}})
    assert {cell.case for cell in bench.cells() if cell.status != "succeeded"} == {"c7"}
    assert [
        (row["number"], row["failure"]["kind"], row["failure"]["type"])
        for row in read_attempts(bench)
        if row["failure"]
    ] == [
        (1, "lost", "AttemptLost"),
        (2, "error", "MemoryError"),
    ]
    assert len({line.split()[0] for line in flows.lines_of("ran") if line.endswith(" 7")}) == 2


def test_what_a_process_uses_is_measured_once_for_all_that_share_it(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
@wf.node
async def a(state):
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
"""
    calls, measured = [], resource_usage.measured

    def noted(*arguments: Any) -> dict[str, float] | None:
        calls.append(arguments)
        return measured(*arguments)

    monkeypatch.setattr(resource_usage, "measured", noted)
    monkeypatch.setenv("WTB_SAMPLE_S", "0.2")
    bench = flows.bench(text, **WIDE)
    run = bench.start()
    until(lambda: len({row["execution_id"] for row in bench.events if row["kind"] == "node.sample"}) == MANY, "samples")
    (flows.code / "go").touch()
    until(lambda: run.wait(1.0), "the sweep to end")
    run.finish()
    assert all(sample["shared"] for sample in events_of(bench, "node.sample"))
    assert len(calls) < MANY / 2


# Output


def test_output_belongs_to_the_node_run_that_printed_it(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
import logging

logging.basicConfig(format="%(message)s", level=logging.INFO)


async def inner(number):
    print("inside", number)
    await asyncio.sleep(0)
    await asyncio.to_thread(print, "on a thread", number)
    await asyncio.get_running_loop().run_in_executor(None, print, "in the executor", number)


@wf.node
async def a(state):
    number = state["n"]
    print("begins", number, end=" ... ")
    await together(64)
    print("goes on")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(inner(number))
    logging.info("logged %d", number)
    sys.stderr.write(f"no end of line {number}")
    return {}
"""
    )
    bench = flows.run(text, **WIDE)
    for row in read_attempts(bench):
        number = row["case_number"]
        assert (
            row["stdout"]
            == f"begins {number} ... goes on\ninside {number}\non a thread {number}\nin the executor {number}\n"
        )
        assert row["stderr"] == f"logged {number}\nno end of line {number}"


@pytest.mark.nodes("started")
def test_what_was_printed_before_a_crash_is_kept(flows: Flows) -> None:
    bench = flows.run(CRASH.replace("CRASH", "print('the end is near'); os.abort()"), **WIDE)
    rows = [row for row in read_attempts(bench) if row["case_number"] == 7]
    assert {row["stdout"] for row in rows} == {"the end is near\n"}
    assert all("Fatal Python error: Aborted" in row["stderr"] for row in rows)


def test_output_of_children_goes_to_the_log_of_the_process(flows: Flows, capfd: pytest.CaptureFixture[str]) -> None:
    text = """
@wf.node
async def a(state):
    child = await asyncio.create_subprocess_exec("echo", "from a child")
    await child.wait()
    print("from the node")
"""
    bench = flows.run(text)
    assert [row["stdout"] for row in read_attempts(bench)] == ["from the node\n"]
    assert "from a child\n" in capfd.readouterr().err


# Working directories


def test_async_nodes_have_their_workspace_and_share_the_working_directory(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
@wf.node
async def a(state, ctx):
    (ctx.workspace / "own").write_text(str(state["n"]))
    await together(64)
    return {"found": (ctx.workspace / "own").read_text(), "cwd": os.getcwd(), "there": str(ctx.workspace)}
"""
    )
    bench = flows.run(text, **WIDE)
    state_by_case = {cell.case: cell.state for cell in bench.cells()}
    assert {case: state["found"] for case, state in state_by_case.items()} == {f"c{n}": str(n) for n in range(MANY)}
    assert {state["cwd"] for state in state_by_case.values()} == {str(Path.cwd())}
    assert len({state["there"] for state in state_by_case.values()}) == MANY


SYNC = """
BARRIER = threading.Barrier(64)


@wf.node(threads=64)
def a(state, ctx):
    Path("own").write_text(str(state["n"]))
    if ctx.attempt == 1:
        BARRIER.wait()
    INSIDE
    child = subprocess.run(["cat", "own"], capture_output=True, text=True, check=True)
    return {"found": Path("own").read_text(), "child": child.stdout, "cwd": os.getcwd(), "pid": os.getpid()}
"""


def test_sync_nodes_on_threads_of_one_process_have_working_directories_of_their_own(flows: Flows) -> None:
    bench = flows.run(SYNC.replace("INSIDE", "print('prints', state['n'])"), **WIDE)
    state_by_case = {cell.case: cell.state for cell in bench.cells()}
    own = {f"c{n}": str(n) for n in range(MANY)}
    assert {case: state["found"] for case, state in state_by_case.items()} == own
    assert {case: state["child"] for case, state in state_by_case.items()} == own
    assert len({state["cwd"] for state in state_by_case.values()}) == MANY
    assert len({state["pid"] for state in state_by_case.values()}) == 1
    assert [row["stdout"] for row in read_attempts(bench)] == [f"prints {n}\n" for n in range(MANY)]


def test_a_sync_node_on_a_thread_may_change_its_working_directory(flows: Flows) -> None:
    bench = flows.run(SYNC.replace("INSIDE", "os.mkdir('in'); os.chdir('in'); os.chdir('..')"), **WIDE)
    assert len(states(bench)) == MANY
    assert events_of(bench, "node.log") == []


def test_a_sync_node_that_crashes_costs_the_others_on_threads_no_retry(flows: Flows) -> None:
    crash = "if state['n'] == 7: os._exit(3)\n    if ctx.attempt == 1: time.sleep(600)"
    bench = flows.run(SYNC.replace("INSIDE", crash), **WIDE)
    assert {cell.case: cell.status for cell in bench.cells() if cell.status != "succeeded"} == {"c7": "set_aside"}
    assert kinds(bench) == {"lost": MANY, "killed": 3}


def test_a_sync_node_that_shares_a_process_is_ended_at_its_deadline(flows: Flows) -> None:
    late = "if state['n'] == 7: time.sleep(600)\n    if ctx.attempt == 1: time.sleep(0.2)"
    text = SYNC.replace("threads=64", "threads=64, timeout=3.0").replace("INSIDE", late)
    bench = flows.run(text, **WIDE)
    assert {cell.case for cell in bench.cells() if cell.status != "succeeded"} == {"c7"}
    assert kinds(bench) == {"timeout": 1}


@pytest.mark.parametrize("threads", [0, -1])
def test_fewer_than_one_thread_is_refused_before_any_work(flows: Flows, threads: int) -> None:
    with pytest.raises(WTBError, match=f"node 'a': threads is {threads}; expected 1 or more"):
        flows.bench(f"@wf.node(threads={threads})\ndef a(state): ...")


def test_an_async_node_that_changes_the_working_directory_of_others_is_named_with_its_line(flows: Flows) -> None:
    text = """
@wf.node
async def a(state):
    os.chdir("/")  # here
    os.chdir("/tmp")
"""
    bench = flows.run(text)
    path = flows.code / f"{flows.name}.py"
    line = path.read_text().splitlines().index('    os.chdir("/")  # here') + 1
    (event,) = events_of(bench, "node.log")
    assert (event["level"], event["place"]) == ("warning", f"{path}:{line}")
    assert (
        sentence("changes {}, which is the same for all runs in a shared process", "the working directory")
        in event["message"]
    )


def test_sync_nodes_that_change_a_directory_they_have_in_common_are_named_once(flows: Flows) -> None:
    text = """
import ctypes

if "WTB_NODE_PROCESS_ID" in os.environ:
    ctypes.CDLL = lambda name: None  # as on systems where no thread has a working directory of its own
BARRIER = threading.Barrier(64)


@wf.node(threads=64)
def a(state, ctx):
    if ctx.attempt == 1:
        BARRIER.wait()
    os.chdir(HERE)  # here
    return {"cwd": os.getcwd()}
"""
    bench = flows.run(text, **WIDE)
    path = flows.code / f"{flows.name}.py"
    line = path.read_text().splitlines().index("    os.chdir(HERE)  # here") + 1
    assert {state["cwd"] for state in states(bench)} == {str(flows.code)}
    (event,) = events_of(bench, "node.log")
    assert (event["level"], event["place"]) == ("warning", f"{path}:{line}")
    assert (
        sentence("changes {}, which is the same for all runs in a shared process", "the working directory")
        in event["message"]
    )


# Steps

JOINED = """
from typing import Annotated, TypedDict


def total(old, new):
    PLACE
    say("joined", os.getpid())
    return (old or 0) + new


class State(TypedDict, total=False):
    n: int
    sum: Annotated[int, total]
    pid: int


wf = Workflow("flow", state=State)


@wf.node
async def left(state):
    await asyncio.sleep(0)
    return {"sum": 1, "pid": os.getpid()}


@wf.node
async def right(state):
    return {"sum": 2}
"""
BOTH = """
for one in (left, right):
    wf.entry(one)
    wf.edge(one, END)
"""


def test_steps_are_joined_beside_the_node_runs_that_share_a_process(flows: Flows) -> None:
    both = {"left": "all", "right": "all"}
    bench = flows.run(JOINED.replace("PLACE", ""), cases=8, vary=both, end=BOTH, run={"concurrency": 8})
    end_states = states(bench)
    assert {state["sum"] for state in end_states} == {3}
    assert set(map(int, flows.lines_of("joined"))) == {state["pid"] for state in end_states}


def test_a_join_that_crashes_is_tried_alone_and_fails_its_own_cell_only(flows: Flows) -> None:
    crash = JOINED.replace("PLACE", "if (HERE / 'crash').exists(): os._exit(3)")
    both = {"left": "all", "right": "all"}
    bench = flows.bench(crash, cases=1, vary=both, end=BOTH, run={"concurrency": 2})
    (flows.code / "crash").touch()
    bench.run()
    (cell,) = bench.cells()
    assert cell.failure is not None
    assert sentence("ended with exit code {}", 3) in cell.failure["message"]


# Cancellation, the end, and what a process keeps


def test_streams_and_groups_of_tasks_work_and_are_cancelled_as_elsewhere(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
async def words(number):
    for part in ("one", "two", str(number)):
        await asyncio.sleep(0)
        yield part


async def child(number):
    try:
        await asyncio.sleep(600 if number == 7 else 0)
    except asyncio.CancelledError:
        say("cancelled", number)
        raise
    return number


@wf.node(timeout=3.0)
async def a(state):
    await together(64)
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(600)
    except TimeoutError:
        parts = [part async for part in words(state["n"])]
    async with asyncio.TaskGroup() as tasks:
        children = [tasks.create_task(child(state["n"])) for _ in range(2)]
    return {"text": " ".join(parts), "sum": sum(one.result() for one in children), "pid": os.getpid()}
"""
    )
    bench = flows.run(text, **WIDE)
    well = {int(cell.case[1:]): cell.state for cell in bench.cells() if cell.status == "succeeded"}
    assert {n: (state["text"], state["sum"]) for n, state in well.items()} == {
        n: (f"one two {n}", 2 * n) for n in range(MANY) if n != 7
    }
    assert len({state["pid"] for state in well.values()}) == 1
    assert flows.lines_of("cancelled") == ["7", "7"]
    assert kinds(bench) == {"timeout": 1}


class Code:
    """The node processes of a workflow, without a sweep."""

    def __init__(self, flows: Flows, text: str) -> None:
        self.flows = flows
        run = Run(per_process=MANY)  # or some go to a second process once that one is ready
        self.processes = flows.processes(flows.write(text), run, MANY)
        self.results: dict[str, Result | Exception] = {}
        self.threads: list[threading.Thread] = []

    def start(self, count: int) -> None:
        for number in range(count):
            thread = threading.Thread(target=self._run, args=(f"e{number}", number))
            self.threads.append(thread)
            thread.start()

    def _run(self, execution: str, number: int) -> None:
        state = {"n": Value.of(number)}
        task = Task("a", "default", state, Position(0, ("a",)), Root(CaseView("c")), execution=execution, token=1)
        try:
            self.results[execution] = self.processes.run(task)
        except (Stopped, Lost) as error:
            self.results[execution] = error

    def join(self) -> None:
        for thread in self.threads:
            thread.join(PATIENCE_S)


def wrote(outcome: Result | Exception, key: str) -> object:
    """Return the value that a node has written to a key of the state."""
    assert isinstance(outcome, Result)
    assert outcome.writes is not None
    return decode(outcome.writes[key].data)


@pytest.fixture
def codes() -> Iterator[list[Code]]:
    opened: list[Code] = []
    yield opened
    for code in opened:
        code.processes.close()


HOLDING = (
    TOGETHER
    + """
@wf.node
async def a(state):
    await together(64)
    say("began", state["n"])
    try:
        while not (HERE / "go").exists():
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        say("cancelled", state["n"])
        raise
    return {"n": state["n"]}
"""
)


def test_processes_that_many_runs_will_need_start_together(flows: Flows, codes: list[Code]) -> None:
    codes.append(code := Code(flows, "@wf.node\nasync def a(state): ..."))
    code.processes.prepare(2 * MANY)
    (pool,) = code.processes._shared.values()
    assert pool._count == min(2, os.cpu_count() or 1)


def test_who_ends_a_process_that_nobody_else_was_in_runs_alone_from_then_on(flows: Flows, codes: list[Code]) -> None:
    text = """
@wf.node
async def a(state):
    if state["n"] == 0 and not (HERE / "crashed").exists():
        (HERE / "crashed").touch()
        os._exit(3)
    say("began", state["n"])
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    return {"pid": os.getpid()}
"""
    codes.append(code := Code(flows, text))
    code.start(1)
    code.join()
    code.start(MANY)
    until(lambda: len(flows.lines_of("began")) == MANY, "all to have begun")
    (flows.code / "go").touch()
    code.join()
    pids = {name: wrote(outcome, "pid") for name, outcome in code.results.items()}
    alone = pids.pop("e0")
    assert len(set(pids.values())) == 1
    assert alone not in pids.values()


def test_an_execution_that_is_taken_away_has_its_task_cancelled_and_no_other(flows: Flows, codes: list[Code]) -> None:
    codes.append(code := Code(flows, HOLDING))
    code.start(MANY)
    until(lambda: len(flows.lines_of("began")) == MANY, "all to have begun")
    code.processes.end_attempt("e7", 1)
    until(lambda: "e7" in code.results, "it to have ended")
    assert flows.lines_of("cancelled") == ["7"]
    (flows.code / "go").touch()
    code.join()
    assert isinstance(code.results.pop("e7"), Lost)
    assert all(isinstance(outcome, Result) and outcome.failure is None for outcome in code.results.values())


def test_a_pool_that_is_closed_stops_all_node_runs(flows: Flows, codes: list[Code]) -> None:
    codes.append(code := Code(flows, HOLDING))
    code.start(MANY)
    until(lambda: len(flows.lines_of("began")) == MANY, "all to have begun")
    code.processes.close()
    code.join()
    assert [type(outcome) for outcome in code.results.values()] == [Stopped] * MANY


def test_a_client_is_made_once_a_process_and_is_usable_from_its_loop(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
async def connect():
    return {"loop": asyncio.get_running_loop(), "lock": asyncio.Lock()}


wf.resources = connect


@wf.node
async def a(state, ctx):
    await together(64)
    client = ctx.resources
    async with client["lock"]:
        await asyncio.sleep(0)
    return {"client": id(client), "same": client["loop"] is asyncio.get_running_loop()}
"""
    )
    end_states = states(flows.run(text, **WIDE))
    assert len({state["client"] for state in end_states}) == 1
    assert all(state["same"] for state in end_states)


def test_a_process_that_sends_what_is_no_message_is_ended(flows: Flows) -> None:
    text = (
        TOGETHER
        + """
@wf.node
async def a(state, ctx):
    if ctx.attempt == 1:
        await together(64)
        if state["n"] == 7:
            for number in range(3, 64):
                try:
                    os.write(number, b"nonsense" * 10)
                except OSError:
                    pass
        await asyncio.sleep(600)
    return {}
"""
    )
    bench = flows.run(text, **WIDE)
    assert all(cell.status == "succeeded" for cell in bench.cells())
    assert kinds(bench) == {"lost": MANY}
