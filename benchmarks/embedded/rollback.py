"""Rollback and fork of an execution with 100 checkpoints, 10 MB of state and 1,000 files.

Every step writes one of 100 keys (100 kB each), every tenth one of 1,000 files. Timed is what a person waits for, on a
database that is open; the files of the checkpoint are restored when the next node starts, which is timed by itself.
Growth is what was added to the stored values and files, and the state of the checkpoints that were added, in bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from benchmarks.harness.environment import KINDS, Environment
from benchmarks.harness.figures import Figure, of_rounds
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.execution.runtime.sweep_run import new_run
from wtb.operations.context import Context
from wtb.operations.control.forks import add_fork
from wtb.operations.control.rollback import rollback, undo_rollback
from wtb.planning.prepare import Prepared, prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.files.workspaces import Workspaces
from wtb.store.read.queries import find_execution, line
from wtb.store.tables.schema import checkpoints, executions, files, values

STEPS = 99  # and the input
KEYS = 100
KEY_BYTES = 100_000
FILES = 1000
FILE_BYTES = 1000
MOST_MS = 50


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    for kind in KINDS:
        database = Database(environment.fresh(kind))
        database.prepare()
        home = workspaces_of(database, environment.folder / f"rewinding-{kind}")
        prepared = _prepared()
        execution = _prepare_execution(database, prepared, home)
        head = find_execution(database, execution).head_id
        assert head is not None, "it has ended"
        path = line(database, head)
        assert len(path) == STEPS + 1, f"{len(path)} checkpoints"
        target = path[len(path) // 2]
        rounds_by_name: dict[str, list[float]] = {}
        for number in range(runs + 1):
            for name, do in _deeds(database, prepared, execution, target.id).items():
                grown = -_stored(database)
                start = time.perf_counter()
                do()
                seconds = time.perf_counter() - start
                grown += _stored(database)
                if number:  # the first warms up
                    rounds_by_name.setdefault(name, []).append(1000 * seconds)
                    rounds_by_name.setdefault(f"{name}, bytes added", []).append(grown)
            if number:
                rounds_by_name.setdefault("restoring all of its files", []).append(
                    1000 * _restored(home, target.workspace)
                )
        database.close()
        for name, rounds in rounds_by_name.items():
            is_bytes = name.endswith("added")
            limit = None if name.startswith(("restoring", "undo")) else 2 * KEYS * 100 if is_bytes else MOST_MS
            yield of_rounds(f"rewinding, {kind}, {name}", rounds, "bytes" if is_bytes else "ms", limit)


def _deeds(database: Database, prepared: Prepared, id: str, to: str) -> dict[str, Callable[[], Any]]:
    context = Context(database, by="bench")
    return {
        "rollback by 50 of 100 checkpoints": lambda: rollback(context, id, to),
        "undo": lambda: undo_rollback(context, id),
        "fork at the 50th": lambda: add_fork(context, id, bound=prepared.bound, at=to, paused=True),
    }


def _stored(database: Database) -> float:
    """Return the bytes of values, of files, and of the states of checkpoints."""
    state = sa.func.length(sa.cast(checkpoints.c.state, sa.Text))
    with database.read() as connection:
        return float(
            (connection.scalar(sa.select(sa.func.sum(sa.func.length(values.c.data)))) or 0)
            + (connection.scalar(sa.select(sa.func.sum(files.c.size))) or 0)
            + (connection.scalar(sa.select(sa.func.sum(state))) or 0)
        )


def _restored(home: Workspaces, snapshot: str | None) -> float:
    start = time.perf_counter()
    opened = home.open(snapshot)
    seconds = time.perf_counter() - start
    assert sum(len(names) for _, _, names in os.walk(opened.path)) == FILES
    opened.close(keep=False)
    return seconds


def _prepared() -> Prepared:
    wf = Workflow("long", max_steps=STEPS + 1)

    @wf.node
    def step(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        number = state["n"]
        if not number:
            for file in range(FILES):
                (ctx.workspace / str(file)).write_bytes(os.urandom(FILE_BYTES))
            return {"n": 1, **{f"k{key}": os.urandom(KEY_BYTES // 2).hex() for key in range(KEYS)}}
        if number % 10 == 0:
            (ctx.workspace / str(number)).write_bytes(os.urandom(FILE_BYTES))
        return {"n": number + 1, f"k{number}": os.urandom(KEY_BYTES // 2).hex()}

    wf.entry(step)
    wf.edge(step, step, when=lambda state: state["n"] < STEPS)
    wf.edge(step, END, default=True)
    spec = {"workflow": "bench:wf", "cases": [{"id": "one", "input": {"n": 0}}], "vary": {"step": ["default"]}}
    return prepare(parse_spec({**spec, "run": {"pool": "thread"}}), workflow=wf)


def _prepare_execution(database: Database, prepared: Prepared, home: Workspaces) -> str:
    sweep_id = prepared.submit(database, home)
    ended = new_run(database, sweep_id, prepared.bound, home).run_here()
    assert ended.status == "completed", ended
    with database.read() as connection:
        return str(connection.scalar(sa.select(executions.c.id).where(executions.c.sweep_id == sweep_id)))
