"""Notes in the audit log of what people change: every operation passes here, whoever calls it and from where.

The note is appended at the end of the first transaction in which an operation changes something, so neither exists
without the other; a second note records how it ended. Operations that fail before they change anything are noted once.
An operation that another one calls is part of that one.
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

from wtb.config.credentials import HIDDEN, shown_url
from wtb.core.errors import AccessDenied, ConflictError, NotFound, StoreError, WTBError
from wtb.core.ids import new_id
from wtb.core.texts import printable
from wtb.core.values import Arguments, Json
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
_PARTS = {"operations.running.local:begin": "executions.start"}  # no operation itself, but stands for one in Python

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
        """Append the first note to a transaction that changes something."""
        append(connection, self.note(is_first=True))

    def end(self, error: BaseException | None) -> None:
        """Append the note of its end, if it changed something or failed; a note that cannot be written is logged."""
        # Without the database there is nowhere to note it, and an operation that changed nothing needs no note.
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
        """Return the text of an error that may be stored, without secrets of users, which it may quote."""
        if error is None:
            return None
        is_quoting = self.arguments.keys() & _SECRET and not isinstance(error, _ABOUT_NAMES)
        text = str(error) if isinstance(error, WTBError) and not is_quoting else ""  # others may hold anything
        return f"{type(error).__name__}: {shown_text(text)}" if text else type(error).__name__

    def note(self, *, is_first: bool, outcome: str | None = None, error: str | None = None) -> Note:
        """Return the note to append."""
        arguments = json.dumps(self.arguments) if is_first else None
        result_json = json.dumps(self.result) if self.result else None
        context = self.context
        return Note(self.id, context.by, context.origin, self.operation, arguments, outcome, result_json, error)


_current: ContextVar[_Call | None] = ContextVar("audited", default=None)


def audited(function: Callable[P, R]) -> Callable[P, R]:
    """Record calls of an operation that changes something in the audit log.

    Args:
        function: A function of the registry; it takes its context first.

    Returns:
        The function. It raises StoreError, and changes nothing, if the note cannot be appended.
    """

    signature = inspect.signature(function)

    @wraps(function)
    def noted(*args: P.args, **kwargs: P.kwargs) -> R:
        # An operation inside another one: the outer call is noted, with its arguments.
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
                    # Committed or not decides whether the end needs a second note, whatever the operation raised.
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
    """Add facts that identify the result to the note of the current operation.

    Args:
        facts: For example, the id of what it created.
    """
    call = _current.get()
    if call is not None:
        call.result.update(facts)


@contextmanager
def noting(context: Context, event: str, **arguments: str | None) -> Iterator[None]:
    """Note a change that is no operation, such as a sign-in, in the transaction inside the block.

    Args:
        context: The actor, and the database.
        event: The name of the event.
        arguments: Its arguments.
    """
    call = _Call(context, event, {name: argument for name, argument in arguments.items() if argument is not None})
    with context.database.joined(lambda connection: append(connection, call.note(is_first=True, outcome="done"))):
        yield


def note_refusal(context: Context, event: str, error: WTBError) -> None:
    """Note that somebody was rejected before an operation began; within an operation its own note covers it.

    Args:
        context: The actor, and the database.
        event: The id of an operation, or `sign-in`.
        error: The reason.
    """
    if _current.get() is None:
        _Call(context, event, {}).end(error)


@cache
def _names() -> Mapping[str, str]:
    """Return the first id in the registry of each function."""
    return {operation.path: name for name, operation in reversed(list(OPERATIONS.items()))} | _PARTS


def _name_of(function: Callable[..., object]) -> str:
    return _names()[f"{function.__module__.removeprefix('wtb.')}:{function.__name__}"]


def _collect_arguments(signature: inspect.Signature, arguments: Arguments) -> dict[str, Json]:
    """Return the arguments of a call that are not defaults, as they may be shown."""
    passed = {
        name: argument for name, argument in arguments.items() if argument is not signature.parameters[name].default
    }
    loggable = {
        name: _hidden(argument) if name in _SECRET else shown_argument(argument) for name, argument in passed.items()
    }
    return {name: argument for name, argument in loggable.items() if argument is not None}


def _hidden(argument: object) -> Json:
    if isinstance(argument, Mapping):
        return {shown_text(str(key)): HIDDEN for key in list(argument)[:_MOST_ITEMS]}
    return None if argument is None else HIDDEN


@singledispatch
def shown_argument(argument: object) -> Json:
    """Return an argument as the log may keep it: short, and without passwords and tokens; None leaves it out.

    Args:
        argument: What an operation was given. Types that it does not know are left out; modules of operations register
            those of theirs that should be noted.
    """
    return None


@shown_argument.register(bool)
@shown_argument.register(int)
def _number(number: int) -> Json:
    return number if abs(number) < 1 << 63 else str(number)[:_MOST_LETTERS]


@shown_argument.register
def _float(number: float) -> Json:
    return number if math.isfinite(number) else str(number)


@shown_argument.register
def shown_text(content: str) -> str:
    """Return a text as the log may keep it."""
    # URLs may contain passwords, even inside longer texts.
    text = shown_url(content) if "://" in content else printable(content)
    text = text if _TOKEN not in text else HIDDEN
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


@shown_argument.register
def _path(path: Path) -> Json:
    return shown_text(str(path))


@shown_argument.register
def _moment(moment: datetime) -> Json:
    return moment.isoformat()


@shown_argument.register
def _mapping(mapping: Mapping) -> Json:  # type: ignore[type-arg]  # as singledispatch takes it
    return {shown_text(str(key)): shown_argument(part) for key, part in list(mapping.items())[:_MOST_ITEMS]}


@shown_argument.register
def _collection(collection: Collection) -> Json:  # type: ignore[type-arg]
    return [shown_argument(member) for member in list(collection)[:_MOST_ITEMS]]
