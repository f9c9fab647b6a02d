"""Start of commands: `wtb --help`, and `wtb run` and `wtb worker` until their first node runs.

`wtb run` is over the bare imports that it needs: those of modules of other packages, in a process that does nothing
else. A cold worker, whose sweep was queued before, is over `wtb run` of the same sweep beside it. Files are in the
cache of the system, and modules are compiled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from secrets import token_hex

import sqlalchemy as sa

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.workers import ROOT, empty_stack
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.read.activity import worker_rows
from wtb.store.tables.schema import node_runs

WTB = [sys.executable, "-m", "wtb"]
IMPORT = "import importlib, json, sys\nfor name in json.load(open(sys.argv[1])): importlib.import_module(name)"
OWN = ("wtb", "benchmarks", "__main__")


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    folder = environment.folder / f"start-{token_hex(6)}"
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    needed = _needed(folder, env)
    bare = [sys.executable, "-c", IMPORT, str(needed)]
    helps, starts, workers = [], [], []
    for number in range(runs + 1):
        helped = _cpu_s([*WTB, "--help"], folder, env)
        start = time.perf_counter()
        _cpu_s(bare, folder, env)
        bare_s = time.perf_counter() - start
        started_s = _first_node_s(folder, env, f"sweep{number}")
        worker_s = _worker_s(environment)
        if number:  # the first round compiles
            helps.append(helped)
            starts.append(started_s / bare_s)
            workers.append(worker_s / started_s)
    yield of_rounds("`wtb --help`, CPU", helps, "s", 0.25)
    yield of_rounds("`wtb run` until its first node runs / bare imports", starts, "x", 1.4)
    yield of_rounds("`wtb worker` until its first node runs / `wtb run`", workers, "x")


def _needed(folder: Path, env: Mapping[str, str]) -> Path:
    """Write a list of the modules of other packages that the command has imported when a node runs."""
    _run(folder, env, "needed", "listing", "thread")
    loaded = json.loads((folder / "modules.json").read_text())
    names = [name for name in loaded if name.partition(".")[0] not in OWN]
    path = folder / "needed.json"
    path.write_text(json.dumps(names))
    return path


def _first_node_s(folder: Path, env: Mapping[str, str], name: str) -> float:
    """Return the seconds from the start of the command until its first node runs, in a node process."""
    start = time.time()
    _run(folder, env, name, "waiting", "process")
    database = Database(f"sqlite:///{folder / name}.db")
    started_at = _first_attempt(database)
    database.close()
    return started_at - start


def _worker_s(environment: Environment) -> float:
    """Return the seconds from the start of a worker until the first node of a queued sweep runs, in a node process.

    The worker is woken at once where a scheduler would wake it in its next round.
    """
    with empty_stack(environment, "a cold worker") as stack:
        sweep_id = stack.queue("waiting:waiting", [{"x": 0}], ("call",))
        start = time.time()
        stack.start("wtb", "worker", "--concurrency", "1")
        stack.until(lambda: bool(worker_rows(stack.database)), "the worker")
        stack.publish()
        stack.until(lambda: "succeeded" in queries.cell_counts(stack.database, sweep_id), "the only cell")
        return _first_attempt(stack.database) - start


def _first_attempt(database: Database) -> float:
    """Return the start of the first node in a database with one sweep."""
    ((started_at,),) = database.tuples(sa.select(sa.func.min(node_runs.c.begun_at)))
    return float(started_at)


def _run(folder: Path, env: Mapping[str, str], name: str, workflow: str, pool: str) -> None:
    sweep = {
        "workflow": f"benchmarks.workloads.waiting:{workflow}",
        "cases": [{"id": "0", "input": {"x": 0}}],
        "vary": {"call": "all"},
        "run": {"pool": pool},
    }
    (folder / f"{name}.json").write_text(json.dumps(sweep))
    _cpu_s([*WTB, "run", f"{name}.json", "--quiet", "--db", f"sqlite:///{name}.db"], folder, env)


def _cpu_s(command: list[str], folder: Path, env: Mapping[str, str]) -> float:
    """Run a command. Return its seconds of CPU, including its child processes."""
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command}: ended with exit code {process.returncode}")
    return used.ru_utime + used.ru_stime
