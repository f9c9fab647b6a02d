"""The routes of operations, and the operations without a route, each with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from wtb.core.documents.all_events import EventDocument
from wtb.core.documents.plan import SubmissionDocument
from wtb.core.frozen import frozen
from wtb.display.json_text import as_json, cells_as_json
from wtb.display.views.progress import Watch
from wtb.operations.control.questions import Questions
from wtb.operations.inspection.sweeps import Cells
from wtb.operations.registry import OPERATIONS, Effect, Operation, Permission
from wtb.operations.running.submitting import Submitted

if TYPE_CHECKING:
    from wtb.analysis.judge_check import LabelQueue

PREFIX = "/api/v1"
METRICS = "/metrics"
AGENTS = "/mcp"
SIGN_IN = "/sign-in"
AT_PROVIDER = f"{SIGN_IN}/provider"  # where somebody goes to sign in elsewhere
UPLOADS = "/uploads"  # what a request is too small for
FROM_PROVIDER = f"{SIGN_IN}/callback"  # and comes back to


@frozen
class Lines:
    """A result that is sent piece by piece, because it may be larger than memory."""

    pieces: Iterable[str] | Iterable[bytes]
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


def _as_it_is(reply: Any) -> Any:
    return reply


@frozen
class Route:
    """A request and the operation that answers it.

    Attributes:
        method: GET for reading, POST for changes.
        path: Its path below `PREFIX`. Names in braces are arguments of the operation.
        name: The id of the operation.
        present: Makes the document from the result of the operation; by default it is that result.
        left_out: Arguments of the operation that a request cannot set.
        preview: Whether it only previews the operation.
        location: The path of the created object, below `PREFIX`, with fields of its document in braces.
        version: Returns the editable part of a document that several people may change, from which its ETag is made.
        edits: The path of the route that reads the changed object, whose ETag `If-Match` may name.
    """

    method: str
    path: str
    name: str
    present: Callable[[Any], Any] = _as_it_is
    left_out: frozenset[str] = frozenset()
    preview: bool = False
    location: str | None = None
    version: Callable[[Any], Any] | None = None
    edits: str | None = None

    @property
    def operation(self) -> Operation:
        """The operation of the route."""
        return OPERATIONS[self.name]

    @property
    def function(self) -> Callable[..., Any]:
        """The function that serves the request."""
        return self.operation.preview_function if self.preview else self.operation.function

    @property
    def needs(self) -> Permission:
        """The required permission."""
        return Permission.read if self.preview else self.operation.needs

    @property
    def is_long(self) -> bool:
        """True if it may take longer than a request should."""
        return self.operation.long and not self.preview

    @property
    def starts(self) -> bool:
        """True if it starts something that runs nodes and whose end a client may wait for."""
        return self.operation.effect is Effect.spends and self.location is not None and not self.is_long

    @property
    def starts_execution(self) -> bool:
        """True if it starts one execution, whose outcome or events the same request may return."""
        return self.starts and self.location == "/executions/{sweep}"

    @property
    def summary(self) -> str:
        """Its summary, in one sentence."""
        return f"Preview: {self.operation.summary}" if self.preview else self.operation.summary


T = TypeVar("T")


def _under(key: str) -> Callable[[T], Mapping[str, T]]:
    """Return a function that puts a list under a key, as in the document of the command."""
    return lambda reply: {key: reply}


def _cells(cells: Cells) -> Lines:
    return Lines(cells_as_json(cells.cells), "application/json")


def _events(events: Iterator[EventDocument]) -> Lines:
    from orjson import dumps

    return Lines((dumps(event, default=str).decode() + "\n" for event in events), "application/x-ndjson")


# Files of nodes are downloaded, never shown as pages: a browser would run their scripts as this server's own.
_DOWNLOAD_HEADERS = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
}


def _content(blocks: Iterator[bytes]) -> Lines:
    return Lines(blocks, "application/octet-stream", _DOWNLOAD_HEADERS)


def _questions(questions: Questions) -> Any:
    if questions.question is not None:
        return questions.question
    return {
        "approvals": list(questions.each),
        "more": questions.more,
        "groups": list(questions.groups),
        "more_groups": questions.more_groups,
    }


def _submitted(submitted: Submitted) -> SubmissionDocument:
    return {
        "sweep": submitted.sweep,
        "name": submitted.name,
        "cells": submitted.cells,
        "workers": submitted.workers,
        "problem": submitted.problem,
        "started": submitted.started,
    }


def _some(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: document[name] for name in names}


def _of_baseline(baseline: Any) -> Any:
    return _some(baseline, "name", "session", "set_at") | {"sweep": baseline["sweep"]["id"]}


def _of_schedule(schedule: Any) -> Any:
    return {name: part for name, part in schedule.items() if name not in ("next_at", "last")}


def _of_session(session: Any) -> Any:
    return _some(session["session"], "name", "owner", "metadata", "created_at", "archived_at", "quota")


def _of_project(project: Any) -> Any:
    return _some(project, "name", "retention")


def _of_budgets(budgets: Any) -> Any:
    return [_some(budget, "scope", "key", "node", "kind", "most") for budget in budgets]


def _of_history(history: Any) -> Any:
    digest = sha256(as_json(history).encode()).hexdigest()
    return _some(history["execution"], "id", "status", "head") | {"sha256": digest}


def _drawn(label_queue: LabelQueue) -> Any:
    """Return the samples to label without their cells, so that raters are blind to the combination."""
    queue = asdict(label_queue)
    return queue | {"items": [{key: sample[key] for key in sample if key != "cells"} for sample in queue["items"]]}


def _watched(watch: Watch) -> Any:
    return watch.look()


# Routes that exist for sweeps and for executions, because the operation takes a reference to either.
def _both(
    method: str,
    rest: str,
    name: str,
    present: Callable[[Any], Any] = _as_it_is,
    *,
    left_out: frozenset[str] = frozenset(),
    preview: bool = False,
    version: Callable[[Any], Any] | None = None,
    edits: str | None = None,
) -> tuple[Route, ...]:
    return tuple(
        Route(method, base + rest, name, present, left_out, preview, None, version, edits and base + edits)
        for base in ("/sweeps/{ref}", "/executions/{ref}")
    )


_FOLLOWING = frozenset({"follow", "interval_s"})
_RUNNING = frozenset({"progress", "code"})  # of who runs something itself
_BINDING = frozenset({"bound"})
_HISTORY = "/executions/{ref}/history"
_RATER = frozenset({"rater"})  # is who asks
_CELL = frozenset({"cell"})  # of a sweep; its execution is named

_ROUTES: tuple[Route, ...] = (
    Route("GET", "/workflows", "workflows.list"),
    Route("GET", "/workflows/{name}", "workflows.show"),
    Route("POST", "/case-files", "cases.read"),
    Route("POST", "/evaluators/preview", "evaluators.preview"),
    Route("POST", "/plans", "sweeps.plan_published"),
    Route("GET", "/sweeps", "sweeps.list", _under("sweeps")),
    Route("POST", "/sweeps", "sweeps.submit_published", _submitted, location="/sweeps/{sweep}"),
    Route("GET", "/executions", "executions.list", _under("runs")),
    Route("POST", "/executions", "executions.start_published", _submitted, location="/executions/{sweep}"),
    *_both("GET", "", "sweeps.show"),
    *_both("GET", "/status", "sweeps.show_status"),
    *_both("GET", "/series", "series.list"),
    *_both("GET", "/costs", "costs.show"),
    *_both("GET", "/tree", "executions.show_tree"),
    Route("GET", "/sweeps/{ref}/cells", "cells.list", _cells),
    *_both("GET", "/outputs", "outputs.list"),
    Route("GET", "/sweeps/{ref}/value", "values.read", _content),
    Route("GET", "/executions/{ref}/value", "values.read", _content, left_out=frozenset({"case"})),
    Route("GET", "/sweeps/{ref}/log", "events.list", _events, _FOLLOWING),
    Route("GET", "/sweeps/{ref}/event-counts", "events.count", _under("events")),
    Route("GET", "/sweeps/{ref}/matrix", "matrices.show"),
    Route("GET", "/sweeps/{ref}/report", "reports.make"),
    Route("GET", "/sweeps/{ref}/compare", "combinations.compare"),
    Route("POST", "/sweeps/{ref}/score", "scorings.submit", asdict, location="/sweeps/{sweep}/scorings/{id}"),
    Route("GET", "/sweeps/{ref}/scorings/{scoring}", "scorings.show", asdict),
    Route("POST", "/sweeps/{ref}/scorings/{scoring}/cancel", "scorings.cancel", asdict),
    Route("GET", "/sweeps/{ref}/labelling", "labels.draw", _drawn, _RATER),
    Route("POST", "/sweeps/{ref}/labelling", "labels.answer", asdict, _RATER),
    Route("GET", "/sweeps/{ref}/labels", "labels.list", _under("labels")),
    Route("GET", "/sweeps/{ref}/comments", "comments.list"),
    Route("POST", "/sweeps/{ref}/comments", "comments.add"),
    Route("POST", "/sweeps/{ref}/comments/{number}/delete", "comments.delete"),
    Route("GET", "/sweeps/{ref}/judge", "judges.check", asdict, frozenset({"labels"})),
    Route("GET", "/sweeps/{before}/compare/{after}", "sweeps.compare", left_out=frozenset({"margin"})),
    Route("GET", "/executions/{ref}/history", "checkpoints.list", version=_of_history),
    Route("GET", "/checkpoints/{ref}", "checkpoints.show"),
    Route("GET", "/executions/{a}/diff/{b}", "executions.compare"),
    Route("GET", "/executions/{ref}/files", "files.list", left_out=_CELL),
    Route("GET", "/executions/{ref}/file", "files.read", _content, left_out=_CELL),
    Route("GET", "/executions/{ref}/archive", "executions.read_archive", _content),
    Route("GET", "/executions/{ref}/files/compare/{other}", "files.compare", left_out=_CELL),
    *_both("POST", "/pause", "sweeps.pause"),
    *_both("POST", "/cancel", "sweeps.cancel"),
    *_both("GET", "/cancel", "sweeps.cancel", preview=True),
    Route("POST", "/sweeps/{ref}/combinations/stop", "combinations.stop", asdict),
    *_both("GET", "/breakpoints", "breakpoints.list", version=asdict),
    *_both("POST", "/breakpoints", "breakpoints.set", edits="/breakpoints"),
    *_both("POST", "/resume", "sweeps.resume", left_out=_RUNNING),
    *_both("POST", "/retry", "sweeps.retry", left_out=_RUNNING),
    Route("POST", "/executions/{ref}/checkpoints", "checkpoints.name", asdict, location="/checkpoints/{checkpoint}"),
    Route("POST", "/executions/{ref}/rollback", "executions.rollback", left_out=_BINDING, edits=_HISTORY),
    Route("POST", "/executions/{ref}/undo-rollback", "executions.undo_rollback", left_out=_BINDING, edits=_HISTORY),
    Route("GET", "/approvals", "questions.list", _questions),
    Route("POST", "/approvals/{ref}/answer", "questions.answer", left_out=_BINDING | {"run"}),
    Route("GET", "/answers", "questions.answer_all", preview=True),
    Route("POST", "/answers", "questions.answer_all", left_out=frozenset({"run"})),
    Route("POST", "/executions/{ref}/fork", "executions.fork", asdict, _BINDING, location="/executions/{execution}"),
    Route("POST", "/sweeps/{ref}/extend", "sweeps.extend", left_out=_RUNNING),
    Route("POST", "/sweeps/{ref}/extend/plan", "sweeps.plan_extension", asdict, frozenset({"code"})),
    Route("POST", "/executions/{ref}/row", "combinations.add", left_out=_RUNNING),
    *_both("POST", "/pin", "sweeps.pin"),
    *_both("POST", "/unpin", "sweeps.unpin"),
    Route("POST", "/sweeps/{ref}/delete", "sweeps.delete"),
    Route("GET", "/sweeps/{ref}/delete", "sweeps.delete", preview=True),
    Route("POST", "/cases/{case}/erase", "cases.erase"),
    Route("GET", "/cases/{case}/erase", "cases.erase", preview=True),
    Route("GET", "/costs", "costs.show", left_out=frozenset({"ref"})),
    Route("POST", "/pools", "sweeps.pool", asdict, location="/sweeps/{id}"),
    Route("GET", "/baselines", "baselines.list", _under("baselines")),
    Route("GET", "/baselines/{name}", "baselines.show", version=_of_baseline),
    Route("POST", "/baselines/{name}", "baselines.set", edits="/baselines/{name}"),
    Route("POST", "/baselines/{name}/remove", "baselines.remove", edits="/baselines/{name}"),
    Route("GET", "/schedules", "schedules.list", _under("schedules")),
    Route("GET", "/schedules/{name}", "schedules.show", _under("schedule"), version=_of_schedule),
    Route("GET", "/schedules/{name}/history", "schedules.show_history"),
    Route("POST", "/schedules/{name}/pause", "schedules.pause", edits="/schedules/{name}"),
    Route("POST", "/schedules/{name}/resume", "schedules.resume", edits="/schedules/{name}"),
    Route("POST", "/schedules/{name}/remove", "schedules.remove", edits="/schedules/{name}"),
    Route("GET", "/schedules/{name}/check", "schedules.check"),
    Route("GET", "/sessions", "sessions.list", _under("sessions")),
    Route("GET", "/sessions/{name}", "sessions.show", version=_of_session),
    Route("POST", "/sessions", "sessions.create"),
    Route("POST", "/sessions/{name}/change", "sessions.change", edits="/sessions/{name}"),
    Route("POST", "/sessions/{name}/archive", "sessions.archive", edits="/sessions/{name}"),
    Route("POST", "/sessions/{name}/delete", "sessions.delete", edits="/sessions/{name}"),
    Route("GET", "/sessions/{name}/delete", "sessions.delete", preview=True),
    Route("GET", "/projects", "projects.list", _under("projects")),
    Route("GET", "/projects/{name}", "projects.show", version=_of_project),
    Route("POST", "/projects", "projects.create"),
    Route("POST", "/projects/{name}/change", "projects.change", edits="/projects/{name}"),
    Route("GET", "/users", "users.list", _under("users")),
    Route("POST", "/users", "users.create"),
    Route("GET", "/teams", "teams.list", _under("teams")),
    Route("POST", "/teams", "teams.create"),
    Route("GET", "/access", "access.list", _under("access")),
    Route("POST", "/access/grant", "access.grant"),
    Route("POST", "/access/revoke", "access.revoke"),
    Route("GET", "/budgets", "budgets.list", _under("budgets"), version=_of_budgets),
    Route("POST", "/budgets/set", "budgets.set", edits="/budgets"),
    Route("POST", "/budgets/clear", "budgets.clear", edits="/budgets"),
    Route("GET", "/tokens", "tokens.list", _under("tokens")),
    Route("POST", "/tokens", "tokens.create"),
    Route("GET", "/audit", "audit.list", _under("audit")),
    Route("GET", "/audit/head", "audit.show_head"),
    Route("GET", "/audit/verification", "audit.verify"),
    Route("GET", "/watch", "sweeps.watch", _watched),
)

_RUNS = "it runs code of users, and the server imports none"
_WAITS = "it takes longer than a request may"
_FILES = "it reads or writes files of the machine of its caller"
_SENDS = "its caller chooses the address that the data is sent to"
_KEEPS = "it is for who keeps the machine, and so has the database"

# The reasons why operations have no route. A test compares both tables with the registry.
WITHOUT_ROUTE: Mapping[str, str] = {
    **dict.fromkeys(("sweeps.plan", "sweeps.run", "sweeps.submit", "sweeps.regress", "baselines.repeat"), _RUNS),
    **dict.fromkeys(("executions.start", "executions.create"), _RUNS),
    **dict.fromkeys(("schedules.add", "schedules.run_now", "schedules.run_due"), _RUNS),
    "sweeps.run_pilot": f"{_RUNS}; submit a part of the sweep (`--limit`), and see its cost with `wtb costs`",
    "scores.compute": f"{_RUNS}; workers score by those that they publish",
    "sweeps.wait": _WAITS,
    "traces.export": _SENDS,
    "executions.export": _FILES,  # into a file beside the database: `export --server` sends it
    **dict.fromkeys(("files.export", "executions.import", "sweeps.copy", "combinations.rank"), _FILES),
    **dict.fromkeys(("backups.create", "backups.restore", "labels.import"), _FILES),
    "garbage.collect": (
        "the scheduler does it every hour, by the retention policies of the system and of projects "
        "(`wtb admin project change`)"
    ),
    "audit.prune": _KEEPS,
}


def _by_id() -> Iterator[Route]:
    """Yield default routes for operations that change the object of an argument `name` and have no other route."""
    routed = {route.name for route in _ROUTES} | WITHOUT_ROUTE.keys()
    for id, operation in OPERATIONS.items():
        if id not in routed and operation.effect is not Effect.reads:
            resource, _, verb = id.partition(".")
            yield Route("POST", f"/{resource}/{{name}}/{verb}", id)


ROUTES = (*_ROUTES, *_by_id())
