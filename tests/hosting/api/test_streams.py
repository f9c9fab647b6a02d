"""A follower of a sweep gets each event of its log once and in order, whatever happens on the way."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.hosting.api.serving import HEADERS, TOKEN, Server, answering, messages_of, serving_a_sweep
from tests.support.bench import Bench
from tests.support.documents import check
from tests.support.project import FLOW, SWEEP, Project
from tests.support.prose import sentence
from tests.support.waiting import until_async
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import InputError, NotFound
from wtb.hosting.api.app import make_app
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.streaming import pace, streams
from wtb.hosting.api.streaming.streams import Message, Streams, read_position
from wtb.operations.context import Context
from wtb.operations.identity import Follower
from wtb.operations.inspection import log as inspected
from wtb.operations.inspection.ends import DECISIVE
from wtb.operations.inspection.log import Selection, events_after, follow_events, last_event, select_events
from wtb.store.database import Database
from wtb.store.housekeeping.deletion import begin_deletion
from wtb.store.log import START, LogPosition, add_event
from wtb.store.read import queries
from wtb.store.runs.leases import move_sweep

pytestmark = pytest.mark.anyio

ABOUT = {"session_id": "default", "execution_id": None}


def one_node() -> Workflow:
    workflow = Workflow("short")

    def first(state: dict[str, Any]) -> dict[str, Any]:
        return {"a": state["x"]}

    workflow.node(first, name="first")
    workflow.entry("first")
    workflow.edge("first", END)
    return workflow


@pytest.fixture
def sweep(run_sweep: Callable[..., Bench]) -> Bench:
    return run_sweep(one_node(), [{"id": str(x), "input": {"x": x}} for x in range(3)])


def positions(bench: Bench) -> list[LogPosition]:
    return [(row["transaction"], row["id"]) for row in queries.event_rows(bench.database, bench.sweep_id)]


def ids(messages: list[Message | None]) -> list[int]:
    return [event["id"] for message in messages if message for event in json.loads(message.text).get("events", ())]


def selection(bench: Bench, **options: Any) -> Selection:
    return select_events(Context(bench.database), bench.sweep_id, **options)


def write_events(bench: Bench, count: int, kind: str = "sweep.note") -> None:
    with bench.database.write() as connection:
        for number in range(count):
            add_event(connection, {**ABOUT, "sweep_id": bench.sweep_id}, kind, {"number": number})


async def all_of_them(owners: Collection[Follower]) -> set[Follower]:
    return set(owners)


@asynccontextmanager
async def following(bench: Bench) -> AsyncIterator[Streams]:
    source = Streams(Context(bench.database), all_of_them)
    async with source.reading():
        yield source


async def take(
    source: Streams,
    subscription: Selection,
    count: int,
    after: LogPosition | None = START,
    max_behind: int | None = None,
    *,
    taken_messages: list[Message | None] | None = None,
) -> list[Message | None]:
    """Follow until so many events have come. taken_messages: a list to fill, which others may look at meanwhile."""
    taken_messages = [] if taken_messages is None else taken_messages
    async with asyncio.timeout(30), aclosing(source.follow(subscription, after, max_behind)) as messages:
        async for message in messages:
            taken_messages.append(message)
            if len(ids(taken_messages)) >= count:
                break
    return taken_messages


# What is followed


def test_a_follower_sees_what_is_there_and_what_comes(sweep: Bench) -> None:
    async def follow() -> list[Message | None]:
        async with following(sweep) as source:
            count = len(positions(sweep))
            following_task = asyncio.create_task(take(source, selection(sweep), count + 5))
            await take(source, selection(sweep), count)
            await asyncio.to_thread(write_events, sweep, 5)
            return await following_task

    assert ids(asyncio.run(follow())) == [position[1] for position in positions(sweep)]


async def test_it_continues_after_any_position(sweep: Bench) -> None:
    """Also in the middle of what came to others as one message."""
    async with following(sweep) as source:
        whole = positions(sweep)
        assert len(whole) > 5
        for number, position in enumerate(whole[:-1]):
            rest = await take(source, selection(sweep), len(whole) - number - 1, position)
            assert ids(rest) == [event[1] for event in whole[number + 1 :]]


def test_from_now_on_nothing_older_comes(sweep: Bench) -> None:
    async def follow() -> list[Message | None]:
        async with following(sweep) as source:
            before = asyncio.create_task(take(source, selection(sweep), 2, None))
            await until_async(lambda: source.followers, "a follower")
            await asyncio.to_thread(write_events, sweep, 2)
            return await before

    assert ids(asyncio.run(follow())) == [position[1] for position in positions(sweep)[-2:]]


@pytest.mark.parametrize("kind", ["events", "socket"])
def test_what_is_written_after_a_stream_begins_comes_even_if_its_first_reading_is_slow(
    sweep: Bench, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_slowly(*args: Any) -> LogPosition:
        time.sleep(0.5)
        return last_event(*args)

    monkeypatch.setattr(streams, "last_event", read_slowly)
    app = make_app(Context(sweep.database), token=TOKEN, hosts=["127.0.0.1"])
    with answering(app) as url:
        address = f"{url}{PREFIX}/sweeps/{sweep.sweep_id}/events?after=now"
        if kind == "socket":
            with connect(address.replace("http", "ws", 1), additional_headers=HEADERS) as socket:
                write_events(sweep, 1)
                text = str(socket.recv(timeout=20))
        else:
            with httpx.stream("GET", address, headers=HEADERS, timeout=20) as response:
                write_events(sweep, 1)
                text = next(line for line in response.iter_lines() if line.startswith((":", "data:")))
    assert str(positions(sweep)[-1][1]) in text


def test_a_selection_takes_from_the_whole_log_and_continues_behind_what_it_leaves_out(sweep: Bench) -> None:
    async def follow(after: LogPosition) -> list[Message | None]:
        async with following(sweep) as source:
            return await take(source, selection(sweep, kinds=["sweep"]), 1 if after != START else 3, after)

    messages = asyncio.run(follow(START))
    last = next(message for message in reversed(messages) if message)
    write_events(sweep, 1)
    assert ids(asyncio.run(follow(read_position(last.id) or START))) == [positions(sweep)[-1][1]]
    kinds = {event["kind"] for message in messages if message for event in json.loads(message.text)["events"]}
    assert kinds == {"sweep.submitted", "sweep.running", "sweep.completed"}


@pytest.mark.parametrize("size", [2, 1000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kinds": ["cell", "sweep"]},
        {"severity": "error"},
        {"severity": "error", "kinds": ["sweep"]},
        {"severity": "error", "kinds": ["cell"], "ends": True},
        {"kinds": ["nothing"]},
    ],
)
def test_pages_of_a_selection_are_what_the_whole_log_has_of_it_and_end_where_that_does(
    sweep: Bench, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], size: int
) -> None:
    monkeypatch.setattr(inspected, "_PAGE", size)
    write_events(sweep, 3, "sweep.note")
    with sweep.database.write() as connection:
        add_event(connection, {**ABOUT, "sweep_id": sweep.sweep_id}, "sweep.trouble", {}, "error")
    write_events(sweep, 3, "noise")
    subscription, context = selection(sweep, **options), Context(sweep.database)
    seen, after, is_last = list[int](), START, False
    while not is_last:
        page = events_after(context, subscription, after)
        assert page.is_last or page.upto > after
        seen, after, is_last = [*seen, *(event["id"] for event in page.events)], page.upto, page.is_last
    kinds, severities = tuple(subscription.kinds or [""]), subscription.severities
    expected = [
        row["id"]
        for row in queries.event_rows(sweep.database, sweep.sweep_id)
        if (row["kind"].startswith(kinds) and row["severity"] in severities)
        or (subscription.ends and row["kind"] in DECISIVE)
    ]
    assert seen == expected
    assert after == positions(sweep)[-1]


def test_one_read_serves_all_who_follow_the_same(sweep: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[LogPosition] = []
    read = streams.events_after

    def counted(*args: Any, **more: Any) -> Any:
        if "until" not in more:
            reads.append(args[2])
        return read(*args, **more)

    monkeypatch.setattr(streams, "events_after", counted)

    async def follow() -> list[list[Message | None]]:
        async with following(sweep) as source:
            all_of_them = [asyncio.create_task(take(source, selection(sweep), 1, None)) for _ in range(50)]
            await until_async(lambda: source.followers == 50, "all followers")
            began = len(reads)
            await asyncio.to_thread(write_events, sweep, 1)
            received = await asyncio.gather(*all_of_them)
            assert len(reads) - began < 10
            return received

    received = asyncio.run(follow())
    assert len(received) == 50
    assert len({id(message) for messages in received for message in messages if message}) == 1, "encoded once"


def test_who_is_slow_misses_nothing_and_keeps_nothing_in_memory(sweep: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEPT_FRAMES", 2)
    monkeypatch.setattr(pace, "INTERVAL_S", 0.001)

    async def follow() -> list[Message | None]:
        async with following(sweep) as source:
            received: list[Message | None] = []
            async with asyncio.timeout(30), aclosing(source.follow(selection(sweep), None, None)) as slow:
                first = asyncio.ensure_future(anext(slow))
                await until_async(lambda: source.followers, "a follower")
                await asyncio.to_thread(write_events, sweep, 1)
                received.append(await first)
                for _ in range(10):  # each seen by somebody quicker, as a message of its own
                    quick = asyncio.create_task(take(source, selection(sweep), 1, None))
                    await until_async(lambda: source.followers == 2, "the quicker one")
                    await asyncio.to_thread(write_events, sweep, 3)
                    await quick
                while len(ids(received)) < 31:
                    received.append(await anext(slow))
            return received

    begin = len(positions(sweep))
    assert ids(asyncio.run(follow())) == [position[1] for position in positions(sweep)[begin:]]


async def follow_from(sweep: Bench, *after: Any) -> list[Message | None]:
    """Return the messages of a follower who starts at a position, at most so far behind, when one event comes."""
    async with following(sweep) as source:
        received: list[Message | None] = []
        follower = asyncio.create_task(take(source, selection(sweep), 1, *after, taken_messages=received))
        await until_async(lambda: received, "its first message, before the event")
        await asyncio.to_thread(write_events, sweep, 1)
        return await follower


def test_who_is_too_far_behind_is_told_where_the_sweep_stands(sweep: Bench) -> None:
    first, *rest = asyncio.run(follow_from(sweep, START, 5))
    assert first is not None
    reset = json.loads(first.text)
    assert (reset["type"], reset["version"], reset["id"]) == ("reset", 1, first.id)
    assert reset["status"]["sweep"]["status"] == "completed"
    assert ids(rest) == [positions(sweep)[-1][1]]


def test_who_comes_with_a_position_that_is_not_yet_is_told_to_begin_anew(sweep: Bench) -> None:
    """As those do who followed before the database was restored to another server."""
    first, *rest = asyncio.run(follow_from(sweep, (10**9, 10**9)))
    assert first is not None
    assert json.loads(first.text)["type"] == "reset"
    assert ids(rest) == [positions(sweep)[-1][1]]


async def test_a_stream_ends_with_its_sweep(sweep: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reconnects is told that there is none."""
    monkeypatch.setattr(streams, "_ENDED_S", 0.01)
    async with following(sweep) as source, asyncio.timeout(30):
        follower = asyncio.create_task(take(source, selection(sweep), 1, positions(sweep)[-1]))
        await until_async(lambda: source.followers, "a follower")
        await asyncio.to_thread(begin_deletion, sweep.database, sweep.sweep_id)
        with pytest.raises(NotFound, match=sentence("was deleted, and its events with it")):
            await follower


def test_who_follows_in_a_command_or_from_python_is_told_that_the_sweep_was_deleted(sweep: Bench) -> None:
    move_sweep(sweep.database, sweep.sweep_id, "running")
    pages = follow_events(Context(sweep.database), sweep.sweep_id)
    while next(pages) is not None:
        pass

    begin_deletion(sweep.database, sweep.sweep_id)

    with pytest.raises(NotFound, match=f"sweep {sweep.sweep_id} was deleted while it was followed"):
        next(pages)


async def test_silence_is_broken_by_a_comment(sweep: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if much happens, none of which was asked for: a proxy sees no difference."""
    monkeypatch.setattr(streams, "SILENCE_S", 0.3)
    monkeypatch.setattr(pace, "INTERVAL_S", 0.01)
    async with (
        following(sweep) as source,
        aclosing(source.follow(selection(sweep, kinds=["approval"]), None, None)) as messages,
        asyncio.timeout(30),
    ):
        first = asyncio.create_task(anext(messages))
        while not first.done():
            await asyncio.to_thread(write_events, sweep, 1)
            await asyncio.wait([first], timeout=0.02)
        assert first.result() is None


def test_transactions_that_end_in_another_order_than_they_began_are_all_seen(sweep: Bench) -> None:
    """The number of a transaction is given when it begins to write, and a later one may commit first."""
    stop = threading.Event()

    def write(pause: float) -> None:
        while not stop.is_set():
            with bench.database.write() as connection:
                add_event(connection, {**ABOUT, "sweep_id": bench.sweep_id}, "sweep.note", {})
                stop.wait(pause if bench.database.url.get_backend_name() != "sqlite" else 0)
                add_event(connection, {**ABOUT, "sweep_id": bench.sweep_id}, "sweep.note", {})
            stop.wait(0.001)

    bench = sweep
    begin = len(positions(sweep))

    async def follow() -> list[list[Message | None]]:
        async with following(sweep) as source:
            positions_after = [START, None, positions(sweep)[begin // 2]]
            tasks = [asyncio.create_task(take(source, selection(sweep), 200, after)) for after in positions_after]
            await until_async(lambda: source.followers == len(tasks), "all followers")
            writers = [threading.Thread(target=write, args=(pause,)) for pause in (0, 0.01, 0.05, 0.3)]
            for writer in writers:
                writer.start()
            try:
                return await asyncio.gather(*tasks)
            finally:
                stop.set()
                for writer in writers:
                    await asyncio.to_thread(writer.join)

    for messages, first in zip(asyncio.run(follow()), (0, begin, begin // 2 + 1), strict=True):
        seen = ids(messages)
        assert seen == [position[1] for position in positions(sweep)[first:]][: len(seen)]


@pytest.mark.parametrize("text", ["x", "1", "-1", "1-", "1-2-3", "1 - 2", "9223372036854775808-1", "1-" + "9" * 5000])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=sentence("not a position in the log")):
        read_position(text)


# Over HTTP


@pytest.fixture
def server(tmp_path: Path, prepared_url: str) -> Iterator[Server]:
    project = Project(tmp_path / "project")
    project.url = prepared_url
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": Project.cases(4)})
    server = Server(project)
    server.start()
    yield server
    if server.running is not None:
        server.kill()
    project.close()


def test_a_follower_of_a_server_that_is_killed_misses_nothing_and_sees_nothing_twice(server: Server) -> None:
    """And no matter when: each time it continues with the id of the last message."""
    project, kills = server.project, 100 if os.environ.get("TEST_ALL") else 5
    project.inside("run", "sweep.yaml", "--limit", "1", check=0)
    sweep = project.inside("list", "--format", "json", check=0).json["sweeps"][0]["id"]
    seen: list[int] = []
    last, ended = "", threading.Event()
    assert project.url is not None
    database = Database(project.url)

    def follow() -> None:
        nonlocal last
        while not ended.is_set():
            with suppress(OSError, http.client.HTTPException):
                headers = {**HEADERS, "Last-Event-ID": last} if last else HEADERS
                with server.open(f"/sweeps/{sweep}/events", headers) as response:
                    for id, message in messages_of(response):
                        last = id
                        seen.extend(event["id"] for event in message["events"])
            ended.wait(0.01)

    def write() -> None:
        while not ended.is_set():
            with database.write() as connection:
                for _ in range(20):
                    add_event(connection, {**ABOUT, "sweep_id": sweep}, "sweep.note", {})
            ended.wait(0.02)

    threads = [threading.Thread(target=follow), threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(kills):
            seen_before = len(seen)
            project.until(lambda count=seen_before: len(seen) > count, "the follower hears of more")
            server.kill()
            server.start()
        seen_before = len(seen)
        project.until(lambda: len(seen) > seen_before, "the follower hears of more")
    finally:
        ended.set()
        threads[1].join()
        server.kill()
        threads[0].join()
        server.running = None
    log = [row["id"] for row in queries.event_rows(database, sweep)]
    database.close()
    assert seen == log[: len(seen)]
    assert len(seen) > 20 * kills


def test_both_doors_carry_the_same_messages(server: Server) -> None:
    project = server.project
    project.inside("run", "sweep.yaml", check=0)
    log = [json.loads(line) for line in project.inside("log", "first", "--format", "json", check=0).stdout.splitlines()]
    with server.open("/sweeps/first/events") as response:
        assert response.headers.get_content_type() == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        sent: list[Any] = []
        for id, message in messages_of(response):
            assert (message["id"], message["version"], message["type"]) == (id, 1, "events")
            sent.append(message)
            if sum(len(message["events"]) for message in sent) == len(log):
                break
        assert [event for message in sent for event in message["events"]] == log
        for event in log:
            check(f"event-{event['kind']}", event)
        url = f"ws://127.0.0.1:{server.port}{PREFIX}/sweeps/first/events"
        with connect(url, additional_headers=HEADERS) as socket:
            over_socket: list[Any] = []
            while sum(len(message["events"]) for message in over_socket) < len(log):
                over_socket.append(json.loads(socket.recv(timeout=20)))
            assert over_socket == sent
            assert server.running is not None
            server.running.signal(signal.SIGTERM)  # ends what would never end by itself
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
        assert response.read().strip() == b""
    assert "Traceback" not in server.running.wait().stderr
    server.running = None


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("first", {}, 401),
        ("first", {"Authorization": "Bearer wrong"}, 401),
        ("first", {**HEADERS, "Host": "evil.example"}, 421),
        ("nothing", HEADERS, 404),
        ("first?after=x", HEADERS, 400),
        ("first?max_behind=0", HEADERS, 400),
        ("first?severity=odd", HEADERS, 400),
    ],
)
def test_who_may_not_follow_is_told_so_before_anything_is_sent(
    shared_server: Server, path: str, headers: dict[str, str], status: int
) -> None:
    ref, _, query = path.partition("?")
    place = f"{PREFIX}/sweeps/{ref}/events?{query}"
    with shared_server.open(f"/sweeps/{ref}/events?{query}", headers) as response:
        assert (response.status, response.headers.get_content_type()) == (status, "application/problem+json")
    host = headers.get("Host", f"127.0.0.1:{shared_server.port}")
    rest = {name: header for name, header in headers.items() if name != "Host"}
    with pytest.raises(InvalidStatus) as refused, socket.create_connection(("127.0.0.1", shared_server.port)) as direct:
        connect(f"ws://{host}{place}", sock=direct, additional_headers=rest, proxy=None)
    assert refused.value.response.status_code == status


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving_a_sweep(tmp_path_factory.mktemp("shared")) as server:
        yield server


async def test_a_wait_that_is_cancelled_as_something_comes_is_cancelled() -> None:
    """In Python 3.11 `asyncio.wait_for` would lose the cancellation, and the server would not end."""
    tail = streams.Tail(START)
    waiting = asyncio.ensure_future(tail.wait(60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tail.wake()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
