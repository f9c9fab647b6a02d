"""`execution.json`: what an archive is of."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from wtb.core.errors import InputError
from wtb.core.scoring.figures import Figure
from wtb.core.scoring.passes import PASSES
from wtb.core.scoring.scales import read_failure_score
from wtb.core.status import CELL
from wtb.operations.archive.row_schemas import (
    Amount,
    Digest,
    Digests,
    FailureShape,
    Id,
    Moment,
    Name,
    Number,
    Strict,
    Whole,
    check_texts,
    check_typed,
    first_of,
    one_of,
    printable,
)

VERSION: Final = 1
FORMAT: Final = "wtb execution"


class Case(Strict):
    """The case: its input by key."""

    id: Annotated[str, Field(min_length=1, max_length=500)]
    input: Digests
    expected: str | None
    tags: list[str]
    workspace: Digest | None
    cluster: str | None = None


class Cell(Strict):
    """The execution's first cell."""

    status: Annotated[str, AfterValidator(one_of(CELL))]
    elapsed_s: Amount | None
    usd: Amount | None
    tokens_in: Whole | None
    tokens_out: Whole | None
    node_runs: Whole | None
    failure: FailureShape | None
    finished_at: Moment | None


def _failure_score(text: str) -> str:
    try:
        read_failure_score("on_failure", text)
    except InputError:
        raise PydanticCustomError("on_failure", "expected a number or left_out") from None
    return text


class Metric(Strict):
    """A metric that it was scored by."""

    name: Name
    number: Number
    better: Literal["higher", "lower"]
    declared: bool = True
    by_median: bool = False
    low: float | None = None
    high: float | None = None
    on_failure: Annotated[str, Field(max_length=32), AfterValidator(_failure_score)] | None = None
    figure: Figure | Annotated[str, Field(pattern=f"^{PASSES}$")] | None = None

    @model_validator(mode="after")
    def _scale(self) -> Metric:
        ends = [end for end in (self.low, self.high) if end is not None]
        if ends and not (len(ends) == 2 and ends[0] < ends[1]):
            raise PydanticCustomError("scale", "low and high are no scale")
        return self


class _Snapshot(BaseModel):
    """A part of a graph snapshot, which may have more keys than WTB needs."""

    model_config = ConfigDict(strict=True)


class _State(_Snapshot):
    type: str
    reducer: str | None


class _Variant(_Snapshot):
    name: Name
    description: str
    params: dict[str, JsonValue]
    active: bool


class _GraphNode(_Snapshot):
    name: Name
    default: Name
    variants: list[_Variant]
    retries: Number
    timeout: Amount | None
    on_error: Name
    durable: bool


class _Edge(_Snapshot):
    sources: Annotated[list[Name], Field(min_length=1, validation_alias="from")]
    to: Name
    when: str | None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)]
    default: bool


class _Branch(_Snapshot):
    source: Annotated[Name, Field(validation_alias="from")]
    by: str | None
    to: dict[str, Name]
    default: Name | None


class Graph(_Snapshot):
    """A graph snapshot: what `graph_snapshot` of a workflow makes."""

    name: Name
    version: Annotated[str, Field(max_length=200)]
    description: str
    state: dict[str, _State]
    entries: Annotated[list[Name], Field(min_length=1)]
    nodes: Annotated[list[_GraphNode], Field(min_length=1)]
    edges: list[_Edge]
    branches: list[_Branch]

    def problem(self) -> str | None:
        """What is named and not there, or there twice."""
        nodes = [node.name for node in self.nodes]
        if len(nodes) != len(set(nodes)):
            return "a node is there twice"
        for node in self.nodes:
            if node.default not in [variant.name for variant in node.variants]:
                return f"node {node.name!r} has no variant {node.default!r:.100}"
        arrows = [name for edge in self.edges for name in (*edge.sources, edge.to)]
        arrows += [name for branch in self.branches for name in (branch.source, *branch.to.values())]
        arrows += [branch.default for branch in self.branches if branch.default is not None]
        unknown = [name for name in (*self.entries, *arrows) if name not in {*nodes, "END"}]
        return f"there is no node {unknown[0]!r}" if unknown else None


class Member(Strict):
    """A part of the history: its SHA-256 and how many rows it has."""

    sha256: Digest
    rows: Number


class Head(Strict):
    """`execution.json`."""

    format: str
    version: int
    wtb: str
    exported_at: Moment
    host: Annotated[str, Field(max_length=255), AfterValidator(printable)]
    execution: Id
    sweep: Id
    name: Name
    project: Name | None
    spec: dict[str, JsonValue]
    fingerprints: dict[Name, dict[Name, Annotated[str, Field(max_length=64), AfterValidator(printable)]]]
    graph: dict[str, JsonValue]
    case: Case
    repeat: Number
    choices: dict[Name, Name]
    edited: bool
    cell: Cell | None
    metrics: list[Metric]
    history: dict[str, Member]


def head_of(data: bytes) -> Head:
    """Return the content of `execution.json`, checked. Raises InputError."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"execution.json is not JSON ({error})") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError("execution.json is not that of an exported execution")
    version = document.get("version")
    if not isinstance(version, int) or version < VERSION:
        shown_version = "no version" if version is None else f"version {version!r:.40}"
        raise InputError(f"execution.json is damaged: it has {shown_version}; expected {VERSION}")
    if version != VERSION:
        raise InputError(
            f"the archive is of version {version!r:.40}, and this WTB reads version {VERSION}: use a newer WTB"
        )
    try:
        head = Head.model_validate_json(data)
    except ValidationError as error:
        raise InputError(f"execution.json: {first_of(error)}") from None
    try:
        problem = Graph.model_validate(head.graph).problem()
    except ValidationError as error:
        problem = first_of(error)
    if problem is not None:
        raise InputError(f"execution.json: graph: {problem}")
    names = [metric.name for metric in head.metrics]
    if len(names) != len(set(names)):
        raise InputError("execution.json: metrics: one is there twice")
    check_texts(document, "execution.json")
    check_typed(head.case.expected, "execution.json: case.expected")
    return head
