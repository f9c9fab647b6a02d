"""What workers publish, as short as a sweep can be put together from it; all of it is at `/workflows`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from wtb.core.documents.workflows.publications import PublicationsDocument, PublishedWorkflowDocument
from wtb.core.texts import plural
from wtb.core.values import Json
from wtb.operations.context import Context
from wtb.operations.registry import OPERATIONS


class ListedWorkflow(TypedDict):
    """A workflow. nodes: node -> variant -> its parameters. error: why workers cannot import it."""

    name: str
    description: str | None
    nodes: Mapping[str, Mapping[str, Json]]
    tools: list[str]
    error: str | None


class Catalog(TypedDict):
    """What sweeps can name: workflows, and evaluators by their names."""

    workflows: list[ListedWorkflow]
    evaluators: list[str]
    built_in: list[str]


def catalog(context: Context) -> Catalog:
    """List what workers publish.

    Args:
        context: Where, and who asks.
    """
    found: PublicationsDocument = OPERATIONS["workflows.list"].function(context)
    show = OPERATIONS["workflows.show"].function
    return {
        "workflows": [_listed(show(context, one["name"])) for one in found["workflows"]],
        "evaluators": [one["name"] for one in found["evaluators"]],
        "built_in": [one["name"] for one in found.get("built_in", ())],
    }


def in_words(found: Catalog) -> str:
    """Return what there is, in a sentence.

    Args:
        found: What workers publish.
    """
    if not found["workflows"]:
        return "No worker publishes a workflow: start one where the `wtb.toml` registers some."
    each = [f"{one['name']} ({_nodes(one)})" for one in found["workflows"]]
    return f"{plural(len(each), 'workflow')}: {'; '.join(each)}."


def _nodes(one: ListedWorkflow) -> str:
    if one["error"] is not None:
        return "it cannot be imported"
    return ", ".join(f"{node}: {' '.join(variants)}" for node, variants in one["nodes"].items())


def _listed(found: PublishedWorkflowDocument) -> ListedWorkflow:
    described = found["description"]
    nodes = [] if described is None else described["graph"]["nodes"]
    return {
        "name": found["name"],
        "description": None if described is None else described["graph"]["description"],
        "nodes": {node["name"]: {one["name"]: one["params"] for one in node["variants"]} for node in nodes},
        "tools": [] if described is None else described.get("tools", []),
        "error": found["error"] if described is None else None,
    }
