"""Operations that may take longer than a request: they go on, and who asked is told where to ask what came of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.responses import Response

from wtb.core.classes.frozen import frozen
from wtb.core.errors import StoreError, WTBError
from wtb.hosting.api.problems import Problem, fault, problem_of
from wtb.hosting.api.requests.long_answers import LONGEST_WAIT_S, accepted, response_of
from wtb.hosting.api.threads import LONG, run_quickly
from wtb.operations.identity import Identity
from wtb.operations.registry import OPERATIONS
from wtb.store.access.operations import (
    LEASE_S,
    AlreadyBegun,
    FoundOperation,
    NewOperation,
    Status,
    begin_operation,
    end_operation,
    find_by_key,
    find_operation,
    forget_operation,
    renew_operations,
)
from wtb.store.database import Database
from wtb.store.transactions import Scope

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
    """An operation that somebody asks for.

    Attributes:
        new: What is kept of it.
        who: Whose operations are counted together.
        database: As they are limited to it.
        wait_s: How long they wait for the answer.
    """

    new: NewOperation
    who: str
    database: Database
    wait_s: float


@dataclass
class _UnderWay:
    """An operation that this server carries out.

    Attributes:
        who: Whose it is.
        is_kept: Whether the database has it, so that others can ask for it.
        is_told: Whether somebody was told its id.
        has_ended: Whether its answer is there, though perhaps not kept so far.
    """

    who: str
    is_kept: bool = False
    is_told: bool = False
    has_ended: bool = False
    task: asyncio.Task[Response] | None = None


class LongOperations:
    """What a server carries out of operations that may take longer than a request.

    One that ends while who asked for it waits is answered as any other and leaves no row. The database has the others,
    and from their beginning those of a request with a key, which may be sent again to another server.
    """

    def __init__(self, database: Database) -> None:
        """Make it. database: as the server has it, for all projects."""
        self._database = database
        self._under_way: dict[str, _UnderWay] = {}
        self._threads: CapacityLimiter | None = None

    async def answer(self, asked: Asked, work: Callable[[], Response]) -> Response:
        """Carry an operation out.

        Args:
            asked: What is asked for.
            work: Carries it out, in a thread.

        Returns:
            Its answer, if that comes in time; else 202 and where it will be. 429 where its identity has too many.
        """
        if asked.new.key is None:
            return await self._carry_out(asked, work)
        end = time.monotonic() + asked.wait_s
        last = max(end, time.monotonic() + _PATIENCE_S)
        while time.monotonic() < last:
            earlier = await run_quickly(find_by_key, asked.database, asked.new.key)
            if earlier is None:
                with suppress(AlreadyBegun):
                    return await self._carry_out(asked, work)
            elif found := await self._ended(asked.database, earlier.row.id, end - time.monotonic()):
                return response_of(found)
            await asyncio.sleep(_PAUSE_S)  # it was begun elsewhere, or forgotten: then it is begun anew
        return _unseen()

    async def _carry_out(self, asked: Asked, work: Callable[[], Response]) -> Response:
        """Carry out what nobody has begun. Raises AlreadyBegun where another request with its key just has."""
        if self._count(asked.who) >= MOST_EACH:
            return _too_many(asked.who)
        id = asked.new.id
        mine = self._under_way[id] = _UnderWay(asked.who)  # before anything is awaited, so that it counts
        if asked.new.key is not None:
            await self._begin(asked.new, asked.database, mine)
        mine.task = asyncio.create_task(self._done(id, mine, work))
        await asyncio.wait({mine.task}, timeout=asked.wait_s)
        while not mine.task.done() and not mine.is_kept:
            await self._begin_late(asked, mine, mine.task)
        if mine.task.done() or mine.has_ended:
            return await mine.task
        mine.is_told = True
        return accepted(id, asked.new.name)

    async def _begin(self, new: NewOperation, database: Database, mine: _UnderWay) -> None:
        """Keep an operation from its beginning. Raises StoreError if it cannot be kept."""
        try:
            await run_quickly(begin_operation, database, new)
            mine.is_kept = True
        finally:
            if not mine.is_kept:
                del self._under_way[new.id]

    async def _begin_late(self, asked: Asked, mine: _UnderWay, task: asyncio.Task[Response]) -> None:
        """Keep an operation that goes on; where it cannot be, wait for a while for its end instead."""
        try:
            await run_quickly(begin_operation, asked.database, asked.new)
        except StoreError as error:  # it may itself hold the lock of the database
            _log.warning("operation %s goes on and could not be kept: %s", asked.new.id, error)
            await asyncio.wait({task}, timeout=_LOOK_S)
        else:
            mine.is_kept = True
            if task.done():  # between the two
                await self._keep(asked.new.id, task.result())

    async def _done(self, id: str, mine: _UnderWay, work: Callable[[], Response]) -> Response:
        if self._threads is None:
            self._threads = CapacityLimiter(LONG)
        try:
            response = await run_sync(_outcome, work, limiter=self._threads, abandon_on_cancel=True)
            mine.has_ended = True
            if mine.is_kept and response.status_code == HTTPStatus.SERVICE_UNAVAILABLE and not mine.is_told:
                await run_quickly(forget_operation, self._database, id)  # so that its key may be sent again
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
            await run_quickly(end_operation, self._database, id, response.status_code, location, body)
        except StoreError as error:  # whoever asks is told that it was lost
            _log.warning("the answer of operation %s was not kept: %s", id, error)

    def _count(self, who: str) -> int:
        return sum(one.who == who for one in self._under_way.values())

    async def find(self, identity: Identity, id: str, wait_s: float) -> FoundOperation | None:
        """Return an operation for whoever may do it in the projects that it is about; None for others.

        Args:
            identity: Who asks.
            id: Its id.
            wait_s: How long they wait for its end.
        """
        if not id.isalnum():  # it is none of ours, and not every text can be asked for
            return None
        seen = await run_quickly(find_operation, self._database.within(_scope_of(identity)), id)
        operation = None if seen is None else OPERATIONS.get(seen.row.name)  # None for an id of another version
        if operation is None or operation.needs not in identity.may:
            return None
        within = self._database.within(Scope(identity.may[operation.needs]))
        return await self._ended(within, id, wait_s)

    async def _ended(self, database: Database, id: str, wait_s: float) -> FoundOperation | None:
        """Return an operation when it has ended, or as it stands when the time is up."""
        end = time.monotonic() + wait_s
        while True:
            found = await self._look(database, id)
            rest = end - time.monotonic()
            if found is None or found.status is not Status.running or rest <= 0:
                return found
            mine = self._under_way.get(id)
            if mine is not None and mine.task is not None:
                await asyncio.wait({mine.task}, timeout=rest)
            else:
                await asyncio.sleep(min(_LOOK_S, rest))

    async def _look(self, database: Database, id: str) -> FoundOperation | None:
        """Return an operation as it stands: what this server carries out is running, whatever its lease says."""
        is_mine = id in self._under_way  # asked first: it may end while the database is read
        found = await run_quickly(find_operation, database, id)
        if found is not None and found.status is Status.lost and is_mine:
            return replace(found, status=Status.running)
        return found

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew the leases of what is under way inside the block."""
        renewal = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewal.cancel()
            with suppress(asyncio.CancelledError):
                await renewal

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            kept = [id for id, one in self._under_way.items() if one.is_kept]
            try:
                if kept:
                    await run_quickly(renew_operations, self._database, kept)
            except StoreError as error:
                _log.warning("the leases of operations were not renewed: %s", error)


def _outcome(work: Callable[[], Response]) -> Response:
    """Carry out, and return what is to be answered, whatever happens."""
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
    """Return all projects in which somebody may do anything."""
    projects = identity.may.values()
    return Scope(None if None in projects else frozenset().union(*(one for one in projects if one is not None)))
