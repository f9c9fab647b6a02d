"""`execution.json`: what an archive is of."""

from __future__ import annotations

from typing import Annotated, Final

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from wtb.archive.shapes import (
    Digest,
    Digests,
    FailureShape,
    Figure,
    Id,
    Name,
    Strict,
    Whole,
    check_texts,
    check_typed,
    first_of,
)
from wtb.errors import InputError

VERSION: Final = 1
FORMAT: Final = "wtb execution"


class Case(Strict):
    """The case: its input by key."""

    id: str
    input: Digests
    expected: str | None
    tags: list[str]
    workspace: Digest | None


class Cell(Strict):
    """How the execution's first cell stood."""

    status: str
    elapsed_s: Figure | None
    usd: Figure | None
    tokens_in: Whole | None
    tokens_out: Whole | None
    node_runs: Whole | None
    failure: FailureShape | None
    finished_at: Figure | None


class Metric(Strict):
    """A metric that it was scored by."""

    name: Name
    number: Whole
    better: str
    declared: bool = True
    by_median: bool = False


class _GraphNode(BaseModel):
    model_config = ConfigDict(strict=True)

    name: Name
    default: Name


class Graph(BaseModel):
    """What must be there of a graph snapshot."""

    model_config = ConfigDict(strict=True)

    name: Name
    version: Annotated[str, Field(max_length=200)]
    entries: list[Name]
    nodes: Annotated[list[_GraphNode], Field(min_length=1)]
    edges: list[dict[str, JsonValue]]
    branches: list[dict[str, JsonValue]]


class Member(Strict):
    """A part of the history: its SHA-256 and how many rows it has."""

    sha256: Digest
    rows: Whole


class Head(Strict):
    """`execution.json`."""

    format: str
    version: int
    wtb: str
    exported_at: Figure
    host: str
    execution: Id
    sweep: Id
    name: Name
    project: Annotated[str, Field(max_length=200)] | None
    spec: dict[str, JsonValue]
    fingerprints: dict[str, dict[str, str]]
    graph: dict[str, JsonValue]
    case: Case
    repeat: Whole
    choices: dict[str, str]
    edited: bool
    cell: Cell | None
    metrics: list[Metric]
    history: dict[str, Member]


def head_of(data: bytes) -> Head:
    """`execution.json`, checked. Raises InputError."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"execution.json is not JSON ({error})") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError("execution.json is not that of an exported execution")
    version = found.get("version")
    if not isinstance(version, int) or version < VERSION:
        said = "no version" if version is None else f"version {version!r:.40}"
        raise InputError(f"execution.json is damaged: it has {said}; expected {VERSION}")
    if version != VERSION:
        raise InputError(
            f"the archive is of version {version!r:.40}, and this WTB reads version {VERSION}: use a newer WTB"
        )
    try:
        head = Head.model_validate_json(data)
        Graph.model_validate(head.graph)
    except ValidationError as error:
        raise InputError(f"execution.json: {first_of(error)}") from None
    check_texts(found, "execution.json")
    check_typed(head.case.expected, "execution.json: case.expected")
    return head
