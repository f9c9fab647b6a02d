"""Registered code of this machine, described by node processes, and again when it changes."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.authoring.code.describing import RegisteredName, registered_names
from wtb.core.ids import new_id
from wtb.execution.described_code import describe_registered
from wtb.execution.engine.description import ImportedFile, have_changed
from wtb.planning.publishing import publication_of
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Workspaces
from wtb.store.publications import Publication


class RegisteredCode:
    """The descriptions of registered workflows and evaluators, as of the last look.

    Attributes:
        publications: The description of each, or the reason why it cannot be imported.
    """

    publications: Sequence[Publication]

    def __init__(self, workspaces: Workspaces, folder: str) -> None:
        """Make it; nothing is described before the first look.

        Args:
            workspaces: The workspaces for node processes.
            folder: The name of their folder.
        """
        self.publications = []
        self._workspaces, self._folder = workspaces, folder
        self._described: list[RegisteredName] = []
        self._files: list[ImportedFile] = []  # that were imported for it

    def look(self) -> bool:
        """Describe code that has changed since the last look.

        Returns:
            Whether a description has changed.

        Raises:
            WTBError: If the file that registers cannot be read, or no process can start.
        """
        names = registered_names()
        if not names and not self.publications:
            return False
        # A failed import is tried again each time: its cause may be anything, such as a missing package.
        has_failed = any(publication.error is not None for publication in self.publications)
        if names == self._described and not has_failed and not have_changed(self._files):
            return False
        described, files = self._describe(names) if names else ([], [])
        before, self.publications = self.publications, described
        self._described, self._files = names, files
        return described != before

    def _describe(self, names: list[RegisteredName]) -> tuple[list[Publication], list[ImportedFile]]:
        """Import the registered code in node processes. Raises WTBError."""
        owner = new_id()
        # Registered code belongs to no project, so it must see the files of none.
        own = self._workspaces.of_project("").of_runner(owner, self._folder, owner)
        try:
            description = describe_registered(names, own, owner)
        finally:
            remove_tree(own.root)
        return list(map(publication_of, description["names"])), description["files"]
