"""The graph of a workflow as data, for display and comparison; code stays code."""

from __future__ import annotations

import hashlib
import inspect
import re
from typing import TYPE_CHECKING, Any, TypedDict

import orjson

from wtb.authoring.edges import END
from wtb.authoring.nodes import Node, Variant
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.mappings import Params
from wtb.core.serialization.plain_json import storable
from wtb.core.serialization.storable import unstorable
from wtb.core.values import Json

if TYPE_CHECKING:
    from wtb.core.documents.workflows.graphs import NodeDocument, WorkflowDocument


class _Metadata(TypedDict, total=False):
    metadata: dict[str, Json]


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function in an annotation: another one in each process


def outline_digest(workflow: WorkflowFacts) -> str:
    """The SHA-256 of everything about a workflow that is neither code nor parameters of the sweep."""
    graph = {**graph_snapshot(workflow), "name": None}  # it may be registered under another name
    described = [graph, workflow.max_steps, _callable_name(workflow.resources)]
    return hashlib.sha256(orjson.dumps(described, option=orjson.OPT_SORT_KEYS)).hexdigest()


def graph_snapshot(workflow: WorkflowFacts) -> WorkflowDocument:
    """The graph as data, for display and comparison; code stays code."""
    return {
        "name": workflow.name,
        "version": workflow.version,
        "description": workflow.description,
        **_metadata(workflow),
        "state": {
            key.name: {"type": key.shown or type_name(key.annotation), "reducer": _callable_name(key.reducer)}
            for key in workflow.schema.keys.values()
        },
        "entries": list(workflow.entries),
        "nodes": [_node_snapshot(node) for node in workflow.nodes.values()],
        "edges": [
            {
                "from": list(edge.sources),
                "to": "END" if edge.target == END else edge.target,
                "when": _callable_name(edge.when),
                "priority": edge.priority,
                "default": edge.default,
            }
            for edge in workflow.edges
        ],
        "branches": [
            {
                "from": branch.source,
                "by": _callable_name(branch.by),
                "to": {key: "END" if t == END else t for key, t in branch.targets.items()},
                "default": "END" if branch.default == END else branch.default,
            }
            for branch in workflow.branches
        ],
    }


def variant_parameters(workflow: WorkflowFacts) -> dict[str, dict[str, Params]]:
    """Return what the callable of each variant takes, by node: its defaults, and what the variant sets."""
    return {
        node.name: {variant.name: _parameters(variant) for variant in node.variants.values()}
        for node in workflow.nodes.values()
    }


def _parameters(variant: Variant) -> Params:
    signature = inspect.signature(variant.fn).parameters.values() if callable(variant.fn) else ()
    defaults = {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}
    return {**defaults, **variant.params}


def _metadata(workflow: WorkflowFacts) -> _Metadata:
    """Its metadata, if it has any: the ids of workflows without any stay what they were."""
    return {"metadata": dict(workflow.metadata)} if workflow.metadata else {}


def _node_snapshot(node: Node) -> NodeDocument:
    rules = node.rules
    return {
        "name": node.name,
        "default": node.default,
        "retries": rules.retries,
        "timeout": rules.timeout,
        "on_error": rules.on_error,
        "durable": rules.durable,
        "variants": [
            {
                "name": variant.name,
                "description": variant.description,
                "params": {name: _param(value) for name, value in variant.params.items()},
                "active": variant.active,
            }
            for variant in node.variants.values()
        ],
    }


def _param(value: Any) -> Any:
    plain = isinstance(value, str | int | float | bool | type(None)) and unstorable(value) is None
    return value if plain else storable(repr(value))


def type_name(annotation: Any) -> str:
    """Return what people call a type."""
    return annotation.__name__ if isinstance(annotation, type) else _ADDRESS.sub("", str(annotation))


def _callable_name(fn: Any) -> str | None:
    return None if fn is None else getattr(fn, "__name__", type(fn).__name__)
