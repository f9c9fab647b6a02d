"""Workflows and evaluators that workers publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from wtb.authoring.evaluation.built_in import BUILT_IN, COMBINING
from wtb.authoring.evaluation.evaluator_options import options_schema
from wtb.core.arguments import checked
from wtb.core.documents.workflows import (
    EvaluatorDescription,
    PublicationDocument,
    PublicationsDocument,
    PublishedWorkflowDocument,
)
from wtb.core.errors import NotFound, did_you_mean
from wtb.core.serialization.plain_json import iso
from wtb.operations.context import Context
from wtb.store.publications import list_publications
from wtb.store.tables.sweeps import PublicationRow


@checked
def list_published(context: Context) -> PublicationsDocument:
    """List published workflows and evaluators.

    Args:
        context: Where.

    Returns:
        A document for each, by name, and one for each built-in evaluator, with its options.
    """
    rows = publications_of(context)
    return {
        "workflows": [_document(row) for row in rows if row.kind == "workflow"],
        "evaluators": [_evaluator_document(row) for row in rows if row.kind == "evaluator"],
        "built_in": [
            {"name": name, "options": options_schema(function)}
            for name, function in BUILT_IN.items()
            if name not in COMBINING
        ],
    }


@checked
def show_published(context: Context, name: str) -> PublishedWorkflowDocument:
    """Show a published workflow: its graph, variants, parameters and fingerprints.

    Args:
        context: Where.
        name: Its registered name.

    Returns:
        Its document.

    Raises:
        NotFound: If no worker publishes a workflow of this name.
    """
    workflows = [row for row in publications_of(context) if row.kind == "workflow"]
    row = next((row for row in workflows if row.name == name), None)
    # Names first: a path may equal the registered name of another workflow.
    row = row or next((row for row in workflows if row.path == name), None)
    if row is None:
        near = did_you_mean(name, [row.name for row in workflows])
        raise NotFound(
            f"no worker publishes a workflow {name!r}{near}; `wtb workflow list --published` shows all",
            argument="name",
            kind="workflow",
        )
    description = None if row.description is None else orjson.loads(row.description)
    return {**_document(row), "description": description}


def publications_of(context: Context) -> Sequence[PublicationRow]:
    """Return what workers publish, or the registrations of this machine if it runs sweeps itself."""
    return list_publications(context.database) if context.local is None else context.local.publications()


def _evaluator_document(row: PublicationRow) -> PublicationDocument:
    """Return the document of an evaluator, with its options as the JSON Schema of an object."""
    if row.description is None:
        return _document(row)
    described: EvaluatorDescription = orjson.loads(row.description)
    parameters = described["function"]["parameters"]
    properties: dict[str, Any] = {
        name: (parameter["type"]["schema"] or {})
        | ({"default": parameter["default"]} if "default" in parameter else {})
        for name, parameter in parameters.items()
    }
    required = [name for name, parameter in parameters.items() if parameter["required"]]
    return {**_document(row), "options": {"type": "object", "properties": properties, "required": required}}


def _document(row: PublicationRow) -> PublicationDocument:
    return {
        "kind": row.kind,
        "name": row.name,
        "path": row.path,
        "digest": row.digest,
        "published_at": iso(row.published_at),
        "published_by": row.published_by,
        "error": row.error,
        "failed_at": iso(row.failed_at),
        "failed_by": row.failed_by,
    }
