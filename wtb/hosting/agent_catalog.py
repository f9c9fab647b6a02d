"""The catalog of published workflows, in the shortest form that suffices to write a sweep; see also `/workflows`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from wtb.core.documents.workflows import PublicationsDocument, PublishedWorkflowDocument
from wtb.core.texts import plural
from wtb.core.values import Json
from wtb.operations.context import Context
from wtb.operations.registry import OPERATIONS


class ListedWorkflow(TypedDict):
    """A workflow. `nodes` maps node -> variant -> its parameters; `error` is set if workers cannot import it."""

    name: str
    description: str | None
    nodes: Mapping[str, Mapping[str, Json]]
    tools: list[str]
    error: str | None


class Catalog(TypedDict):
    """The names that sweeps can use: workflows, and evaluators."""

    workflows: list[ListedWorkflow]
    evaluators: list[str]
    built_in: list[str]


def catalog(context: Context) -> Catalog:
    """List published workflows and evaluators.

    Args:
        context: The context of the caller.
    """
    publications: PublicationsDocument = OPERATIONS["workflows.list"].function(context)
    show = OPERATIONS["workflows.show"].function
    return {
        "workflows": [_listed(show(context, workflow["name"])) for workflow in publications["workflows"]],
        "evaluators": [evaluator["name"] for evaluator in publications["evaluators"]],
        "built_in": [evaluator["name"] for evaluator in publications.get("built_in", ())],
    }


def in_words(published: Catalog) -> str:
    """Describe the catalog in a sentence.

    Args:
        published: The catalog.
    """
    if not published["workflows"]:
        return "No worker publishes a workflow: start one where the `wtb.toml` registers some."
    each = [f"{workflow['name']} ({_nodes(workflow)})" for workflow in published["workflows"]]
    return f"{plural(len(each), 'workflow')}: {'; '.join(each)}."


def _nodes(workflow: ListedWorkflow) -> str:
    if workflow["error"] is not None:
        return "it cannot be imported"
    return ", ".join(f"{node}: {' '.join(variants)}" for node, variants in workflow["nodes"].items())


def _listed(workflow: PublishedWorkflowDocument) -> ListedWorkflow:
    described = workflow["description"]
    nodes = [] if described is None else described["graph"]["nodes"]
    return {
        "name": workflow["name"],
        "description": None if described is None else described["graph"]["description"],
        "nodes": {node["name"]: {variant["name"]: variant["params"] for variant in node["variants"]} for node in nodes},
        "tools": [] if described is None else described.get("tools", []),
        "error": workflow["error"] if described is None else None,
    }
