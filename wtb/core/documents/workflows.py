"""Graphs of workflows, as `wtb workflow` prints them and as a sweep stores them."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.values import Json


class RegisteredWorkflow(TypedDict):
    """A workflow that wtb.toml or pyproject.toml names, with its place."""

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
    """The graph of a workflow, without its code."""

    name: str
    version: str
    description: str | None
    metadata: NotRequired[dict[str, Json]]
    state: dict[str, StateKey]
    entries: list[str]
    nodes: list[NodeDocument]
    edges: list[EdgeDocument]
    branches: list[BranchDocument]


class PublishedType(TypedDict):
    """A type of users' code.

    Attributes:
        shown: Its name in messages.
        plain: Whether its JSON Schema is complete, so that values can be validated without the code; otherwise the
            schema is for people.
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
    """A state or an input; `open` accepts any key, a `model` validates values."""

    open: bool
    model: bool
    keys: dict[str, PublishedKey]


class PublishedParameter(TypedDict):
    """A parameter of a function that a variant may set. `default` is JSON, if it can be stored and is not long."""

    type: PublishedType
    required: bool
    default: NotRequired[Any]


class PublishedFunction(TypedDict):
    """A function: the fingerprint of its code, and its parameters. `any` are further parameters of any name."""

    fingerprint: str
    parameters: dict[str, PublishedParameter]
    any: bool


class PublishedVariant(TypedDict):
    """A variant. `params` are its values by name as typed JSON, or as Python prints them if they cannot be stored."""

    function: PublishedFunction
    params: dict[str, str]
    shown: dict[str, str]


class PublishedNode(TypedDict):
    """A node, with more than its graph has. `limit` is runs at a time, `rate` starts a second."""

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
        tools: The tools that its nodes may call, of MCP servers as `files.read`.
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
    """An evaluator as workers publish it; `returns_bool` means that its scores are 0 or 1."""

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
    """The publication of a name; `error` if a worker cannot import it."""

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
    """A workflow, with all its publications."""

    description: WorkflowDescription | None


class BuiltInDocument(TypedDict):
    """A built-in evaluator; its options are the JSON Schema of an object."""

    name: str
    options: dict[str, Json]


class PublicationsDocument(TypedDict):
    """The workflows and evaluators that workers publish, and the built-in evaluators that combine no others."""

    workflows: list[PublicationDocument]
    evaluators: list[PublicationDocument]
    built_in: NotRequired[list[BuiltInDocument]]


class ColumnDocument(TypedDict):
    """A column of a table of cases.

    Attributes:
        heading: Its heading.
        key: The key of a case or of its input that it is read as, such as `id`, `question` or `expected.answer`;
            `ignore` if it is ignored; None if it has no heading.
        offered: Whether this is only a suggestion, since its heading is no key.
        examples: Values of the first rows.
    """

    heading: str
    key: str | None
    offered: bool
    examples: list[str]


class CasePreview(TypedDict):
    """A case as it is read; long texts are cut."""

    id: str
    input: dict[str, Json]
    expected: Any
    tags: list[str]


class CaseFileDocument(TypedDict):
    """A file of cases as a sweep would read it.

    Attributes:
        name: Its name.
        cases: How many cases it has, those with problems included.
        blank_rows: How many blank rows are skipped.
        columns: Those of a table; None of any other file.
        mapping: `columns` of a sweep by which the table is read so, headings that are offered included.
        keys: What a column can be mapped to, beside `ignore`; of a state that takes any key, only those that are known.
        takes_any: Whether a column can be mapped to any other key, too.
        problems: What is wrong, each once, with the first place that has it.
        preview: The first cases.
    """

    name: str
    cases: int
    blank_rows: int
    columns: list[ColumnDocument] | None
    mapping: dict[str, str | list[str]]
    keys: list[str]
    takes_any: bool
    problems: list[str]
    preview: list[CasePreview]


class PreviewScore(TypedDict):
    """A score of an evaluator: a value, else why there is none; a part of a figure over all cells is `observed`."""

    metric: str
    value: float | None
    better: Literal["higher", "lower"]
    scale: list[float] | None
    error: str | None
    observed: str | None


class EvaluatorPreviewDocument(TypedDict):
    """The scores of an evaluator for an output.

    Attributes:
        evaluator: Its name.
        runs: `here` if it was tried; `workers` if it needs code of users or a model, which only workers run.
        reason: Why it was not tried.
        needs_expected: Whether it gives no score because there is no expected value.
        scores: One of each metric.
    """

    evaluator: str
    runs: Literal["here", "workers"]
    reason: str | None
    needs_expected: bool
    scores: list[PreviewScore]
