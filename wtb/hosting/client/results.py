"""Results of operations, made again of the documents that a server sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter

from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.hosting.api.routes import Route
from wtb.operations.control.questions import Questions
from wtb.operations.inspection.sweeps import Cells, Located, locate_execution, locate_sweep, no_sweep, status
from wtb.operations.results.baselines import BaselineSet
from wtb.operations.results.label_files import GivenLabel
from wtb.operations.results.matrix import gates, matrix

if TYPE_CHECKING:
    import httpx

CELLS = "cells.list"
CONTENTS = frozenset({"files.read", "executions.read_archive", "values.read"})
LINES = frozenset({CELLS, "events.list"})  # of these each line is read by itself: there may be more than memory holds


def result_of(route: Route, response: httpx.Response) -> Any:
    """Return what the operation of a route returned, of the document or the content that the server sent of it."""
    if route.name in CONTENTS:
        return iter((response.content,))
    document = response.json()
    read = _READERS.get(route.name)
    if read is not None:
        return read(document)
    result: Any = get_type_hints(route.function)["return"]
    return _validated(result, document) if is_dataclass(result) else document


def result_of_lines(about: Any, lines: Iterable[str]) -> Any:
    """Return what an operation of `LINES` returned, whose lines are read as they are taken.

    Args:
        about: Of cells the document of their sweep, as `show` returns it; of events None.
        lines: As they come.
    """
    if about is None:
        return (json.loads(line) for line in lines if line)
    return Cells(tuple(about["definition"]["vary"]), tuple(about["metrics"]), _cells(lines))


def _cells(lines: Iterable[str]) -> Iterator[Any]:
    """Yield the cells of their document, of which each stands on a line of its own."""
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
    """Read it without a repeat, of which a server runs none."""
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
    """What a server has no request for, since it is a part of what another operation returns.

    Attributes:
        operation: That operation.
        read: Takes what that returned, and the reference that was asked about.
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
