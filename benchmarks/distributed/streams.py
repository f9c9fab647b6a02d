"""Delay of an event from its commit to its followers: 1,000 events a second, 200 followers, PostgreSQL.

`wtb serve` is a process of its own, and so is the writer, `python -m benchmarks.distributed.streams`: it commits 20
events 50 times a second, and each says when it was written, just before. The followers are sockets of this process,
half of them on streams that carry a second sweep, too. Each notes when a message has come; what it carries is read once
for all of them, afterwards, so that reading it takes nothing from the server.

All of it is measured a second time beside a third process, which submits sweeps of so many cells (`--beside`) and
deletes others: events are written until one submission and one deletion have come to their end. With `--streaming 3600`
it is an hour of each, and what the server holds at its end is held against what it held after the first seconds.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np
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
from wtb.store.files.locations import workspaces_of
from wtb.store.housekeeping.deletion import delete_sweep
from wtb.store.log import add_event
from wtb.store.read import queries
from wtb.store.tables.sweeps import Subject

FOLLOWERS = 200
QUIET_S = 10.0
AT_A_TIME, TIMES_A_SECOND = 20, 50
EARLY_S, LATER_S = 5.0, 3.0  # that are not measured
LATEST_S = 30.0  # after the last event was written


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    database = open_warm(environment, "postgresql")
    (sweep,) = queries.list_sweeps(database, limit=1)
    other = submit(database, "other", 1000)
    url = database.url.render_as_string(hide_password=False)
    for beside in (False, True):
        if environment.only and ("beside" if beside else "alone") not in environment.only:
            continue
        rounds = []
        for _ in range(runs):
            with serving(url) as server, _submitting(url, environment.beside) if beside else nullcontext() as done:
                rounds.append(asyncio.run(_followed(server, url, (sweep.id, other), environment.streaming, done)))
        name = f"streams, {AT_A_TIME * TIMES_A_SECOND:,} events a second, {FOLLOWERS} followers"
        if beside:
            name += f", beside sweeps of {environment.beside:,} cells submitted and deleted"
        late = [float(np.percentile(round_.delays, 95)) for round_ in rounds]
        yield of_rounds(f"{name}: from an event to a follower, p95", late, "s", 1.0)
        yield of_rounds(f"{name}: the latest of all", [float(round_.delays.max()) for round_ in rounds], "s")
        yield of_rounds(f"{name}: for so long", [round_.seconds for round_ in rounds], "s")
        yield of_rounds(f"{name}: events lost or doubled", [round_.lost for round_ in rounds], "", 0)
        grown = [round_.grown for round_ in rounds]
        yield of_rounds(f"{name}: memory of the server, at the end / after 5 s", grown, "x", 1.1)
        yield of_rounds(f"{name}: the server's share of one core", [round_.share for round_ in rounds], "%")
        if not beside:
            idle = [round_.idle for round_ in rounds]
            yield of_rounds(f"streams, {FOLLOWERS} followers: the server's share of one core at rest", idle, "%")
    database.close()


def submit(database: Database, name: str, cells: int) -> str:
    """Submit a sweep that no worker runs."""
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
def _submitting(url: str, cells: int) -> Iterator[list[str]]:
    """Submit and delete sweeps in the block; yield a list that grows after each round."""
    command = [sys.executable, "-m", "benchmarks.distributed.streams", "beside", url, str(cells)]
    done: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        out = process.stdout
        assert out is not None
        assert out.readline(), "there is one that can be deleted"

        def note() -> None:
            for line in out:
                done.append(line)

        threading.Thread(target=note, daemon=True).start()
        try:
            yield done
        finally:
            process.kill()


@dataclass(frozen=True)
class _Round:
    """The measurements of a round.

    delays: seconds from each event to each follower. lost: events that were missing or came twice, over all followers.
    grown: memory of the server at the end, over that after five seconds. share: percent of one core that it took.
    idle: that before anything was written. seconds: for how long events were written.
    """

    delays: np.ndarray[Any, np.dtype[np.float32]]
    lost: int
    grown: float
    share: float
    idle: float
    seconds: float


async def _followed(
    served: Served, url: str, sweeps: tuple[str, str], least_s: float, done: list[str] | None
) -> _Round:
    """Write and follow events for at least these seconds, and until another round is `done`."""
    server = psutil.Process(served.pid)
    came: list[list[tuple[float, str]]] = [[] for _ in range(FOLLOWERS)]
    contents: dict[str, bytes] = {}
    alone = f"{served.prefix}/sweeps/{sweeps[0]}/events?after=now"
    each = [{"name": name, "sweep": id, "after": "now"} for name, id in zip(("one", "other"), sweeps, strict=True)]
    both = f"{served.prefix}/stream?{urlencode({'subscribe': list(map(json.dumps, each))}, doseq=True)}"
    followers = [
        asyncio.create_task(_follow(served, both if number % 2 else alone, arrivals, contents))
        for number, arrivals in enumerate(came)
    ]
    await asyncio.sleep(8)
    idle = await _share(server, QUIET_S)
    command = [sys.executable, "-m", "benchmarks.distributed.streams", "write", url, sweeps[0]]
    pipe = asyncio.subprocess.PIPE
    writer, start = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe), time.monotonic()
    before = len(done or ())
    await asyncio.sleep(EARLY_S)
    early = server.memory_info().rss
    share = await _share(server, least_s - EARLY_S - LATER_S)
    await asyncio.sleep(LATER_S)
    while done is not None and len(done) == before:
        await asyncio.sleep(0.2)
    out, _ = await writer.communicate(b"")  # which closes what it reads: it stops
    seconds = time.monotonic() - start
    grown = server.memory_info().rss / early
    count = int(out)
    last, deadline = f"<{count}>".encode(), time.monotonic() + LATEST_S
    while time.monotonic() < deadline and not all(arrivals and last in contents[arrivals[-1][1]] for arrivals in came):
        await asyncio.sleep(0.2)
    for follower in followers:
        follower.cancel()
    events = {id: _written(text) for id, text in contents.items()}
    delays, lost = [], 0
    for arrivals in came:
        delays += [(arrived - events[id][1]).astype(np.float32) for arrived, id in arrivals]
        seen = np.bincount(np.concatenate([events[id][0] for _, id in arrivals]), minlength=count + 1)[1 : count + 1]
        lost += int(np.abs(seen - 1).sum())
    return _Round(np.concatenate(delays), lost, grown, share, idle, seconds)


def _written(text: bytes) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.float64]]]:
    """Return the numbers of the events of a message, and when each was written."""
    document = json.loads(text)
    events = [event["data"] for event in document.get("message", document).get("events", [])]
    numbers = np.array([int(event["mark"][1:-1]) for event in events], np.int64)
    return numbers, np.array([event["at_s"] for event in events], np.float64)


async def _share(process: psutil.Process, seconds: float) -> float:
    """Return the percent of one core that a process takes over some seconds."""
    busy, start = sum(process.cpu_times()[:2]), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (sum(process.cpu_times()[:2]) - busy) / (time.monotonic() - start)


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
    """Write events at a steady rate until the input ends, and print their number."""
    database, start, number = Database(url), time.monotonic(), 0
    about: Subject = {"session_id": "default", "sweep_id": sweep, "execution_id": None}
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.wait(max(0.0, start + number / AT_A_TIME / TIMES_A_SECOND - time.monotonic())):
        with database.write() as connection:
            for _ in range(AT_A_TIME):
                number += 1
                add_event(connection, about, "sweep.note", {"at_s": time.time(), "mark": f"<{number}>"})
    print(number)
    database.close()


def submit_and_delete(url: str, cells: int) -> None:
    """Submit sweeps for ever, and delete each while the next one is submitted; print a line after each."""
    database, number = Database(url), 0
    last = submit(database, "large-0", cells)
    print("ready", flush=True)
    while True:
        number += 1
        deleting = threading.Thread(target=delete_sweep, args=(database, last))
        deleting.start()
        last = submit(database, f"large-{number}", cells)
        deleting.join()
        print("done", flush=True)


if __name__ == "__main__":
    what, url, argument = sys.argv[1:]
    if what == "write":
        write(url, argument)
    else:
        submit_and_delete(url, int(argument))
