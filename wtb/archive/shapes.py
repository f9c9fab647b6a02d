"""What an archive may hold: which columns of which tables, and the shape of what is in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import orjson
import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from wtb.errors import InputError
from wtb.plain import readable
from wtb.store.schema import (
    approvals,
    attempts,
    calls,
    checkpoints,
    decisions,
    events,
    executions,
    invocations,
    node_runs,
    rollbacks,
    scores,
)

Row = dict[str, Any]

# In the order in which they are written: each refers to those before it only.
TABLES: Final = {
    str(table.name): table
    for table in (
        executions,
        checkpoints,
        node_runs,
        attempts,
        calls,
        invocations,
        decisions,
        approvals,
        rollbacks,
        events,
        scores,
    )
}
# Columns that belong to the database an execution is in, or to who works on it there.
_LEFT_OUT: Final = {
    *("sweep_id", "session_id", "case_number", "repeat", "combination", "combinations", "choices", "cells", "pinned"),
    *("owner_id", "token", "lease_until", "kills", "losses", "queue", "asked", "stalled_at", "transaction"),
}
# Columns that hold ids, and of which table; events and answers hold ids within their data.
REFERS: Final = {
    "executions": {"parent_id": "executions", "head_id": "checkpoints", "passed_id": "checkpoints"},
    "checkpoints": {"execution_id": "executions", "parent_id": "checkpoints"},
    "node_runs": {"execution_id": "executions", "checkpoint_id": "checkpoints"},
    "attempts": {"node_run_id": "node_runs"},
    "calls": {"node_run_id": "node_runs"},
    "invocations": {"node_run_id": "node_runs"},
    "decisions": {"checkpoint_id": "checkpoints"},
    "approvals": {"checkpoint_id": "checkpoints"},
    "rollbacks": {"execution_id": "executions"},
    "events": {"execution_id": "executions"},
    "scores": {},
}
_TYPED_JSON: Final = {
    "calls": ("prompt", "response"),
    "invocations": ("arguments", "result"),
    "approvals": ("context",),
}

Id = Annotated[str, Field(min_length=1, max_length=32)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Digests = dict[str, Digest]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Figure = Annotated[float, Field(allow_inf_nan=False)]
MOST_TASKS: Final = 100_000  # of one node in a step
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Position(Strict):
    step: Whole
    next: list[Name]
    arrived: dict[str, list[str]]
    visits: dict[str, Whole]
    fan_out: dict[str, Annotated[int, Field(ge=1, le=MOST_TASKS)]] = {}
    engine: JsonValue = None


class _Inside(Strict):
    node_run: Id
    node: Name
    variant: Name
    saved: Digests
    task: str | None = None


class FailureShape(Strict):
    kind: str
    type: str
    message: str
    trace: str
    final: bool
    node: str | None
    asked: list[str] = []


class _Answer(Strict):
    action: str
    choice: str | None
    feedback: str | None
    value: str | None = None
    set: Digests
    heads: list[Id]


class _Default(Strict):
    choice: str | None


def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(
        kind, config=None if isinstance(kind, type) and issubclass(kind, BaseModel) else {"strict": True}
    )


_SHAPES: Final[Mapping[tuple[str, str], TypeAdapter[Any]]] = {
    ("executions", "failure"): _adapter(FailureShape),
    ("checkpoints", "position"): _adapter(_Position),
    ("checkpoints", "state"): _adapter(Digests),
    ("checkpoints", "writers"): _adapter(list[tuple[Name, Name, Id]]),
    ("checkpoints", "totals"): _adapter(tuple[Figure, Figure, Whole, Whole, Whole]),
    ("checkpoints", "inside"): _adapter(_Inside),
    ("node_runs", "writes"): _adapter(Digests),
    ("attempts", "failure"): _adapter(FailureShape),
    ("events", "data"): _adapter(dict[str, JsonValue]),
    ("rollbacks", "nodes"): _adapter(list[str]),
    ("rollbacks", "superseded"): _adapter(list[str]),
    ("approvals", "options"): _adapter(list[str]),
    ("approvals", "default"): _adapter(_Default),
    ("approvals", "answer"): _adapter(_Answer),
}


def columns(table: sa.Table) -> list[sa.Column[Any]]:
    """The columns of a table that an archive holds."""
    left_out = {*_LEFT_OUT, "id"} if table.name == "events" else _LEFT_OUT
    return [column for column in table.columns if column.name not in left_out]


def checked(table: sa.Table, line: bytes, where: str) -> Row:
    """A row of the history, by column. Raises InputError that says where it is wrong."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise InputError(f"{where}: expected an object")
    known = {column.name: column for column in columns(table)}
    if more := found.keys() - known.keys():
        raise InputError(f"{where}: unknown column {min(more)[:100]!r}")
    for name, column in known.items():
        value = found.get(name)
        if value is None:
            if not column.nullable and (name in found or column.server_default is None):
                raise InputError(f"{where}: {name} is missing")
            continue
        problem = _problem(table, column, value)
        if problem is not None:
            raise InputError(f"{where}: {name}: {problem}")
    check_texts(found, where)
    for name in _TYPED_JSON.get(table.name, ()):
        check_typed(found.get(name), f"{where}: {name}")
    if table is approvals and found.get("answer"):
        check_typed(found["answer"].get("value"), f"{where}: answer.value")
    return found


def _problem(table: sa.Table, column: sa.Column[Any], value: Any) -> str | None:
    kind = column.type
    if isinstance(kind, sa.JSON):
        shape = _SHAPES.get((table.name, column.name))
        assert shape is not None, f"{table.name}.{column.name} has no shape"
        try:
            shape.validate_json(orjson.dumps(value))
        except (ValidationError, orjson.JSONEncodeError) as error:
            return first_of(error) if isinstance(error, ValidationError) else str(error)
        return None
    if isinstance(kind, sa.String):
        if not isinstance(value, str):
            return f"found {type(value).__name__}, expected text"
        return f"longer than {kind.length} characters" if kind.length is not None and len(value) > kind.length else None
    if isinstance(kind, sa.Boolean):
        return None if isinstance(value, bool) else f"found {type(value).__name__}, expected true or false"
    if isinstance(kind, sa.Integer):
        most = 2**63 if isinstance(kind, sa.BigInteger) else 2**31
        fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most
        return None if fits else "expected a whole number, not below 0"
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return None if fits else "expected a number"


def first_of(error: ValidationError) -> str:
    one = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in one["loc"])
    return f"{place}: {one['msg']}"[:300] if place else str(one["msg"])[:300]


def _texts(value: Any) -> Iterator[str]:
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            todo += one


def check_texts(found: Any, where: str) -> None:
    """NUL is a character that not every database takes."""
    if any("\0" in text for text in _texts(found)):
        raise InputError(f"{where}: there is a NUL character in it")


def check_typed(text: str | None, where: str) -> None:
    if text is not None:
        check_value(text.encode(), where)


def check_value(data: bytes, where: str) -> None:
    """Whether something can be read as a stored value. Raises InputError."""
    try:
        data.decode()
        readable(data)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise InputError(f"{where}: not a stored value") from None
