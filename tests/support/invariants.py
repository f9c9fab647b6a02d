"""The trail workflow, its log, and what must hold in the database and the process table at the end."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psutil

from tests.support.attempts import ATTEMPTS
from tests.support.project import Project
from wtb.execution.sandbox.launch.process_tags import RUNNER
from wtb.store.files.store import FileStore

SLOTS = 2
DURABILITY_S = 0.02
LATE_S = 0.5  # a commit on a busy machine

# How a workflow begins whose nodes add lines to the file `log`, and may wait until there is a file `gate`.
GATED = """
import os
import time

from wtb import END, Workflow

HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


def note(line):
    log = os.open(HERE + "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{line}\\n".encode())
    os.close(log)


def wait_for_gate():
    while not os.path.exists(HERE + "gate"):
        time.sleep(0.005)


"""

# A -> (B(2), C(2)) -> D: nine node runs and four cells a case. Every node run writes the way that led to it, which is
# its name: into the log at its begin and end, into the state, and into a file of its workspace.
FLOW = (
    GATED
    + """
wf = Workflow("trail")


def say(word, trail):
    note(f"{time.time():.6f} {os.getpid()} {word} {trail}")


def run(ctx, came_by):
    trail = f"{came_by}/{ctx.node}={ctx.variant}"
    say("begun", trail)
    if f"{ctx.node} {ctx.case.id}" in ctx.params.get("hold", ()):
        say("held", trail)
        wait_for_gate()
    time.sleep(ctx.params.get("seconds", 0.02))
    if ctx.params.get("files", True):
        (ctx.workspace / f"{ctx.node}.txt").write_text(trail)
    say("ended", trail)
    return {ctx.node: trail}


@wf.node
def a(state, ctx):
    return run(ctx, ctx.case.id)


@wf.node
def b(state, ctx, *, by: int = 0):
    return run(ctx, state["a"])


@wf.node
def c(state, ctx, *, by: int = 0):
    return run(ctx, state["a"])


@wf.node
def d(state, ctx):
    return run(ctx, f"({state['b']}+{state['c']})")


b.variant("one", by=1)
c.variant("one", by=1)
wf.entry(a)
wf.edge(a, b)
wf.edge(a, c)
wf.edge([b, c], d)
wf.edge(d, END)


def whole(case, result):
    way = f"({result.state['b']}+{result.state['c']})/d=default"
    names = sorted(file.name for file in result.workspace.iterdir())
    files = names == ["a.txt", "b.txt", "c.txt", "d.txt"] and (result.workspace / "d.txt").read_text() == way
    return result.state["d"] == way and files
"""
)
A_CASE = 1 + 2 + 2 + 4  # node runs
CELLS = 4  # of a case

SWEEP = """
sweep: trail
workflow: trail:wf
cases: cases.jsonl
vary: {b: all, c: all}
evaluate: ["trail:whole"]
seed: 3472  # of which the mixed order of up to four cases is their own, so that tests know where the slots are
"""


def write_trail(
    project: Project,
    cases: int,
    *,
    params: str = "{}",
    run: str = "",
    durability: str = f"{DURABILITY_S * 1000:g}ms",
) -> None:
    """The trail workflow over so many cases. params, run: what the sweep file says there, as YAML in one line."""
    more = f"run: {{concurrency: {SLOTS}, durability: {durability}{', ' if run else ''}{run}}}\n"
    spec = f"{SWEEP}params: {params}\n{more}"
    project.write({"trail.py": FLOW, "sweep.yaml": spec, "cases.jsonl": project.cases(cases)})


def expected_trails(cases: int) -> set[str]:
    """Every node run that the sweep is made of."""
    trails = set()
    for case in range(cases):
        a = f"c{case}/a=default"
        bs, cs = ([f"{a}/{node}={variant}" for variant in ("default", "one")] for node in "bc")
        trails |= {a, *bs, *cs, *(f"({b}+{c})/d=default" for b, c in product(bs, cs))}
    return trails


@dataclass(frozen=True)
class Noted:
    """A line of the log. at: seconds since the epoch."""

    at: float
    pid: int
    word: str
    trail: str


def noted(project: Project, word: str | None = None) -> list[Noted]:
    """Return the notes that nodes wrote so far."""
    lines = (line.split(" ", 3) for line in project.log())
    notes = [Noted(float(at), int(pid), label, trail) for at, pid, label, trail in lines]
    return [note for note in notes if word in (None, note.word)]


def committed(project: Project) -> Counter[str]:
    """The node runs that the database has accepted, by what they wrote."""
    keys = []
    for node, writes in project.query("SELECT node, writes FROM node_runs WHERE status = 'succeeded'"):
        keys.append((json.loads(writes) if isinstance(writes, str) else writes)[node])
    stored = dict(project.query('SELECT digest, data FROM "values"'))
    return Counter(json.loads(stored[key]) for key in keys)


@dataclass(frozen=True)
class Before:
    """The state when a runner had died: the node runs committed by then, and the notes in the log."""

    committed: Counter[str]
    log: list[Noted]

    @classmethod
    def of(cls, project: Project) -> Before:
        # The log first: a node of the dead runner may still say something while its keeper ends it.
        log = noted(project)
        return cls(committed(project), log)


def nodes_have_ended(project: Project) -> None:
    """Wait until nothing of a dead runner says anything more: its keepers end its nodes a moment later than it."""
    project.until(lambda: not any(lives(pid) for pid in {note.pid for note in noted(project)}), "nodes to end", 10)


def nothing_committed_ran_again(project: Project, before: Before) -> None:
    ran = Counter(note.trail for note in noted(project, "begun"))
    once = Counter(note.trail for note in before.log if note.word == "begun")
    assert {trail: ran[trail] for trail in before.committed} == {trail: once[trail] for trail in before.committed}


def at_most_durability_was_lost(
    before: Before, earlier: Sequence[Before] = (), *, killed_at: float | None = None
) -> None:
    """Assert that every node run ended by the last runner `durability` before its kill is committed.

    earlier: what was there when the runners before it died. killed_at: else the last that the log says.
    """
    its = before.log[len(earlier[-1].log) if earlier else 0 :]
    last = killed_at or max((note.at for note in its), default=0.0)
    due = {note.trail for note in its if note.word == "ended" and note.at < last - DURABILITY_S - LATE_S}
    assert due <= before.committed.keys(), f"lost although it was due: {sorted(due - before.committed.keys())}"


def invariants_hold(project: Project, cells: Mapping[str, int], *, rewound: bool = False) -> None:
    """Every sweep of the database is completed, all cells together have these outcomes, and nothing is left behind.

    A: each cell has one outcome. B: nothing is recorded twice. D: no process, directory or lease is left.
    rewound: accepted node runs were lost to damage, and accepted a second time.
    """
    assert project.query("SELECT DISTINCT status FROM sweeps") == [("completed",)]
    each_cell_has_one_outcome(project, cells)
    nothing_is_recorded_twice(project, rewound=rewound)
    nothing_is_left(project)


def each_cell_has_one_outcome(project: Project, cells: Mapping[str, int]) -> None:
    assert dict(project.query("SELECT status, count(*) FROM cells GROUP BY status")) == dict(cells)
    total = sum(cells.values())
    assert project.query("SELECT sum(cells) FROM sweeps") == [(total,)]
    stands_for: Counter[tuple[Any, ...]] = Counter()
    ended_executions = "FROM executions WHERE status IN ('completed', 'failed')"
    query = f"SELECT id, sweep_id, case_number, repeat, combinations {ended_executions}"
    for id, sweep, case, repeat, numbers in project.query(query):
        for number in json.loads(numbers) if isinstance(numbers, str) else numbers:
            stands_for[id, sweep, case, repeat, number] += 1
    holders = project.query(
        "SELECT execution_id, sweep_id, case_number, repeat, combination FROM cells "
        "WHERE status IN ('succeeded', 'failed', 'set_aside')"
    )
    assert stands_for == Counter(holders), "cells and the executions that ended for them differ"
    ended = {name: count for name, count in cells.items() if name in ("succeeded", "failed", "set_aside")}
    counts = {kind: count for kind, count in events_by_kind(project).items() if kind.startswith("cell.") and count}
    assert counts == {f"cell.{name}": count for name, count in ended.items()}
    assert project.query("SELECT count(*) FROM (SELECT DISTINCT sweep_id, metric FROM scores) AS each_one") in (
        [(0,)],
        project.query("SELECT count(*) FROM metrics"),
    )
    scored = project.query("SELECT metric, count(*) FROM scores GROUP BY metric")
    assert all(count == cells.get("succeeded", 0) for _, count in scored)
    assert project.query("SELECT count(*) FROM scores WHERE error IS NOT NULL OR value <> 1") == [(0,)]


def nothing_is_recorded_twice(project: Project, *, rewound: bool = False) -> None:
    key = "checkpoint_id, task, variant"
    assert project.query(f"SELECT {key} FROM node_runs GROUP BY {key} HAVING count(*) > 1") == []
    if rewound:
        return
    accepted = (
        f"SELECT r.id FROM node_runs r LEFT JOIN (SELECT * FROM {ATTEMPTS} WHERE status = 'succeeded') a "
        "ON a.node_run_id = r.id WHERE r.status = 'succeeded' GROUP BY r.id HAVING count(a.node_run_id) <> 1"
    )
    assert project.query(accepted) == [], "node runs without exactly one accepted attempt"
    twice = (
        "SELECT id FROM node_runs JOIN attempts ON node_run_id = id WHERE begun_at IS NOT NULL "
        "OR (node_runs.status = 'succeeded' AND attempts = 1)"
    )
    assert project.query(twice) == [], "attempts with a row although their node run describes them"
    counts = {table: project.query(f"SELECT count(*) FROM {table}")[0][0] for table in ("node_runs", "checkpoints")}
    events = events_by_kind(project)
    (succeeded,) = project.query("SELECT count(*) FROM node_runs WHERE status = 'succeeded'")[0]
    assert events.get("node_run.succeeded", 0) == succeeded
    roots = project.query("SELECT count(*) FROM checkpoints WHERE parent_id IS NULL")[0][0]
    assert events.get("checkpoint.created", 0) == counts["checkpoints"] - roots
    assert events.get("execution.started", 0) == roots
    branches = "SELECT parent_id, writers FROM checkpoints WHERE parent_id IS NOT NULL AND inside IS NULL"
    each = Counter((parent, json.dumps(writers, sort_keys=True)) for parent, writers in project.query(branches))
    assert not [step for step, count in each.items() if count > 1], "a step was joined twice"


def events_by_kind(project: Project) -> dict[str, int]:
    """Count the events of each kind in the log, including those derived from rows of other tables."""
    derived = {
        "node_run.started": ("node_runs", "started_transaction"),
        "node_run.succeeded": ("node_runs", "ended_event"),
        "checkpoint.created": ("checkpoints", "created_event"),
    }
    kinds = ["SELECT kind FROM events"]
    kinds += [f"SELECT '{kind}' FROM {table} WHERE {id} IS NOT NULL" for kind, (table, id) in derived.items()]
    of_end = "CASE WHEN children IS NULL THEN 'execution.completed' ELSE 'execution.forked' END"
    kinds.append(f"SELECT {of_end} FROM executions WHERE ended_event IS NOT NULL")
    counts = dict(project.query(f"SELECT kind, count(*) FROM ({' UNION ALL '.join(kinds)}) AS log GROUP BY kind"))
    without_children = "FROM executions WHERE ended_event IS NOT NULL AND children IS NULL"
    ends = project.query(f"SELECT CAST(combinations AS text) {without_children}")
    cells = sum(len(json.loads(combinations)) for (combinations,) in ends)
    return counts | {"cell.succeeded": counts.get("cell.succeeded", 0) + cells}


def nothing_is_left(project: Project, *, patience: float = 10.0) -> None:
    """No lease, no process and no directory: of this database's runners, however they ended."""
    held = "status = 'running' OR owner_id IS NOT NULL OR lease_until IS NOT NULL"
    assert project.query(f"SELECT id, status FROM executions WHERE {held}") == []
    assert project.query("SELECT count(*) FROM sweeps WHERE status = 'running' OR runner_id IS NOT NULL") == [(0,)]
    # A keeper whose runner was killed takes a moment to end what it keeps.
    with suppress(AssertionError):
        project.until(lambda: not processes_left(project), "node processes to end", patience)
    assert processes_left(project) == []
    assert directories_left(project) == []


def processes_left(project: Project) -> list[str]:
    """Processes that carry the tag of one of this database's runners."""
    runners = {id for (id,) in project.query("SELECT id FROM runners")}
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(RUNNER) in runners and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(f"{process.pid}: {' '.join(process.cmdline())[:80]}")
    return processes


def directories_left(project: Project) -> list[str]:
    """Return the folders below `.wtb/sessions`, where attempts have their workspaces."""
    home = Path(project.folder / ".wtb" / "sessions")
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


def trail_is_complete(project: Project, cases: int) -> None:
    """The whole trail sweep is there, each node run once, and nothing else."""
    invariants_hold(project, {"succeeded": CELLS * cases})
    assert committed(project) == Counter(expected_trails(cases))
    assert project.query("SELECT count(*) FROM node_runs WHERE status <> 'succeeded'") == [(0,)]
    assert {note.trail for note in noted(project, "ended")} == expected_trails(cases)


def node_processes(runner: int) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """(keepers, their workers) of a runner at this moment."""
    keepers: list[psutil.Process] = []
    workers: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        keepers = psutil.Process(runner).children()
    for keeper in keepers:
        with suppress(psutil.NoSuchProcess):
            workers += keeper.children()
    return keepers, workers


def kill(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def files_are_whole(project: Project) -> None:
    """Every content that a snapshot refers to is in the store, under its own hash; no half of one is."""
    store = FileStore(project.folder / ".wtb" / "files").of_project("default")
    for (digest,) in project.query("SELECT digest FROM files"):
        for _ in store.read(digest):  # raises where it is missing or its hash is another
            pass
    for digest, _, _ in store.stored():
        for _ in store.read(digest):
            pass
