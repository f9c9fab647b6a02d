"""A request repeated under its key is done once and gets the same response, and only its sender waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from fastapi import Request
from starlette.responses import Response

from wtb.core.errors import AccessDenied, BrokerAway, WTBError
from wtb.hosting.api.idempotency import Unanswered, answered_once, key_of, when_answered
from wtb.operations.auditing import note_refusal
from wtb.operations.context import Context
from wtb.operations.identity import OPERATOR
from wtb.store.database import Database
from wtb.store.tables.schema import projects

pytestmark = pytest.mark.anyio


def request(query: str = "") -> Request:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/sweeps",
        "query_string": query.encode(),
        "headers": [(b"idempotency-key", b"k")],
        "state": {"identity": OPERATOR, "body": b"{}"},
    }
    return Request(scope)


class Work:
    """Work that changes something and ends as told. Counts its runs."""

    def __init__(self, database: Database, end: Callable[[], Response] = lambda: Response("{}")) -> None:
        self.done = 0
        self._database, self._end = database, end

    def __call__(self) -> Response:
        self.done += 1
        self._database.execute(projects.insert().values(name=f"p{self.done}", created_by="ann"))
        return self._end()


def failing(error: Exception) -> Callable[[], Response]:
    def fail() -> Response:
        raise error

    return fail


def test_what_was_only_noted_is_carried_out_when_it_is_sent_again(database: Database) -> None:
    away = BrokerAway("the broker is out of reach")

    def refuse() -> Response:
        note_refusal(Context(database), "sweeps.pause", away)
        raise away

    with pytest.raises(BrokerAway):
        answered_once(database, request(), refuse)
    assert answered_once(database, request(), lambda: Response("{}")).status_code == 200


def test_what_was_half_done_is_not_done_again_and_says_so(database: Database) -> None:
    work = Work(database, failing(BrokerAway("the broker is out of reach")))
    with pytest.raises(BrokerAway):
        answered_once(database, request(), work)
    repeat = answered_once(database, request(), work)
    assert (repeat.status_code, work.done) == (409, 1)
    assert b"could not be finished" in bytes(repeat.body)


@pytest.mark.parametrize(
    ("error", "status"), [(AccessDenied("a policy forbids it"), 403), (ZeroDivisionError("secret"), 500)]
)
def test_an_answer_is_kept_however_what_changed_something_ends(
    database: Database, error: WTBError | ZeroDivisionError, status: int
) -> None:
    work = Work(database, failing(error))
    with pytest.raises(type(error)):
        answered_once(database, request(), work)
    repeat = answered_once(database, request(), work)
    assert (repeat.status_code, work.done, b"secret" in bytes(repeat.body)) == (status, 1, False)


async def test_an_answer_is_waited_for_without_a_thread(database: Database) -> None:
    changed, go = threading.Event(), threading.Event()

    def end() -> Response:
        changed.set()
        assert go.wait(20)
        return Response('{"n": 1}', media_type="application/json")

    first = asyncio.create_task(asyncio.to_thread(answered_once, database, request(), Work(database, end)))
    assert await asyncio.to_thread(changed.wait, 20)
    repeated = answered_once(database, request(), end)
    assert isinstance(repeated, Unanswered)
    waiting = asyncio.create_task(when_answered(database, repeated))
    go.set()
    assert [(await task).body for task in (first, waiting)] == [b'{"n": 1}'] * 2


def test_how_long_somebody_waits_is_no_part_of_what_they_ask() -> None:
    assert key_of(request("wait=1")) == key_of(request("wait=5")) == key_of(request())
    assert key_of(request("project=p")) != key_of(request())
