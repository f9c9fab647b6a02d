"""Limits and rates of nodes hold for all processes on one database, even if some are killed or stopped."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench
from tests.support.forkserver import Script
from tests.support.waiting import until
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.errors import ConflictError
from wtb.core.ids import new_id
from wtb.core.stop import Stop, Stopped
from wtb.execution.runtime.quotas import Permits
from wtb.hosting.servers.postgres import PostgresServer
from wtb.store.database import Database
from wtb.store.process_identity import identity
from wtb.store.runs import leases
from wtb.store.runs import slots as permits
from wtb.store.runs.slots import Place, end_runner
from wtb.store.tables.schema import permits as permits_table
from wtb.store.tables.schema import runners

ELSEWHERE = {"host": "elsewhere", "boot": "b", "pid": 1, "process_started_at": 0.0}

# A runner with some threads that go through the gate of a node, and says when each was inside.
RUNNER = """
import json, sys, threading, time
from dataclasses import replace
from wtb.execution.runtime.quotas import LEASE_S, Permits
from wtb.core.stop import Stop
from wtb.store.process_identity import identity
from wtb.store.runs import leases
from wtb.store.database import Database
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import WorkflowFacts

told = json.loads(sys.argv[1])
database = Database(told["url"])
runner = replace(identity(), **told["runner"])
leases.register(database, runner)

def beat():
    while True:
        time.sleep(LEASE_S / 3)
        leases.renew(database, runner.id, LEASE_S)

workflow = Workflow("shared")
workflow.node(lambda state: {}, name="call", limit=told["limit"], rate=told["rate"])
permits = Permits(workflow.facts(), Stop(), database, runner.id)
inside = []

def work():
    for _ in range(told["times"]):
        with permits.through("call"):
            begun = time.monotonic()
            if told["hold"]:
                print("inside", flush=True)
            time.sleep(told["inside_s"])
            inside.append((begun, time.monotonic()))

threading.Thread(target=beat, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=work) for _ in range(told["threads"])]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(inside), flush=True)
"""

Run = tuple[float, float]


class Runner:
    """A process with a runner of its own. `go`, then `runs`: when each node run began and ended."""

    def __init__(self, database: Database, env: dict[str, str], **settings: Any) -> None:
        self.id = new_id()
        defaults = {"limit": None, "rate": None, "times": 1, "threads": 1, "inside_s": 0.01, "hold": False}
        url = database.url.render_as_string(hide_password=False)
        settings = {**defaults, **settings, "url": url, "runner": {**settings.get("runner", {}), "id": self.id}}
        self.process = Script(RUNNER, json.dumps(settings), env=env)

    def hears(self, word: str) -> None:
        assert self._line() == word

    def go(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def runs(self) -> list[Run]:
        return [(began, ended) for began, ended in json.loads(self._line())]

    def _line(self) -> str:
        """Return the next line, or an empty one if none comes within a minute."""
        ends = threading.Timer(60, self.process.kill)
        ends.start()
        try:
            return self.process.stdout.readline().strip()
        finally:
            ends.cancel()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def at_once(
    database: Database, count: int, env: dict[str, str] | None = None, **settings: Any
) -> Iterator[list[Runner]]:
    """So many processes that begin together."""
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            started.append(Runner(database, env or {}, **settings))
            stack.callback(started[-1].kill)
        for runner in started:
            runner.hears("ready")
        for runner in started:
            runner.go()
        yield started


def most_at_a_time(runs: list[Run]) -> int:
    changes = sorted([(began, 1) for began, _ in runs] + [(ended, -1) for _, ended in runs])
    peak = present = 0
    for _, change in changes:
        present += change
        peak = max(peak, present)
    return peak


def held_permits(database: Database) -> dict[str, int]:
    with database.read() as connection:
        return {row.runner_id: row.held for row in connection.execute(sa.select(permits_table))}


def runner(database: Database, **identity_of: Any) -> str:
    """Register a runner of this process or of another one, and return its id."""
    row = replace(identity(), **identity_of)
    leases.register(database, row)
    return row.id


def limited(limit: int | None = None, rate: float | None = None) -> WorkflowFacts:
    workflow = Workflow("shared")
    workflow.node(lambda state: {}, name="call", limit=limit, rate=rate)
    workflow.node(lambda state: {}, name="free")
    return workflow.facts()


def ask(database: Database, runner_id: str, in_use: int, limit: int) -> bool:
    """Return whether a runner with `in_use` permits gets another one."""
    place = Place("shared", "call", runner_id)
    permits.make_place(database, place)
    got = permits.ask(database, place, in_use, permits.Limits(limit), fresh_s=30.0, alive=lambda row: True)
    return got is not None


def pass_time(seconds: float) -> None:
    ends = time.monotonic() + seconds
    until(lambda: time.monotonic() > ends)


class Waiting:
    """A thread that passes the gate, and its outcome."""

    def __init__(self, permits: Permits) -> None:
        self.raised: BaseException | None = None
        self.passed = self.ended_at = 0.0
        self._permits = permits
        self.release = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            with self._permits.through("call"):
                self.passed = time.monotonic()
                self.release.wait(60)
        except Stopped as error:
            self.raised = error
        self.ended_at = time.monotonic()

    def leave(self) -> None:
        self.release.set()
        self.thread.join(20)


# Limits


def test_a_limit_holds_across_processes_and_is_used_to_the_full(database: Database) -> None:
    with at_once(database, 3, limit=2, threads=3, times=2, inside_s=0.2) as started:
        runs = [run for process in started for run in process.runs()]

    assert len(runs) == 3 * 3 * 2
    assert most_at_a_time(runs) == 2
    assert held_permits(database) == {}


def test_runs_of_a_sweep_in_several_commands_keep_the_limit_of_a_node(
    database: Database, bench: Callable[..., Bench]
) -> None:
    inside: list[Run] = []
    workflow = Workflow("shared")
    pair = threading.Barrier(2)

    def call(state: Any) -> dict[str, Any]:
        began = time.monotonic()
        pair.wait(60)  # for another one inside
        time.sleep(0.01)  # in which a third one would be seen
        inside.append((began, time.monotonic()))
        return {"y": state["x"]}

    workflow.entry(workflow.node(call, name="call", limit=2))
    cases = [{"id": str(number), "input": {"x": number}} for number in range(12)]
    runs = [bench(workflow, cases, run={"concurrency": 4, "pool": "thread"}).start() for _ in range(2)]
    for run in runs:
        until(lambda run=run: run.wait(1), "its end")  # type: ignore[misc]

    assert [run.finish().status for run in runs] == ["completed", "completed"]
    assert len(inside) == 24
    assert most_at_a_time(inside) == 2
    assert held_permits(database) == {}


def test_the_limit_of_the_one_that_asks_holds_against_all_that_is_held(database: Database) -> None:
    first, second, third = (runner(database) for _ in range(3))
    assert [ask(database, first, count, limit=5) for count in range(3)] == [True] * 3

    assert not ask(database, second, 0, limit=3)
    permits.hold(database, Place("shared", "call", second), 0)  # it waits no longer
    assert ask(database, third, 0, limit=4)
    assert not ask(database, first, 3, limit=4)


def test_nodes_of_other_names_and_workflows_have_limits_of_their_own(database: Database) -> None:
    first, second = runner(database), runner(database)
    assert ask(database, first, 0, limit=1)

    for place in (Place("shared", "other", second), Place("another", "call", second)):
        permits.make_place(database, place)
        got = permits.ask(database, place, 0, permits.Limits(1), fresh_s=30.0, alive=lambda row: True)
        assert got == 0.0


def test_sweeps_of_one_runner_share_the_permits_that_it_holds(database: Database) -> None:
    both = runner(database)
    first, second = (Permits(limited(limit=1), Stop(), database, both) for _ in range(2))
    with first.through("call"):
        waiting = Waiting(second)
        assert not ask(database, runner(database), 0, limit=1)  # a second runner comes, and waits
        pass_time(0.5)
        assert not waiting.passed
        assert held_permits(database)[both] == 1
        end_runner(database, next(id for id in held_permits(database) if id != both))
    until(lambda: waiting.passed)
    assert held_permits(database) == {both: 1}
    waiting.leave()
    assert held_permits(database) == {}


def test_a_node_without_limit_and_rate_asks_the_database_nothing(database: Database) -> None:
    passing = Permits(limited(limit=1), Stop(), database, runner(database))
    statements: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))

    with passing.through("free"):
        pass
    assert statements == []

    with passing.through("call"):
        pass
    assert statements


# The line


@pytest.mark.slow
def test_no_runner_is_passed_over_in_a_hundred_turns(database: Database) -> None:
    order = contended = list[str]()
    for _ in range(5):  # on a busy machine one of them may be through before another has begun
        with at_once(database, 3, limit=1, threads=3, times=12, inside_s=0.002) as started:
            order = [id for _, id in sorted((began, process.id) for process in started for began, _ in process.runs())]
        assert len(order) == 108
        contended = order[
            max(order.index(id) for id in set(order)) : min(len(order) - order[::-1].index(id) for id in set(order))
        ]
        if len(contended) > 40:
            break
    assert len(contended) > 40, "the processes did not work at the same time"
    for id in set(order):
        places = [place for place, at in enumerate(contended) if at == id]
        # While a process has others that wait it is in line again at once, at the third place at most.
        assert max(later - earlier for earlier, later in pairwise(places)) <= 6


def test_runners_that_have_none_get_the_next_permits_in_the_order_in_which_they_came(database: Database) -> None:
    first, second, third = (runner(database) for _ in range(3))
    assert ask(database, first, 0, limit=1)
    assert not ask(database, second, 0, limit=1)
    assert not ask(database, third, 0, limit=1)

    permits.hold(database, Place("shared", "call", first), 0)

    assert not ask(database, first, 0, limit=1)
    assert not ask(database, third, 0, limit=1)
    assert ask(database, second, 0, limit=1)
    permits.hold(database, Place("shared", "call", second), 0)
    assert not ask(database, first, 0, limit=1)
    assert ask(database, third, 0, limit=1)


# Runners that die


def test_a_killed_holder_of_this_machine_gives_back_its_permit_at_once(database: Database) -> None:
    with at_once(database, 1, limit=1, hold=True, inside_s=600) as (holder,):
        holder.hears("inside")
        waiting = Waiting(Permits(limited(limit=1), Stop(), database, runner(database)))
        until(lambda: len(held_permits(database)) == 2)
        assert not waiting.passed
        holder.kill()
        killed = time.monotonic()
        until(lambda: waiting.passed)

    assert waiting.passed - killed < 5.0  # of a lease of 30 s
    assert holder.id not in held_permits(database)
    waiting.leave()


@pytest.mark.slow
def test_a_killed_holder_of_another_machine_gives_back_its_permit_when_its_lease_has_ended(database: Database) -> None:
    lease = {"WTB_LEASE_S": "1.5"}
    with at_once(database, 1, lease, limit=1, hold=True, inside_s=600, runner=ELSEWHERE) as (holder,):
        holder.hears("inside")
        with at_once(database, 1, lease, limit=1, inside_s=0.0) as (other,):
            until(lambda: len(held_permits(database)) == 2)
            pass_time(2.0)  # it beats, so that it keeps its permit longer than one lease
            assert held_permits(database)[holder.id] == 1
            holder.kill()
            killed = time.monotonic()
            ((began, _),) = other.runs()

    assert 0.5 < began - killed < 3.0  # it was last seen up to 0.5 s earlier
    assert held_permits(database) == {}


def test_permits_of_a_runner_that_has_ended_are_removed_by_who_asks(database: Database) -> None:
    first, second = runner(database), runner(database)
    assert ask(database, first, 0, limit=1)
    assert not ask(database, second, 0, limit=1)

    end_runner(database, first)

    assert ask(database, second, 0, limit=1)
    assert held_permits(database) == {second: 1}


def test_a_runner_that_comes_back_from_the_dead_counts_for_what_it_still_holds(database: Database) -> None:
    first, second = runner(database), runner(database)
    assert ask(database, first, 0, limit=3)
    with database.write() as connection:
        connection.execute(runners.update().where(runners.c.id == first).values(seen_at=0.0))
    assert ask(database, second, 0, limit=3)
    assert held_permits(database) == {second: 1}

    leases.renew(database, first, 30.0)

    assert ask(database, first, 1, limit=3)
    assert held_permits(database) == {first: 2, second: 1}
    assert not ask(database, second, 1, limit=3)


def test_a_runner_that_was_removed_is_refused_with_the_reason(database: Database) -> None:
    with pytest.raises(ConflictError, match=r"node 'call': runner gone is no longer in the database .* submit"):
        ask(database, "gone", 0, limit=1)


def test_a_runner_stopped_in_the_middle_of_asking_keeps_others_waiting_without_an_error(
    prepared_postgres_url: str,
) -> None:
    database = Database(prepared_postgres_url)
    runner_id = runner(database)
    assert ask(database, runner_id, 0, limit=2)
    with database.write() as frozen:
        frozen.execute(sa.text("SELECT * FROM limited_nodes FOR UPDATE"))
        waiting = Waiting(Permits(limited(limit=2), Stop(), database, runner(database)))
        pass_time(6.0)  # longer than a statement waits for a lock
        assert waiting.thread.is_alive()
        assert not waiting.passed
    until(lambda: waiting.passed, "the one that waits to pass", 5)
    waiting.leave()
    database.close()


def test_what_could_not_be_released_while_the_database_was_down_is_released_later(servers_folder: Path) -> None:
    with PostgresServer(servers_folder / "permits") as server:
        database = Database(server.url)
        database.prepare()
        mine = Permits(limited(limit=1), Stop(), database, runner(database))
        with mine.through("call"):
            assert list(held_permits(database).values()) == [1]
            server.stop(immediate=True)
        server.start()
        new_database = Database(server.url)
        until(lambda: held_permits(new_database) == {})
        new_database.close()
        database.close()


# Stops


def test_those_that_wait_for_a_permit_end_at_once_when_the_sweep_is_stopped(database: Database) -> None:
    runner_id = runner(database)
    assert ask(database, runner_id, 0, limit=1)
    stop = Stop()
    mine = Permits(limited(limit=1), stop, database, runner(database))
    waiting = [Waiting(mine) for _ in range(20)]
    until(lambda: len(held_permits(database)) == 2)

    stop.request("enough")
    stopped = time.monotonic()
    for each in waiting:
        each.thread.join(20)

    assert max(each.ended_at for each in waiting) - stopped < 1.0
    assert {str(each.raised) for each in waiting} == {"enough"}
    assert held_permits(database) == {runner_id: 1}  # and they have left the line


def test_those_that_wait_for_a_turn_end_at_once_and_waste_only_one(database: Database) -> None:
    stop = Stop()
    mine = Permits(limited(limit=4, rate=0.2), stop, database, runner(database))
    waiting = [Waiting(mine) for _ in range(4)]
    until(lambda: any(each.passed for each in waiting))
    until(lambda: list(held_permits(database).values()) == [2])  # one is inside, and the next waits for its turn

    stop.request("enough")
    stopped = time.monotonic()
    for each in waiting:
        each.leave()

    assert max(each.ended_at for each in waiting) - stopped < 1.0
    assert sum(each.raised is not None for each in waiting) == 3
    assert held_permits(database) == {}
    place = Place("shared", "call", runner(database))
    turn = permits.ask(database, place, 0, permits.Limits(None, 5.0), fresh_s=30.0, alive=lambda row: True)
    assert turn is not None
    assert turn <= 10.0


# Rates


@pytest.mark.parametrize("limit", [None, 4])
def test_a_rate_holds_in_every_window_across_processes(database: Database, limit: int | None) -> None:
    rate, late_s = 10.0, 0.1
    with at_once(database, 2, limit=limit, rate=rate, threads=3, times=3, inside_s=0.0) as started:
        starts = sorted(run[0] for process in started for run in process.runs())

    assert len(starts) == 18
    for first in range(len(starts)):
        for last in range(first + 1, len(starts)):
            assert starts[last] - starts[first] >= (last - first) / rate - late_s
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert statistics.median(gaps) < 2 / rate, "turns were left unused"


def test_turns_that_nobody_took_are_not_made_up_for(database: Database) -> None:
    place = Place("shared", "call", runner(database))
    permits.make_place(database, place)

    def turn() -> float | None:
        return permits.ask(database, place, 0, permits.Limits(None, 0.2), fresh_s=30.0, alive=lambda row: True)

    assert turn() == 0.0
    pass_time(0.7)
    began = time.monotonic()
    assert turn() == 0.0
    later = turn()
    assert later is not None
    assert 0.2 - (time.monotonic() - began) - 0.01 <= later <= 0.2 + 1e-6  # of seconds since the epoch
