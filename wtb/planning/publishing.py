"""Describing what is registered where this process runs, and code as it was described elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Protocol

import orjson

from wtb.authoring.code.described import evaluator_function_of, workflow_of
from wtb.authoring.code.describing import describe_evaluator, describe_workflow
from wtb.authoring.code.import_paths import load, published_evaluators, registered
from wtb.authoring.code.resolve import workflow_at
from wtb.authoring.evaluation.adapters import adapted
from wtb.authoring.workflow import Workflow
from wtb.core.documents.workflows.publications import EvaluatorDescription, PublicationKind, WorkflowDescription
from wtb.core.errors import InputError, WTBError, meant_or_known
from wtb.store.database import Database
from wtb.store.publications import Publication, find_publication, list_publications
from wtb.store.rows.publications import PublicationRow


class Code(Protocol):
    """Where the code of sweeps comes from."""

    def workflow(self, name: str, problem: Callable[[str], str]) -> Workflow:
        """Return a workflow by its name or import path. problem: puts what is wrong into words. Raises InputError."""

    def load(self, path: str) -> Any:
        """Return what stands at an import path. Raises InputError."""


class ImportedCode:
    """Code that this process imports."""

    def workflow(self, name: str, problem: Callable[[str], str]) -> Workflow:
        return workflow_at(name, problem)

    def load(self, path: str) -> Any:
        return load(path)


class PublishedCode:
    """Code as workers have published it. None is imported."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def workflow(self, name: str, problem: Callable[[str], str]) -> Workflow:
        row = find_publication(self._database, "workflow", name)
        if row is None:
            raise InputError(problem(f"no worker publishes a workflow {name!r}{self._known(name)}"))
        return workflow_of(self._read(row, problem))

    def load(self, path: str) -> Any:
        row = find_publication(self._database, "evaluator", path)
        if row is None:
            raise InputError(
                f"{path!r} is an import path, and nothing is imported here; expected what workers publish"
                f"{self._known(path, 'evaluator')}"
            )
        return evaluator_function_of(self._read(row, str))

    def _read(self, row: PublicationRow, problem: Callable[[str], str]) -> Any:
        if row.description is None:
            raise InputError(
                problem(f"{row.kind} {row.name!r} cannot be imported by worker {row.failed_by}: {row.error}")
            )
        return orjson.loads(row.description)

    def _known(self, name: str, kind: PublicationKind = "workflow") -> str:
        names = [row.name for row in list_publications(self._database) if row.kind == kind]
        if not names and kind == "workflow":
            return "; register it in the wtb.toml of a worker"
        return meant_or_known(name, names)


IMPORTED = ImportedCode()


def describe_registered() -> list[Publication]:
    """Describe all that is registered where this process runs, importing it.

    Returns:
        What is to be published; with the reason where something cannot be imported.

    Raises:
        InputError: If the file that registers names cannot be read.
    """
    found = [_describe("workflow", name, path, _workflow) for name, path in registered().items()]
    return found + [_describe("evaluator", path, path, _evaluator) for path in published_evaluators()]


def _describe(
    kind: PublicationKind, name: str, path: str, describe: Callable[[str], WorkflowDescription | EvaluatorDescription]
) -> Publication:
    try:
        text = orjson.dumps(describe(path))
    except WTBError as error:
        return Publication(kind, name, path, error=str(error))
    return Publication(kind, name, path, text.decode(), hashlib.sha256(text).hexdigest())


def _workflow(path: str) -> WorkflowDescription:
    workflow = workflow_at(path)
    workflow.validate()
    return describe_workflow(workflow)


def _evaluator(path: str) -> EvaluatorDescription:
    function = adapted(path, load(path))
    if not callable(function):
        raise InputError(f"evaluator {path!r} is of type {type(function).__name__}; expected a function (case, result)")
    return describe_evaluator(function)
