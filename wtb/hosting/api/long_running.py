"""Operations that may take longer than a request: they continue, and the client gets the URL of their result."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated, TypedDict

import orjson
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Header, Query
from starlette.responses import Response

from wtb.core.errors import StoreError, WTBError
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import iso
from wtb.hosting.api.problems import Problem, ProblemDocument, answer_again, fault, json_response, problem_of
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.threads import LONG, run_quickly
from wtb.operations.identity import Identity
from wtb.operations.registry import OPERATIONS
from wtb.store.access import requests
from wtb.store.access.requests import LEASE_S
from wtb.store.database import Database
from wtb.store.transactions import Scope

PATH = f"{PREFIX}/operations/{{id}}"
WAIT_S = 10.0  # unless the client sets another time
LONGEST_WAIT_S = 60.0  # proxies cut what is silent for longer

Wait = Annotated[
    float | None,
    Query(
        ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for the end; the header `Prefer: wait=10` is equivalent."
    ),
]
Prefer = Annotated[str | None, Header(description="`wait=SECONDS`, as in RFC 7240.")]


class OperationDocument(TypedDict):
    """An operation that takes longer than a request, with its status."""

    id: str
    operation: str
    by: str
    status: requests.Status
    began_at: str
    ended_at: str | None
    result: str | None
    problem: ProblemDocument | None


def seconds_to_wait(wait: float | None, prefer: str | None, default: float) -> float:
    """Return the seconds that a client waits: by the query, else by the header `Prefer`, else the default."""
    if wait is not None:
        return wait
    preferred = re.search(r"(?:^|[,;\s])wait\s*=\s*(\d{1,9})(?:$|[,;\s])", prefer or "")
    return default if preferred is None else min(float(preferred[1]), LONGEST_WAIT_S)


def document_of(operation: requests.FoundOperation) -> OperationDocument:
    """Return the status of an operation as a document."""
    row, result_path, problem = operation.row, None, None
    if operation.status is requests.Status.done:
        result_path = f"{PATH.format(id=row.id)}/result"
    elif operation.status is not requests.Status.running:
        problem = orjson.loads(bytes(response_of(operation).body))
    began, ended = iso(row.began_at), iso(row.ended_at)
    return OperationDocument(
        id=row.id,
        operation=row.name,
        by=row.by,
        status=operation.status,
        began_at=began,
        ended_at=ended,
        result=result_path,
        problem=problem,
    )


def response_of(operation: requests.FoundOperation) -> Response:
    """Return the answer of an operation; 202 while there is none."""
    row = operation.row
    if operation.status is requests.Status.lost:
        detail = (
            f"the server that carried out {row.name!r} ended before it was done; look at what it was to change, "
            "and ask again"
        )
        return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail)
    if row.status is None or row.body is None:
        return accepted(row.id, row.name)
    return answer_again(row.status, row.location, row.body)


def accepted(id: str, name: str) -> Response:
    """Return the response to an operation that continues, with its URL."""
    where = PATH.format(id=id)
    document = {"id": id, "operation": name, "status": requests.Status.running, "result": f"{where}/result"}
    return json_response(document, HTTPStatus.ACCEPTED, Location=where)


MOST_BYTES = 16_000_000  # of an answer that is kept
MOST_EACH = 3  # at a time for each identity
_PATIENCE_S = 5.0  # for an operation with the same key that cannot be seen
_PAUSE_S = 0.05
_LOOK_S = 0.5  # between two looks at what another server carries out

_TOO_LARGE = (
    f"this was done, and what came of it is larger than {MOST_BYTES:,} bytes, which is the most that is kept; ask for "
    f"less, or wait for it with `Prefer: wait={LONGEST_WAIT_S:g}`"
)
_log = logging.getLogger("wtb")


@frozen
class Asked:
    """A requested operation.

    Attributes:
        new: Its row, if it is stored.
        who: The identity whose operations are counted together.
        database: The database, limited to what the client may see.
        wait_s: Seconds that the client waits for the answer.
    """

    new: requests.NewOperation
    who: str
    database: Database
    wait_s: float


@dataclass
class _UnderWay:
    """An operation that this server carries out.

    Attributes:
        who: The identity that requested it.
        is_kept: Whether it is stored, so that other servers can find it.
        is_told: Whether a client has its id.
        has_ended: Whether its answer exists, though perhaps not stored yet.
    """

    who: str
    is_kept: bool = False
    is_told: bool = False
    has_ended: bool = False
    task: asyncio.Task[Response] | None = None


class LongOperations:
    """The operations of a server that may take longer than a request.

    One that ends while its client waits is answered as any other and leaves no row. The others are stored,
    those of a request with a key from the beginning, because it may be sent again to another server.
    """

    def __init__(self, database: Database) -> None:
        """Make it. `database` is the server's, for all projects."""
        self._database = database
        self._under_way: dict[str, _UnderWay] = {}
        self._threads: CapacityLimiter | None = None

    async def answer(self, operation: Asked, work: Callable[[], Response]) -> Response:
        """Carry an operation out.

        Args:
            operation: The operation.
            work: Carries it out, in a thread.

        Returns:
            Its answer, if it comes in time; else 202 with its URL. 429 if its identity has too many operations.
        """
        if operation.new.key is None:
            return await self._carry_out(operation, work)
        end = time.monotonic() + operation.wait_s
        last = max(end, time.monotonic() + _PATIENCE_S)
        while time.monotonic() < last:
            earlier = await run_quickly(requests.find_by_key, operation.database, operation.new.key)
            if earlier is None:
                with suppress(requests.AlreadyBegun):
                    return await self._carry_out(operation, work)
            elif ended := await self._ended(operation.database, earlier.row.id, end - time.monotonic()):
                return response_of(ended)
            # Another server has just begun it, or it was forgotten. The next round finds it, or begins it again.
            await asyncio.sleep(_PAUSE_S)
        return _unseen()

    async def _carry_out(self, operation: Asked, work: Callable[[], Response]) -> Response:
        """Carry out a new operation. Raises requests.AlreadyBegun if another request with its key has just begun it."""
        if self._count(operation.who) >= MOST_EACH:
            return _too_many(operation.who)
        id = operation.new.id
        # Before anything is awaited, so that it counts against the limit of simultaneous requests.
        mine = self._under_way[id] = _UnderWay(operation.who)
        if operation.new.key is not None:
            await self._begin(operation.new, operation.database, mine)
        # A task of its own, since it must continue if the request is cancelled.
        mine.task = asyncio.create_task(self._done(id, mine, work))
        await asyncio.wait({mine.task}, timeout=operation.wait_s)
        while not mine.task.done() and not mine.is_kept:
            await self._begin_late(operation, mine, mine.task)
        if mine.task.done() or mine.has_ended:
            return await mine.task
        mine.is_told = True
        return accepted(id, operation.new.name)

    async def _begin(self, new: requests.NewOperation, database: Database, mine: _UnderWay) -> None:
        """Store an operation from its beginning. Raises StoreError if that fails."""
        try:
            await run_quickly(requests.begin_operation, database, new)
            mine.is_kept = True
        finally:
            if not mine.is_kept:
                del self._under_way[new.id]

    async def _begin_late(self, operation: Asked, mine: _UnderWay, task: asyncio.Task[Response]) -> None:
        """Store an operation that continues; if that fails, wait a while for its end instead."""
        try:
            await run_quickly(requests.begin_operation, operation.database, operation.new)
        except StoreError as error:
            # The operation itself may hold the lock of an SQLite database.
            _log.warning("operation %s goes on and could not be kept: %s", operation.new.id, error)
            await asyncio.wait({task}, timeout=_LOOK_S)
        else:
            mine.is_kept = True
            if task.done():  # between the two
                await self._keep(operation.new.id, task.result())

    async def _done(self, id: str, mine: _UnderWay, work: Callable[[], Response]) -> Response:
        if self._threads is None:
            self._threads = CapacityLimiter(LONG)
        try:
            response = await run_sync(_outcome, work, limiter=self._threads, abandon_on_cancel=True)
            mine.has_ended = True
            if mine.is_kept and response.status_code == HTTPStatus.SERVICE_UNAVAILABLE and not mine.is_told:
                # No client has its id, and its failure will pass: without the row, the key can be sent again.
                await run_quickly(requests.forget_operation, self._database, id)
            elif mine.is_kept:
                await self._keep(id, response)
            return response
        finally:
            del self._under_way[id]

    async def _keep(self, id: str, response: Response) -> None:
        if len(response.body) > MOST_BYTES:
            response = problem_of(WTBError(_TOO_LARGE))
        location, body = response.headers.get("Location"), bytes(response.body).decode()
        try:
            await run_quickly(requests.end_operation, self._database, id, response.status_code, location, body)
        except StoreError as error:  # a later request gets that it was lost
            _log.warning("the answer of operation %s was not kept: %s", id, error)

    def _count(self, who: str) -> int:
        return sum(running.who == who for running in self._under_way.values())

    async def find(self, identity: Identity, id: str, wait_s: float) -> requests.FoundOperation | None:
        """Return an operation to a client with its permission in its projects; None to others.

        Args:
            identity: The client.
            id: Its id.
            wait_s: Seconds to wait for its end.
        """
        # No id of WTB's, and databases reject some texts, such as those with NUL.
        if not id.isalnum():
            return None
        seen = await run_quickly(requests.find_operation, self._database.within(_scope_of(identity)), id)
        operation = None if seen is None else OPERATIONS.get(seen.row.name)  # None for an id of another version
        if operation is None or operation.needs not in identity.may:
            return None
        within = self._database.within(Scope(identity.may[operation.needs]))
        return await self._ended(within, id, wait_s)

    async def _ended(self, database: Database, id: str, wait_s: float) -> requests.FoundOperation | None:
        """Return an operation when it has ended, or its status when the time is up."""
        end = time.monotonic() + wait_s
        while True:
            operation = await self._look(database, id)
            rest = end - time.monotonic()
            if operation is None or operation.status is not requests.Status.running or rest <= 0:
                return operation
            mine = self._under_way.get(id)
            if mine is not None and mine.task is not None:
                await asyncio.wait({mine.task}, timeout=rest)
            else:
                await asyncio.sleep(min(_LOOK_S, rest))

    async def _look(self, database: Database, id: str) -> requests.FoundOperation | None:
        """Return the status of an operation. One of this server is running, even if its lease has expired."""
        # Read first, because it may end while the database is read.
        is_mine = id in self._under_way
        operation = await run_quickly(requests.find_operation, database, id)
        if operation is not None and operation.status is requests.Status.lost and is_mine:
            return replace(operation, status=requests.Status.running)
        return operation

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew the leases of running operations during the block."""
        renewal = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewal.cancel()
            with suppress(asyncio.CancelledError):
                await renewal

    async def _renew(self) -> None:
        while True:
            # Often enough that a lease outlives a renewal that fails.
            await asyncio.sleep(LEASE_S / 3)
            ids = [id for id, running in self._under_way.items() if running.is_kept]
            try:
                if ids:
                    await run_quickly(requests.renew_operations, self._database, ids)
            except StoreError as error:
                _log.warning("the leases of operations were not renewed: %s", error)


def _outcome(work: Callable[[], Response]) -> Response:
    """Carry out an operation. Returns its response, also for any error."""
    try:
        return work()
    except WTBError as error:
        return problem_of(error)
    except Exception:  # noqa: BLE001 - as the application answers what nobody expected
        _log.exception("an operation failed")
        return fault()


def _too_many(who: str) -> Problem:
    detail = f"{who} has {MOST_EACH} operations under way that take long, which is the limit; wait for one to end"
    return Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers={"Retry-After": "2"})


def _unseen() -> Problem:
    detail = "an operation with this Idempotency-Key was begun and cannot be seen; look at what it was to change"
    return Problem(HTTPStatus.CONFLICT, detail, headers={"Retry-After": "10"})


def _scope_of(identity: Identity) -> Scope:
    """Return all projects in which a client has any permission."""
    projects = identity.may.values()
    return Scope(
        None if None in projects else frozenset().union(*(permitted for permitted in projects if permitted is not None))
    )
