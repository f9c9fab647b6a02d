"""Slots that sweeps, queues, sessions and nodes share: who works on what, and how much of it at a time."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from tests.support import invariants as trail
from tests.support.attempts import ATTEMPTS
from tests.support.cluster import Cluster
from wtb.execution.execution import Execution
from wtb.store.database import Database
from wtb.store.runs import leases
from wtb.store.runs.queue import DEFAULT_QUEUE
from wtb_workers import session as session_module

FLOW = """
import os
import time

from wtb import END, Workflow

wf = Workflow("shared")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


def say(word, ctx):
    line = f"{time.time():.6f} {os.environ['TESTED_WORKER']} {word} {ctx.params['sweep']} {ctx.node} {ctx.case.id}\\n"
    log = os.open(HERE + "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, line.encode())
    os.close(log)


def run(state, ctx):
    say("begun", ctx)
    while ctx.params.get("hold") and not os.path.exists(HERE + "gate"):
        time.sleep(0.005)
    time.sleep(ctx.params.get("seconds", 0.01))
    ctx.cost(usd=ctx.params.get("usd", 0.0))
    say("ended", ctx)
    return {ctx.node: 1}


NODES = [wf.node(run, name=name, **options) for name, options in %s]
wf.entry(NODES[0])
for one, other in zip(NODES, [*NODES[1:], END]):
    wf.edge(one, other)
"""


@dataclass(frozen=True)
class Noted:
    """A note of a node. at: seconds since the epoch."""

    at: float
    worker: str
    word: str
    sweep: str
    node: str
    case: str


def noted(cluster: Cluster, word: str = "begun", sweep: str = "") -> list[Noted]:
    lines = (line.split(" ") for line in cluster.project.log())
    notes = [Noted(float(at), *words) for at, *words in lines]
    return sorted((note for note in notes if note.word == word and sweep in ("", note.sweep)), key=lambda note: note.at)


def at_a_time(cluster: Cluster) -> int:
    """The most nodes that ran at the same moment."""
    changes = [(note.at, 1) for note in noted(cluster)] + [(note.at, -1) for note in noted(cluster, "ended")]
    peak = present = 0
    for _, change in sorted(changes):
        present += change
        peak = max(peak, present)
    return peak


def write_flow(cluster: Cluster, nodes: Sequence[tuple[str, dict[str, object]]] = (("work", {}),)) -> None:
    cluster.take_time()
    cluster.project.write({"shared.py": FLOW % repr(list(nodes))})


def submit(cluster: Cluster, name: str, cases: int, *args: str, params: str = "", more: str = "") -> str:
    """Submit a sweep of so many cases and one combination."""
    spec = f"sweep: {name}\nworkflow: shared:wf\ncases: cases-{name}.jsonl\nvary: {{{first(cluster)}: all}}\n"
    spec += f"params: {{sweep: {name}{', ' if params else ''}{params}}}\n{more}"
    cluster.project.write({f"{name}.yaml": spec, f"cases-{name}.jsonl": cluster.project.cases(cases)})
    return cluster.submit(f"{name}.yaml", *args)


def first(cluster: Cluster) -> str:
    return "a" if "('a'," in (cluster.project.folder / "shared.py").read_text() else "work"


def open_gate_at_two(cluster: Cluster) -> None:
    """Let nodes that are on hold go on, once there are two of them."""
    cluster.until(lambda: len(noted(cluster)) >= 2, "two nodes to run at a time")
    cluster.project.write({"gate": ""})


@pytest.mark.slow
def test_a_node_is_run_by_a_worker_of_its_queue_and_no_other(cluster: Cluster) -> None:
    """Executions move to the worker of `gpu` and back, and that one takes nothing else."""
    write_flow(cluster, [("a", {}), ("b", {"queue": "gpu"}), ("c", {})])
    cluster.start_worker(concurrency=2, ready=False)
    cluster.start_worker(concurrency=1, queues="gpu", ready=False)
    cluster.start_scheduler()
    cluster.wait_ready()
    submit(cluster, "one", 4)
    cluster.ends_well({"succeeded": 4})
    ran = Counter((note.worker, note.node) for note in noted(cluster))
    assert ran == {("w0", "a"): 4, ("w1", "b"): 4, ("w0", "c"): 4}


@pytest.mark.slow
def test_a_sweep_submitted_second_begins_long_before_the_first_ends(cluster: Cluster) -> None:
    write_flow(cluster)
    cluster.start_worker(concurrency=2, ready=False)
    cluster.start_scheduler()
    cluster.wait_ready()
    submit(cluster, "one", 80, params="seconds: 0.1")
    cluster.until(lambda: noted(cluster), "the first to begin")
    submit(cluster, "two", 8, params="seconds: 0.1")
    cluster.ends_well({"succeeded": 88})
    before = [note.at for note in noted(cluster, sweep="one") if note.at < noted(cluster, sweep="two")[0].at]
    assert len(before) < 60
    assert noted(cluster, "ended", "two")[-1].at < noted(cluster, "ended", "one")[-1].at


@pytest.mark.slow
def test_what_waits_behind_a_long_node_is_run_by_a_worker_that_has_a_free_slot(cluster: Cluster) -> None:
    write_flow(cluster)
    cluster.start_worker(concurrency=1)
    cluster.start_scheduler()
    submit(cluster, "one", 4, params="hold: true")
    cluster.until(lambda: noted(cluster), "a node to hold the slot")
    assert len(cluster.executions("running")) == 1, "the others wait as tasks of their own"
    cluster.start_worker(concurrency=3)
    cluster.until(lambda: len(noted(cluster)) == 4, "all to have begun, none of which has ended")
    cluster.project.write({"gate": ""})
    cluster.ends_well({"succeeded": 4})


@pytest.mark.slow
def test_a_sweep_of_higher_priority_comes_first(cluster: Cluster) -> None:
    write_flow(cluster)
    cluster.start_worker(ready=False)
    cluster.start_scheduler()
    cluster.wait_ready()
    submit(cluster, "low", 20, params="hold: true")
    cluster.until(lambda: noted(cluster), "a node to hold the slot")
    submit(cluster, "high", 6, "--priority", "5")
    cluster.project.write({"gate": ""})
    cluster.ends_well({"succeeded": 26})
    order = [note.sweep for note in noted(cluster)]
    begin = order.index("high")
    assert order[begin : begin + 6] == 6 * ["high"], order
    assert begin <= 10, "what a slot had claimed before is at most half of it"


@pytest.mark.slow
def test_the_quota_of_node_runs_of_a_session_holds_across_workers(cluster: Cluster) -> None:
    write_flow(cluster)
    cluster.wtb("admin", "session", "create", "small", "--concurrency", "2", check=0)
    cluster.start_two()
    submit(cluster, "one", 10, "--session", "small", params="seconds: 0.1, hold: true")
    open_gate_at_two(cluster)
    cluster.ends_well({"succeeded": 10})
    assert at_a_time(cluster) == 2
    assert len(noted(cluster)) == 10


def test_a_limit_of_node_runs_is_exact_across_workers(cluster: Cluster) -> None:
    write_flow(cluster)
    cluster.start_two()
    sweep = submit(cluster, "one", 20, params="seconds: 0.05", more="limits: {node_runs: 7}\n")
    cluster.until(lambda: cluster.sweeps()[sweep] == "paused", "the limit to pause the sweep")
    cluster.until(lambda: cluster.executions("running") == [], "all of it to be given back")
    assert len(noted(cluster)) == 7
    assert cluster.scalar("SELECT count(*) FROM node_runs WHERE status = 'succeeded'") == 7
    assert "node_runs" in cluster.scalar("SELECT reason FROM sweeps")
    cluster.wtb("resume", sweep, "--limits", "node_runs=1000", check=0)
    cluster.ends_well({"succeeded": 20})
    assert len(noted(cluster)) == 20


@pytest.mark.slow
def test_what_a_worker_claims_while_its_sweep_is_paused_is_released(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker looks at what others decided in the very moment in which it opens what it has claimed."""
    write_flow(cluster)
    submit(cluster, "one", 2, "--anyway")
    monkeypatch.chdir(cluster.project.folder)
    monkeypatch.syspath_prepend(str(cluster.project.folder))
    monkeypatch.setenv("TESTED_WORKER", "here")
    load = session_module.load_executions

    def paused_meanwhile(database: Database, sweep: str, rows: Sequence[Mapping[str, Any]]) -> list[Execution]:
        leases.pause(database, sweep, "not now", by="me")
        session._poll()
        return load(database, sweep, rows)

    monkeypatch.setattr(session_module, "load_executions", paused_meanwhile)
    with closing(Database(str(cluster.project.url))) as database:
        worker = session_module.Worker("here", 1, (DEFAULT_QUEUE,))
        slots = session_module.Slots(1)
        session = session_module.WorkerSession(database, worker, lambda: None, slots, lambda: None)
        try:
            number = slots.acquire()
            assert number is not None
            _, run = session.claim(number, cluster.tasks()[0])
            assert run is not None
            session.work_off(run)
            assert run.given_up == "not now"
            cluster.until(lambda: not cluster.executions("running"), "what it claimed to be given back", 10)
        finally:
            session.end()
            sys.modules.pop("shared", None)  # of this project: other tests have one of that name
    assert cluster.cells() == {"pending": 2}


@pytest.mark.slow
def test_a_slot_that_is_lent_to_a_parallel_node_claims_nothing_which_would_wait_for_it(cluster: Cluster) -> None:
    """Two parallel nodes take both slots of a worker: what is submitted then is another worker's to run."""
    trail.write_trail(cluster.project, 1, params="{hold: [b c0, c c0]}")
    cluster.start_worker(concurrency=2)
    cluster.submit()
    trails = {"c0/a=default/b=default", "c0/a=default/c=default"}
    cluster.until(lambda: trails <= {note.trail for note in trail.noted(cluster.project, "begun")}, "both to be held")
    cluster.until(lambda: len(cluster.query("SELECT * FROM working")) == 2, "both slots to be busy")
    trail.write_trail(cluster.project, 1)
    second = cluster.submit("sweep.yaml", "--anyway")
    cluster.start_worker(concurrency=1)
    cluster.start_scheduler()
    cluster.wait_completed(second)
    cluster.project.write({"gate": ""})
    cluster.wait_completed()
    cluster.ends_well({"succeeded": 2 * trail.CELLS})


@pytest.mark.slow
def test_a_limit_of_us_dollars_stops_all_workers(cluster: Cluster) -> None:
    """The first run shows what a node costs, and alone; from then on so many start as there is money for."""
    write_flow(cluster)
    cluster.start_two()
    sweep = submit(cluster, "one", 200, params="seconds: 0.1, usd: 1.0", more="limits: {usd: 5}\n")
    cluster.until(lambda: cluster.sweeps()[sweep] == "paused", "the limit to pause the sweep")
    cluster.until(lambda: cluster.executions("running") == [], "all of it to be given back")
    spent = cluster.scalar(f"SELECT sum(usd) FROM {ATTEMPTS}")
    assert spent == 5
    cluster.stop()
    cluster.no_slot_is_busy()


@pytest.mark.parametrize(
    ("options", "cases"),
    [({"limit": 2}, 12), pytest.param({"rate": 5.0}, 10, marks=pytest.mark.slow)],
    ids=["limit", "rate"],
)
def test_a_limit_or_rate_of_a_node_holds_across_workers(
    cluster: Cluster, options: dict[str, object], cases: int
) -> None:
    write_flow(cluster, [("work", options)])
    cluster.start_two()
    submit(cluster, "one", cases, params=f"seconds: 0.1, hold: {'limit' in options}")
    if "limit" in options:
        open_gate_at_two(cluster)
    cluster.ends_well({"succeeded": cases})
    if "limit" in options:
        assert at_a_time(cluster) == 2
    else:
        starts = [note.at for note in noted(cluster)]
        # Between its turn and its first line a node takes as long as the machine likes, but not for all of them.
        assert starts[-1] - starts[0] > (cases - 1) / 5 * 0.9
        assert sum(later - earlier for earlier, later in pairwise(starts)) > 0
