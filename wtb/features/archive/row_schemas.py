"""Schema of an archive: its tables and columns, and the shape of their contents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, get_args, get_type_hints

import orjson
import sqlalchemy as sa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, create_model
from pydantic_core import PydanticCustomError

from wtb.core.documents.all_events import EventDocument
from wtb.core.errors import InputError, StateError
from wtb.core.provider_faults import Reason
from wtb.core.scoring.measure import OBSERVED, read_observed
from wtb.core.scoring.scores import MOST_COMMENT, MOST_REASON
from wtb.core.serialization.codec import decode
from wtb.core.serialization.plain_json import readable
from wtb.core.serialization.type_tags import OBJECT_TAGS
from wtb.core.status import EXECUTION
from wtb.store.housekeeping.contents import part_of
from wtb.store.tables.column_types import Digest as Digest_
from wtb.store.tables.column_types import Id as Id_
from wtb.store.tables.column_types import Seconds, is_json
from wtb.store.tables.schema import approvals, events, metadata

Row = dict[str, JsonValue]  # by column

# Columns that belong to the database an execution is in, or to who works on it there.
_LEFT_OUT: Final = {
    *("sweep_id", "session_id", "case_number", "repeat", "combination", "combinations", "choices", "cells", "pinned"),
    *("created_transaction", "created_event", "started_transaction", "started_event"),
    *("ended_transaction", "ended_event", "ended_at", "replaces", "children"),  # of events, which the archive has
    *("logged_transaction", "logged_event", "tried", "cached"),  # the same
    *("owner_id", "token", "lease_until", "kills", "losses", "queue", "asked", "stalled_at", "deferred"),
    *("task_id", "task_token", "published_at"),
    "transaction",
}
# Columns that hold ids, and of which table; events and answers hold ids within their data. The order is that of TABLES.
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
    "comments": {},
}
# In the order in which they are written: each refers to those before it only.
TABLES: Final = {name: metadata.tables[name] for name in REFERS}
_OF_CLASSES: Final = tuple(f'"{tag}"'.encode() for tag in OBJECT_TAGS)
_TYPED_JSON: Final = {
    "calls": ("prompt", "response"),
    "invocations": ("arguments", "result"),
    "approvals": ("context",),
}

LATEST: Final = 253_370_764_800.0  # the year 9999, which is as far as dates go
MAX_AMOUNT: Final = 1e15  # of seconds, US dollars, tokens, node runs: no sum of them is too large for a column
MOST_TASKS: Final = 100_000  # of one node in a step


def printable(text: str) -> str:
    if not text.isprintable():
        raise PydanticCustomError("name", "it has a character that cannot be printed")
    return text


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Return a validator that accepts only these values."""

    def check(text: str) -> str:
        if text not in names:
            raise PydanticCustomError("one_of", "expected one of {known}", {"known": ", ".join(names)})
        return text

    return check


Id = Annotated[str, Field(pattern=r"^[0-9a-z]{1,32}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Digests = dict[str, Digest]
Whole = Annotated[int, Field(ge=0, le=int(MAX_AMOUNT))]
Number = Annotated[int, Field(ge=0, lt=2**31)]
Amount = Annotated[float, Field(ge=0, le=MAX_AMOUNT)]
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


class FaultShape(Strict):
    provider: Name
    reason: Reason
    status: int | None
    retry_after_s: float | None


class FailureShape(Strict):
    kind: Name
    type: str
    message: str
    trace: str
    final: bool
    node: Name | None
    asked: list[str] = []
    provider: FaultShape | None = None


class _Answer(Strict):
    action: str
    choice: str | None
    feedback: str | None
    value: str | None = None
    set: Digests
    heads: list[Id]


class _Default(Strict):
    choice: str | None


class ExecutionLine(Strict):
    """The columns of `executions` that import reads, as below for other tables; models add the others."""

    id: Id
    parent_id: Id | None = None
    head_id: Id | None = None
    passed_id: Id | None = None
    status: str
    created_at: Moment
    finished_at: Moment | None = None


class CheckpointLine(Strict):
    writers: list[tuple[Name, Name, Id]]
    inside: _Inside | None = None


class NodeRunLine(Strict):
    id: Id
    task: str
    node: str
    status: str
    attempts: Number
    writes: Digests | None = None
    begun_at: Moment | None = None


class AttemptLine(Strict):
    node_run_id: Id
    number: Number


class CallLine(Strict):
    node_run_id: Id
    attempt: Number


class RollbackLine(Strict):
    from_id: Id
    to_id: Id
    head_id: Id


def _observed(text: str) -> str:
    try:
        read_observed(text)
    except (ValueError, RecursionError) as error:
        raise PydanticCustomError("observed", "{why}", {"why": str(error)}) from None
    return text


class ScoreLine(Strict):
    metric: Name
    observed: Annotated[str, Field(max_length=OBSERVED), AfterValidator(_observed)] | None = None
    reason: Annotated[str, Field(max_length=MOST_REASON)] | None = None


class CommentLine(Strict):
    number: Annotated[int, Field(ge=1, lt=2**31)]
    by: Annotated[str, Field(min_length=1, max_length=255)]
    text: Annotated[str, Field(min_length=1, max_length=MOST_COMMENT)]


_LINES: Final[Mapping[str, type[Strict]]] = {
    "executions": ExecutionLine,
    "checkpoints": CheckpointLine,
    "node_runs": NodeRunLine,
    "attempts": AttemptLine,
    "calls": CallLine,
    "invocations": CallLine,
    "rollbacks": RollbackLine,
    "scores": ScoreLine,
    "comments": CommentLine,
}


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the history, whose ids and values are checked.

    Attributes:
        where: The file and the line, for errors.
        columns: All that it has.
        record: The same as a type of its table.
    """

    where: str
    columns: Row
    record: Strict

    def text(self, column: str) -> str | None:
        """Return a column of ids, digests or text."""
        return _text(self.columns.get(column))


def _one_of(table: sa.Table) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    """Yield the values that a table's CHECK constraints allow, by table and column."""
    for constraint in table.constraints:
        rule = isinstance(constraint, sa.CheckConstraint) and _IN.fullmatch(str(constraint.sqltext))
        if rule:
            yield (str(table.name), rule[1]), tuple(re.findall("'([^']*)'", rule[2]))


_IN: Final = re.compile(r"(\w+) IN \((.*)\)")
_ANY_NUMBER: Final = ("value",)  # of a score
_ANY_TEXT: Final = (("checkpoints", "name"), ("calls", "model"), ("calls", "tool"))  # of users' code
_ONE_OF: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    **{key: allowed for table in TABLES.values() for key, allowed in _one_of(table)},
    ("rollbacks", "status"): tuple(EXECUTION),
}


_SHAPES: Final[Mapping[tuple[str, str], Any]] = {
    ("executions", "failure"): FailureShape,
    ("checkpoints", "position"): _Position,
    ("checkpoints", "state"): Digests,
    ("checkpoints", "writers"): list[tuple[Name, Name, Id]],
    ("checkpoints", "totals"): tuple[Amount, Amount, Whole, Whole, Whole],
    ("checkpoints", "inside"): _Inside,
    ("node_runs", "writes"): Digests,
    ("attempts", "failure"): FailureShape,
    ("events", "data"): dict[str, JsonValue],
    ("rollbacks", "nodes"): list[Name],
    ("rollbacks", "superseded"): list[Id],
    ("approvals", "options"): list[str],
    ("approvals", "default"): _Default,
    ("approvals", "answer"): _Answer,
}


def columns(table: sa.Table) -> list[sa.Column[Any]]:
    """Return the columns of a table that an archive contains."""
    left_out = {*_LEFT_OUT, "id"} if table.name == "events" else _LEFT_OUT
    return [column for column in table.columns if column.name not in left_out]


def _kind(table: sa.Table, column: sa.Column[Any]) -> Any:
    """Return the type of a column's values."""
    place, kind = (table.name, column.name), column.type
    if place in _SHAPES or is_json(kind):
        return _SHAPES[place]
    if place in _ONE_OF:
        return Annotated[str, AfterValidator(one_of(_ONE_OF[place]))]
    if isinstance(kind, sa.String):
        by_type = {id(Id_): Id, id(Digest_): Digest}
        named = Annotated[str, Field(min_length=1, max_length=kind.length), AfterValidator(printable)]
        any_text = Annotated[str, Field(max_length=kind.length)]
        return by_type.get(id(kind), any_text if kind.length is None or place in _ANY_TEXT else named)
    if isinstance(kind, sa.Boolean):
        return bool
    if isinstance(kind, sa.Integer):
        return Whole if isinstance(kind, sa.BigInteger) else Number
    if column.name in _ANY_NUMBER:
        return Annotated[float, Field(allow_inf_nan=False)]
    return Moment if kind is Seconds else Amount


def _model(table: sa.Table) -> type[Strict]:
    """Return the model of a table's rows: NULL and values with a default may be left out."""
    fields: dict[str, tuple[Any, object]] = {}
    for column in columns(table):
        kind = _kind(table, column)
        if column.nullable:
            fields[column.name] = (kind | None, None)
        else:
            fields[column.name] = (kind, ... if column.server_default is None else None)
    return create_model(f"row of {table.name}", __base__=_LINES.get(table.name, Strict), **fields)  # type: ignore[call-overload,no-any-return]


_MODELS: Final = {name: _model(table) for name, table in TABLES.items()}


def read_row(table: sa.Table, line: bytes, where: str) -> Line:
    """Read a row of the history.

    Args:
        table: Whose row it is.
        line: The row as JSON.
        where: The file and the line, for errors.

    Returns:
        The row.

    Raises:
        InputError: Where anything is wrong, with its place and what is expected.
    """
    try:
        columns: Row = orjson.loads(line)
        record = _MODELS[table.name].model_validate_json(line)
        # orjson reads deeper values than it writes, so a row that could not be stored later is rejected here.
        for field in columns.values():
            orjson.dumps(_within(field))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error})") from None
    except ValidationError as error:
        raise InputError(f"{where}: {first_of(error)}") from None
    except orjson.JSONEncodeError as error:
        raise InputError(f"{where}: {error}") from None
    check_texts(columns, where)
    if table is events:
        _check_event(columns, where)
    row = Line(where, columns, record)
    for name in _TYPED_JSON.get(table.name, ()):
        check_typed(row.text(name), f"{where}: {name}")
    if table is approvals:
        check_typed(_text(part_of(columns.get("answer"), "value")), f"{where}: answer.value")
    return row


@cache
def _event_data() -> dict[str, TypeAdapter[Any]]:
    """Return the shapes of the data of events, by kind, as `wtb log` prints them."""
    hints = [get_type_hints(event) for event in get_args(EventDocument)]
    return {get_args(hint["kind"])[0]: TypeAdapter(hint["data"]) for hint in hints}


def _check_event(row: Row, where: str) -> None:
    """Raise InputError unless an event is of a known kind and has the data of that kind."""
    kind = str(row["kind"])
    if kind not in _event_data():
        raise InputError(f"{where}: kind: {kind!r} is no kind of event")
    try:
        _event_data()[kind].validate_json(orjson.dumps(row["data"]), strict=True)
    except ValidationError as error:
        raise InputError(f"{where}: data: {first_of(error)}") from None


def _text(field: JsonValue) -> str | None:
    return field if isinstance(field, str) else None


def _within(part: Any) -> Any:
    """Nest a value as deep as statements and exports will nest it."""
    for _ in range(8):
        part = [part]
    return part


def first_of(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}"[:300] if place else str(first["msg"])[:300]


def _texts(document: Any) -> Iterator[str]:
    todo = [document]
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            todo += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            todo += part


def check_texts(document: Any, where: str) -> None:
    """Reject NUL characters, which not every database can store."""
    if any("\0" in text for text in _texts(document)):
        raise InputError(f"{where}: there is a NUL character in it")


def check_typed(text: str | None, where: str) -> None:
    if text is not None:
        check_value(text.encode(), where)


def check_value(content: bytes, where: str) -> None:
    """Raise InputError unless bytes can be read as a stored value."""
    try:
        content.decode()
        readable(content)
        orjson.dumps(orjson.loads(content))  # which reads deeper values than it writes
        # Decoding a class imports its module, and an archive may come from anybody.
        if not any(tag in content for tag in _OF_CLASSES):  # of which the modules would be imported
            decode(content)
    except StateError:
        raise InputError(f"{where}: not a stored value") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise InputError(f"{where}: not a stored value") from None
