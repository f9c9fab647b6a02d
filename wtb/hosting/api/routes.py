"""Which operation answers which request, and which operations are not there over HTTP, with why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from wtb.display.json_text import cells_as_json
from wtb.display.views.progress import Watch
from wtb.operations.control.breakpoints import Breakpoints
from wtb.operations.control.pause_cancel import Cancelled, Paused
from wtb.operations.control.questions import Questions
from wtb.operations.inspection.log import Log
from wtb.operations.inspection.sweeps import Cells
from wtb.operations.registry import OPERATIONS, Operation

PREFIX = "/api/v1"


@dataclass(frozen=True)
class Lines:
    """A result that is sent piece by piece, since it may be larger than memory."""

    pieces: Iterable[str]
    media_type: str


def _as_it_is(result: Any) -> Any:
    return result


@dataclass(frozen=True)
class Route:
    """A request and the operation that answers it.

    Attributes:
        method: GET for what reads, POST for what changes.
        path: Below `PREFIX`. Names in braces are arguments of the operation.
        name: The operation's, in the registry.
        present: Makes the document of what the operation returns; by default that is one.
        left_out: Arguments of the operation that a request cannot give.
    """

    method: str
    path: str
    name: str
    present: Callable[[Any], Any] = _as_it_is
    left_out: frozenset[str] = frozenset()

    @property
    def operation(self) -> Operation:
        """What answers."""
        return OPERATIONS[self.name]


T = TypeVar("T")


def _under(key: str) -> Callable[[T], Mapping[str, T]]:
    """Have a list stand under a key, as in the document of the command."""
    return lambda result: {key: result}


def _cells(found: Cells) -> Lines:
    return Lines(cells_as_json(found.cells), "application/json")


def _events(found: Log) -> Lines:
    from orjson import dumps

    return Lines((dumps(event, default=str).decode() + "\n" for event in found.events), "application/x-ndjson")


def _questions(found: Questions) -> Any:
    if found.question is not None:
        return found.question
    return {"approvals": list(found.each), "groups": list(found.groups)}


def _watched(found: Watch) -> Any:
    return found.look()


def _paused(done: Paused) -> Any:
    target = done.target
    return {"kind": target.kind, "id": target.id, "status": done.status, "paused": list(done.paused)}


def _cancelled(done: Cancelled) -> Any:
    return {"kind": done.target.kind, "id": done.target.id, "cells": done.cells, "already": done.already}


def _breakpoints(changed: Breakpoints) -> Any:
    return {"sweep": changed.sweep, "breakpoints": list(changed.breakpoints)}


# What several paths have: a reference may be to a sweep or to an execution.
def _both(method: str, rest: str, name: str, present: Callable[[Any], Any] = _as_it_is) -> tuple[Route, ...]:
    return tuple(Route(method, f"/{kind}/{{ref}}{rest}", name, present) for kind in ("sweeps", "executions"))


_FOLLOWING = frozenset({"follow", "interval_s", "cases"})

ROUTES: tuple[Route, ...] = (
    Route("GET", "/sweeps", "list", _under("sweeps")),
    *_both("GET", "", "show"),
    *_both("GET", "/status", "status"),
    *_both("GET", "/series", "series"),
    *_both("GET", "/costs", "costs"),
    *_both("GET", "/tree", "tree"),
    Route("GET", "/sweeps/{ref}/cells", "show --cells", _cells),
    Route("GET", "/sweeps/{ref}/log", "log", _events, _FOLLOWING),
    Route("GET", "/sweeps/{ref}/event-counts", "log --summary", _under("events")),
    Route("GET", "/sweeps/{ref}/matrix", "matrix"),
    Route("GET", "/sweeps/{ref}/report", "report"),
    Route("GET", "/sweeps/{before}/compare/{after}", "compare", left_out=frozenset({"margin"})),
    Route("GET", "/executions/{ref}/history", "history"),
    Route("GET", "/executions/{a}/diff/{b}", "diff"),
    *_both("POST", "/pause", "pause", _paused),
    *_both("POST", "/cancel", "cancel", _cancelled),
    *_both("POST", "/breakpoints", "break", _breakpoints),
    Route("GET", "/approvals", "approvals", _questions),
    Route("GET", "/costs", "costs", left_out=frozenset({"ref"})),
    Route("GET", "/baselines", "baseline list", _under("baselines")),
    Route("GET", "/baselines/{name}", "baseline show"),
    Route("GET", "/schedules", "schedule list", _under("schedules")),
    Route("GET", "/schedules/{name}", "schedule show", _under("schedule")),
    Route("GET", "/schedules/{name}/history", "schedule history"),
    Route("POST", "/schedules/{name}/pause", "schedule pause"),
    Route("POST", "/schedules/{name}/resume", "schedule resume"),
    Route("GET", "/sessions", "session list", _under("sessions")),
    Route("GET", "/sessions/{name}", "session show"),
    Route("GET", "/budgets", "budget list", _under("budgets")),
    Route("GET", "/tokens", "token list", _under("tokens")),
    Route("GET", "/watch", "watch", _watched),
)

_RUNS = "it runs code of users, and the server imports none"
_WAITS = "it takes longer than a request may"
_FILES = "it reads or writes files of the machine of its caller"
_ADMINISTERS = "whoever administers has the database, and commands for it"

# Why operations have no route. A test holds both tables against the registry.
WITHOUT_ROUTE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("plan", "plan --pilot", "run", "start", "submit", "resume", "retry", "fork", "fork --all-cases"),
            *("rollback", "rollback --undo", "answer", "answer --all", "score", "regress", "baseline set --repeat"),
            *("schedule add", "schedule run-now", "schedule run-due"),
        ),
        _RUNS,
    ),
    **dict.fromkeys(("submit --wait",), _WAITS),
    **dict.fromkeys(("files", "files PATH", "files --export", "files --diff", "export", "import"), _FILES),
    **dict.fromkeys(
        (
            *("schedule remove", "schedule check", "baseline set", "baseline remove", "pin", "unpin", "gc", "delete"),
            *(
                "token create",
                "token revoke",
                "session create",
                "session change",
                "session archive",
                "session delete",
                "budget set",
                "budget clear",
            ),
        ),
        _ADMINISTERS,
    ),
}
