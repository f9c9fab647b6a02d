"""How long after its commit an event is at those who follow: 1,000 events a second, 200 followers, PostgreSQL.

`wtb serve` is a process of its own, and so is the writer, `python -m benchmarks.distributed.streams`: it commits 20
events 50 times a second, and each says when it was written, just before. The followers are sockets of this process,
half of them on streams that carry a second sweep, too. Each notes when a message has come; what it carries is read once
for all of them, afterwards, so that reading it takes nothing from the server.

All of it is measured a second time beside a third process, which submits sweeps of `BESIDE` cells and deletes others.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import quantiles
from typing import Any
from urllib.parse import urlencode

import psutil

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.serving import TOKEN, Served, serving
from benchmarks.harness.timing import open_warm
from benchmarks.workloads.chain import STEPS
from benchmarks.workloads.importable import MANY
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.events import add_event
from wtb.store.files.locations import workspaces_of
from wtb.store.housekeeping.deletion import delete_sweep
from wtb.store.read import queries
from wtb.store.rows.sweeps import Subject

FOLLOWERS = 200
BESIDE = 100_000  # cells of each sweep that is submitted and deleted meanwhile
QUIET_S = 10.0
AT_A_TIME, TIMES_A_SECOND = 20, 50
WRITING_S = 20.0
LATEST_S = 30.0  # after the last event was written


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    database = open_warm(environment, "postgresql")
    (sweep,) = queries.list_sweeps(database, limit=1)
    other = submit(database, "other", 1000)
    url = database.url.render_as_string(hide_password=False)
    for beside in (False, True):
        rounds = []
        for _ in range(runs):
            with serving(url) as server, _submitting(url) if beside else nullcontext():
                rounds.append(asyncio.run(_followed(server, url, sweep.id, other)))
        name = f"streams, {AT_A_TIME * TIMES_A_SECOND:,} events a second, {FOLLOWERS} followers"
        if beside:
            name += f", beside sweeps of {BESIDE:,} cells submitted and deleted"
        late = [quantiles(one.delays, n=100)[94] for one in rounds]
        yield of_rounds(f"{name}: from an event to a follower, p95", late, "s", 1.0)
        yield of_rounds(f"{name}: the latest of all", [max(one.delays) for one in rounds], "s")
        yield of_rounds(f"{name}: events lost or doubled", [one.lost for one in rounds], "", 0)
        grown = [one.grown for one in rounds]
        yield of_rounds(f"{name}: memory of the server, at the end / after 5 s", grown, "x", 1.1)
        yield of_rounds(f"{name}: the server's share of one core", [one.share for one in rounds], "%")
        if not beside:
            idle = [one.idle for one in rounds]
            yield of_rounds(f"streams, {FOLLOWERS} followers: the server's share of one core at rest", idle, "%")
    database.close()


def submit(database: Database, name: str, cells: int) -> str:
    """Submit a sweep of so many cells that nobody runs."""
    spec = parse_spec(
        {
            "sweep": name,
            "workflow": "benchmarks.workloads.importable:many",
            "cases": [{"id": str(x), "input": {"x": x}} for x in range(cells // MANY ** len(STEPS))],
            "vary": dict.fromkeys(STEPS, "all"),
        }
    )
    return prepare(spec, max_cells=cells).submit(database, workspaces_of(database))


@contextmanager
def _submitting(url: str) -> Iterator[None]:
    """Have sweeps be submitted and deleted, one after the other, inside the block."""
    command = [sys.executable, "-m", "benchmarks.distributed.streams", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # there is one that can be deleted
        try:
            yield
        finally:
            process.kill()


@dataclass(frozen=True)
class _Round:
    """What a round came to.

    delays: seconds from each event to each follower. lost: events that were missing or came twice, over all followers.
    grown: memory of the server at the end, over that after five seconds. share: percent of one core that it took.
    idle: that before anything was written.
    """

    delays: list[float]
    lost: int
    grown: float
    share: float
    idle: float


async def _followed(served: Served, url: str, sweep: str, other: str) -> _Round:
    server = psutil.Process(served.pid)
    came: list[list[tuple[float, str]]] = [[] for _ in range(FOLLOWERS)]
    contents: dict[str, bytes] = {}
    alone = f"{served.prefix}/sweeps/{sweep}/events?after=now"
    each = [{"name": name, "sweep": id, "after": "now"} for name, id in (("one", sweep), ("other", other))]
    both = f"{served.prefix}/stream?{urlencode({'subscribe': list(map(json.dumps, each))}, doseq=True)}"
    followers = [
        asyncio.create_task(_follow(served, both if number % 2 else alone, one, contents))
        for number, one in enumerate(came)
    ]
    await asyncio.sleep(8)
    idle = await _share(server, QUIET_S)
    command = [sys.executable, "-m", "benchmarks.distributed.streams", url, sweep]
    writer = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    await asyncio.sleep(5)
    early = server.memory_info().rss
    share = await _share(server, WRITING_S - 8)
    out, _ = await writer.communicate()
    grown = server.memory_info().rss / early
    count = int(out)
    last, deadline = f"<{count}>".encode(), time.monotonic() + LATEST_S
    while time.monotonic() < deadline and not all(one and last in contents[one[-1][1]] for one in came):
        await asyncio.sleep(0.2)
    for follower in followers:
        follower.cancel()
    events = {id: [one["data"] for one in _events(text)] for id, text in contents.items()}
    delays = [arrived - event["at_s"] for one in came for arrived, id in one for event in events[id]]
    expected = [f"<{number}>" for number in range(1, count + 1)]
    lost = 0
    for one in came:
        seen = Counter(event["mark"] for _, id in one for event in events[id])
        lost += sum(abs(seen[mark] - 1) for mark in expected)
    return _Round(delays, lost, grown, share, idle)


def _events(text: bytes) -> list[dict[str, Any]]:
    document = json.loads(text)
    events: list[dict[str, Any]] = document.get("message", document).get("events", [])
    return events


async def _share(process: psutil.Process, seconds: float) -> float:
    """Percent of one core that a process takes over some seconds."""
    busy, begun = sum(process.cpu_times()[:2]), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (sum(process.cpu_times()[:2]) - busy) / (time.monotonic() - begun)


async def _follow(served: Served, path: str, came: list[tuple[float, str]], contents: dict[str, bytes]) -> None:
    reader, writer = await asyncio.open_connection(served.host, served.port, limit=2**24)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    id = ""
    try:
        while line := await reader.readline():
            if line.startswith(b"id: "):
                id = line[4:].strip().decode()
            elif line.startswith(b"data: "):
                came.append((time.time(), id))
                contents.setdefault(id, line[6:])
    finally:
        writer.close()


def write(url: str, sweep: str) -> None:
    """Write events at a steady rate, then say how many."""
    database, begun, number = Database(url), time.monotonic(), 0
    about: Subject = {"session_id": "default", "sweep_id": sweep, "execution_id": None}
    while number < WRITING_S * TIMES_A_SECOND * AT_A_TIME:
        with database.write() as connection:
            for _ in range(AT_A_TIME):
                number += 1
                add_event(connection, about, "sweep.note", {"at_s": time.time(), "mark": f"<{number}>"})
        time.sleep(max(0.0, begun + number / AT_A_TIME / TIMES_A_SECOND - time.monotonic()))
    print(number)
    database.close()


def submit_and_delete(url: str) -> None:
    """Submit sweeps and delete each while the next one is submitted, for ever."""
    database, number = Database(url), 0
    last = submit(database, "large-0", BESIDE)
    print("ready", flush=True)
    while True:
        number += 1
        deleting = threading.Thread(target=delete_sweep, args=(database, last))
        deleting.start()
        last = submit(database, f"large-{number}", BESIDE)
        deleting.join()


if __name__ == "__main__":
    (write if len(sys.argv) > 2 else submit_and_delete)(*sys.argv[1:])
