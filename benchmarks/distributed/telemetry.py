"""Cost of sending traces of T and S by another process, and CPU of a span in that process.

Runs with and without it alternate, and each round's ratio is that of the two next to each other: `--runs 15` for what
is promised. It waits for workers that have work, as it does for users; `pressing` is without that patience, as after
half a minute of work without a pause, in an eighth of the rounds. The other process is
`python -m benchmarks.distributed.telemetry`, started before the clock; when its input ends it sends the rest, and
writes one line of JSON. What takes the spans throws them away.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import ceil
from secrets import token_hex
from select import select
from threading import Thread

from benchmarks.distributed.queued import WARMING, timed
from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.workers import WorkerStack, worker_stack
from wtb.features.telemetry import operations
from wtb.features.telemetry.building import SpanOptions
from wtb.features.telemetry.collector import Collector, TelemetrySettings, url_of
from wtb.features.telemetry.operations import TraceExports
from wtb.store import log_followers
from wtb.store.database import Database

EVERY_S = 0.5
PATIENCE_S = 120.0


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    for name, workflow, slots in (("T", "tiny", 1), ("S", "sleepy", 8)):
        with worker_stack(environment, 2, slots) as stack, throwing_away() as endpoint:
            for _ in range(WARMING):
                timed(stack, workflow, "thread")
            for how, patience, pairs in (("", operations.PATIENCE_S, runs), (", pressing", 0.0, ceil(runs / 8))):
                ratios, spans = _pairs(stack, workflow, endpoint, patience, pairs)
                yield of_rounds(f"{name} queued, traces are sent{how} / are not", ratios, "x", 1.1)
                yield of_rounds(f"{name} queued{how}: CPU of a span", spans, "ms")


def _pairs(
    stack: WorkerStack, workflow: str, endpoint: str, patience: float, runs: int
) -> tuple[list[float], list[float]]:
    """Return the ratio of each pair, and the milliseconds of CPU of each span in each."""
    ratios, costs = [], []
    for number in range(runs):
        seconds: dict[bool, float] = {}
        for with_traces in (False, True) if number % 2 else (True, False):  # so that neither is always the warmer one
            if not with_traces:
                seconds[False] = timed(stack, workflow, "thread")
                continue
            # A collector of its own, so that it is sent this sweep alone.
            with _sending(stack, f"{endpoint}/{token_hex(4)}", patience) as sender:
                seconds[True] = timed(stack, workflow, "thread")
            costs.append(1000 * sender["cpu_s"] / sender["spans"])
        ratios.append(seconds[True] / seconds[False])
    return ratios, costs


@contextmanager
def throwing_away() -> Iterator[str]:
    """Accept and drop all requests on loopback, and yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _sending(stack: WorkerStack, endpoint: str, patience: float) -> Iterator[dict[str, float]]:
    """Send traces by another process in the block; its figures are in the yielded dict at the end."""
    sender: dict[str, float] = {}
    command = [sys.executable, "-m", "benchmarks.distributed.telemetry", endpoint, str(patience)]
    with subprocess.Popen(command, env=stack.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()  # it is there
        yield sender
        process.stdin.close()
        sender |= json.loads(process.stdout.readline())


def send(endpoint: str, patience: float) -> None:
    """Send the traces of the database of the environment until standard input ends, and then the rest."""
    operations.PATIENCE_S = patience  # type: ignore[misc]
    database = Database(os.environ["WTB_DATABASE_URL"])
    traces = TraceExports(
        database, TelemetrySettings(endpoint, Collector(url_of(endpoint)), SpanOptions()), lambda text: print(text)
    )
    exporter = log_followers.claim_exporter(database, endpoint, "", 0.0)
    assert exporter is not None
    began = time.process_time()
    print("there", flush=True)
    while not select([sys.stdin], [], [], EVERY_S)[0]:
        traces.look()
    ends = time.monotonic() + PATIENCE_S
    while log_followers.behind(database, exporter) and time.monotonic() < ends:
        traces.look()
        time.sleep(EVERY_S / 5)
    traces.end(PATIENCE_S)
    (row,) = [collector for collector in log_followers.collectors(database) if collector.endpoint == endpoint]
    print(json.dumps({"cpu_s": time.process_time() - began, "spans": row.spans}), flush=True)
    database.close()


if __name__ == "__main__":
    send(sys.argv[1], float(sys.argv[2]))
