"""L: a sweep of model calls, with the clients that SDKs use; beside the same calls by hand in one and two processes.

Rounds go through all of these in turn. Time and CPU are those after start-up: time from the first start of a node, CPU
of what the sweep adds to the same command with one combination. CPU is that of the command with all of its processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from statistics import median

import sqlalchemy as sa

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.models import serving_model
from benchmarks.harness.workers import ROOT
from benchmarks.workloads.model_calls import (
    CALLS,
    CASES,
    CELLS,
    CLIENTS,
    IDEAL_S,
    REPLY_BYTES,
    STEPS,
    URL,
    WAIT_S,
)
from wtb.store.database import Database
from wtb.store.tables.schema import cells, node_runs, sweeps

OVER_HAND = 1.25  # time of a sweep over that by hand
CPU_MS = 1.0  # of a node run beyond that of a call by hand
CALL_MS = 10.0  # of the recorded duration beyond that of a call by hand


@dataclass(frozen=True)
class Took:
    """Seconds of all calls: of the clock, of CPU, and the median of a call."""

    run_s: float
    cpu_s: float
    call_s: float


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    clients = [*environment.only] or [*CLIENTS]
    rounds: dict[str, list[tuple[Took, Took, Took]]] = {client: [] for client in clients}
    with serving_model(WAIT_S, REPLY_BYTES) as url:
        env = {**os.environ, "PYTHONPATH": str(ROOT), URL: url}
        for _ in range(runs):
            for client in clients:
                alone, pair = (_by_hand(client, processes, env) for processes in (1, 2))
                rounds[client].append((_sweep(client, environment.folder, env), alone, pair))
    for client in clients:
        yield from _figures(client, rounds[client])


def _figures(client: str, rounds: Sequence[tuple[Took, Took, Took]]) -> Iterator[Figure]:
    """Figures of one client. Targets are for `openai`."""
    sweeps_of, alone, pairs = zip(*rounds, strict=True)
    is_main = client == "openai"
    best = [min(by_hand, key=lambda took: took.run_s) for by_hand in zip(alone, pairs, strict=True)]
    yield of_rounds(f"L, {client}: by hand in one process / {IDEAL_S:g} s", [t.run_s / IDEAL_S for t in alone], "x")
    yield of_rounds(f"L, {client}: by hand in two processes / {IDEAL_S:g} s", [t.run_s / IDEAL_S for t in pairs], "x")
    yield of_rounds(f"L, {client}: sweep / {IDEAL_S:g} s", [t.run_s / IDEAL_S for t in sweeps_of], "x")
    yield of_rounds(
        f"L, {client}: sweep / the better one by hand",
        [sweep.run_s / hand.run_s for sweep, hand in zip(sweeps_of, best, strict=True)],
        "x",
        OVER_HAND if is_main else None,
    )
    yield of_rounds(f"L, {client}: CPU of a call by hand", [_cpu_ms(hand) for hand in best], "ms")
    yield of_rounds(
        f"L, {client}: CPU of a node run beyond that",
        [_cpu_ms(sweep) - _cpu_ms(hand) for sweep, hand in zip(sweeps_of, best, strict=True)],
        "ms",
        CPU_MS if is_main else None,
    )
    yield of_rounds(f"L, {client}: a call by hand", [hand.call_s * 1000 for hand in best], "ms")
    yield of_rounds(
        f"L, {client}: recorded duration beyond that",
        [(sweep.call_s - hand.call_s) * 1000 for sweep, hand in zip(sweeps_of, best, strict=True)],
        "ms",
        CALL_MS if is_main else None,
    )


def _cpu_ms(took: Took) -> float:
    return took.cpu_s / CALLS * 1000


def _by_hand(client: str, processes: int, env: Mapping[str, str]) -> Took:
    command = [sys.executable, "-m", "benchmarks.peers.calls_by_hand", client, str(processes)]
    printed = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True).stdout
    return Took(**json.loads(printed))


def _sweep(client: str, parent: Path, env: Mapping[str, str]) -> Took:
    """Run the sweep by the command, after the same with one combination."""
    first_cpu = _command(client, _new_folder(parent), env, vary={"plan": ["default"]})
    folder = _new_folder(parent)
    cpu = _command(client, folder, env, vary=dict.fromkeys(STEPS, "all"))
    run_s, call_s = _recorded(folder)
    return Took(run_s, (cpu - first_cpu) * CALLS / (CALLS - len(STEPS) * CASES), call_s)


def _new_folder(parent: Path) -> Path:
    folder = parent / f"llm-{token_hex(6)}"
    folder.mkdir()
    return folder


def _command(client: str, folder: Path, env: Mapping[str, str], vary: Mapping[str, object]) -> float:
    """Run `wtb run` with default options. Return the seconds of CPU of all its processes."""
    sweep = {
        "workflow": f"benchmarks.workloads.model_calls:with_{client}",
        "cases": [{"id": str(x), "input": {"x": x}} for x in range(CASES)],
        "vary": vary,
    }
    (folder / "llm.yaml").write_text(json.dumps(sweep))
    command = [sys.executable, "-m", "wtb", "run", "llm.yaml", "--quiet"]
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"the command ended with exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def _recorded(folder: Path) -> tuple[float, float]:
    """Return the seconds of the run from its first node on, and the median of a node run, from the database.

    Raises:
        RuntimeError: Not all calls were made once.
    """
    database = Database(f"sqlite:///{folder / '.wtb' / 'wtb.db'}")
    with database.read() as connection:
        rows = connection.execute(sa.select(node_runs.c.started_at, node_runs.c.duration_s)).all()
        finished = connection.execute(sa.select(sweeps.c.finished_at)).scalar_one()
        succeeded = sa.select(sa.func.count()).where(cells.c.status == "succeeded")
        count = connection.execute(succeeded).scalar_one()
    database.close()
    if (len(rows), count) != (CALLS, CELLS):
        raise RuntimeError(f"{len(rows)} node runs of {CALLS}, {count} cells of {CELLS}")
    started, durations = zip(*rows, strict=True)
    return float(finished) - min(started), median(durations)
