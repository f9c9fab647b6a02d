"""Workflows and evaluators made of their descriptions: they are planned with by the functions that plan with code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticCustomError

from wtb.authoring.code.described_function import DescribedFunction, plain_type
from wtb.authoring.edges import END, Branch, Edge
from wtb.authoring.nodes import Node, Rules, Variant
from wtb.authoring.state_schema import Key, Schema
from wtb.authoring.tools import Tool
from wtb.authoring.workflow import Workflow
from wtb.core.documents.workflows.graphs import NodeDocument, VariantDocument
from wtb.core.documents.workflows.publications import (
    EvaluatorDescription,
    PublishedKey,
    PublishedNode,
    PublishedShape,
    PublishedType,
    PublishedVariant,
    WorkflowDescription,
)
from wtb.core.serialization.codec import decode


class _Shown:
    """A value that cannot be stored: fingerprints and graphs have it as Python shows it."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __repr__(self) -> str:
        return self._shown


class DescribedWorkflow(Workflow):
    """A workflow that only workers can run."""

    _starts: list[str]

    @property
    def starts(self) -> list[str]:
        return self._starts

    def validate(self) -> None:
        """Whoever described it has done that."""


def workflow_of(description: WorkflowDescription) -> Workflow:
    """Make a workflow of its description.

    Args:
        description: From `describe_workflow`.

    Returns:
        A workflow with the same graph, checks and fingerprints, that cannot run.
    """
    graph = description["graph"]
    made = DescribedWorkflow(
        graph["name"],
        description=graph["description"] or "",
        metadata=graph.get("metadata"),
        version=graph["version"],
        params={name: decode(text.encode()) for name, text in description["params"].items()},
        max_steps=description["max_steps"],
        approval=description["approval"],
    )
    made.schema = _schema(description["state"])
    made.input = None if description["input"] is None else _schema(description["input"])
    made.entries = list(graph["entries"])
    made.nodes = {one["name"]: _node(one, description["nodes"][one["name"]]) for one in graph["nodes"]}
    made.edges = [
        Edge(tuple(one["from"]), _target(one["to"]), _named(one["when"]), one["priority"], one["default"])
        for one in graph["edges"]
    ]
    made.branches = [
        Branch(
            one["from"],
            {key: _target(to) for key, to in one["to"].items()},
            _named(one["by"]) or _unnamed,
            None if one["default"] is None else _target(one["default"]),
        )
        for one in graph["branches"]
    ]
    made._starts = description["starts"]
    made.tools = {name: Tool(name, _unnamed) for name in description.get("tools", ())}
    servers = [name.partition(".")[0] for name in made.tools if "." in name]
    made.versions = dict.fromkeys(servers, dict)  # which only workers can ask
    _set_traits(made, description)
    return made


def _set_traits(made: DescribedWorkflow, description: WorkflowDescription) -> None:
    """Give a workflow what kinds of workflows say of themselves by attributes of their class."""
    traits = {
        "state_key": description["state_key"],
        "closed_input": description["closed_input"],
        "breakpoints": description["breakpoints"],
        "sent_to": frozenset(description["sent_to"]),
        "is_limited": description["is_limited"],
        "is_open": description["is_open"],
    }
    for name, value in traits.items():
        setattr(made, name, value)


def evaluator_function_of(description: EvaluatorDescription) -> Callable[..., Any]:
    """Make what stands for the function of an evaluator.

    Args:
        description: From `describe_evaluator`.

    Returns:
        It, with what it declares, for `make_evaluator`.
    """
    returns = bool if description["returns_bool"] else Any
    made = DescribedFunction(description["name"], description["function"], returns=returns)
    for key in ("better", "compare", "timeout", "scale", "on_failure"):
        setattr(made, f"wtb_{key}", description[key])
    return made


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
        one["name"]: _variant(graph["name"], one, described["variants"][one["name"]]) for one in graph["variants"]
    }
    node = Node(graph["name"], rules, variants[graph["default"]])
    node.variants = variants
    return node


def _variant(node: str, graph: VariantDocument, described: PublishedVariant) -> Variant:
    params = {name: decode(text.encode()) for name, text in described["params"].items()}
    params |= {name: _Shown(text) for name, text in described["shown"].items()}
    function = DescribedFunction(f"{node}={graph['name']}", described["function"])
    ordered = {name: params[name] for name in graph["params"]}
    return Variant(node, graph["name"], function, ordered, graph["description"] or "", graph["active"])


def _schema(shape: PublishedShape) -> Schema:
    keys = {name: _key(name, one, shape["model"]) for name, one in shape["keys"].items()}
    return Schema(BaseModel if shape["model"] else None, keys, shape["open"])


def _key(name: str, described: PublishedKey, is_checked: bool) -> Key:
    kind = described["type"]
    annotation = _refused(kind) if is_checked and not kind["plain"] else plain_type(kind)
    return Key(name, annotation, _named(described["reducer"]), described["required"], shown=kind["shown"])


def _refused(kind: PublishedType) -> Any:
    """Return the type of what nobody can make who has not the code."""

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
    """Stand for a function without a name."""
