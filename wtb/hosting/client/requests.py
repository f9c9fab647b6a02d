"""Operations as requests, made from the routes that the server has, and its responses: retries, errors, its version."""

from __future__ import annotations

import inspect
import json
import random
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, field, is_dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import httpx

from wtb.core import errors
from wtb.core.errors import AccessDenied, InputError, ServerError, WTBError
from wtb.core.frozen import frozen
from wtb.core.values import Arguments
from wtb.core.version import __version__
from wtb.hosting.api.routes import PREFIX, ROUTES, WITHOUT_ROUTE, Route
from wtb.operations.registry import OPERATIONS

if TYPE_CHECKING:
    from wtb.hosting.api.problems import ProblemDocument

KEY = "Idempotency-Key"


@frozen
class Request:
    """A request to a server.

    Attributes:
        method: GET, POST, ...
        path: The path from `/api/v1` on, quoted.
        query: Names and values. A name with several values occurs several times.
        body: JSON, or nothing.
        headers: Headers of this request. A write has a key, by which the server recognizes a repeat.
    """

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def reads(self) -> bool:
        """True if it changes nothing, so that it may be sent again."""
        return self.method == "GET"


def request_of(function: Callable[..., Any], arguments: Arguments) -> tuple[Request, Route]:
    """Return the request for an operation, and its route.

    Args:
        function: The operation.
        arguments: Its arguments, without the context; others have their defaults.

    Raises:
        InputError: If the server has no route for it, or none with these arguments.
    """
    # Defaults are not sent, because a route need not take all arguments of its operation.
    passed = {name: argument for name, argument in arguments.items() if _is_given(function, name, argument)}
    routes = _routes().get(function, ())
    route = next(
        (
            candidate
            for candidate in routes
            if _names(candidate) <= passed.keys() and not candidate.left_out & passed.keys()
        ),
        None,
    )
    if route is None:
        raise _refused(function, routes, passed)
    path = PREFIX + route.path.format_map({name: quote(str(passed[name]), safe="") for name in _names(route)})
    rest = {name: argument for name, argument in passed.items() if name not in _names(route)}
    if route.method == "GET":
        query = [(name, text) for name, argument in rest.items() for text in _texts(argument)]
        return Request(route.method, path, query), route
    return write(route.method, path, rest), route


def write(method: str, path: str, body: Arguments) -> Request:
    """Return a request that changes something.

    Args:
        method: POST, PUT, PATCH or DELETE.
        path: The path from `/api/v1` on, quoted.
        body: The body, which is sent as JSON.
    """
    # Made here and not for each attempt: the server recognizes a repeat by it.
    headers = {"Content-Type": "application/json", KEY: uuid.uuid4().hex}
    return Request(method, path, body=json.dumps(body, default=_plain).encode(), headers=headers)


@cache
def _routes() -> Mapping[Callable[..., Any], Sequence[Route]]:
    """Return the routes of each function, in their order."""
    routes: dict[Callable[..., Any], list[Route]] = {}
    for route in ROUTES:
        routes.setdefault(route.function, []).append(route)
    return routes


def _names(route: Route) -> frozenset[str]:
    """Return the arguments in the path of a route."""
    return frozenset(part[1:-1] for part in route.path.split("/") if part.startswith("{"))


def _is_given(function: Callable[..., Any], name: str, argument: Any) -> bool:
    """Return whether an argument differs from its default. An empty list or mapping counts as the default."""
    default = inspect.signature(function).parameters[name].default
    is_nothing = not default and isinstance(argument, Sequence | Mapping) and not argument
    return not is_nothing and (default is inspect.Parameter.empty or argument != default)


def _refused(function: Callable[..., Any], routes: Sequence[Route], passed: Collection[str]) -> InputError:
    """Return the error for an operation without a fitting route, with advice."""
    if routes:
        (name, *_) = sorted(routes[0].left_out.intersection(passed)) or ["it"]
        return InputError(f"a server takes no argument {name}; run this with the database instead", argument=name)
    return refusal_of(function)


def refusal_of(purpose: Callable[..., Any] | str) -> InputError:
    """Return the error for something that a server does not do.

    Args:
        purpose: The operation, or the reason why a server does not do it.
    """
    if isinstance(purpose, str):
        return InputError(f"{purpose}; run it on a machine with the database")
    ids = [id for id, operation in OPERATIONS.items() if operation.function is purpose]
    why = next((f": {WITHOUT_ROUTE[id]}" for id in ids if id in WITHOUT_ROUTE), "")
    what = f"`wtb {OPERATIONS[ids[0]].command}`" if ids else purpose.__name__
    return InputError(f"{what} is not available through a server{why}; run it on a machine with the database")


def _texts(argument: Any) -> list[str]:
    """Return an argument as values of a query."""
    if isinstance(argument, str):
        return [argument]
    if isinstance(argument, Sequence):
        return [text for part in argument for text in _texts(part)]
    if isinstance(argument, bool):
        return ["true" if argument else "false"]
    return [_plain(argument) if isinstance(argument, datetime) else str(argument)]


def _plain(argument: Any) -> Any:
    if is_dataclass(argument) and not isinstance(argument, type):
        return asdict(argument)
    return argument.isoformat() if isinstance(argument, datetime) else str(argument)


ATTEMPTS = 5
FIRST_PAUSE_S = 0.2  # doubled after each attempt
LONGEST_PAUSE_S = 10.0
WAIT_S = 20.0  # for a running operation, in one request
_AWAY = frozenset({429, 502, 503, 504})  # the server, or its proxy, may be back in a moment
# After these the server has seen nothing of a request, so that a repeat cannot carry it out twice.
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_ERRORS: Mapping[str, type[WTBError]] = {
    name: found for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, WTBError)
}

Outcome = httpx.Response | httpx.TransportError


def is_away(outcome: Outcome) -> bool:
    """Return whether there was no response, or one after which a retry may succeed."""
    return isinstance(outcome, httpx.TransportError) or outcome.status_code in _AWAY


class Retries:
    """The retries of a request: one that reads, that a server recognizes by its key, or that never reached it."""

    def __init__(self, request: Request, *, knows_keys: bool) -> None:
        """Make it.

        Args:
            request: The request.
            knows_keys: Whether the server carries out a write of the same key only once.
        """
        self._may_repeat = request.reads or knows_keys
        self._attempts = 0

    def pause(self, outcome: Outcome) -> float | None:
        """Return the seconds until the next try; None if the outcome is final."""
        self._attempts += 1
        if self._attempts == ATTEMPTS or not is_away(outcome):
            return None
        if not self._may_repeat and not isinstance(outcome, _UNSENT):
            return None
        retry_after = "" if isinstance(outcome, httpx.TransportError) else outcome.headers.get("Retry-After", "")
        # Random, so that clients which lost the server together do not come back together.
        doubled: float = FIRST_PAUSE_S * 2 ** (self._attempts - 1) * random.uniform(0.5, 1.0)
        return min(float(retry_after) if retry_after.isdigit() else doubled, LONGEST_PAUSE_S)


def look_again(response: httpx.Response, timeout: float) -> Request | None:
    """Return the request for the result of a running operation; None if the response has it.

    Args:
        response: The response to the operation.
        timeout: The timeout of a request in seconds.
    """
    where = response.headers.get("Location")
    if response.status_code != httpx.codes.ACCEPTED or where is None:
        return None
    # Half of the timeout, so that the server responds before the client gives up.
    return Request("GET", f"{where}/result", [("wait", f"{min(WAIT_S, timeout / 2):g}")])


def check(url: str, outcome: Outcome) -> httpx.Response:
    """Return a successful response, or raise its error. The body of an error must have been read.

    Raises:
        WTBError: The error of the operation, as the server raised it; or the reason why there is no response.
    """
    if isinstance(outcome, httpx.TransportError):
        raise ServerError(f"the server {url} cannot be reached ({_why(outcome)}); check that `wtb serve` runs there")
    if not outcome.is_success:
        raise _error_of(url, outcome)
    return outcome


def broken_off(url: str, error: httpx.TransportError) -> ServerError:
    """Return the error for a response that broke off."""
    return ServerError(f"the server {url} aborted its response ({_why(error)}); try again")


def _why(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    return str(error) or type(error).__name__


def _error_of(url: str, response: httpx.Response) -> WTBError:
    """Return the error of a response: of the operation, with its class and message, or of the server."""
    problem = _problem(response)
    if problem is None:
        what = f"HTTP {response.status_code} {response.reason_phrase}"
        return ServerError(f"{url} responded with {what}, unlike `wtb serve`; check the address")
    detail = str(problem.get("detail", ""))
    kind = _ERRORS.get(str(problem.get("error")))
    if kind is not None:
        texts = problem.get("problems") or [detail] if issubclass(kind, InputError) else [detail]
        return kind(*texts, argument=problem.get("argument"))
    if response.status_code in (401, 403):
        return AccessDenied(f"{url}: {detail}")
    if response.status_code == 400:
        return InputError(*problem.get("problems", [detail]))
    return ServerError(f"{url}: {detail}")


def _problem(response: httpx.Response) -> ProblemDocument | None:
    """Return the problem details of a response; None if it has none."""
    if response.headers.get("Content-Type", "").partition(";")[0] != "application/problem+json":
        return None
    try:
        document = json.loads(response.content)
    except ValueError:
        return None
    return cast("ProblemDocument", document) if isinstance(document, dict) else None


def check_version(url: str, server_version: str, own: str = __version__) -> str | None:
    """Compare the version of a server with that of this client.

    Args:
        url: Its URL, for messages.
        server_version: The version of the server.
        own: The version of this client.

    Returns:
        A warning, if the two differ; else None.

    Raises:
        ServerError: If they are incompatible, because their major versions differ.
    """
    theirs, ours = _numbers(server_version), _numbers(own)
    if theirs[0] != ours[0]:
        command = f"pip install 'workflow-test-bench[client]=={theirs[0]}.*'"
        raise ServerError(
            f"the server {url} is WTB {server_version} and this is {own}, which are incompatible: {command}"
        )
    if theirs[1] == ours[1]:
        return None
    if theirs > ours:
        return f"the server {url} is WTB {server_version} and this is {own}: what is new there is not known here"
    return f"the server {url} is WTB {server_version} and this is {own}: it may not know all that is asked"


def _numbers(version: str) -> tuple[int, int]:
    """Return the major and the minor number of a version."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()):
        raise ServerError(f"{version!r} is not a version of WTB; check the address")
    return int(major), int(minor)
