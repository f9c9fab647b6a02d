"""Response times of the REST API with `--cells` cells in the database, and memory of `wtb serve` at rest. PostgreSQL.

The cells are those of `plans`: half of them of one sweep, half of 99 others. What is asked for in detail is a sweep of
T that has run. Requests are sent one after the other on one connection, as by one person; p95 is of all rounds
together. What a busy machine cannot change much is the CPU that the server and its database take for a request.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
import sqlalchemy as sa

from benchmarks.distributed.query_plans import fill
from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure
from benchmarks.harness.serving import TOKEN, Served, serving
from benchmarks.harness.timing import timed
from benchmarks.harness.workers import server_of, tree_cpu_s
from benchmarks.workloads.chain import CELLS, STEPS, VARIANTS, workflow
from wtb.planning.publishing import describe_registered
from wtb.store.database import Database
from wtb.store.publications import publish
from wtb.store.read import queries

READS, WRITES = 40, 5  # requests of each kind in a round
SUBMITTED = 1_000  # cells

_ENDED = "events.kind = 'sweep.completed' AND events.sweep_id LIKE 'other%'"
_KEEPING = (
    """
    INSERT INTO events (session_id, sweep_id, kind, severity, at, data)
    SELECT session_id, id, 'sweep.completed', 'info', 1, '{}' FROM sweeps WHERE id LIKE 'other%'
    """,
    f"""
    INSERT INTO matrices (sweep_id, transaction, event_id, tallied_at, frozen_at, cells)
    SELECT sweep_id, transaction, id, 1, 1, jsonb_build_object(
        'succeeded', (SELECT count(*) FROM cells WHERE cells.sweep_id = events.sweep_id))
    FROM events WHERE {_ENDED}
    """,
)
_Request = tuple[str, str, Mapping[str, Any] | None]  # its method, path and body


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    database = Database(environment.fresh("postgresql"))
    fill(database, environment.folder / "api", environment.cells, pending=1)
    _keep_counts(database)
    timed(database, workflow())
    (sweep,) = queries.list_sweeps(database, limit=1)
    _publish(database, environment.folder)
    seconds: dict[str, list[float]] = {}
    busy_s: dict[str, float] = {}
    with _serving(database) as (server, client):
        rest = psutil.Process(server.pid).memory_full_info().uss / 1e6
        paths = {
            "a list of 50 sweeps": "/sweeps?limit=50",
            "the status of a sweep": f"/sweeps/{sweep.id}/status",
            "50 cells": f"/sweeps/{sweep.id}/cells?limit=50",
            f"the frozen matrix of {CELLS} cells": f"/sweeps/{sweep.id}/matrix",
        }
        reads: dict[str, _Request] = {name: ("GET", path, None) for name, path in paths.items()}
        calls = {name: [request] * READS * runs for name, request in reads.items()}
        submissions: list[_Request] = [("POST", "/sweeps", _sweep(number)) for number in range(WRITES * runs)]
        calls[f"submission of {SUBMITTED:,} cells"] = submissions
        postgres = server_of(database)
        for name, requests in calls.items():
            before_s = tree_cpu_s(server.pid) + tree_cpu_s(postgres)
            seconds[name] = [client.took(*request) for request in requests]
            busy_s[name] = (tree_cpu_s(server.pid) + tree_cpu_s(postgres) - before_s) / len(requests)
    database.close()
    yield Figure("api: memory of `wtb serve` at rest", rest, "MB", 120)
    for name, each in seconds.items():
        target = 150 if name.startswith("submission") else 50
        of = f"api, {environment.cells:,} cells: {name}"
        yield Figure(f"{of}, p95", 1000 * quantiles(each, n=20)[18], "ms", target)
        yield Figure(f"{of}, median", 1000 * median(each), "ms")
        yield Figure(f"{of}, CPU", 1000 * busy_s[name], "ms")


def _keep_counts(database: Database) -> None:
    """Leave ended sweeps as the scheduler does, with kept matrices, and vacuum the tables."""
    with database.write(long=True) as connection:
        for statement in _KEEPING:
            connection.execute(sa.text(statement))
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("SET statement_timeout = 0"))
        connection.execute(sa.text("VACUUM ANALYZE"))
        connection.invalidate()  # with its setting


def _publish(database: Database, folder: Path) -> None:
    """Publish T as a worker does."""
    (folder / "wtb.toml").write_text("[workflows]\ntiny = 'benchmarks.workloads.chain:tiny'\n")
    before = Path.cwd()
    os.chdir(folder)
    try:
        publish(database, "bench", describe_registered())
    finally:
        os.chdir(before)


def _sweep(number: int) -> Mapping[str, Any]:
    rest = -(-SUBMITTED // VARIANTS ** len(STEPS))
    cases = [{"id": str(x), "input": {"x": x}} for x in range(rest)]
    keys = {"sweep": f"sent-{number}", "workflow": "tiny", "cases": cases, "vary": dict.fromkeys(STEPS, "all")}
    return {"keys": keys, "anyway": True}


class _Client:
    """A client with one connection to a server."""

    def __init__(self, host: str, port: int, prefix: str) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=120)
        self._prefix = prefix

    def took(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> float:
        """Return the seconds from a request to the last byte of its response. Raise RuntimeError if it fails."""
        text = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        start = time.perf_counter()
        self._connection.request(method, self._prefix + path, text, headers)
        with self._connection.getresponse() as response:
            content = response.read()
        seconds = time.perf_counter() - start
        if response.status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {response.status} {content[:500]!r}")
        return seconds

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _serving(database: Database) -> Iterator[tuple[Served, _Client]]:
    url = database.url.render_as_string(hide_password=False)
    with serving(url) as server, closing(_Client(server.host, server.port, server.prefix)) as client:
        client.took("GET", "/sweeps?limit=1")  # it is warm
        yield server, client
