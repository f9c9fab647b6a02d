"""Publishes what is registered where this worker runs: at its start, and whenever code or the registration changes."""

from __future__ import annotations

import logging
import threading

from wtb.core.errors import WTBError
from wtb.hosting.runs.registered_code import RegisteredCode
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.publications import publish

log = logging.getLogger("wtb")

LOOK_S = 2.0  # between two looks at what has changed


class Publisher:
    """A thread that publishes. What it cannot import it publishes as such."""

    def __init__(self, database: Database, worker: str) -> None:
        self._database = database
        self._worker = worker
        self._registered = RegisteredCode(workspaces_of(database), "publishing")
        self._problem = ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_published, name="wtb-publisher", daemon=True)
        self._thread.start()

    def close(self, patience_s: float) -> None:
        """End the thread; what was published stays, since another worker may run it."""
        self._closing.set()
        self._thread.join(patience_s)

    def _keep_published(self) -> None:
        while not self._closing.is_set():
            try:
                self.look()
                self._problem = ""
            except WTBError as error:  # the database is out of reach, or the file that registers cannot be read
                if str(error) != self._problem:
                    self._problem = str(error)
                    log.error("%s", error)
            self._closing.wait(LOOK_S)

    def look(self) -> None:
        """Publish what has changed since the last look. Raises WTBError."""
        if self._registered.look():
            publish(self._database, self._worker, self._registered.publications)
