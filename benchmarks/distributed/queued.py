"""T and S through Celery, Redis and PostgreSQL, from the commit of the submission to the last outcome.

Pools are warm: two sweeps of the same code have run just before. Beside T plain Celery with one cell a task and with
ten, beside S the sleeps on bare threads, in turns. Its CPU is that of workers, node processes and the scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.embedded.sleepy import bare_sleeps
from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds, ratios
from benchmarks.harness.timing import verify
from benchmarks.harness.workers import WorkerStack, worker_stack
from benchmarks.peers.celery_tasks import Plain
from benchmarks.workloads.chain import CASES, NODE_RUNS, STEPS
from benchmarks.workloads.importable import SLEEP_S
from wtb.execution.runtime.upkeep import LOOK_S

WARMING = 2
BATCH = 10  # cells in a task, as an expert would cut it
LEAST = {"process": 1.7, "thread": 3.0}  # plain Celery with a cell a task over WTB
MOST_RATIO = {"process": 5.0, "thread": 2.5}  # WTB over plain Celery in batches


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    for pool, count, slots in (("thread", 2, 1), ("process", 1, 2)):
        with worker_stack(environment, count, slots) as stack:
            yield from _tiny(stack, pool, Plain(stack, 1, "prefork", 2), runs)
    for pool, count, slots in (("thread", 2, 8), ("process", 1, 16)):
        with worker_stack(environment, count, slots) as stack:
            yield from _sleepy(stack, pool, Plain(stack, 2, "threads", 8) if pool == "thread" else None, runs)


def _tiny(stack: WorkerStack, pool: str, plain: Plain, runs: int) -> Iterator[Figure]:
    for _ in range(WARMING):
        timed(stack, "tiny", pool)
        plain.timed()
        plain.timed(batch=BATCH)
    own, plain_seconds, spent, plain_spent, batched = [], [], [], [], []
    for _ in range(runs):
        before_s = stack.cpu_s() - plain.cpu_s()
        own.append(timed(stack, "tiny", pool))
        spent.append(stack.cpu_s() - plain.cpu_s() - before_s)
        before_s = plain.cpu_s()
        plain_seconds.append(plain.timed())
        plain_spent.append(plain.cpu_s() - before_s)
        batched.append(plain.timed(batch=BATCH))
    name = f"T queued, {pool} {stack.name}"
    yield of_rounds(f"{name}: time", own, "s")
    yield of_rounds(f"{name}: CPU of the workers", spent, "s")
    yield of_rounds(f"{name}: one plain Celery task a cell", plain_seconds, "s")
    yield of_rounds(f"{name}: CPU of plain Celery", plain_spent, "s")
    yield of_rounds(f"{name}: plain Celery / WTB", ratios(plain_seconds, own), "x", LEAST[pool], "least")
    yield of_rounds(f"{name}: plain Celery, {BATCH} cells a task", batched, "s")
    yield of_rounds(f"{name}: WTB / plain Celery, {BATCH} cells a task", ratios(own, batched), "x", MOST_RATIO[pool])


def _sleepy(stack: WorkerStack, pool: str, plain: Plain | None, runs: int) -> Iterator[Figure]:
    for _ in range(WARMING):
        timed(stack, "sleepy", pool)
    own, bare, spent = [], [], []
    for _ in range(runs):
        bare.append(bare_sleeps())
        before_s = stack.cpu_s()
        own.append(timed(stack, "sleepy", pool))
        spent.append(stack.cpu_s() - before_s)
    name = f"S queued, {pool} {stack.name}"
    yield of_rounds(f"{name}: time", own, "s")
    yield of_rounds(f"{name}: CPU of the workers", spent, "s")
    ratios = [mine / other for mine, other in zip(own, bare, strict=True)]
    yield of_rounds(f"{name}: time / {NODE_RUNS} bare sleeps", ratios, "x", 1.15)
    if plain is not None:
        plain.timed(SLEEP_S)
        yield of_rounds(f"{name}: one plain Celery task a cell", [plain.timed(SLEEP_S) for _ in range(runs)], "s")


def timed(stack: WorkerStack, workflow: str, pool: str) -> float:
    """Return the seconds of T or S; every cell is verified in the database."""
    time.sleep(2 * LOOK_S)  # until each worker has seen the end of the sweep before, and has its code ready again
    sweep_id, seconds = stack.run(workflow, [{"x": x} for x in range(CASES)], tuple(STEPS), pool=pool)
    verify(stack.database, sweep_id, CASES)
    return seconds
