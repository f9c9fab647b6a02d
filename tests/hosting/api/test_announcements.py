"""On PostgreSQL whoever follows is woken by the log itself, and nothing is asked while nothing happens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import aclosing, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench, make_bench
from tests.support.waiting import until_async
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.hosting.api.streaming import pace, streams
from wtb.hosting.api.streaming.streams import Message, Streams
from wtb.hosting.servers.postgres import connect, role_url
from wtb.operations.context import Context
from wtb.operations.identity import Follower
from wtb.operations.inspection.log import Selection, events_after, select_events
from wtb.store import log
from wtb.store.database import Database
from wtb.store.log import CHANNEL, add_event, subject, take_positions
from wtb.store.log_followers import Announcements
from wtb.store.tables.walls import SERVER

PATIENCE_S = 30
NEVER_S = 3600.0


@pytest.fixture
def database(prepared_postgres_url: str) -> Iterator[Database]:
    database = Database(prepared_postgres_url)
    yield database
    database.close()


@pytest.fixture
def sweep(database: Database, tmp_path: Path) -> Bench:
    return make_sweep(database, tmp_path, "one")


def make_sweep(database: Database, folder: Path, name: str) -> Bench:
    workflow = Workflow("short")
    workflow.node(lambda state: {"a": state["x"]}, name="first")
    workflow.entry("first")
    workflow.edge("first", END)
    return make_bench(database, folder, workflow, [{"id": "1", "input": {"x": 1}}], sweep=name)


@pytest.fixture(autouse=True)
def only_announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by themselves while nothing is announced, and all is announced."""
    monkeypatch.setattr(pace, "_QUIET_S", NEVER_S)
    monkeypatch.setattr(pace, "_QUICK_S", 0.05)
    monkeypatch.setattr(pace, "INTERVAL_S", 0.01)
    monkeypatch.setattr(pace, "_RETRY_S", 0.01)
    monkeypatch.setattr(log, "ANNOUNCED_EVERY_S", 0.0)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that returns the number of looks at the log so far."""
    count, wait = 0, pace.Pace.wait

    async def wait_for_the_next(its_pace: pace.Pace) -> None:
        nonlocal count
        count += 1
        await wait(its_pace)

    monkeypatch.setattr(pace.Pace, "wait", wait_for_the_next)
    return lambda: count


async def all_of_them(owners: Collection[Follower]) -> set[Follower]:
    return set(owners)


@asynccontextmanager
async def following(database: Database) -> AsyncIterator[Streams]:
    streams = Streams(Context(database), all_of_them)
    async with streams.reading(), asyncio.timeout(PATIENCE_S):
        yield streams


def selection(sweep: Bench) -> Selection:
    return select_events(Context(sweep.database), sweep.sweep_id)


def write_event(sweep: Bench) -> None:
    with sweep.database.write() as connection:
        add_event(connection, subject("default", sweep.sweep_id), "sweep.note", {})


async def is_quiet(source: Streams) -> None:
    await until_async(lambda: source.pace.is_quiet)


async def wakes(source: Streams, sweep: Bench, happen: Callable[[], None]) -> None:
    """A follower receives an event although nobody polls any more."""
    async with aclosing(source.follow(selection(sweep), None, None)) as messages:
        coming = asyncio.ensure_future(first_message(messages))
        await until_async(lambda: source.followers > 0)
        await is_quiet(source)
        await asyncio.to_thread(happen)
        await coming


async def first_message(messages: AsyncIterator[Message | None]) -> Message:
    """Return the first message; on a busy machine silences may precede it."""
    async for message in messages:
        if message is not None:
            return message
    raise AssertionError("the server ended")


def test_an_event_wakes_who_follows(sweep: Bench) -> None:
    async def follow() -> None:
        async with following(sweep.database) as source:
            await wakes(source, sweep, lambda: write_event(sweep))
            await wakes(source, sweep, lambda: write_event(sweep))

    asyncio.run(follow())


def test_it_wakes_a_server_whose_role_sees_no_project_by_itself(sweep: Bench) -> None:
    role = Database(role_url(sweep.database.url.render_as_string(hide_password=False), SERVER))

    async def follow() -> None:
        async with following(role) as source:
            await wakes(source, sweep, lambda: write_event(sweep))

    asyncio.run(follow())
    role.close()


def test_a_connection_that_was_lost_is_made_again_and_nothing_is_missed_meanwhile(sweep: Bench) -> None:
    query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = %s AND datname = %s"

    def end_listening_and_write() -> None:
        with connect(sweep.database.url.render_as_string(hide_password=False)) as other:
            assert other.execute(query, (f"LISTEN {CHANNEL}", sweep.database.url.database)).fetchone() == (1,)
        write_event(sweep)

    async def follow() -> None:
        async with following(sweep.database) as source:
            await wakes(source, sweep, end_listening_and_write)
            await wakes(source, sweep, lambda: write_event(sweep))

    asyncio.run(follow())


def test_what_can_be_read_only_when_another_transaction_has_ended_is_waited_for(
    sweep: Bench, looks: Callable[[], int]
) -> None:
    """Its own announcement came long before."""
    ending, is_open = threading.Event(), threading.Event()

    def take_long() -> None:
        with sweep.database.write() as connection:
            connection.execute(sa.text("SELECT pg_current_xact_id()"))
            is_open.set()
            ending.wait(PATIENCE_S)

    async def follow() -> None:
        async with (
            following(sweep.database) as source,
            aclosing(source.follow(selection(sweep), None, None)) as messages,
        ):
            coming = asyncio.ensure_future(anext(messages))
            await until_async(lambda: source.followers > 0)
            await is_quiet(source)
            other = threading.Thread(target=take_long)
            other.start()
            await asyncio.to_thread(is_open.wait, PATIENCE_S)
            await asyncio.to_thread(write_event, sweep)
            before = looks()
            await until_async(lambda: looks() > before + 10)
            assert not coming.done()
            ending.set()
            assert (await coming) is not None
            other.join()

    asyncio.run(follow())


def test_where_no_announcement_comes_one_asks_all_the_time(
    sweep: Bench, looks: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler, which gives the connection that listens to others."""
    monkeypatch.setattr(pace, "_TRIED_S", 0.01)
    take = Announcements.take
    monkeypatch.setattr(Announcements, "take", lambda listening: take(listening) and False)

    async def follow() -> None:
        async with (
            following(sweep.database) as source,
            aclosing(source.follow(selection(sweep), None, None)) as messages,
        ):
            coming = asyncio.ensure_future(anext(messages))
            await until_async(lambda: source.followers > 0)
            before = looks()
            await until_async(lambda: looks() > before + 50)
            await asyncio.to_thread(write_event, sweep)
            assert (await coming) is not None

    asyncio.run(follow())


def test_a_log_that_is_slow_to_read_holds_up_no_other(
    sweep: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, released, read = make_sweep(sweep.database, tmp_path, "other"), threading.Event(), events_after

    def slow(context: Context, subscription: Selection, *args: Any, **more: Any) -> Any:
        if subscription.sweep == other.sweep_id:
            released.wait(PATIENCE_S)
        return read(context, subscription, *args, **more)

    monkeypatch.setattr(streams, "events_after", slow)

    async def follow() -> None:
        async with (
            following(sweep.database) as source,
            aclosing(source.follow(selection(other), None, None)) as messages,
        ):
            coming = asyncio.ensure_future(anext(messages))
            await until_async(lambda: source.followers == 1)
            await wakes(source, sweep, lambda: write_event(sweep))
            await asyncio.to_thread(write_event, other)
            assert not coming.done()
            released.set()
            assert (await coming) is not None

    asyncio.run(follow())


# What is announced


@pytest.fixture
def count_announcements(database: Database) -> Iterator[Callable[[], int]]:
    """Return how often the growth of the log was announced since the last call."""
    with connect(database.url.render_as_string(hide_password=False)) as listening:
        listening.execute(f"LISTEN {CHANNEL}")

        def count() -> int:
            listening.execute("SELECT 1")  # after which all that was committed before has come
            return len(list(listening.notifies(timeout=0)))

        yield count


def test_each_transaction_that_adds_to_the_log_is_announced_once(
    sweep: Bench, count_announcements: Callable[[], int]
) -> None:
    count_announcements()
    write_event(sweep)
    assert count_announcements() == 1
    with sweep.database.write() as connection:
        take_positions(connection, 3)  # as flushes do
    assert count_announcements() == 1
    with sweep.database.write() as connection:
        connection.execute(sa.text("SELECT 1"))
    assert count_announcements() == 0


def test_a_process_announces_no_more_than_its_readers_need(
    sweep: Bench, count_announcements: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit with an announcement waits for all others that have one; readers look on for longer than that."""
    count_announcements()
    monkeypatch.setattr(log, "ANNOUNCED_EVERY_S", NEVER_S)
    with closing(Database(sweep.database.url.render_as_string(hide_password=False))) as another:
        with suppress(ZeroDivisionError), another.write() as connection:
            add_event(connection, subject("default", sweep.sweep_id), "sweep.note", {})
            raise ZeroDivisionError
        assert count_announcements() == 0
        for _ in range(5):
            with another.write() as connection:
                add_event(connection, subject("default", sweep.sweep_id), "sweep.note", {})
        assert count_announcements() == 1


def test_who_listens_no_longer_has_no_connection(database: Database) -> None:
    waiting = Announcements(database)
    waiting.close()
    waiting.open()
    with connect(database.url.render_as_string(hide_password=False)) as other:
        query = "SELECT count(*) FROM pg_stat_activity WHERE query = %s AND datname = %s AND state <> 'idle'"
        assert other.execute(query, (f"LISTEN {CHANNEL}", database.url.database)).fetchone() == (0,)
