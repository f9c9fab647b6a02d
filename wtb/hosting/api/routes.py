"""Which operation answers which request, and which operations are not there over HTTP, with why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from wtb.core.classes.frozen import frozen
from wtb.core.documents.events import EventDocument
from wtb.core.documents.plan import SubmissionDocument
from wtb.display.json_text import as_json, cells_as_json
from wtb.display.views.progress import Watch
from wtb.operations.control.questions import Questions
from wtb.operations.inspection.sweeps import Cells
from wtb.operations.registry import OPERATIONS, Effect, Operation, Permission
from wtb.operations.running.submitting import Submitted

if TYPE_CHECKING:
    from wtb.analysis.judges.check import LabelQueue

PREFIX = "/api/v1"
METRICS = "/metrics"
AGENTS = "/mcp"
SIGN_IN = "/sign-in"
AT_PROVIDER = f"{SIGN_IN}/provider"  # where somebody goes to sign in elsewhere
UPLOADS = "/uploads"  # what a request is too small for
FROM_PROVIDER = f"{SIGN_IN}/callback"  # and comes back to


@frozen
class Lines:
    """A result that is sent piece by piece, since it may be larger than memory."""

    pieces: Iterable[str] | Iterable[bytes]
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


def _as_it_is(result: Any) -> Any:
    return result


@frozen
class Route:
    """A request and the operation that answers it.

    Attributes:
        method: GET for what reads, POST for what changes.
        path: Below `PREFIX`. Names in braces are arguments of the operation.
        name: The operation's, in the registry.
        present: Makes the document of what the operation returns; by default that is one.
        left_out: Arguments of the operation that a request cannot give.
        preview: What the operation would do is asked, and nothing is done.
        location: Where what it made is found, below `PREFIX`, with fields of its document in braces.
        version: Of what is read that several people may change: what of it they do, so that its ETag changes with it.
        edits: The path of the route that reads what is changed, whose ETag `If-Match` may name.
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
        """The operation that is meant."""
        return OPERATIONS[self.name]

    @property
    def function(self) -> Callable[..., Any]:
        """What answers."""
        return self.operation.preview_function if self.preview else self.operation.function

    @property
    def needs(self) -> Permission:
        """What whoever asks must be allowed to do."""
        return Permission.read if self.preview else self.operation.needs

    @property
    def is_long(self) -> bool:
        """Whether it may take longer than a request should."""
        return self.operation.long and not self.preview

    @property
    def starts(self) -> bool:
        """Whether it starts something that runs nodes, whose end one may wait for."""
        return self.operation.effect is Effect.spends and self.location is not None and not self.is_long

    @property
    def starts_execution(self) -> bool:
        """Whether it starts one execution, whose outcome or events the same request may return."""
        return self.starts and self.location == "/executions/{sweep}"

    @property
    def summary(self) -> str:
        """What it does, in one sentence."""
        return f"Preview: {self.operation.summary}" if self.preview else self.operation.summary


T = TypeVar("T")


def _under(key: str) -> Callable[[T], Mapping[str, T]]:
    """Have a list stand under a key, as in the document of the command."""
    return lambda result: {key: result}


def _cells(found: Cells) -> Lines:
    return Lines(cells_as_json(found.cells), "application/json")


def _events(found: Iterator[EventDocument]) -> Lines:
    from orjson import dumps

    return Lines((dumps(event, default=str).decode() + "\n" for event in found), "application/x-ndjson")


# What nodes wrote is kept, never shown as a page of this server: a browser would run its scripts as the server's own.
_KEPT = {"Content-Disposition": "attachment", "Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff"}


def _content(found: Iterator[bytes]) -> Lines:
    return Lines(found, "application/octet-stream", _KEPT)


def _questions(found: Questions) -> Any:
    if found.question is not None:
        return found.question
    return {
        "approvals": list(found.each),
        "more": found.more,
        "groups": list(found.groups),
        "more_groups": found.more_groups,
    }


def _submitted(found: Submitted) -> SubmissionDocument:
    return {
        "sweep": found.sweep,
        "name": found.name,
        "cells": found.cells,
        "workers": found.workers,
        "problem": found.problem,
        "started": found.started,
    }


def _of_baseline(found: Any) -> Any:
    return {name: found[name] for name in ("name", "session", "set_at")} | {"sweep": found["sweep"]["id"]}


def _of_schedule(found: Any) -> Any:
    return {name: value for name, value in found.items() if name not in ("next_at", "last")}


def _of_session(found: Any) -> Any:
    return {
        name: found["session"][name] for name in ("name", "owner", "metadata", "created_at", "archived_at", "quota")
    }


def _of_project(found: Any) -> Any:
    return {name: found[name] for name in ("name", "retention")}


def _of_budgets(found: Any) -> Any:
    return [{name: one[name] for name in ("scope", "key", "node", "kind", "most")} for one in found]


def _of_history(found: Any) -> Any:
    heading = {name: found["execution"][name] for name in ("id", "status", "head")}
    return heading | {"sha256": sha256(as_json(found).encode()).hexdigest()}


def _drawn(found: LabelQueue) -> Any:
    """What is to be labelled, without whose it is: who knows that does not label blind."""
    queue = asdict(found)
    return queue | {"items": [{key: one[key] for key in one if key != "cells"} for one in queue["items"]]}


def _watched(found: Watch) -> Any:
    return found.look()


# What several paths have: a reference may be to a sweep or to an execution.
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

ROUTES: tuple[Route, ...] = (
    Route("GET", "/workflows", "workflow list --published"),
    Route("GET", "/workflows/{name}", "workflow show --published"),
    Route("POST", "/case-files", "cases"),
    Route("POST", "/evaluators/preview", "try"),
    Route("POST", "/plans", "plan --published"),
    Route("GET", "/sweeps", "list", _under("sweeps")),
    Route("POST", "/sweeps", "submit --published", _submitted, location="/sweeps/{sweep}"),
    Route("GET", "/executions", "list --runs", _under("runs")),
    Route("POST", "/executions", "start --published", _submitted, location="/executions/{sweep}"),
    *_both("GET", "", "show"),
    *_both("GET", "/status", "status"),
    *_both("GET", "/series", "series"),
    *_both("GET", "/costs", "costs"),
    *_both("GET", "/tree", "tree"),
    Route("GET", "/sweeps/{ref}/cells", "show --cells", _cells),
    *_both("GET", "/outputs", "show --outputs"),
    Route("GET", "/sweeps/{ref}/value", "show --key", _content),
    Route("GET", "/executions/{ref}/value", "show --key", _content, left_out=frozenset({"case"})),
    Route("GET", "/sweeps/{ref}/log", "log", _events, _FOLLOWING),
    Route("GET", "/sweeps/{ref}/event-counts", "log --summary", _under("events")),
    Route("GET", "/sweeps/{ref}/matrix", "matrix"),
    Route("GET", "/sweeps/{ref}/report", "report"),
    Route("GET", "/sweeps/{ref}/compare", "compare --row"),
    Route(
        "POST",
        "/sweeps/{ref}/score",
        "score --published",
        asdict,
        location="/sweeps/{sweep}/scorings/{id}",
    ),
    Route("GET", "/sweeps/{ref}/scorings/{scoring}", "score --status", asdict),
    Route("POST", "/sweeps/{ref}/scorings/{scoring}/cancel", "score --cancel", asdict),
    Route("GET", "/sweeps/{ref}/labelling", "label", _drawn, _RATER),
    Route("POST", "/sweeps/{ref}/labelling", "label ANSWER", asdict, _RATER),
    Route("GET", "/sweeps/{ref}/labels", "label --export", _under("labels")),
    Route("GET", "/sweeps/{ref}/comments", "comment SWEEP"),
    Route("POST", "/sweeps/{ref}/comments", "comment"),
    Route("POST", "/sweeps/{ref}/comments/{number}/delete", "comment --delete"),
    Route("GET", "/sweeps/{ref}/judge", "judge check", asdict, frozenset({"labels"})),
    Route("GET", "/sweeps/{before}/compare/{after}", "compare", left_out=frozenset({"margin"})),
    Route("GET", "/executions/{ref}/history", "history", version=_of_history),
    Route("GET", "/checkpoints/{ref}", "show CHECKPOINT"),
    Route("GET", "/executions/{a}/diff/{b}", "diff"),
    Route("GET", "/executions/{ref}/files", "files", left_out=_CELL),
    Route("GET", "/executions/{ref}/file", "files PATH", _content, left_out=_CELL),
    Route("GET", "/executions/{ref}/archive", "export ARCHIVE", _content),
    Route("GET", "/executions/{ref}/files/compare/{other}", "files --diff", left_out=_CELL),
    *_both("POST", "/pause", "pause"),
    *_both("POST", "/cancel", "cancel"),
    *_both("GET", "/cancel", "cancel", preview=True),
    Route("POST", "/sweeps/{ref}/combinations/stop", "cancel --combination", asdict),
    *_both("GET", "/breakpoints", "break REF", version=asdict),
    *_both("POST", "/breakpoints", "break", edits="/breakpoints"),
    *_both("POST", "/resume", "resume", left_out=_RUNNING),
    *_both("POST", "/retry", "retry", left_out=_RUNNING),
    Route("POST", "/executions/{ref}/checkpoints", "checkpoint", asdict, location="/checkpoints/{checkpoint}"),
    Route("POST", "/executions/{ref}/rollback", "rollback", left_out=_BINDING, edits=_HISTORY),
    Route("POST", "/executions/{ref}/undo-rollback", "rollback --undo", left_out=_BINDING, edits=_HISTORY),
    Route("GET", "/approvals", "approvals", _questions),
    Route("POST", "/approvals/{ref}/answer", "answer", left_out=_BINDING | {"run"}),
    Route("GET", "/answers", "answer --all", preview=True),
    Route("POST", "/answers", "answer --all", left_out=frozenset({"run"})),
    Route("POST", "/executions/{ref}/fork", "fork", asdict, _BINDING, location="/executions/{execution}"),
    Route("POST", "/sweeps/{ref}/extend", "extend", left_out=_RUNNING),
    Route("POST", "/sweeps/{ref}/extend/plan", "extend --dry-run", asdict, frozenset({"code"})),
    Route("POST", "/executions/{ref}/row", "fork --all-cases", left_out=_RUNNING),
    *_both("POST", "/pin", "pin"),
    *_both("POST", "/unpin", "unpin"),
    Route("POST", "/sweeps/{ref}/delete", "delete"),
    Route("GET", "/sweeps/{ref}/delete", "delete", preview=True),
    Route("POST", "/cases/{case}/erase", "erase"),
    Route("GET", "/cases/{case}/erase", "erase", preview=True),
    Route("GET", "/costs", "costs", left_out=frozenset({"ref"})),
    Route("POST", "/pools", "pool", asdict, location="/sweeps/{id}"),
    Route("GET", "/baselines", "baseline list", _under("baselines")),
    Route("GET", "/baselines/{name}", "baseline show", version=_of_baseline),
    Route(
        "POST",
        "/baselines/{name}",
        "baseline set",
        left_out=frozenset({"repeat", "progress"}),
        edits="/baselines/{name}",
    ),
    Route("POST", "/baselines/{name}/remove", "baseline remove", edits="/baselines/{name}"),
    Route("GET", "/schedules", "schedule list", _under("schedules")),
    Route("GET", "/schedules/{name}", "schedule show", _under("schedule"), version=_of_schedule),
    Route("GET", "/schedules/{name}/history", "schedule history"),
    Route("POST", "/schedules/{name}/pause", "schedule pause", edits="/schedules/{name}"),
    Route("POST", "/schedules/{name}/resume", "schedule resume", edits="/schedules/{name}"),
    Route("POST", "/schedules/{name}/remove", "schedule remove", edits="/schedules/{name}"),
    Route("GET", "/schedules/{name}/check", "schedule check"),
    Route("GET", "/sessions", "session list", _under("sessions")),
    Route("GET", "/sessions/{name}", "session show", version=_of_session),
    Route("POST", "/sessions", "session create"),
    Route("POST", "/sessions/{name}/change", "session change", edits="/sessions/{name}"),
    Route("POST", "/sessions/{name}/rename", "session rename"),
    Route("POST", "/sessions/{name}/archive", "session archive", edits="/sessions/{name}"),
    Route("POST", "/sessions/{name}/delete", "session delete", edits="/sessions/{name}"),
    Route("GET", "/sessions/{name}/delete", "session delete", preview=True),
    Route("GET", "/projects", "project list", _under("projects")),
    Route("GET", "/projects/{name}", "project show", version=_of_project),
    Route("POST", "/projects", "project create"),
    Route("POST", "/projects/{name}/change", "project change", edits="/projects/{name}"),
    Route("GET", "/users", "user list", _under("users")),
    Route("POST", "/users", "user create"),
    Route("POST", "/users/{name}/remove", "user remove"),
    Route("GET", "/teams", "team list", _under("teams")),
    Route("POST", "/teams", "team create"),
    Route("POST", "/teams/{name}/change", "team change"),
    Route("GET", "/access", "access list", _under("access")),
    Route("POST", "/access/grant", "access grant"),
    Route("POST", "/access/revoke", "access revoke"),
    Route("GET", "/budgets", "budget list", _under("budgets"), version=_of_budgets),
    Route("POST", "/budgets/set", "budget set", edits="/budgets"),
    Route("POST", "/budgets/clear", "budget clear", edits="/budgets"),
    Route("GET", "/tokens", "token list", _under("tokens")),
    Route("POST", "/tokens", "token create"),
    Route("POST", "/tokens/{name}/revoke", "token revoke"),
    Route("GET", "/audit", "audit list", _under("audit")),
    Route("GET", "/audit/head", "audit head"),
    Route("GET", "/audit/verification", "audit verify"),
    Route("GET", "/watch", "watch", _watched),
)

_RUNS = "it runs code of users, and the server imports none"
_WAITS = "it takes longer than a request may"
_FILES = "it reads or writes files of the machine of its caller"
_SENDS = "it sends what is there to wherever its caller says"
_KEEPS = "it is for who keeps the machine, and so has the database"

# Why operations have no route. A test holds both tables against the registry.
WITHOUT_ROUTE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("plan", "run", "start", "start --create-only", "submit", "regress", "baseline set --repeat"),
            *("schedule add", "schedule run-now", "schedule run-due"),
        ),
        _RUNS,
    ),
    "plan --pilot": f"{_RUNS}; submit a part of the sweep (`--limit`), and `wtb costs` says what it took",
    "score": f"{_RUNS}; workers score by those that they publish",
    **dict.fromkeys(("submit --wait",), _WAITS),
    **dict.fromkeys(("telemetry export",), _SENDS),
    **dict.fromkeys(
        (
            "files --export",
            "export",  # into a file beside the database: `export --server` sends it
            "import",
            "copy",
            "backup",
            "restore",
            "label --import",
            "judge rank",
        ),
        _FILES,
    ),
    "gc": "the scheduler does it every hour, by the policy of the system and by what `wtb project change` says",
    "audit prune": _KEEPS,
}
