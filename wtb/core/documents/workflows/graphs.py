"""Graphs of workflows: what `wtb workflow` prints, and what is kept of them with a sweep."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from wtb.core.values import Json


class RegisteredWorkflow(TypedDict):
    """A workflow that wtb.toml or pyproject.toml names, and where it is."""

    name: str
    path: str


class WorkflowsDocument(TypedDict):
    """The registered workflows."""

    workflows: list[RegisteredWorkflow]


class StateKey(TypedDict):
    """A key of the state."""

    type: str
    reducer: str | None


class VariantDocument(TypedDict):
    """A variant of a node, with its parameters."""

    name: str
    description: str | None
    params: dict[str, Json]
    active: bool


class NodeDocument(TypedDict):
    """A node of a workflow: its default variant, its rules and its variants."""

    name: str
    default: str
    retries: int
    timeout: float | None  # seconds
    on_error: str
    durable: bool
    variants: list[VariantDocument]


EdgeDocument = TypedDict(
    "EdgeDocument",
    {"from": list[str], "to": str, "when": str | None, "priority": int, "default": bool},
)
BranchDocument = TypedDict(
    "BranchDocument",
    {"from": str, "by": str | None, "to": dict[str, str], "default": str | None},
)


class WorkflowDocument(TypedDict):
    """The graph of a workflow; code stays code."""

    name: str
    version: str
    description: str | None
    metadata: NotRequired[dict[str, Json]]
    state: dict[str, StateKey]
    entries: list[str]
    nodes: list[NodeDocument]
    edges: list[EdgeDocument]
    branches: list[BranchDocument]
