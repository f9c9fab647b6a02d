"""W: many async nodes that wait, with the default pool: the whole command, its run, and the memory of all processes;
the same as a graph of LangGraph, and beside plain asyncio, Inspect AI and promptfoo, where these are there.

The ideal is the waits alone. Memory counts what processes share once (PSS), at its peak.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from secrets import token_hex

import psutil
import sqlalchemy as sa

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds, ratios
from benchmarks.harness.timing import seconds_of_command
from benchmarks.harness.workers import ROOT
from benchmarks.peers import promptfoo_eval
from benchmarks.workloads.waiting import CASES, IDEAL_S, WIDTH, bare
from wtb.store.database import Database
from wtb.store.tables.schema import node_runs, sweeps

LOOK_S = 0.25  # between two looks at the memory


@dataclass(frozen=True)
class Measured:
    """One run of the command. whole_s: of the process; run_s: from the first start of a node to the end."""

    whole_s: float
    run_s: float
    memory: float
    processes: int


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    peers = _peers(environment.folder)
    bares, rounds, graphs = [], [], []
    peer_seconds: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(runs):
        bares.append(_bare())
        rounds.append(_swept(_new_folder(environment.folder), "benchmarks.workloads.waiting:waiting"))
        graphs.append(_swept(_new_folder(environment.folder), "benchmarks.workloads.waiting_graph:waiting"))
        for name, run in peers.items():
            peer_seconds[name].append(run())
    yield from _figures("W", rounds, 1.25, 1.15, 200)
    yield from _figures("W as a graph", graphs, 1.6, 1.15, 350)
    whole = [round_.whole_s for round_ in rounds]
    yield of_rounds("W: whole command / plain asyncio with a semaphore", ratios(whole, bares), "x")
    for name, seconds in peer_seconds.items():
        yield of_rounds(f"W: {name} / whole command", ratios(seconds, whole), "x", 1, "least")


def _figures(
    name: str, rounds: Sequence[Measured], whole: float | None = None, run: float | None = None, mb: float | None = None
) -> Iterator[Figure]:
    """Yield the figures of one kind, with their targets."""
    yield of_rounds(
        f"{name}: whole command / {IDEAL_S:g} s", [round_.whole_s / IDEAL_S for round_ in rounds], "x", whole
    )
    yield of_rounds(
        f"{name}: without start-up / {IDEAL_S:g} s", [round_.run_s / IDEAL_S for round_ in rounds], "x", run
    )
    yield of_rounds(f"{name}: memory of all processes", [round_.memory / 1e6 for round_ in rounds], "MB", mb)
    yield of_rounds(f"{name}: processes", [round_.processes for round_ in rounds], "")


def _bare() -> float:
    start = time.perf_counter()
    asyncio.run(bare())
    return time.perf_counter() - start


def _peers(parent: Path) -> dict[str, Callable[[], float]]:
    """Return a function for each installed peer: it runs W and returns the seconds of the command."""
    peers: dict[str, Callable[[], float]] = {}
    with suppress(PackageNotFoundError):
        peers[f"Inspect AI {version('inspect-ai')}"] = lambda: _inspected(_new_folder(parent))
    if shutil.which("npx"):
        promptfoo_eval.install(_new_folder(parent))
        peers[f"promptfoo {promptfoo_eval.VERSION}"] = lambda: _prompted(_new_folder(parent))
    return peers


def _inspected(folder: Path) -> float:
    command = [sys.executable, "-m", "benchmarks.peers.inspect_task", str(folder)]
    return seconds_of_command(command, folder, {**os.environ, "PYTHONPATH": str(ROOT)})


def _prompted(folder: Path) -> float:
    command, env = promptfoo_eval.command(folder)
    seconds = seconds_of_command(command, folder, env)
    promptfoo_eval.check(folder)
    return seconds


def _new_folder(parent: Path) -> Path:
    folder = parent / f"wide-{token_hex(6)}"
    folder.mkdir()
    return folder


def _swept(folder: Path, workflow: str) -> Measured:
    """Run the sweep by the command."""
    sweep = {
        "workflow": workflow,
        "cases": [{"id": str(number), "input": {"x": number}} for number in range(CASES)],
        "vary": {"call": "all"},
        "run": {"concurrency": WIDTH},
    }
    (folder / "wide.yaml").write_text(json.dumps(sweep))
    start = time.perf_counter()
    command = [sys.executable, "-m", "wtb", "run", "wide.yaml", "--quiet"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL)
    memory = processes = 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
            break
        used, count = _memory(process.pid)
        memory, processes = max(memory, used), max(processes, count)
    whole_s = time.perf_counter() - start
    if process.returncode:
        raise RuntimeError(f"the command ended with exit code {process.returncode}")
    return Measured(whole_s, _run_s(folder), memory, processes)


def _run_s(folder: Path) -> float:
    """Return the seconds from the first start of a node to the end of the sweep, or raise unless all have run."""
    database = Database(f"sqlite:///{folder / '.wtb' / 'wtb.db'}")
    with database.read() as connection:
        first, count = connection.execute(
            sa.select(sa.func.min(node_runs.c.begun_at), sa.func.count(node_runs.c.begun_at))
        ).one()
        finished = connection.execute(sa.select(sweeps.c.finished_at)).scalar_one()
    database.close()
    if count != CASES:
        raise RuntimeError(f"{count} attempts of {CASES} node runs")
    return float(finished - first)


def _memory(pid: int) -> tuple[int, int]:
    """Return the memory in bytes and the number of a process and its descendants."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
        return sum(_share(process.pid) for process in processes), len(processes)
    return 0, 0


def _share(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
