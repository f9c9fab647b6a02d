"""A storm over workers: drawn sweeps, and all faults of a plan while they run, each at its share of the way."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil
from redis.exceptions import RedisError

from tests.chaos import plan as faults
from tests.chaos.drawn.load import Load
from tests.chaos.drawn.record import accepted
from tests.chaos.drawn.scenario import draw_scenarios
from tests.chaos.drawn.source import set_pace
from tests.chaos.figures import Figures, figures, orphans
from tests.chaos.fleet import Fleet, Victim, node_processes
from tests.chaos.plan import LEASE_S, SCHEDULER_INTERVAL_S, SETTINGS, Plan
from tests.chaos.recovery import Recovery
from tests.support.cluster import Cluster
from tests.support.invariants import kill
from tests.support.waiting import until
from wtb.execution.sandbox.launch.process_tags import RUNNER, tag_of
from wtb.hosting.servers.postgres import PostgresServer

PATIENCE_S = 300.0  # for one step of the storm
SILENT_S = LEASE_S + SCHEDULER_INTERVAL_S  # of a zombie, at least
AWAY_S = (1.5, 4.0)  # that a server is stopped or away
GAP_S = (0.2, 1.5)  # between two faults
POLL_S = 0.02
QUICK_S, SLOW_S = 0.05, 1.0  # that a node takes

_END_ALL = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
)


class Storm:
    """Runs the sweeps of a plan on a cluster with servers of its own. say: gets what happens."""

    def __init__(self, cluster: Cluster, plan: Plan, say: Callable[[str], None] = lambda line: None) -> None:
        self._cluster = cluster
        self._plan = plan
        self._say = say
        self._dice = random.Random(plan.seed)
        self._faults = plan.faults()
        self._recovery = Recovery(lambda: cluster.project, lambda: say(f"work is not free in time:\n{self._report()}"))
        self._refused: set[str] = set()  # marks of zombies' attempts that nobody may accept any more
        self._done = 0  # faults
        self._pace = 0.0
        self._strikes: dict[str, Callable[[], None]] = {
            faults.WORKER: self._kill_a_worker,
            faults.NODE: lambda: self._kill_below(1),
            faults.REAPER: lambda: self._kill_below(0),
            faults.SCHEDULER: lambda: self._fleet.kill_a_scheduler(self._dice),
            faults.ZOMBIE: self._zombie,
            faults.FLUSH: self._flush,
            faults.BROKER_KILLED: self._crash_the_broker,
            faults.BROKER_STOPPED: lambda: self._stop(cluster.valkey.pid),
            faults.DATABASE_KILLED: self._crash_the_database,
            faults.DATABASE_STOPPED: lambda: self._stop(self._postgres.pid),
            faults.CONNECTIONS: lambda: cluster.query(_END_ALL),
            faults.AWAY: self._start_while_away,
        }

    def run(self) -> Figures:
        """The whole of it. Raises AssertionError where something did not come about in time."""
        cluster, plan = self._cluster, self._plan
        cluster.env |= SETTINGS
        self._keep_pace(SLOW_S)
        scenarios = draw_scenarios(plan.seed, plan.cells)
        self._load = Load(lambda: cluster.project, cluster.wtb, scenarios, self._say)
        self._fleet = Fleet(cluster)
        began = time.monotonic()
        for number, fault in enumerate(self._faults):
            if time.monotonic() - began > 60 * plan.minutes:
                self._faults = self._faults[:number]
                break
            due = 0.9 * self._load.cells * number / len(self._faults)
            at = time.monotonic() + self._dice.uniform(*GAP_S)
            self._until(
                lambda due=due, at=at: time.monotonic() > at and self._load.ended() >= due, "the sweep to go on"
            )
            if fault in (faults.DATABASE_KILLED, faults.DATABASE_STOPPED, faults.AWAY):
                self._recovery.disturb()
            self._strikes[fault]()
            if fault not in (faults.WORKER, faults.ZOMBIE):  # of those the work that they held is watched
                self._recovery.progress(fault)
            self._done += 1
            self._say(f"{time.monotonic() - began:6.1f} s: {fault} ({self._done} of {len(self._faults)})")
        # The last fault may have struck when all was accepted: then nothing is left that could go on.
        gone_on = lambda: not self._recovery.is_waiting or self._load.is_completed()  # noqa: E731
        self._until(gone_on, "work to go on after the last fault")
        self._keep_pace(QUICK_S)
        self._until(self._load.is_completed, "the sweeps to be completed")
        lasted = time.monotonic() - began
        self._until(self._fleet.is_ready, "the last to be started to hear signals")
        cluster.stop()
        stale = self._refused & accepted(cluster.project).keys()
        return figures(
            "workers",
            cluster.project,
            self._load.scenarios,
            self._load.verdict(),
            faults=Counter(self._faults),
            seconds=lasted,
            times=self._recovery.times,
            stale=stale,
            by_hand=self._load.by_hand,
        ).leaving([*cluster.processes_left(), *orphans(cluster.project)])

    @property
    def _postgres(self) -> PostgresServer:
        assert self._cluster.postgres is not None, "a storm has servers of its own"
        return self._cluster.postgres

    def _until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait, and have what died started again meanwhile."""
        return until(condition, what, PATIENCE_S, pause=POLL_S, meanwhile=self._tend, report=self._report)

    def _tend(self) -> None:
        self._fleet.restart_dead()
        self._recovery.look()
        self._load.look()
        if self._done < len(self._faults):  # all of them strike while there is something left to lose
            ahead = self._load.ended() / self._load.cells > self._done / len(self._faults)
            self._keep_pace(SLOW_S if ahead else QUICK_S)

    def _report(self) -> str:
        """Return the state that a step which did not come about may be waiting for."""
        sessions = "SELECT pid, state, wait_event, xact_start, query_start, left(query, 60) FROM pg_stat_activity"
        leases = (
            "SELECT id, lease_until - extract(epoch FROM clock_timestamp()) FROM executions WHERE status = 'running'"
        )
        rows = [*self._cluster.query(sessions), *self._cluster.query(leases)]
        return "\n".join([*map(str, rows), self._cluster.report()])

    def _keep_pace(self, seconds: float) -> None:
        if seconds != self._pace:
            self._pace = seconds
            set_pace(self._cluster.project, seconds)

    def _victim(self) -> Victim:
        victims: list[Victim] = self._until(self._fleet.victims, "somebody to hold an execution")
        return self._dice.choice(victims)

    def _kill_a_worker(self) -> None:
        victim = self._victim()
        kill(victim.pid)
        if tokens := self._fleet.held_by(victim):  # it may have ended all that it had a moment before
            self._recovery.watch(tokens)

    def _kill_below(self, which: int) -> None:
        """Kill a reaper (0) or a node process (1)."""
        kill(self._dice.choice(self._until(lambda: node_processes(self._cluster)[which], "a node process")))

    def _zombie(self) -> None:
        """Stop a process until it holds nothing any more, and let it go on then."""
        victim = self._victim()
        process = psutil.Process(victim.pid)
        process.suspend()
        try:
            since = time.monotonic()
            self._until(
                lambda: time.monotonic() - since > SILENT_S and not self._fleet.held_by(victim),
                "a zombie's work to be taken back",
            )
            # What it has begun and not committed by now is another one's to do.
            its = {mark for mark, pid in self._load.attempt_starts().items() if self._is_of(pid, victim)}
            self._refused |= its - accepted(self._cluster.project).keys()
        finally:
            process.resume()

    def _is_of(self, pid: int, victim: Victim) -> bool:
        return pid == victim.pid or tag_of(pid, RUNNER) in victim.runners

    def _flush(self) -> None:
        try:
            self._cluster.redis().flushall()
        except RedisError as error:
            self._say(f"the broker could not be emptied: {error}")
            raise

    def _crash_the_broker(self) -> None:
        self._cluster.valkey.kill()
        self._cluster.valkey.start()

    def _crash_the_database(self) -> None:
        self._postgres.kill()
        self._postgres.start()

    def _stop(self, pid: int | None) -> None:
        """Stop a server and all its processes for a while."""
        assert pid is not None, "it runs"
        server = psutil.Process(pid)
        server.suspend()
        family = [pid, *(child.pid for child in server.children(recursive=True))]
        for process in family[1:]:
            _signal(process, signal.SIGSTOP)
        time.sleep(self._dice.uniform(*AWAY_S))
        for process in reversed(family):
            _signal(process, signal.SIGCONT)

    def _start_while_away(self) -> None:
        """Kill PostgreSQL, a scheduler and a worker, and have others started while it is away."""
        victim = self._victim()
        self._postgres.kill()
        kill(victim.pid)
        self._fleet.kill_a_scheduler(self._dice)
        ends = time.monotonic() + self._dice.uniform(*AWAY_S)
        what = "the time without a database to end"
        until(lambda: time.monotonic() >= ends, what, PATIENCE_S, pause=POLL_S, meanwhile=self._fleet.restart_dead)
        self._postgres.start()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
