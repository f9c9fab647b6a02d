"""Notes in the audit log what people change: the one place that operations pass, whoever calls them and from where.

The note is appended at the end of the first transaction in which an operation changes something, so neither is there
without the other; a second one says how it ended. What failed before it changed anything is noted once. An operation
that another one calls is part of that.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, singledispatch, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import sqlalchemy as sa

from wtb.config.urls import HIDDEN, shown_url
from wtb.core.errors import AccessDenied, ConflictError, NotFound, StoreError, WTBError
from wtb.core.ids import new_id
from wtb.core.texts import printable
from wtb.core.values import Json
from wtb.operations.context import Context
from wtb.operations.registry import OPERATIONS
from wtb.store.access.audit import Note, append

P = ParamSpec("P")
R = TypeVar("R")

_TOKEN = "wtb_"
_MOST_LETTERS = 200
_MOST_ITEMS = 50
# What users' cases, states, answers and webhooks hold is theirs to keep secret; of mappings the keys are noted.
_SECRET = frozenset({"keys", "input", "written", "set", "value", "feedback", "notify", "text", "texts"})
_ABOUT_NAMES = (NotFound, ConflictError, AccessDenied)  # what these say is about things that are there
_PARTS = {"running.local:begin": "executions.start"}  # what is no operation of its own, but stands for one in Python

_log = logging.getLogger("wtb")


@dataclass
class _Call:
    """One call of an operation."""

    context: Context
    operation: str
    arguments: dict[str, Json]
    result: dict[str, Json] = field(default_factory=dict)
    id: str = field(default_factory=new_id)
    has_begun: bool = False

    def begin(self, connection: sa.Connection) -> None:
        """Note in a transaction that changes something what it belongs to."""
        append(connection, self.note(is_first=True))

    def end(self, error: BaseException | None) -> None:
        """Note how it ended, if it changed something or was to; what cannot be noted any more is logged."""
        if isinstance(error, StoreError) or (error is None and not self.has_begun):
            return
        outcome = "done" if error is None else "failed"
        note = self.note(is_first=not self.has_begun, outcome=outcome, error=self._words(error))
        try:
            with self.context.database.write(is_note=True) as connection:
                append(connection, note)
        except WTBError as problem:
            _log.warning("the audit log does not have that %s %s: %s", self.operation, outcome, problem)

    def _words(self, error: BaseException | None) -> str | None:
        """Return what may be kept of an error: none of what users keep secret, which one may quote."""
        if error is None:
            return None
        is_quoting = self.arguments.keys() & _SECRET and not isinstance(error, _ABOUT_NAMES)
        text = str(error) if isinstance(error, WTBError) and not is_quoting else ""  # others may hold anything
        return f"{type(error).__name__}: {shown_text(text)}" if text else type(error).__name__

    def note(self, *, is_first: bool, outcome: str | None = None, error: str | None = None) -> Note:
        """Return what is to be appended."""
        arguments = json.dumps(self.arguments) if is_first else None
        result = json.dumps(self.result) if self.result else None
        context = self.context
        return Note(self.id, context.by, context.origin, self.operation, arguments, outcome, result, error)


_current: ContextVar[_Call | None] = ContextVar("audited", default=None)


def audited(function: Callable[P, R]) -> Callable[P, R]:
    """Have an operation that changes something be noted in the audit log.

    Args:
        function: Of the registry; it takes its context first.

    Returns:
        The function. It raises StoreError, and changes nothing, where the note cannot be appended.
    """

    signature = inspect.signature(function)

    @wraps(function)
    def noted(*args: P.args, **kwargs: P.kwargs) -> R:
        if _current.get() is not None:
            return function(*args, **kwargs)
        arguments = dict(signature.bind(*args, **kwargs).arguments)
        context = arguments.pop("context")
        assert isinstance(context, Context)
        call = _Call(context, _name_of(function), _collect_arguments(signature, arguments))
        reset = _current.set(call)
        try:
            with context.database.joined(call.begin) as joined:
                try:
                    result = function(*args, **kwargs)
                finally:
                    call.has_begun = joined.is_committed
        except BaseException as error:
            call.end(error)
            raise
        else:
            call.end(None)
            return result
        finally:
            _current.reset(reset)

    return noted


def note(**facts: str | int) -> None:
    """Note with the operation under way what names its result.

    Args:
        facts: Such as the id of what it made.
    """
    call = _current.get()
    if call is not None:
        call.result.update(facts)


@contextmanager
def noting(context: Context, event: str, **arguments: str | None) -> Iterator[None]:
    """Have something that is no operation be noted with the change that is made inside the block, such as a sign-in.

    Args:
        context: Who does it, and where.
        event: What.
        arguments: With what.
    """
    call = _Call(context, event, {name: value for name, value in arguments.items() if value is not None})
    with context.database.joined(lambda connection: append(connection, call.note(is_first=True, outcome="done"))):
        yield


def note_refusal(context: Context, event: str, error: WTBError) -> None:
    """Note that somebody was refused before an operation began; what an operation under way does is noted with that.

    Args:
        context: Who asked, and where.
        event: The id of an operation, or `sign-in`.
        error: Why not.
    """
    if _current.get() is None:
        _Call(context, event, {}).end(error)


@cache
def _names() -> Mapping[str, str]:
    """The first id in the registry of each function."""
    return {operation.path: name for name, operation in reversed(list(OPERATIONS.items()))} | _PARTS


def _name_of(function: Callable[..., object]) -> str:
    return _names()[f"{function.__module__.removeprefix('wtb.operations.')}:{function.__name__}"]


def _collect_arguments(signature: inspect.Signature, arguments: Mapping[str, object]) -> dict[str, Json]:
    """Return what a call gives besides defaults, as it may be shown."""
    passed = {name: value for name, value in arguments.items() if value is not signature.parameters[name].default}
    loggable = {name: _hidden(value) if name in _SECRET else shown_argument(value) for name, value in passed.items()}
    return {name: value for name, value in loggable.items() if value is not None}


def _hidden(value: object) -> Json:
    if isinstance(value, Mapping):
        return {shown_text(str(key)): HIDDEN for key in list(value)[:_MOST_ITEMS]}
    return None if value is None else HIDDEN


@singledispatch
def shown_argument(value: object) -> Json:
    """Return an argument as the log may keep it: short, and without passwords and tokens; None leaves it out.

    Args:
        value: What an operation was given. Types that it does not know are left out; modules of operations register
            those of theirs that should be noted.
    """
    return None


@shown_argument.register(bool)
@shown_argument.register(int)
def _number(value: int) -> Json:
    return value if abs(value) < 1 << 63 else str(value)[:_MOST_LETTERS]


@shown_argument.register
def _float(value: float) -> Json:
    return value if math.isfinite(value) else str(value)


@shown_argument.register
def shown_text(value: str) -> str:
    """Return a text as the log may keep it."""
    text = shown_url(value) if "://" in value else printable(value)
    text = text if _TOKEN not in text else HIDDEN
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


@shown_argument.register
def _path(value: Path) -> Json:
    return shown_text(str(value))


@shown_argument.register
def _moment(value: datetime) -> Json:
    return value.isoformat()


@shown_argument.register
def _mapping(value: Mapping) -> Json:  # type: ignore[type-arg]  # as singledispatch takes it
    return {shown_text(str(key)): shown_argument(part) for key, part in list(value.items())[:_MOST_ITEMS]}


@shown_argument.register
def _collection(value: Collection) -> Json:  # type: ignore[type-arg]
    return [shown_argument(member) for member in list(value)[:_MOST_ITEMS]]
