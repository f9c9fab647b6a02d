"""What workers publish of the code that they can run, so that others can plan with it and import none of it."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.workflows.graphs import WorkflowDocument
from wtb.core.values import Json


class PublishedType(TypedDict):
    """A type of users' code.

    shown: as messages call it. plain: whether its JSON Schema says all about it, so that values can be held against it
    without the code; of any other type the schema is for people.
    """

    shown: str
    schema: dict[str, Json] | None
    plain: bool


class PublishedKey(TypedDict):
    """A key of a state or of an input."""

    type: PublishedType
    reducer: str | None
    required: bool


class PublishedShape(TypedDict):
    """A state or an input; `open` takes any key, a `model` checks values."""

    open: bool
    model: bool
    keys: dict[str, PublishedKey]


class PublishedParameter(TypedDict):
    """A parameter of a function that a variant may give. default: as JSON, where it can be stored and is not long."""

    type: PublishedType
    required: bool
    default: NotRequired[Any]


class PublishedFunction(TypedDict):
    """A function: the fingerprint of its code, and what it takes. any: further parameters of any name."""

    fingerprint: str
    parameters: dict[str, PublishedParameter]
    any: bool


class PublishedVariant(TypedDict):
    """A variant. params: name -> its value as typed JSON, or how Python shows it where that cannot be stored."""

    function: PublishedFunction
    params: dict[str, str]
    shown: dict[str, str]


class PublishedNode(TypedDict):
    """A node, beyond what the graph says. limit: runs at a time; rate: starts a second."""

    queue: str | None
    limit: int | None
    rate: float | None
    max_usd: float | None
    max_tokens: int | None
    threads: int
    variants: dict[str, PublishedVariant]


class WorkflowDescription(TypedDict):
    """A workflow as workers publish it.

    Attributes:
        tools: Those that its nodes may call, of MCP servers as `files.read`.
        inputs: The keys that a case is likely to need: those of its input, else of the state that no node writes.
    """

    graph: WorkflowDocument
    state: PublishedShape
    input: PublishedShape | None
    state_key: str | None
    closed_input: bool
    nodes: dict[str, PublishedNode]
    starts: list[str]
    params: dict[str, str]
    max_steps: int
    approval: str | dict[str, str] | list[str | dict[str, str]]
    breakpoints: list[str]
    sent_to: list[str]
    is_limited: bool
    is_open: bool
    tools: NotRequired[list[str]]  # not from workers of earlier versions
    inputs: NotRequired[list[str]]


class EvaluatorDescription(TypedDict):
    """An evaluator as workers publish it. returns_bool: its scores are 0 or 1."""

    name: str
    function: PublishedFunction
    better: str | dict[str, str] | None
    compare: str | None
    timeout: float | None
    scale: Any
    on_failure: Any
    returns_bool: bool


PublicationKind = Literal["workflow", "evaluator"]


class PublicationDocument(TypedDict):
    """What stands under a name that workers publish; `error` where a worker cannot import it."""

    kind: PublicationKind
    name: str
    path: str
    digest: str | None
    published_at: str | None
    published_by: str | None
    error: str | None
    failed_at: str | None
    failed_by: str | None
    options: NotRequired[dict[str, Any]]  # of an evaluator, as the JSON Schema of an object


class PublishedWorkflowDocument(PublicationDocument):
    """A workflow, with all that was published of it."""

    description: WorkflowDescription | None


class BuiltInDocument(TypedDict):
    """A built-in evaluator; its options as the JSON Schema of an object."""

    name: str
    options: dict[str, Json]


class PublicationsDocument(TypedDict):
    """The workflows and evaluators that workers publish, and the built-in evaluators that combine no others."""

    workflows: list[PublicationDocument]
    evaluators: list[PublicationDocument]
    built_in: NotRequired[list[BuiltInDocument]]
