"""T and S as plain Celery: a task runs all three nodes of one cell, or of several. Nothing durable, no result.

The worker is `python -m benchmarks.peers.celery_tasks POOL SLOTS`. A task appends a line to a file, which is no work
to speak of, so that every cell can be verified.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import product
from pathlib import Path

from celery import Celery, shared_task

from benchmarks.harness.workers import WorkerStack, tree_cpu_s
from benchmarks.workloads.chain import CASES, STEPS, VARIANTS, State, expected

BROKER = "BENCH_PLAIN_BROKER"
LINES = "BENCH_PLAIN_LINES"
CELLS = [(case, list(choice)) for case, choice in product(range(CASES), product(range(VARIANTS), repeat=len(STEPS)))]

TASK = "plain.cells"
_lines: list[int] = []


def _app(url: str) -> Celery:
    app = Celery("plain", broker=url, set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue="plain",
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    return app


@shared_task(name=TASK)  # type: ignore[untyped-decorator]
def run_cells(cells: list[tuple[int, list[int]]], sleep_s: float) -> None:
    for case, variants in cells:
        _run_cell(case, variants, sleep_s)


def _run_cell(case: int, variants: list[int], sleep_s: float) -> None:
    state: State = {"x": case}
    for step, variant in zip(STEPS.values(), variants, strict=True):
        if sleep_s:
            time.sleep(sleep_s)
        state.update(step(state, variant))
    if not _lines:
        _lines.append(os.open(os.environ[LINES], os.O_WRONLY | os.O_APPEND))
    os.write(_lines[0], json.dumps([case, variants, state, time.time()]).encode() + b"\n")


class Plain:
    """Workers for plain tasks beside them, on the same broker."""

    def __init__(self, stack: WorkerStack, count: int, pool: str, slots: int) -> None:
        self._stack = stack
        self._lines = stack.folder / "lines.jsonl"
        self._lines.touch()
        url = stack.broker_url.removesuffix("/0") + "/1"
        stack.env.update({BROKER: url, LINES: str(self._lines)})
        self._app = _app(url)
        self._processes = [
            stack.start("benchmarks.peers.celery_tasks", pool, str(slots), f"plain-{number}") for number in range(count)
        ]

    def timed(self, sleep_s: float = 0.0, *, batch: int = 1) -> float:
        """Return the seconds from the first publication to the end of the last task; every cell is verified.

        batch: cells in a task.
        """
        os.truncate(self._lines, 0)
        start = time.time()
        with self._app.producer_or_acquire() as producer:
            for place in range(0, len(CELLS), batch):
                self._app.send_task(TASK, (CELLS[place : place + batch], sleep_s), producer=producer, retry=False)
        self._stack.until(lambda: self._lines.read_bytes().count(b"\n") >= len(CELLS), "plain tasks")
        return _verified(self._lines) - start

    def cpu_s(self) -> float:
        return sum(tree_cpu_s(process.pid) for process in self._processes)


def _verified(lines: Path) -> float:
    """Return the end of the last task."""
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    wrong = [row for row in rows if row[2] != expected(row[0], row[1])]
    if wrong or sorted((case, variants) for case, variants, *_ in rows) != CELLS:
        raise RuntimeError(f"wrong cells of plain Celery: {wrong[:3]} among {len(rows)}")
    return max(float(row[3]) for row in rows)


def main() -> None:
    pool, slots, name = sys.argv[1:]
    worker = _app(os.environ[BROKER]).Worker(
        hostname=name,
        pool=pool,
        concurrency=int(slots),
        queues="plain",
        without_gossip=True,
        without_mingle=True,
        loglevel="WARNING",
        quiet=True,
    )
    worker.start()
    sys.exit(worker.exitcode or 0)


if __name__ == "__main__":
    main()
