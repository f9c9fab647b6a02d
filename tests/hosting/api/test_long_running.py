"""Operations longer than a request continue, and every server returns their outcome to clients with permission."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.responses import Response

from tests.support.prose import sentence
from tests.support.waiting import until_async
from wtb.core.errors import ConflictError, StoreAway
from wtb.hosting.api import ends, long_running
from wtb.hosting.api.long_running import Asked, LongOperations, document_of, response_of, seconds_to_wait
from wtb.hosting.api.problems import problem_of
from wtb.operations.context import Context
from wtb.operations.identity import OPERATOR, Identity, Method
from wtb.operations.registry import Permission
from wtb.operations.running.waiting import Look
from wtb.store.access import requests as store
from wtb.store.access.requests import KEPT_S, NewOperation, Status, begin_operation
from wtb.store.database import Database
from wtb.store.transactions import Scope

pytestmark = pytest.mark.anyio

READER = Identity("ann", Method.token, {Permission.read: frozenset({"quokka"})})
ELSEWHERE = Identity("ben", Method.token, {Permission.read: frozenset({"zebras"})})
STEERER = Identity("cem", Method.token, {Permission.steer: frozenset({"quokka"})})


def request(
    database: Database,
    id: str,
    *,
    wait_s: float = 0.0,
    who: str = "ann",
    name: str = "sweeps.compare",
    key: str | None = None,
) -> Asked:
    return Asked(NewOperation(id, name, who, key), who, database.within(Scope(frozenset({"quokka"}))), wait_s)


def answer(text: str = "{}", status: int = 200, **headers: str) -> Response:
    return Response(text, status, headers, media_type="application/json")


class GatedWork:
    """Work that goes on until it is let go, and counts how often it was begun."""

    def __init__(self, response: Callable[[], Response] = answer) -> None:
        self.starts, self.go = 0, threading.Event()
        self._response = response

    def __call__(self) -> Response:
        self.starts += 1
        assert self.go.wait(20)
        return self._response()


async def test_what_takes_long_is_accepted_and_its_result_is_kept(database: Database) -> None:
    server, other = LongOperations(database), LongOperations(database)
    work = GatedWork(lambda: answer('{"x": 1}', 201, Location="/there"))
    accepted = await server.answer(request(database, "o1"), work)
    where = accepted.headers["Location"]
    assert (accepted.status_code, where) == (202, "/api/v1/operations/o1")
    assert json.loads(bytes(accepted.body))["result"] == f"{where}/result"
    running = await other.find(READER, "o1", 0)
    assert running is not None
    assert (running.status, response_of(running).status_code) == (Status.running, 202)
    waiting = asyncio.create_task(other.find(READER, "o1", 20))
    work.go.set()
    done = await waiting
    assert done is not None
    document = document_of(done)
    assert (document["status"], document["operation"], document["by"]) == ("done", "sweeps.compare", "ann")
    assert document["result"] == f"{where}/result"
    response = response_of(done)
    assert (response.status_code, response.headers["Location"], response.body) == (201, "/there", b'{"x": 1}')


def test_what_ends_in_time_is_answered_and_leaves_nothing(database: Database) -> None:
    server = LongOperations(database)
    response = asyncio.run(server.answer(request(database, "o1", wait_s=20), answer))
    assert response.status_code == 200
    assert store.find_operation(database, "o1") is None


async def test_an_operation_is_there_for_who_may_do_it_in_all_its_projects(database: Database) -> None:
    server = LongOperations(database)
    work = GatedWork()
    await server.answer(request(database, "o1"), work)
    is_visible = [
        await server.find(identity, "o1", 0) is not None for identity in (OPERATOR, READER, ELSEWHERE, STEERER)
    ]
    work.go.set()
    assert is_visible == [True, True, False, False]


async def test_an_identity_has_so_many_under_way_and_others_have_their_own(database: Database) -> None:
    server, work = LongOperations(database), GatedWork()
    for number in range(long_running.MOST_EACH):
        assert (await server.answer(request(database, f"o{number}"), work)).status_code == 202
    refused = await server.answer(request(database, "more"), work)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
    assert b"ann has 3 operations under way" in bytes(refused.body)
    assert (await server.answer(request(database, "bens", who="ben"), work)).status_code == 202
    work.go.set()
    await server.find(OPERATOR, "o2", 20)
    assert (await server.answer(request(database, "later", wait_s=20), work)).status_code == 200


async def test_a_key_that_comes_to_two_servers_at_once_is_carried_out_once(database: Database) -> None:
    servers, work = [LongOperations(database), LongOperations(database)], GatedWork(lambda: answer('{"n": 1}'))
    each = [
        asyncio.create_task(server.answer(request(database, f"{number}-{at}", wait_s=20, key="k"), work))
        for number, server in enumerate(servers)
        for at in range(2)
    ]
    await until_async(lambda: work.starts, "the work to begin")
    work.go.set()
    assert {bytes(response.body) for response in await asyncio.gather(*each)} == {b'{"n": 1}'}
    assert work.starts == 1


def test_what_a_server_that_died_had_under_way_is_lost(database: Database) -> None:
    store.begin_operation(
        database.within(Scope(frozenset({"quokka"}))), NewOperation("o1", "sweeps.compare", "ann", "k")
    )
    database.execute(store.operations.update().values(lease_until=1.0))
    operation = asyncio.run(LongOperations(database).find(READER, "o1", 20))
    assert operation is not None
    document = document_of(operation)
    assert document["status"] == "lost"
    assert document["problem"] is not None
    assert sentence("ended before it was done") in document["problem"]["detail"]
    assert response_of(operation).status_code == 500


async def test_the_lease_of_what_is_under_way_is_renewed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_running, "LEASE_S", 0.03)

    def is_running() -> bool:
        operation = store.find_operation(database, "o1")
        return operation is not None and operation.status is Status.running

    server, work = LongOperations(database), GatedWork()
    async with server.renewing():
        await server.answer(request(database, "o1"), work)
        database.execute(store.operations.update().values(lease_until=1.0))
        await until_async(is_running, "the lease to be renewed", pause=0.01)
        work.go.set()


async def test_what_is_under_way_here_is_not_lost_when_its_lease_could_not_be_renewed(database: Database) -> None:
    server, work = LongOperations(database), GatedWork(lambda: answer('{"n": 1}'))
    await server.answer(request(database, "o1", key="k"), work)
    database.execute(store.operations.update().values(lease_until=1.0))
    operation = await server.find(READER, "o1", 0)
    assert operation is not None
    assert (operation.status, document_of(operation)["problem"], response_of(operation).status_code) == (
        "running",
        None,
        202,
    )
    repeat = asyncio.create_task(server.answer(request(database, "o2", wait_s=20, key="k"), work))
    work.go.set()
    assert ((await repeat).body, work.starts) == (b'{"n": 1}', 1)


def test_a_lease_outlasts_a_renewal_that_waits_for_the_lock_of_sqlite(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'wtb.db'}")
    with database.read() as connection:
        busy_s = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one() / 1000
    assert store.LEASE_S / 3 + busy_s < store.LEASE_S
    database.close()


def test_what_continues_is_waited_for_where_it_cannot_be_kept(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, ids = GatedWork(), list[str]()

    def fail(_: Database, new: NewOperation) -> None:
        ids.append(new.id)
        if len(ids) == 2:
            work.go.set()
        raise StoreAway("database is locked")

    monkeypatch.setattr(store, "begin_operation", fail)
    monkeypatch.setattr(long_running, "_LOOK_S", 0.01)
    response = asyncio.run(LongOperations(database).answer(request(database, "o1"), work))
    assert (response.status_code, work.starts) == (200, 1)
    assert set(ids) == {"o1"}


async def test_what_continues_is_accepted_when_it_can_be_kept(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [StoreAway("database is locked")]

    def begin(within: Database, new: NewOperation) -> None:
        if failures:
            raise failures.pop()
        begin_operation(within, new)

    monkeypatch.setattr(store, "begin_operation", begin)
    monkeypatch.setattr(long_running, "_LOOK_S", 0.01)
    work = GatedWork()
    assert (await LongOperations(database).answer(request(database, "o1"), work)).status_code == 202
    assert store.find_operation(database, "o1") is not None
    work.go.set()


def test_what_was_started_is_answered_though_its_end_cannot_be_seen(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_away(*_: object, **__: object) -> Iterator[Look]:
        raise StoreAway("the database is out of reach")
        yield

    monkeypatch.setattr(ends, "looks", be_away)
    started = answer('{"sweep": "s1"}', 201, Location="/api/v1/sweeps/s1")
    assert asyncio.run(ends.when_ended(Context(database), started, 20)) is started


def test_a_refusal_is_a_result_and_a_fault_tells_nothing(database: Database) -> None:
    def refuse() -> Response:
        raise ConflictError("it has ended")

    def fail() -> Response:
        raise ZeroDivisionError("secret")

    async def scenario() -> list[Response]:
        server = LongOperations(database)
        return [await server.answer(request(database, "o1", wait_s=20, key=key), refuse) for key in ("k", "k")] + [
            await server.answer(request(database, "o2", wait_s=20), fail)
        ]

    refused, repeat, failed = asyncio.run(scenario())
    assert refused.body == problem_of(ConflictError("it has ended")).body == repeat.body
    assert (refused.status_code, repeat.status_code) == (409, 409)
    assert (failed.status_code, b"secret" in bytes(failed.body)) == (500, False)


def test_what_could_not_be_done_for_now_is_done_when_it_is_sent_again(database: Database) -> None:
    def be_away() -> Response:
        raise StoreAway("the database is out of reach")

    async def scenario() -> list[int]:
        server = LongOperations(database)
        return [
            (await server.answer(request(database, "o1", wait_s=20, key="k"), work)).status_code
            for work in (be_away, answer)
        ]

    assert asyncio.run(scenario()) == [503, 200]


async def test_who_waits_for_what_could_not_be_done_for_now_does_it_again(database: Database) -> None:
    server, done = LongOperations(database), GatedWork(lambda: answer('{"n": 1}'))
    done.go.set()

    def be_away() -> Response:
        raise StoreAway("the database is out of reach")

    away = GatedWork(be_away)
    first = asyncio.create_task(server.answer(request(database, "o1", wait_s=20, key="k"), away))
    await until_async(lambda: away.starts, "the work to begin")
    repeat = asyncio.create_task(server.answer(request(database, "o2", wait_s=20, key="k"), done))
    away.go.set()
    assert [(await task).status_code for task in (first, repeat)] == [503, 200]
    operation = store.find_by_key(database, "k")
    assert operation is not None
    assert (operation.row.id, operation.status, done.starts) == ("o2", Status.done, 1)


def test_what_was_begun_and_cannot_be_seen_is_not_carried_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_running, "_PATIENCE_S", 0.2)
    store.begin_operation(
        database.within(Scope(frozenset({"zebras"}))), NewOperation("o1", "sweeps.compare", "ann", "k")
    )
    work = GatedWork()
    response = asyncio.run(LongOperations(database).answer(request(database, "o2", key="k"), work))
    assert (response.status_code, work.starts) == (409, 0)


async def test_requests_with_keys_that_come_at_once_are_counted(database: Database) -> None:
    server, work = LongOperations(database), GatedWork()
    each = [server.answer(request(database, f"o{n}", key=f"k{n}"), work) for n in range(12)]
    statuses = [response.status_code for response in await asyncio.gather(*each)]
    work.go.set()
    assert sorted(statuses) == [202] * long_running.MOST_EACH + [429] * (12 - long_running.MOST_EACH)


async def test_what_could_not_be_begun_counts_no_more(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreAway("the database is out of reach")

    server, work = LongOperations(database), GatedWork()
    with monkeypatch.context() as away:
        away.setattr(store, "begin_operation", fail)
        for number in range(long_running.MOST_EACH):
            with pytest.raises(StoreAway):
                await server.answer(request(database, f"o{number}", key=f"k{number}"), work)
    assert (await server.answer(request(database, "o9", key="k9"), work)).status_code == 202
    work.go.set()


def test_what_began_a_day_ago_is_removed_unless_it_continues(database: Database) -> None:
    for id in ("ended", "lost", "going-on"):
        store.begin_operation(database, NewOperation(id, "sweeps.compare", "ann"))
    store.end_operation(database, "ended", 200, None, "{}")
    database.execute(store.operations.update().values(began_at=store.operations.c.began_at - KEPT_S - 1))
    database.execute(store.operations.update().where(store.operations.c.id == "lost").values(lease_until=1.0))
    store.begin_operation(database, NewOperation("new", "sweeps.compare", "ann"))
    assert sorted(database.scalars(store.sa.select(store.operations.c.id))) == ["going-on", "new"]


def test_an_answer_that_is_too_large_to_be_kept_is_told_instead(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_running, "MOST_BYTES", 10)

    async def scenario() -> list[int]:
        server, work = LongOperations(database), lambda: Response(b"[" + b"1" * 10 + b"]")
        return [(await server.answer(request(database, "o1", wait_s=20, key="k"), work)).status_code for _ in range(2)]

    assert asyncio.run(scenario()) == [200, 422], "whoever waits has it, and it is not kept"


@pytest.mark.parametrize(
    ("wait", "prefer", "seconds"),
    [
        (None, None, 7),
        (3, "wait=5", 3),
        (None, "wait=5", 5),
        (None, "respond-async, wait=5", 5),
        (None, "respond-async;wait = 5", 5),
        (None, "wait=99999", 60),
        (None, "await=5", 7),
        (None, "wait=", 7),
    ],
)
def test_how_long_somebody_waits(wait: float | None, prefer: str | None, seconds: float) -> None:
    assert seconds_to_wait(wait, prefer, 7) == seconds
