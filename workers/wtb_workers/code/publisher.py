"""Publishes what is registered where this worker runs: at its start, and whenever code or the registration changes."""

from __future__ import annotations

import logging
import threading

from wtb.authoring.code.describing import RegisteredName, registered_names
from wtb.core.errors import WTBError
from wtb.core.ids import new_id
from wtb.execution.described_code import describe_registered
from wtb.execution.engine.imports import ImportedFile, have_changed
from wtb.planning.publishing import publication_of
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.files.safe_directories import remove_tree
from wtb.store.publications import Publication, publish

log = logging.getLogger("wtb")

LOOK_S = 2.0  # between two looks at what has changed


class Publisher:
    """A thread that publishes. What it cannot import it publishes as such."""

    def __init__(self, database: Database, worker: str) -> None:
        self._database = database
        self._worker = worker
        self._published: list[Publication] = []
        self._described: list[RegisteredName] = []
        self._files: list[ImportedFile] = []  # that were imported for it
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
        names = registered_names()
        if not names and not self._published:
            return
        failed = any(one.error is not None for one in self._published)
        if names == self._described and not failed and not have_changed(self._files):
            return
        described, files = self._describe(names) if names else ([], [])
        if described != self._published:
            publish(self._database, self._worker, described)
        self._published, self._described, self._files = described, names, files

    def _describe(self, names: list[RegisteredName]) -> tuple[list[Publication], list[ImportedFile]]:
        """Have node processes import what is registered. Raises WTBError."""
        owner = new_id()
        # Code that is registered is of no project, and sees the files of none.
        own = workspaces_of(self._database).of_project("").of_runner(owner, "publishing", owner)
        try:
            description = describe_registered(names, own, owner)
        finally:
            remove_tree(own.root)
        return list(map(publication_of, description["names"])), description["files"]
