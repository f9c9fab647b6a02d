"""One stream carries what somebody follows of several sweeps, and each of it as exactly as a stream of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from websockets.sync.client import connect

from tests.hosting.api.serving import HEADERS, Server, messages_of, serving_a_sweep
from tests.support.bench import Bench, make_bench
from tests.support.prose import sentence
from tests.support.waiting import until_async
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import InputError
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.streaming import streams
from wtb.hosting.api.streaming.streams import Streams
from wtb.hosting.api.streaming.subscriptions import MAX_SUBSCRIPTIONS, Subscription, Subscriptions, read_subscriptions
from wtb.operations.context import Context
from wtb.operations.identity import Follower
from wtb.operations.inspection.log import Selection, select_events
from wtb.store.database import Database
from wtb.store.housekeeping.deletion import begin_deletion
from wtb.store.log import add_event, subject
from wtb.store.read import queries

pytestmark = pytest.mark.anyio

PATIENCE_S = 30


@pytest.fixture
def pair(database: Database, tmp_path: Path) -> tuple[Bench, Bench]:
    workflow = Workflow("short")
    workflow.node(lambda state: {"a": state["x"]}, name="first")
    workflow.entry("first")
    workflow.edge("first", END)
    first, other = (
        make_bench(database, tmp_path, workflow, [{"id": "1", "input": {"x": 1}}], sweep=name)
        for name in ("one", "other")
    )
    return first, other


def write_event(sweep: Bench, mark: str = "", kind: str = "sweep.note") -> None:
    with sweep.database.write() as connection:
        add_event(connection, subject("default", sweep.sweep_id), kind, {"mark": mark})


def log_of(sweep: Bench) -> list[int]:
    return [row["id"] for row in queries.event_rows(sweep.database, sweep.sweep_id)]


async def all_of_them(owners: Collection[Follower]) -> set[Follower]:
    return set(owners)


class Stream:
    """A stream, and what came on it: by subscription the ids of events, and all other messages."""

    def __init__(self, database: Database, source: Streams) -> None:
        async def select(subscription: Subscription) -> Selection:
            return select_events(
                Context(database), subscription.sweep, severity=subscription.severity, kinds=subscription.kinds
            )

        self.carried = Subscriptions(source, select, Follower("somebody", None, None))
        self.events: dict[str, list[int]] = {}
        self.messages: list[tuple[str, Any]] = []
        self.id = ""

    async def read(self, is_enough: Callable[[], bool], *subscriptions: Subscription) -> None:
        """Read until it is enough; who reads again begins anew."""
        async with aclosing(self.carried.messages(subscriptions)) as messages:
            while not is_enough():
                received = await anext(messages)
                assert received is not None
                document = json.loads(received.text)
                name, message = document["subscription"], document["message"]
                self.id = received.id
                if message["type"] == "events":
                    self.events.setdefault(name, []).extend(event["id"] for event in message["events"])
                else:
                    self.messages.append((name, message))

    def kinds(self, name: str) -> list[str]:
        return [message["type"] for subscription, message in self.messages if subscription == name]


@asynccontextmanager
async def streaming(database: Database) -> AsyncIterator[Callable[[], Stream]]:
    source = Streams(Context(database), all_of_them)
    async with source.reading(), asyncio.timeout(PATIENCE_S):
        yield lambda: Stream(database, source)


async def test_each_subscription_gets_its_own_log_from_where_it_wants(pair: tuple[Bench, Bench]) -> None:
    first, other = pair
    count = len(log_of(first))
    async with streaming(first.database) as make:
        stream = make()
        reading = asyncio.create_task(
            stream.read(
                lambda: len(stream.events.get("a", [])) == count + 1 and len(stream.events.get("b", [])) == 2,
                Subscription("a", first.sweep_id),
                Subscription("b", other.sweep_id, after="now"),
            )
        )
        await until_async(lambda: len(stream.messages) >= 2, "both subscriptions")
        for sweep in (first, other, other):
            await asyncio.to_thread(write_event, sweep)
        await reading
        assert stream.events == {"a": log_of(first), "b": log_of(other)[-2:]}
        assert sorted(stream.messages, key=lambda pair: pair[0])[0][1]["id"] == "-1-0"
        assert [name for name, message in stream.messages if message["type"] == "subscribed"] == ["a", "b"]


def test_its_id_continues_all_of_them_exactly(pair: tuple[Bench, Bench]) -> None:
    first, other = pair
    subscriptions = [
        json.dumps({"name": name, "sweep": sweep.sweep_id}) for name, sweep in (("a", first), ("b", other))
    ]

    async def follow() -> None:
        async with streaming(first.database) as make:
            seen: dict[str, list[int]] = {"a": [], "b": []}
            last = ""
            for number in range(1, 8):  # each time a stream of its own, as after a connection broke
                for sweep in pair[: 1 + number % 2]:
                    await asyncio.to_thread(write_event, sweep)
                stream = make()
                before = sum(map(len, seen.values()))
                total = len(log_of(first)) + len(log_of(other))
                some = total if number == 7 else before + 1

                def is_enough(stream: Stream = stream, before: int = before, some: int = some) -> bool:
                    return before + sum(map(len, stream.events.values())) >= some

                await stream.read(is_enough, *read_subscriptions(subscriptions, last))
                last = stream.id
                for name, ids in stream.events.items():
                    seen[name] += ids
            assert seen == {"a": log_of(first), "b": log_of(other)}

    asyncio.run(follow())


async def test_what_somebody_subscribes_to_later_comes_and_what_they_end_does_not(pair: tuple[Bench, Bench]) -> None:
    first, other = pair
    async with streaming(first.database) as make:
        stream = make()
        reading = asyncio.create_task(stream.read(lambda: "c" in stream.events))
        await stream.carried.take(json.dumps({"subscribe": {"name": "a", "sweep": first.sweep_id, "after": "now"}}))
        await stream.carried.take(json.dumps({"subscribe": {"name": "b", "sweep": other.sweep_id, "after": "now"}}))
        await until_async(lambda: len(stream.messages) >= 2, "both subscriptions")
        await stream.carried.take(json.dumps({"unsubscribe": "a"}))
        await asyncio.to_thread(write_event, first)
        await asyncio.to_thread(write_event, other)
        await until_async(lambda: "b" in stream.events, "the other's event")
        await stream.carried.take(json.dumps({"subscribe": {"name": "c", "sweep": first.sweep_id}}))
        await reading
        assert stream.events == {"b": log_of(other)[-1:], "c": log_of(first)}


async def test_one_that_ends_takes_no_other_with_it(pair: tuple[Bench, Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_ENDED_S", 0.01)
    first, other = pair
    async with streaming(first.database) as make:
        stream = make()
        reading = asyncio.create_task(
            stream.read(
                lambda: "b" in stream.events,
                Subscription("none", "nothing"),
                Subscription("odd", first.sweep_id, after="x"),
                Subscription("a", first.sweep_id, after="now"),
                Subscription("b", other.sweep_id, after="now"),
            )
        )
        await until_async(lambda: len(stream.messages) >= 4, "all subscriptions")
        await asyncio.to_thread(begin_deletion, first.database, first.sweep_id)
        await until_async(lambda: stream.kinds("a") == ["subscribed", "ended"], "the end of the first")
        await asyncio.to_thread(write_event, other)
        await reading
        problems = {name: message["problem"] for name, message in stream.messages if message["type"] == "ended"}
        assert {name: problem["status"] for name, problem in problems.items()} == {
            "none": 404,
            "odd": 400,
            "a": 404,
        }
        assert "was deleted" in problems["a"]["detail"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", sentence("cannot be read")),
        ("[]", sentence("cannot be read")),
        ("{}", "expected"),
        ('{"subscribe": 1}', sentence("cannot be read")),
        ('{"subscribe": {"name": "a b", "sweep": "x"}}', "name: "),
        ('{"subscribe": {"name": "a", "sweep": "x", "more": 1}}', "more: "),
        ('{"subscribe": {"name": "a"}}', "sweep: "),
        ('{"subscribe": {"name": "a", "sweep": "x", "max_behind": 0}}', "max_behind: "),
        (json.dumps({"unsubscribe": "x" * 20_000}), "characters"),
    ],
)
async def test_who_says_what_is_no_subscription_is_told_so_and_stays(
    database: Database, text: str, problem: str
) -> None:
    async with streaming(database) as make:
        stream = make()
        reading = asyncio.create_task(stream.read(lambda: len(stream.messages) == 2))
        await stream.carried.take(text)
        await stream.carried.take(text)
        await reading
        assert problem in stream.messages[1][1]["problem"]["detail"]


async def test_a_stream_carries_so_many_and_no_more(pair: tuple[Bench, Bench]) -> None:
    first, _ = pair
    texts = [json.dumps({"name": f"n{number}", "sweep": first.sweep_id}) for number in range(MAX_SUBSCRIPTIONS + 1)]
    with pytest.raises(InputError, match=f"{MAX_SUBSCRIPTIONS + 1} subscriptions; expected 1 to {MAX_SUBSCRIPTIONS}"):
        read_subscriptions(texts, None)
    with pytest.raises(InputError, match=sentence("two subscriptions are called {}", "'n0'")):
        read_subscriptions([texts[0], texts[0]], None)
    async with streaming(first.database) as make:
        stream = make()
        reading = asyncio.create_task(
            stream.read(
                lambda: stream.kinds(f"n{MAX_SUBSCRIPTIONS}") == ["ended"] and len(stream.events) == MAX_SUBSCRIPTIONS
            )
        )
        for text in texts:
            await stream.carried.take(f'{{"subscribe": {text}}}')
        await reading
        assert stream.events == {f"n{number}": log_of(first) for number in range(MAX_SUBSCRIPTIONS)}


def test_both_doors_carry_the_same(server: Server) -> None:
    with server.open(f"/stream?{urlencode({'subscribe': json.dumps({'name': 'x', 'sweep': 'first'})})}") as response:
        assert response.headers.get_content_type() == "text/event-stream"
        messages = messages_of(response)
        by_events = [next(messages) for _ in range(2)]
    assert by_events[-1][0] == f"x:{by_events[-1][1]['message']['id']}"
    url = f"ws://127.0.0.1:{server.port}{PREFIX}/stream"
    with connect(url, additional_headers=HEADERS) as socket:
        socket.send(b"\x00")
        assert json.loads(socket.recv(timeout=PATIENCE_S))["message"]["type"] == "ended"
        socket.send(json.dumps({"subscribe": {"name": "x", "sweep": "first"}}))
        assert [json.loads(socket.recv(timeout=PATIENCE_S)) for _ in range(2)] == [message for _, message in by_events]


@pytest.mark.parametrize("query", ["", "?subscribe=", "?subscribe=1", "?subscribe={}", "?subscribe=%00"])
def test_a_request_without_a_subscription_is_refused(server: Server, query: str) -> None:
    with server.open(f"/stream{query}") as response:
        assert (response.status, response.headers.get_content_type()) == (400, "application/problem+json")


def test_a_sweep_of_another_project_is_not_there(server: Server) -> None:
    server.project.inside("admin", "project", "create", "elsewhere", check=0)
    token = server.project.inside(
        "admin", "token", "create", "theirs", "--project", "elsewhere", check=0
    ).stdout.strip()
    problems = []
    for ref in ("first", "third"):
        query = urlencode({"subscribe": json.dumps({"name": "x", "sweep": ref})})
        with server.open(f"/stream?{query}", {"Authorization": f"Bearer {token}"}) as response:
            problems.append(next(messages_of(response))[1]["message"]["problem"])
    assert [problem["status"] for problem in problems] == [404, 404]
    assert problems[0]["detail"].replace("first", "third") == problems[1]["detail"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving_a_sweep(tmp_path_factory.mktemp("several")) as server:
        yield server
