"""What an archive may hold: which columns of which tables, and the shape of what is in them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import orjson
import sqlalchemy as sa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from wtb.core.errors import InputError, StateError
from wtb.core.serialization.codec import decode
from wtb.core.serialization.object_tags import OBJECT_TAGS
from wtb.core.serialization.plain_json import readable
from wtb.core.status import EXECUTION
from wtb.store.tables.column_types import Digest as Digest_
from wtb.store.tables.column_types import Id as Id_
from wtb.store.tables.column_types import Seconds
from wtb.store.tables.sweeps import (
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
_OF_CLASSES: Final = tuple(f'"{tag}"'.encode() for tag in OBJECT_TAGS)
_TYPED_JSON: Final = {
    "calls": ("prompt", "response"),
    "invocations": ("arguments", "result"),
    "approvals": ("context",),
}

LATEST: Final = 253_370_764_800.0  # the year 9999, which is as far as dates go
MOST: Final = 1e15  # of seconds, US dollars, tokens, node runs: no sum of them is too large for a column
MOST_TASKS: Final = 100_000  # of one node in a step


def printable(text: str) -> str:
    if not text.isprintable():
        raise PydanticCustomError("name", "it has a character that cannot be printed")
    return text


def one_of(known: Iterable[str]) -> Callable[[str], str]:
    """A validator that lets only these pass."""

    def check(text: str) -> str:
        if text not in known:
            raise PydanticCustomError("one_of", "expected one of {known}", {"known": ", ".join(known)})
        return text

    return check


Id = Annotated[str, Field(pattern=r"^[0-9a-z]{1,32}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Digests = dict[str, Digest]
Whole = Annotated[int, Field(ge=0, le=int(MOST))]
Number = Annotated[int, Field(ge=0, lt=2**31)]
Amount = Annotated[float, Field(ge=0, le=MOST)]
Moment = Annotated[float, Field(ge=0, le=LATEST)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Position(Strict):
    step: Number
    next: list[Name]
    arrived: dict[Name, list[Name]]
    visits: dict[Name, Number]
    fan_out: dict[Name, Annotated[int, Field(ge=1, le=MOST_TASKS)]] = {}
    engine: JsonValue = None


class _Inside(Strict):
    node_run: Id
    node: Name
    variant: Name
    saved: Digests
    task: str | None = None


class FailureShape(Strict):
    kind: Name
    type: str
    message: str
    trace: str
    final: bool
    node: Name | None
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


def _one_of(table: sa.Table) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    """The values that a table's own rules allow, by table and column."""
    for constraint in table.constraints:
        rule = isinstance(constraint, sa.CheckConstraint) and _IN.fullmatch(str(constraint.sqltext))
        if rule:
            yield (str(table.name), rule[1]), tuple(re.findall("'([^']*)'", rule[2]))


_IN: Final = re.compile(r"(\w+) IN \((.*)\)")
_ID: Final = re.compile("[0-9a-z]{1,32}")
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_ANY_NUMBER: Final = ("value",)  # of a score
_ANY_TEXT: Final = (("checkpoints", "name"), ("calls", "model"), ("calls", "tool"))  # of users' code
_ONE_OF: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    **{key: allowed for table in TABLES.values() for key, allowed in _one_of(table)},
    ("rollbacks", "status"): tuple(EXECUTION),
}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(
        kind, config=None if isinstance(kind, type) and issubclass(kind, BaseModel) else {"strict": True}
    )


_SHAPES: Final[Mapping[tuple[str, str], TypeAdapter[Any]]] = {
    ("executions", "failure"): _adapter(FailureShape),
    ("checkpoints", "position"): _adapter(_Position),
    ("checkpoints", "state"): _adapter(Digests),
    ("checkpoints", "writers"): _adapter(list[tuple[Name, Name, Id]]),
    ("checkpoints", "totals"): _adapter(tuple[Amount, Amount, Whole, Whole, Whole]),
    ("checkpoints", "inside"): _adapter(_Inside),
    ("node_runs", "writes"): _adapter(Digests),
    ("attempts", "failure"): _adapter(FailureShape),
    ("events", "data"): _adapter(dict[str, JsonValue]),
    ("rollbacks", "nodes"): _adapter(list[Name]),
    ("rollbacks", "superseded"): _adapter(list[Id]),
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
            orjson.dumps(_within(value))
        except (ValidationError, orjson.JSONEncodeError) as error:
            return first_of(error) if isinstance(error, ValidationError) else str(error)
        return None
    if isinstance(kind, sa.String):
        return _problem_of_text(table, column, value)
    if isinstance(kind, sa.Boolean):
        return None if isinstance(value, bool) else f"found {type(value).__name__}, expected true or false"
    if isinstance(kind, sa.Integer):
        most = int(MOST) if isinstance(kind, sa.BigInteger) else 2**31 - 1
        fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
        return None if fits else f"expected a whole number from 0 to {most:,}"
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return "expected a number"
    if column.name in _ANY_NUMBER:
        return None
    most_of_it = LATEST if kind is Seconds else MOST
    return None if 0 <= value <= most_of_it else f"found {value:g}, expected 0 to {most_of_it:g}"


def _problem_of_text(table: sa.Table, column: sa.Column[Any], value: Any) -> str | None:
    if not isinstance(value, str):
        return f"found {type(value).__name__}, expected text"
    length = getattr(column.type, "length", None)
    if length is not None and len(value) > length:
        return f"longer than {length} characters"
    if column.type is Id_:
        return None if _ID.fullmatch(value) else "not the form of an id"
    if column.type is Digest_:
        return None if _DIGEST.fullmatch(value) else "not a SHA-256 in hex"
    allowed = _ONE_OF.get((table.name, column.name))
    if allowed is not None:
        return None if value in allowed else f"found {value!r:.50}, expected one of {', '.join(allowed)}"
    if length is not None and (table.name, column.name) not in _ANY_TEXT and not (value and value.isprintable()):
        return "empty, or with a character that cannot be printed"
    return None


def _within(value: Any) -> Any:
    """A value as deep as it stands in what is sent to a database, or exported."""
    for _ in range(8):
        value = [value]
    return value


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
        orjson.dumps(orjson.loads(data))  # which reads deeper values than it writes
        if not any(tag in data for tag in _OF_CLASSES):  # of which the modules would be imported
            decode(data)
    except StateError:
        raise InputError(f"{where}: not a stored value") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise InputError(f"{where}: not a stored value") from None
