"""The memory quota of a session: node processes are measured, node runs wait, and the largest process is ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench, in_memory
from tests.support.flows import Flows, attempts_of, events_of, states
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.core.ids import new_id
from wtb.core.stop import Stop, Stopped
from wtb.execution.engine.executor import CodeExecutor, Measured
from wtb.execution.runtime import quotas, sweep_context, upkeep
from wtb.execution.runtime.quotas import REACHED, SessionMemory, process_memory, session_memory, tree_memory
from wtb.store.access import sessions
from wtb.store.access.usage import Memory, record_memory
from wtb.store.database import DEFAULT_SESSION, Database
from wtb.store.process_identity import ProcessIdentity, identity
from wtb.store.runs import slots
from wtb.store.tables import schema
from wtb.store.tables.schema import executions

MB = 10**6
LOOKS = 5  # of the heartbeat, after which what waits would have begun

# Measuring

TREE = """
import os, sys, time
ballast, children = bytearray(b"x") * int(sys.argv[1]), int(sys.argv[2])
for _ in range(children):
    if os.fork() == 0:
        time.sleep(600)
if len(sys.argv) > 3:
    import subprocess
    subprocess.Popen([sys.executable, __file__, *sys.argv[3:]])
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def tree(tmp_path: Any) -> Iterator[Callable[..., int]]:
    """Start a process that starts others. Return its id once all of them run."""
    file = tmp_path / "tree.py"
    file.write_text(TREE)
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: int) -> int:
        command = [sys.executable, str(file), *map(str, args)]
        started.append(process := subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
        assert process.stdout is not None
        for _ in range(1 + (len(args) - 1) // 2 if len(args) > 2 else 1):
            assert process.stdout.readline() == b"ready\n"
        return process.pid

    yield start
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_all_descendants_count_and_the_process_above_them_does_not(tree: Callable[..., int]) -> None:
    above = tree(90 * MB, 0, 60 * MB, 0, 30 * MB, 0)
    assert 90 * MB < tree_memory(above) < 130 * MB
    assert 90 * MB < process_memory(above) < 120 * MB


def test_what_forks_share_counts_once(tree: Callable[..., int]) -> None:
    above = tree(1, 0, 100 * MB, 4)
    assert 100 * MB < tree_memory(above) < 180 * MB, "and not five times"


def test_a_process_that_has_ended_has_no_memory() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert process_memory(ended.pid) == 0, "a zombie has none"
    ended.wait()
    assert process_memory(ended.pid) == tree_memory(ended.pid) == 0


def test_memory_that_may_not_be_looked_at_closely_counts_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path: str, mode: str) -> Any:
        if path.endswith("smaps_rollup"):
            raise PermissionError(13, "not for you")
        return open(path, mode)

    monkeypatch.setattr("wtb.execution.runtime.quotas.open", refusing, raising=False)
    assert process_memory(os.getpid()) > 20 * MB


def test_other_platforms_measure_the_same_tree(tree: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    above = tree(1, 0, 60 * MB, 0)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert 60 * MB < tree_memory(above) < 100 * MB


# Deciding


class Processes:
    """Stands for an executor: the sizes of its node processes, without those that are idle or were ended."""

    def __init__(self, busy: list[int], idle: list[int] | None = None) -> None:
        self.busy, self.idle = busy, idle or []
        self.ended: list[str] = []

    def measure(self, size_of: object) -> list[Measured]:
        return [Measured(size, False, self._no) for size in self.idle] + [
            Measured(size, True, self._ending(size)) for size in self.busy
        ]

    def _no(self, why: str) -> None:
        raise AssertionError("idle processes are ended by end_idle")

    def _ending(self, size: int) -> Callable[[str], None]:
        def end(why: str) -> None:
            self.busy.remove(size)
            self.ended.append(why)

        return end

    def end_idle(self) -> bool:
        ended, self.idle = bool(self.idle), []
        return ended


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(quotas, "time", clock)
    return clock


@pytest.fixture
def database() -> Iterator[Database]:
    opened = in_memory()
    sessions.change(opened, DEFAULT_SESSION, {"memory": 1000 * MB})
    yield opened
    opened.close()


class Measuring:
    """A runner with node processes that are measured once a second of a clock."""

    def __init__(self, database: Database, clock: Clock, *busy: int, idle: list[int] | None = None) -> None:
        self.clock = clock
        self.database = database
        self.runner = replace(identity(), id=new_id())
        slots.register_runner(database, self.runner, DEFAULT_SESSION, 8)
        self.processes = Processes(list(busy), idle)
        self.memory = SessionMemory(database, self.runner.id, DEFAULT_SESSION)
        self.memory.add(cast("CodeExecutor", self.processes))

    def look(self, seconds: float = 1.0) -> str | None:
        self.clock.now += seconds
        self.memory.look()
        return self.memory.reason

    @property
    def row(self) -> tuple[int, int] | None:
        query = sa.select(schema.session_memory.c.used, schema.session_memory.c.largest)
        rows = self.database.tuples(query.where(schema.session_memory.c.runner_id == self.runner.id))
        return next(((used, largest) for used, largest in rows), None)

    def begins(self) -> bool:
        """Return whether a node run may begin now."""
        stop = Stop()
        try:
            self.memory.wait(stop, lambda: True)
        except Stopped:
            return False
        return True


def test_without_a_quota_nothing_is_measured_or_recorded(database: Database, clock: Clock) -> None:
    sessions.change(database, DEFAULT_SESSION, {"memory": None})
    runner = Measuring(database, clock, 5000 * MB)
    runner.processes.measure = None  # type: ignore[assignment, method-assign]
    assert runner.look() is None
    assert runner.row is None
    assert not runner.memory.is_limited
    assert not runner.memory.is_tight
    assert runner.begins()


def test_below_the_quota_all_begin_and_what_is_used_is_recorded(database: Database, clock: Clock) -> None:
    runner = Measuring(database, clock, 400 * MB, 300 * MB, idle=[300 * MB])
    assert runner.look() is None, "exactly the quota is not above it"
    assert runner.row == (1000 * MB, 400 * MB)
    assert runner.begins()
    assert runner.processes.idle, "idle processes stay warm"


def test_above_the_quota_none_begins_and_idle_processes_go_first(database: Database, clock: Clock) -> None:
    runner = Measuring(database, clock, 500 * MB, 400 * MB, idle=[200 * MB])
    assert runner.look() == (
        sentence(
            "{} {} reached: its node processes use {} of {}; node runs begin when they use less",
            "memory",
            "quota of session 'default'",
            "1.1 GB",
            "1.0 GB",
        )
    )
    assert not runner.begins()
    assert runner.processes.idle == []
    assert runner.look() is None
    assert runner.begins()
    assert runner.processes.ended == []


def test_after_a_grace_the_largest_is_ended_one_at_a_time(database: Database, clock: Clock) -> None:
    runner = Measuring(database, clock, 500 * MB, 800 * MB, 700 * MB)
    assert (runner.look() or "").startswith(REACHED)
    runner.look(quotas.GRACE_S - 0.1)
    assert runner.processes.ended == []
    runner.look(0.1)
    assert runner.processes.busy == [500 * MB, 700 * MB]
    (why,) = runner.processes.ended
    assert why == (
        sentence(
            "its process was ended: the node processes of session {} used {} of its memory "
            "quota of {}, and this one, with {}, was the largest; use less memory or raise "
            "the quota with `wtb admin session change {} --memory SIZE`",
            "'default'",
            "2.0 GB",
            "1.0 GB",
            "800.0 MB",
            "default",
        )
    )
    assert runner.look()
    assert runner.processes.busy == [500 * MB]
    assert runner.look() is None
    assert len(runner.processes.ended) == 2


def test_a_short_peak_ends_nothing(database: Database, clock: Clock) -> None:
    runner = Measuring(database, clock, 1200 * MB)
    for _ in range(10):
        assert runner.look()
        assert runner.look(quotas.GRACE_S / 2)
        runner.processes.busy = [900 * MB]
        assert runner.look() is None
        runner.processes.busy = [1200 * MB]
    assert runner.processes.ended == []


def test_the_runner_with_the_largest_process_ends_it(database: Database, clock: Clock) -> None:
    first, second = Measuring(database, clock, 400 * MB, 300 * MB), Measuring(database, clock, 450 * MB)
    for _ in range(5):
        assert second.look(0.5) or second.row == (450 * MB, 450 * MB)
        if second.processes.ended:
            break
        first.look(0.5)
    assert first.processes.ended == []
    assert len(second.processes.ended) == 1
    assert second.look() is None
    assert first.look() is None
    assert first.processes.busy == [400 * MB, 300 * MB]


def test_a_runner_waits_for_what_others_use(database: Database, clock: Clock) -> None:
    first, second = Measuring(database, clock), Measuring(database, clock, 1500 * MB)
    second.look()
    assert (first.look() or "").endswith("use 1.5 GB of 1.0 GB; node runs begin when they use less")
    assert not first.begins()
    slots.end_runner(database, second.runner.id)
    assert first.look() is None
    assert first.begins()


def test_no_more_run_at_a_time_than_have_fitted(database: Database, clock: Clock) -> None:
    runner = Measuring(database, clock, 400 * MB, 401 * MB, 402 * MB)
    stop = Stop()
    turns = [runner.memory.turn(stop, lambda: False) for _ in range(3)]
    for turn in turns:
        turn.__enter__()
    for _ in range(4):
        runner.look()
    assert runner.processes.busy == [400 * MB, 401 * MB]
    turns.pop().__exit__(None, None, None)
    assert runner.look() is None, "there is room, and not for another one like these"
    assert runner.memory.is_tight
    assert not runner.begins()
    runner.processes.busy = [400 * MB]
    turns.pop().__exit__(None, None, None)
    assert runner.begins()
    turns.append(runner.memory.turn(stop, lambda: False))
    turns[-1].__enter__()
    runner.look()
    assert runner.begins(), "two of 400 MB leave no room for a third; with one there is room for a second and third"
    for turn in turns:
        turn.__exit__(None, None, None)


def test_even_where_one_alone_is_above_the_quota_one_may_begin(database: Database, clock: Clock) -> None:
    runner = Measuring(database, clock)
    for _ in range(3):
        runner.processes.busy = [1100 * MB]
        with runner.memory.turn(Stop(), lambda: False):
            for _ in range(4):
                runner.look()
        assert runner.look() is None
        assert runner.begins()
    assert len(runner.processes.ended) == 3


def test_a_quota_that_is_raised_or_lifted_lets_node_runs_begin(database: Database, clock: Clock) -> None:
    runner = Measuring(database, clock, 1200 * MB)
    assert runner.look()
    sessions.change(database, DEFAULT_SESSION, {"memory": 1300 * MB})
    assert runner.look() is None
    sessions.change(database, DEFAULT_SESSION, {"memory": 5 * MB})
    assert runner.look()
    sessions.change(database, DEFAULT_SESSION, {"memory": None})
    assert runner.look() is None
    assert runner.begins()
    assert runner.row is None
    assert runner.processes.ended == []


def test_small_changes_are_recorded_with_the_heartbeat_only(database: Database, clock: Clock) -> None:
    runner = Measuring(database, clock, 100 * MB)
    runner.look()
    runner.processes.busy = [100 * MB + 1000]
    runner.look()
    assert runner.row == (100 * MB, 100 * MB)
    runner.look(slots.LEASE_S / 3)
    assert runner.row == (100 * MB + 1000, 100 * MB + 1000)
    runner.processes.busy = [90 * MB]
    runner.look()
    assert runner.row == (90 * MB, 90 * MB)


def test_several_sweeps_of_a_session_are_measured_together_and_once(database: Database, clock: Clock) -> None:
    runner = Measuring(database, clock, 600 * MB)
    other = Processes([700 * MB])
    runner.memory.add(cast("CodeExecutor", other))
    assert runner.look()
    runner.processes.busy = other.busy = []
    assert runner.look(0.01), "it was looked at for another sweep just now"
    assert runner.look() is None
    runner.memory.remove(cast("CodeExecutor", other))
    assert runner.row == (0, 0)
    runner.memory.remove(cast("CodeExecutor", runner.processes))
    assert runner.row is None, "nothing of it holds others up"


def test_sweeps_of_one_session_in_one_runner_share_what_is_known(database: Database) -> None:
    memory = session_memory(database, "r1", "s1")
    assert session_memory(database, "r1", "s1") is memory
    assert session_memory(database, "r1", "s2") is not memory
    assert session_memory(database, "r2", "s1") is not memory


def test_a_node_run_that_waits_heeds_a_stop_and_people(database: Database, clock: Clock) -> None:
    runner = Measuring(database, clock, 1200 * MB)
    runner.look()
    stop = Stop()
    with pytest.raises(Stopped, match="a person asked"):
        runner.memory.wait(stop, lambda: True)
    stop.request("interrupted")
    with pytest.raises(Stopped, match="interrupted"), runner.memory.turn(stop, lambda: False):
        raise AssertionError("it began")
    assert runner.memory._running == 0


# Sweeps

HUNGRY = """
@wf.node
def a(state, ctx):
    say("began", state["n"])
    ballast = bytearray(b"x") * (ctx.params["mb"].get(str(state["n"]), 0) * 1_000_000)
    say("holds", state["n"])
    until((HERE / "go").exists)
    return {"size": len(ballast)}
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure ten times as often as for users."""
    monkeypatch.setattr(upkeep, "LOOK_S", 0.1)
    monkeypatch.setattr(quotas, "GRACE_S", 0.5)
    monkeypatch.setattr(quotas, "_LOOK_S", 0.05)
    monkeypatch.setattr(sweep_context, "CALM_S", 0.2)


@contextmanager
def running(bench: Bench, quota: int | None) -> Iterator[None]:
    """Run a sweep in a session with this memory quota; after the block, wait for its end."""
    sessions.change(bench.database, DEFAULT_SESSION, {"memory": quota})
    run = bench.start()
    try:
        yield
    except BaseException:
        run.stop.request("the test failed")
        run.code.close()
        raise
    finally:
        while not run.wait(1):
            pass
        run.finish()


def types(bench: Bench) -> Counter[tuple[str, str]]:
    """Count failed attempts by kind and type."""
    failures = [row["failure"] for row in attempts_of(bench) if row["failure"] and row["failure"]["kind"] != "running"]
    return Counter((failure["kind"], failure["type"]) for failure in failures)


def kills(bench: Bench) -> int:
    return sum(row["kills"] for row in bench.rows(executions))


def go(flows: Flows) -> None:
    (flows.code / "go").touch()


def test_the_largest_of_those_that_do_not_fit_together_is_ended_and_runs_again(flows: Flows) -> None:
    sizes = {"0": 200, "1": 200, "2": 230}
    bench = flows.bench(HUNGRY, 3, run={"concurrency": 3}, params={"mb": sizes})
    with running(bench, 600 * MB):
        until(lambda: types(bench), "an attempt to be ended")
        assert types(bench) == {("killed", "MemoryQuotaReached"): 1}, attempts_of(bench)
        until(lambda: bench.row.reason is None, "room")
        assert flows.lines_of("holds").count("2") == 1, "it begins when there is room for it"
        go(flows)
    assert sorted(state["size"] for state in states(bench)) == [200 * MB, 200 * MB, 230 * MB]
    assert types(bench) == {("killed", "MemoryQuotaReached"): 1}
    assert Counter(flows.lines_of("began")) == {"0": 1, "1": 1, "2": 2}
    assert kills(bench) == 1
    (failure,) = (row["failure"] for row in attempts_of(bench) if row["failure"])
    assert "used 6" in failure["message"] or "used 7" in failure["message"]
    assert sentence("of its memory quota of {}", "600.0 MB") in failure["message"]
    assert "`wtb admin session change default --memory SIZE`" in failure["message"]
    (full,) = events_of(bench, "sweep.memory_full")
    assert full["reason"].startswith("memory quota of session 'default' reached")


def test_what_is_above_the_quota_by_itself_fails_after_its_deaths_and_the_others_continue(flows: Flows) -> None:
    go(flows)
    text = HUNGRY.replace('until((HERE / "go").exists)', 'until(lambda: state["n"] != 0)')
    bench = flows.bench(text, 3, run={"set_aside_after": 2}, params={"mb": {"0": 400}})
    with running(bench, 300 * MB):
        pass
    assert Counter(cell.status for cell in bench.cells()) == {"set_aside": 1, "succeeded": 2}
    (failed,) = (cell for cell in bench.cells() if cell.status == "set_aside")
    assert failed.error.startswith("node 'a': MemoryQuotaReached: its process was ended: the node processes of session")
    assert types(bench) == {("killed", "MemoryQuotaReached"): 2}
    assert bench.status == "completed"
    assert bench.row.reason is None


def test_what_nodes_start_counts_for_their_process(flows: Flows) -> None:
    text = """
@wf.node
def a(state, ctx):
    code = "import time; ballast = bytearray(b'x') * 400_000_000; time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code])
    say("child", child.pid)
    child.wait()
"""
    bench = flows.bench(text, run={"set_aside_after": 1})
    with running(bench, 300 * MB):
        pass
    assert types(bench) == {("killed", "MemoryQuotaReached"): 1}
    (pid,) = flows.lines_of("child")
    assert process_memory(int(pid)) == 0


def test_no_node_run_begins_while_another_runner_uses_too_much(flows: Flows) -> None:
    bench = flows.bench(HUNGRY, 2, params={"mb": {}})
    other = ProcessIdentity(new_id(), "elsewhere", "b", 7, 0.0)
    slots.register_runner(bench.database, other, DEFAULT_SESSION, 1)
    with running(bench, 500 * MB):
        until(lambda: len(flows.lines_of("holds")) == 1, "the first node run")
        record_memory(bench.database, other.id, DEFAULT_SESSION, Memory(700 * MB, 600 * MB))
        reason = until(lambda: bench.row.reason, "a reason")
        assert reason.startswith("memory quota of session 'default' reached: its node processes use 7")
        go(flows)
        until(lambda: len(events_of(bench, "execution.completed")) == 1, "the first to end")
        for _ in range(LOOKS):
            record_memory(bench.database, other.id, DEFAULT_SESSION, Memory(700 * MB, 600 * MB))
            threading.Event().wait(0.1)
        assert len(flows.lines_of("began")) == 1
        record_memory(bench.database, other.id, DEFAULT_SESSION, None)
        until(lambda: len(flows.lines_of("began")) == 2, "the second node run")
        until(lambda: bench.row.reason is None, "no reason any more")
    assert len(states(bench)) == 2
    assert types(bench) == {}
    assert len(events_of(bench, "sweep.memory_has_room")) == 1


def test_runs_that_share_a_process_are_lost_with_it_and_found_out_one_by_one(flows: Flows) -> None:
    text = """
@wf.node
async def a(state, ctx):
    say("began", state["n"])
    ballast = bytearray(b"x") * (400_000_000 if state["n"] == 0 else 1)
    while state["n"] == 0 or not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    return {"size": len(ballast)}
"""
    bench = flows.bench(text, 3, run={"concurrency": 3, "set_aside_after": 2})
    with running(bench, 300 * MB):
        until(lambda: types(bench)["lost", "AttemptLost"] >= 3, "all three to be lost")
        go(flows)
    assert Counter(cell.status for cell in bench.cells()) == {"set_aside": 1, "succeeded": 2}
    assert types(bench) == {("lost", "AttemptLost"): 3, ("killed", "MemoryQuotaReached"): 2}
    assert kills(bench) == 2, "what was lost counts for nobody"


def test_nodes_on_threads_of_the_runner_are_not_counted(flows: Flows) -> None:
    go(flows)
    bench = flows.bench(HUNGRY, 1, run={"pool": "thread"}, params={"mb": {"0": 200}})
    with running(bench, 1 * MB):
        pass
    assert [state["size"] for state in states(bench)] == [200 * MB]
    assert events_of(bench, "sweep.memory_full") == []


def test_evaluators_that_use_too_much_leave_no_score_and_say_why(flows: Flows) -> None:
    go(flows)
    text = (
        HUNGRY
        + """
from wtb import evaluator

@evaluator(better="higher")
def heavy(case, result):
    ballast = bytearray(b"x") * 400_000_000
    time.sleep(600)
    return len(ballast)
"""
    )
    flows.write(text)
    bench = flows.bench(None, 1, evaluate=[f"{flows.name}:heavy"], run={"set_aside_after": 1}, params={"mb": {}})
    with running(bench, 300 * MB):
        pass
    (cell,) = bench.cells()
    assert cell.status == "succeeded"
    assert "MemoryQuotaReached" in str(cell.scores)


def test_a_waiting_run_is_stopped_with_its_sweep(flows: Flows) -> None:
    bench = flows.bench(HUNGRY, 1, params={"mb": {}})
    other = ProcessIdentity(new_id(), "elsewhere", "b", 7, 0.0)
    slots.register_runner(bench.database, other, DEFAULT_SESSION, 1)
    record_memory(bench.database, other.id, DEFAULT_SESSION, Memory(700 * MB, 600 * MB))
    sessions.change(bench.database, DEFAULT_SESSION, {"memory": 500 * MB})
    run = bench.start()
    until(lambda: bench.row.reason, "a reason")
    run.stop.request("interrupted")
    while not run.wait(1):
        pass
    assert run.finish().status == "paused"
    assert bench.row.reason == "interrupted"
    assert flows.lines_of("began") == []
    record_memory(bench.database, other.id, DEFAULT_SESSION, None)
    go(flows)
    assert bench.run().status == "completed"
