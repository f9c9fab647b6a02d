"""Results of operations, made from the documents of a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter

from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.hosting.api.routes import Route
from wtb.operations.control.questions import Questions
from wtb.operations.inspection.sweeps import Cells, Located, locate_execution, locate_sweep, no_sweep, status
from wtb.operations.results.comparing import BaselineSet
from wtb.operations.results.matrix import gates, matrix
from wtb.store.control.labels import GivenLabel

if TYPE_CHECKING:
    import httpx

CELLS = "cells.list"
CONTENTS = frozenset({"files.read", "executions.read_archive", "values.read"})
# Read line by line, because there may be more of them than memory holds.
LINES = frozenset({CELLS, "events.list"})


def result_of(route: Route, response: httpx.Response) -> Any:
    """Make the result of a route's operation from the document or the content of a response."""
    if route.name in CONTENTS:
        return iter((response.content,))
    document = response.json()
    read = _READERS.get(route.name)
    if read is not None:
        return read(document)
    annotation: Any = get_type_hints(route.function)["return"]
    return _validated(annotation, document) if is_dataclass(annotation) else document


def result_of_lines(about: Any, lines: Iterable[str]) -> Any:
    """Make the result of an operation of `LINES`, whose lines are read when they are needed.

    Args:
        about: For cells, the document of their sweep, as `show` returns it; for events None.
        lines: The lines.
    """
    if about is None:
        return (json.loads(line) for line in lines if line)
    return Cells(tuple(about["definition"]["vary"]), tuple(about["metrics"]), _cells(lines))


def _cells(lines: Iterable[str]) -> Iterator[Any]:
    """Yield the cells of their document, in which each has a line of its own."""
    return (json.loads(line.rstrip(",")) for line in lines if line.startswith("{") and not line.startswith('{"cells":'))


def _validated(kind: Any, document: Any) -> Any:
    return _adapter(kind).validate_python(document)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _under(key: str) -> Callable[[Any], Any]:
    return lambda document: document[key]


def _questions(document: Any) -> Questions:
    if "approvals" not in document:
        return Questions(document)
    return Questions(None, document["approvals"], document["groups"], document["more"], document["more_groups"])


def _baseline_set(document: Any) -> BaselineSet:
    """Read a set baseline, without a repeat, because servers run none."""
    return BaselineSet(document["sweep"], document["name"], document["before"], document["noise_floor"])


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "sweeps.list": _under("sweeps"),
    "executions.list": _under("runs"),
    "labels.list": lambda document: _validated(list[GivenLabel], document["labels"]),
    "events.count": _under("events"),
    "questions.list": _questions,
    "baselines.set": _baseline_set,
    "baselines.list": _under("baselines"),
    "schedules.list": _under("schedules"),
    "schedules.show": _under("schedule"),
    "sessions.list": _under("sessions"),
    "budgets.list": _under("budgets"),
    "tokens.list": _under("tokens"),
    "projects.list": _under("projects"),
    "users.list": _under("users"),
    "teams.list": _under("teams"),
    "access.list": _under("access"),
    "audit.list": _under("audit"),
}


@frozen
class ReadFrom:
    """An operation without a route, because another operation's result contains its own.

    Attributes:
        operation: The other operation.
        read: Returns the result from that of the other operation and the reference.
    """

    operation: Callable[..., Any]
    read: Callable[[Any, str], Any]


def _located_sweep(document: Any, ref: str) -> Located:
    if "execution" in document:
        raise no_sweep(ref)
    return Located(document["sweep"]["id"], document["sweep"]["status"], document["sweep"]["reason"])


def _located_execution(document: Any, ref: str) -> Located:
    if "execution" not in document:
        sweep = document["sweep"]
        raise InputError(f"{ref!r} is the sweep {sweep['name']} ({sweep['id']}); name one of its executions")
    execution = document["execution"]
    sweep, id = execution["sweep"], execution["id"]
    is_single = sweep["kind"] == "single" and not id.startswith(ref)
    return Located(sweep["id"] if is_single else id, execution["status"], execution["reason"], id)


READ_FROM: Mapping[Callable[..., Any], ReadFrom] = {
    gates: ReadFrom(matrix, lambda document, ref: document["gates"]),
    locate_sweep: ReadFrom(status, _located_sweep),
    locate_execution: ReadFrom(status, _located_execution),
}
