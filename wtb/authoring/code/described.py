"""Workflows and evaluators made from descriptions, which the functions that plan with code accept, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticCustomError

from wtb.authoring.code.fingerprint import DescribedFunction, plain_type
from wtb.authoring.nodes import Node, Rules, Variant
from wtb.authoring.state_schema import Key, Schema
from wtb.authoring.tools import Tool
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END, Branch, Edge, WorkflowFacts
from wtb.core.documents.workflows import (
    BranchDocument,
    EdgeDocument,
    EvaluatorDescription,
    NodeDocument,
    PublishedKey,
    PublishedNode,
    PublishedShape,
    PublishedType,
    PublishedVariant,
    VariantDocument,
    WorkflowDescription,
)
from wtb.core.serialization.codec import decode


class _Shown:
    """A value that cannot be stored, with its repr for fingerprints and graphs."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class DescribedWorkflow(Workflow):
    """A workflow of which this process has only the facts. Sweeps can add variants to it; only workers can run it."""

    def __init__(self, facts: WorkflowFacts) -> None:
        super().__init__(
            facts.name,
            description=facts.description,
            metadata=facts.metadata,
            version=facts.version,
            params=facts.params,
            max_steps=facts.max_steps,
            approval=facts.approval,
        )
        self.nodes, self.tools, self.versions = dict(facts.nodes), dict(facts.tools), dict(facts.versions)
        self._described = facts

    def facts(self) -> WorkflowFacts:
        """Return the described facts, with the additions of a sweep."""
        nodes, tools, versions = dict(self.nodes), dict(self.tools), dict(self.versions)
        return replace(self._described, name=self.name, source=self, nodes=nodes, tools=tools, versions=versions)

    def validate(self) -> None:
        """Do nothing, because the process that described it has validated it."""


def facts_of(description: WorkflowDescription) -> WorkflowFacts:
    """Read the facts of a workflow.

    Args:
        description: From `describe_workflow`.

    Returns:
        Facts with the same graph, checks and fingerprints, of a workflow that cannot run.
    """
    graph = description["graph"]
    tools = {name: Tool(name, _unnamed) for name in description.get("tools", ())}
    return WorkflowFacts(
        name=graph["name"],
        source=None,
        version=graph["version"],
        description=graph["description"] or "",
        metadata=graph.get("metadata") or {},
        params={name: decode(text.encode()) for name, text in description["params"].items()},
        resources=None,
        max_steps=description["max_steps"],
        approval=description["approval"],
        schema=_schema(description["state"]),
        input=None if description["input"] is None else _schema(description["input"]),
        nodes={node["name"]: _node(node, description["nodes"][node["name"]]) for node in graph["nodes"]},
        entries=tuple(graph["entries"]),
        starts=tuple(description["starts"]),
        edges=tuple(map(_edge, graph["edges"])),
        branches=tuple(map(_branch, graph["branches"])),
        breakpoints=tuple(description["breakpoints"]),
        tools=tools,
        versions=dict.fromkeys((name.partition(".")[0] for name in tools if "." in name), dict),  # only workers know
        is_input_closed=description["closed_input"],
        state_key=description["state_key"],
        sent_to=frozenset(description["sent_to"]),
        is_limited=description["is_limited"],
        is_open=description["is_open"],
    )


def workflow_of(description: WorkflowDescription) -> DescribedWorkflow:
    """Make a workflow from its description. Sweeps can be planned with it, but it cannot run."""
    return DescribedWorkflow(facts_of(description))


def _edge(edge: EdgeDocument) -> Edge:
    return Edge(tuple(edge["from"]), _target(edge["to"]), _named(edge["when"]), edge["priority"], edge["default"])


def _branch(branch: BranchDocument) -> Branch:
    targets = {key: _target(to) for key, to in branch["to"].items()}
    default = None if branch["default"] is None else _target(branch["default"])
    return Branch(branch["from"], targets, _named(branch["by"]) or _unnamed, default)


def evaluator_function_of(description: EvaluatorDescription) -> Callable[..., Any]:
    """Make a stand-in for the function of an evaluator.

    Args:
        description: From `describe_evaluator`.

    Returns:
        The stand-in, with the declarations of the evaluator, for `make_evaluator`.
    """
    returns = bool if description["returns_bool"] else Any
    function = DescribedFunction(description["name"], description["function"], returns=returns)
    # The same keys as in `describe_evaluator`.
    for key in ("better", "compare", "timeout", "scale", "on_failure"):
        setattr(function, f"wtb_{key}", description[key])
    return function


def _node(graph: NodeDocument, described: PublishedNode) -> Node:
    rules = Rules(
        retries=graph["retries"],
        timeout=graph["timeout"],
        on_error="skip" if graph["on_error"] == "skip" else "fail",
        durable=graph["durable"],
        queue=described["queue"],
        limit=described["limit"],
        rate=described["rate"],
        max_usd=described["max_usd"],
        max_tokens=described["max_tokens"],
        threads=described["threads"],
    )
    variants = {
        variant["name"]: _variant(graph["name"], variant, described["variants"][variant["name"]])
        for variant in graph["variants"]
    }
    node = Node(graph["name"], rules, variants[graph["default"]])
    node.variants = variants
    return node


def _variant(node: str, graph: VariantDocument, described: PublishedVariant) -> Variant:
    params = {name: decode(text.encode()) for name, text in described["params"].items()}
    params |= {name: _Shown(text) for name, text in described["shown"].items()}
    function = DescribedFunction(f"{node}={graph['name']}", described["function"])
    # Values that can be stored and those that cannot are published apart. The graph has their common order.
    ordered = {name: params[name] for name in graph["params"]}
    return Variant(node, graph["name"], function, ordered, graph["description"] or "", graph["active"])


def _schema(shape: PublishedShape) -> Schema:
    keys = {name: _key(name, key, shape["model"]) for name, key in shape["keys"].items()}
    return Schema(BaseModel if shape["model"] else None, keys, shape["open"])


def _key(name: str, described: PublishedKey, is_checked: bool) -> Key:
    kind = described["type"]
    # Values are checked for models only, so only there must a type that needs the code be rejected.
    annotation = _refused(kind) if is_checked and not kind["plain"] else plain_type(kind)
    return Key(name, annotation, _named(described["reducer"]), described["required"], type_name=kind["shown"])


def _refused(kind: PublishedType) -> Any:
    """Return a type that rejects all values, because only the code can make one."""

    def refuse(_: object) -> object:
        raise PydanticCustomError("code", "it is a {shown}, which takes the code: submit it by a command", {**kind})

    return Annotated[Any, BeforeValidator(refuse)]


def _target(name: str) -> str:
    return END if name == "END" else name


def _named(name: str | None) -> Callable[..., Any] | None:
    if name is None:
        return None
    return DescribedFunction(name, {"fingerprint": "", "parameters": {}, "any": True})


def _unnamed(*_: Any) -> None:
    """Stand in for a function without a name."""
