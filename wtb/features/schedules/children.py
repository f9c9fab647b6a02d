"""Child processes that carry out due fires, for the scheduler or for a command that fires a schedule now.

Node processes below them import and run the user's code. Any number of schedulers may do this at once: a due fire is a
row, and whoever claims the row carries it out. A child that dies gives its fire back; if the scheduler dies too, its
lease runs out.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from wtb.config.credentials import DATABASE_URL, credentials_pipe, known_credentials
from wtb.core.errors import StoreError
from wtb.core.ids import log_ids
from wtb.features.schedules import queries as store
from wtb.features.schedules.queries import Claim
from wtb.store.database import Database
from wtb.store.read.baselines import Fire

AT_ONCE = 4  # children of one scheduler
ENDING_S = 5.0
LATER_S = 60.0  # until a process is tried to be started again
_OUT_OF_REACH = StoreError.exit_code


class Fires:
    """Starts the children that carry out fires, and sees how they end.

    Within a `with` statement, Ctrl-C ends them.

    Args:
        database: Where the schedules are.
        report: Called with messages for people.
        quiet: Children show no progress.
    """

    def __init__(self, database: Database, report: Callable[[str], None], *, quiet: bool = True) -> None:
        self._database = database
        self._report = report
        self._options = ["--quiet"] if quiet else []
        self._reported: set[str] = set()
        self._children: dict[Claim, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            self.end()

    def look(self) -> None:
        """Make due fires, and start children for those that can run. Raises StoreError."""
        # First those that have ended: each of them leaves room for another one.
        self._see_ended()
        for due in store.make_due(self._database):
            with log_ids(schedule=due.schedule):
                if due.problem is not None:
                    self._report_once(f"{due.schedule}: {due.problem}")
                elif due.fire_at is None:
                    self._report(f"{due.schedule}: {due.missed:,} missed and skipped")
        for fire in store.open_fires(self._database):
            # Also fires whose process died: nobody holds them any more.
            if not fire.held and self._has_room(fire.schedule_id) and fire.next_step is not None:
                with log_ids(schedule=fire.schedule):
                    self.start(fire)

    def _report_once(self, text: str) -> None:
        if text not in self._reported:
            # A scheduler looks again and again, and would repeat a problem as often.
            self._reported.add(text)
            self._report(text)

    def _has_room(self, schedule_id: str) -> bool:
        """Return whether another child may be started for a schedule. Its fires are carried out one after the other."""
        return len(self._children) < AT_ONCE and all(claim.schedule_id != schedule_id for claim in self._children)

    def start(self, fire: Fire) -> bool:
        """Start a child for a fire, unless somebody else has it. A fire whose folder is not here is left alone."""
        if not Path(fire.folder).is_dir():
            self._report_once(f"{fire.schedule}: its folder {fire.folder} is not here")
            return False
        # Claimed before a process exists: of two schedulers only one starts a child.
        claimed = store.claim(self._database, fire)
        if claimed is None:
            return False
        words = [claimed.schedule_id, repr(claimed.fire_at), str(claimed.token)]
        try:
            # Credentials go through a pipe: an environment would be handed on to the processes of user code below.
            with credentials_pipe(**{**known_credentials(), DATABASE_URL: address_of(self._database)}) as (
                environment,
                inherited,
            ):
                self._children[claimed] = subprocess.Popen(
                    [sys.executable, "-P", "-m", "wtb", "schedule", "fire", *words, *self._options],
                    cwd=fire.folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # stdout is for results
                    pass_fds=inherited,
                )
        except OSError as error:
            self._report_once(f"{fire.schedule}: no process can be started in {fire.folder} ({error.strerror})")
            store.release(self._database, claimed, after=LATER_S)
            return False
        return True

    def finish(self) -> None:
        """Look and wait as long as anything can be done now. What dies is left to the next round."""
        self.look()
        while self.wait():
            self.look()

    def wait(self) -> bool:
        """Wait until all children have ended. Returns True if one of them succeeded."""
        codes = [child.wait() for child in self._children.values()]
        self._see_ended()
        return 0 in codes

    def end(self) -> None:
        """End the children; the next round continues their fires."""
        # All are asked to end before any is waited for, so that they share the same seconds.
        for child in self._children.values():
            child.terminate()
        ends = time.monotonic() + ENDING_S
        for child in self._children.values():
            try:
                child.wait(max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
        with suppress(StoreError):  # else their leases run out
            self.wait()

    def _see_ended(self) -> None:
        for claimed, child in list(self._children.items()):
            code = child.poll()
            if code is None:
                continue
            del self._children[claimed]
            if code:
                # A database out of reach is no fault of the fire, so it does not count as a death.
                store.release(self._database, claimed, died=code != _OUT_OF_REACH)


def address_of(database: Database) -> str:
    """Return the URL of a database for a process that starts in another folder."""
    url = database.url
    if database.path is not None:
        url = url.set(database=str(database.path.absolute()))
    return url.render_as_string(hide_password=False)
