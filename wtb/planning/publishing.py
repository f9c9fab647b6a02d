"""Descriptions of registered code for publication, and code as other processes published it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import orjson

from wtb.authoring.code.described import DescribedWorkflow, evaluator_function_of, workflow_of
from wtb.authoring.code.describing import DescribedName, described_names, registered_names
from wtb.authoring.code.recipe import IMPORTED as IMPORTED
from wtb.authoring.code.recipe import Code as Code
from wtb.core.documents.workflows import PublicationKind
from wtb.core.errors import InputError, meant_or_known
from wtb.store.database import Database
from wtb.store.publications import Publication, find_publication, list_publications
from wtb.store.tables.sweeps import PublicationRow


class PublishedCode:
    """Code as workers have published it; nothing is imported."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def workflow(self, name: str, problem: Callable[[str], str]) -> DescribedWorkflow:
        row = find_publication(self._database, "workflow", name)
        if row is None:
            raise InputError(problem(f"no worker publishes a workflow {name!r}{self._published_hint(name)}"))
        return workflow_of(self._read(row, problem))

    def load(self, path: str) -> Any:
        row = find_publication(self._database, "evaluator", path)
        if row is None:
            raise InputError(
                f"{path!r} is an import path, and nothing is imported here; expected what workers publish"
                f"{self._published_hint(path, 'evaluator')}"
            )
        return evaluator_function_of(self._read(row, str))

    def _read(self, row: PublicationRow, problem: Callable[[str], str]) -> Any:
        if row.description is None:
            raise InputError(
                problem(f"{row.kind} {row.name!r} cannot be imported by worker {row.failed_by}: {row.error}")
            )
        return orjson.loads(row.description)

    def _published_hint(self, name: str, kind: PublicationKind = "workflow") -> str:
        names = [row.name for row in list_publications(self._database) if row.kind == kind]
        if not names and kind == "workflow":
            return "; register it in the wtb.toml of a worker"
        return meant_or_known(name, names)


def describe_registered() -> list[Publication]:
    """Import and describe everything that is registered here. Raises InputError as `registered_names`."""
    return list(map(publication_of, described_names(registered_names())))


def publication_of(described: DescribedName) -> Publication:
    """Return the publication of a described name."""
    kind, name, path, text = described["kind"], described["name"], described["path"], described["description"]
    # Code that cannot be imported is published with its error, which a submission then shows.
    if text is None:
        return Publication(kind, name, path, error=described["error"])
    return Publication(kind, name, path, text, hashlib.sha256(text.encode()).hexdigest())
