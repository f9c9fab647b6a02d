"""How long after its commit an event is at those who follow: 1,000 events a second, 200 followers, PostgreSQL.

`wtb serve` is a process of its own, and so is the writer, `python -m benchmarks.distributed.streams`: it commits 20
events 50 times a second, and each says when it was written, just before. The followers are sockets of this process.
Each notes when a message has come; what it carries is read once for all of them, afterwards, so that reading it takes
nothing from the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import quantiles

import psutil

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.serving import TOKEN, serving
from benchmarks.harness.timing import open_warm
from wtb.store.database import Database
from wtb.store.events import add_event
from wtb.store.read import queries
from wtb.store.rows.sweeps import Subject

FOLLOWERS = 200
AT_A_TIME, TIMES_A_SECOND = 20, 50
WRITING_S = 20.0
LATEST_S = 30.0  # after the last event was written


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    database = open_warm(environment, "postgresql")
    (sweep,) = queries.list_sweeps(database, limit=1)
    url = database.url.render_as_string(hide_password=False)
    late, latest, lost, grown, share = [], [], [], [], []
    for _ in range(runs):
        with serving(url) as server:
            shown = psutil.Process(server.pid)
            path = f"{server.prefix}/sweeps/{sweep.id}/events?after=now"
            took = asyncio.run(_followed(server.host, server.port, path, url, sweep.id, shown))
        late.append(quantiles(took.delays, n=100)[94])
        latest.append(max(took.delays))
        lost.append(took.lost)
        grown.append(took.grown)
        share.append(took.share)
    database.close()
    name = f"streams, {AT_A_TIME * TIMES_A_SECOND:,} events a second, {FOLLOWERS} followers"
    yield of_rounds(f"{name}: from an event to a follower, p95", late, "s", 1.0)
    yield of_rounds(f"{name}: the latest of all", latest, "s")
    yield of_rounds(f"{name}: events lost or doubled", lost, "", 0)
    yield of_rounds(f"{name}: memory of the server, at the end / after 5 s", grown, "x", 1.1)
    yield of_rounds(f"{name}: the server's share of one core", share, "%")


@dataclass(frozen=True)
class _Round:
    """What a round came to.

    delays: seconds from each event to each follower. lost: events that were missing or came twice, over all followers.
    grown: memory of the server at the end, over that after five seconds. share: percent of one core that it took.
    """

    delays: list[float]
    lost: int
    grown: float
    share: float


async def _followed(host: str, port: int, path: str, url: str, sweep: str, server: psutil.Process) -> _Round:
    came: list[list[tuple[float, str]]] = [[] for _ in range(FOLLOWERS)]
    contents: dict[str, bytes] = {}
    followers = [asyncio.create_task(_follow(host, port, path, one, contents)) for one in came]
    await asyncio.sleep(3)
    command = [sys.executable, "-m", "benchmarks.distributed.streams", url, sweep]
    writer = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    await asyncio.sleep(5)
    early, busy, begun = server.memory_info().rss, sum(server.cpu_times()[:2]), time.monotonic()
    out, _ = await writer.communicate()
    grown = server.memory_info().rss / early
    share = 100 * (sum(server.cpu_times()[:2]) - busy) / (time.monotonic() - begun)
    count = int(out)
    last, deadline = f"<{count}>".encode(), time.monotonic() + LATEST_S
    while time.monotonic() < deadline and not all(one and last in contents[one[-1][1]] for one in came):
        await asyncio.sleep(0.2)
    for follower in followers:
        follower.cancel()
    events = {id: [one["data"] for one in json.loads(text)["events"]] for id, text in contents.items()}
    delays = [arrived - event["at_s"] for one in came for arrived, id in one for event in events[id]]
    expected = [f"<{number}>" for number in range(1, count + 1)]
    lost = 0
    for one in came:
        seen = Counter(event["mark"] for _, id in one for event in events[id])
        lost += sum(abs(seen[mark] - 1) for mark in expected)
    return _Round(delays, lost, grown, share)


async def _follow(host: str, port: int, path: str, came: list[tuple[float, str]], contents: dict[str, bytes]) -> None:
    reader, writer = await asyncio.open_connection(host, port, limit=2**24)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
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


if __name__ == "__main__":
    write(*sys.argv[1:])
