"""The pace at which followed logs are read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from wtb.core.errors import WTBError
from wtb.hosting.api.threads import run_quickly
from wtb.store.database import Database
from wtb.store.log import ANNOUNCED_EVERY_S
from wtb.store.log_followers import Announcements, open_transactions

INTERVAL_S = 0.2  # frames come at most five times a second
_QUIET_S = 5.0  # between two looks without announcements
_QUICK_S = 2 * ANNOUNCED_EVERY_S  # after an announcement, for changes that are not announced again
_TRIED_S = 5.0  # for a test announcement to arrive
_RETRY_S = 1.0  # while the database is out of reach
_log = logging.getLogger("wtb")


class Pace:
    """Five looks a second while the logs grow; on PostgreSQL one in five seconds while they do not.

    It is also quick if nothing can be announced: on SQLite, and while there is no connection for announcements.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_quick = asyncio.Event()
        self._is_quick.set()
        self._quickened = asyncio.Event()
        self._announced = asyncio.Event()

    @property
    def is_quiet(self) -> bool:
        """True if logs are read seldom, unless something is announced."""
        return not self._is_quick.is_set()

    @asynccontextmanager
    async def listen_for_changes(self) -> AsyncIterator[None]:
        """Receive announcements during the block."""
        listening = None if self._database.is_sqlite else asyncio.create_task(self._listen())
        try:
            yield
        finally:
            if listening is not None:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening

    def quicken(self) -> None:
        """Read logs often from now on, for a while."""
        self._is_quick.set()
        self._quickened.set()

    async def wait(self) -> None:
        """Wait until it is time for the next look."""
        await asyncio.sleep(INTERVAL_S)
        if self.is_quiet:
            with suppress(TimeoutError):
                async with asyncio.timeout(_QUIET_S):
                    await self._is_quick.wait()

    async def _listen(self) -> None:
        while True:
            announcements = Announcements(self._database)
            try:
                await run_quickly(announcements.open)
                await self._follow(announcements)
            except WTBError as error:
                _log.warning("streams ask all the time, since the database announces nothing: %s", error)
                self._is_quick.set()
            finally:
                announcements.close()
            await asyncio.sleep(_RETRY_S)

    async def _follow(self, announcements: Announcements) -> None:
        """Read logs often after each announcement. Raises StoreError when the connection is lost."""
        loop, descriptor = asyncio.get_running_loop(), announcements.fileno()
        lost: asyncio.Future[None] = loop.create_future()

        def hear() -> None:
            try:
                if announcements.take():
                    self._announced.set()
                    self.quicken()
            except WTBError as error:
                # A broken connection stays readable, and would call this again and again.
                loop.remove_reader(descriptor)
                lost.set_exception(error)

        loop.add_reader(descriptor, hear)
        slowing = asyncio.create_task(self._slow_down(announcements))
        try:
            await asyncio.wait((lost, slowing), return_when=asyncio.FIRST_COMPLETED)
            if slowing.done():
                slowing.result()
            await lost
        finally:
            slowing.cancel()
            loop.remove_reader(descriptor)

    async def _slow_down(self, announcements: Announcements) -> None:
        """Slow down whenever there are no more announcements, and all announced changes can be read."""
        self._announced.clear()
        # Slowing down is safe only if announcements arrive, which a connection pooler may prevent.
        await run_quickly(announcements.try_out)
        try:
            async with asyncio.timeout(_TRIED_S):
                await self._announced.wait()
        except TimeoutError:
            _log.warning("streams ask all the time, since what the database announces does not come here")
            return
        while True:
            self._is_quick.set()
            # Before the pause, so that an announcement during it counts.
            self._quickened.clear()
            await asyncio.sleep(_QUICK_S)
            if not self._quickened.is_set() and await self._has_settled():
                self._is_quick.clear()
                await self._quickened.wait()

    async def _has_settled(self) -> bool:
        """Wait until no earlier transaction is open, because events after it are hidden until then."""
        oldest, following = -1, 0
        while oldest < following and not self._quickened.is_set():
            oldest, upto = await run_quickly(open_transactions, self._database)
            # Taken once: transactions that begin later need not be waited for.
            following = following or upto
            await asyncio.sleep(2 * INTERVAL_S)
        return not self._quickened.is_set()
