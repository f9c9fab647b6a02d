"""Operations as requests: the same routes that the server answers, read from the other side."""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, field, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.core.mappings import Arguments
from wtb.hosting.api.routes import PREFIX, ROUTES, WITHOUT_ROUTE, Route
from wtb.operations.registry import OPERATIONS

KEY = "Idempotency-Key"


@frozen
class Request:
    """What is sent to a server.

    Attributes:
        method: GET, POST, ...
        path: From `/api/v1` on, quoted.
        query: Names and values, those of several values several times.
        body: JSON, or nothing.
        headers: Those of this request alone. A write has a key, by which the server knows it again.
    """

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, so that it may be sent again."""
        return self.method == "GET"


def request_of(function: Callable[..., Any], arguments: Arguments) -> tuple[Request, Route]:
    """Return the request that has a server carry out an operation, and its route.

    Args:
        function: The operation.
        arguments: What it takes, without the context; what is not given has its default.

    Raises:
        InputError: If the server does not carry it out, or not with these arguments.
    """
    given = {name: value for name, value in arguments.items() if _is_given(function, name, value)}
    routes = _routes().get(function, ())
    route = next((one for one in routes if _names(one) <= given.keys() and not one.left_out & given.keys()), None)
    if route is None:
        raise _refused(function, routes, given)
    path = PREFIX + route.path.format_map({name: quote(str(given[name]), safe="") for name in _names(route)})
    rest = {name: value for name, value in given.items() if name not in _names(route)}
    if route.method == "GET":
        query = [(name, text) for name, value in rest.items() for text in _texts(value)]
        return Request(route.method, path, query), route
    return write(route.method, path, rest), route


def write(method: str, path: str, body: Arguments) -> Request:
    """Return a request that changes something.

    Args:
        method: POST, PUT, PATCH or DELETE.
        path: From `/api/v1` on, quoted.
        body: What is sent as JSON.
    """
    headers = {"Content-Type": "application/json", KEY: uuid.uuid4().hex}
    return Request(method, path, body=json.dumps(body, default=_plain).encode(), headers=headers)


@cache
def _routes() -> Mapping[Callable[..., Any], Sequence[Route]]:
    """Return the routes of each function, in their order."""
    found: dict[Callable[..., Any], list[Route]] = {}
    for route in ROUTES:
        found.setdefault(route.function, []).append(route)
    return found


def _names(route: Route) -> frozenset[str]:
    """Return the arguments that stand in the path of a route."""
    return frozenset(part[1:-1] for part in route.path.split("/") if part.startswith("{"))


def _is_given(function: Callable[..., Any], name: str, value: Any) -> bool:
    """Return whether an argument says more than its default does: for None and for nothing, nothing says the same."""
    default = inspect.signature(function).parameters[name].default
    is_nothing = not default and isinstance(value, Sequence | Mapping) and not value
    return not is_nothing and (default is inspect.Parameter.empty or value != default)


def _refused(function: Callable[..., Any], routes: Sequence[Route], given: Collection[str]) -> InputError:
    """Say why a server does not carry an operation out, and what to do."""
    if routes:
        (name, *_) = sorted(routes[0].left_out.intersection(given)) or ["it"]
        return InputError(f"a server takes no argument {name}; do it beside the database", argument=name)
    return refusal_of(function)


def refusal_of(purpose: Callable[..., Any] | str) -> InputError:
    """Return the error that a server does not do something.

    Args:
        purpose: The operation; or why a server does not do it.
    """
    if isinstance(purpose, str):
        return InputError(f"{purpose}; do it beside the database")
    ids = [id for id, operation in OPERATIONS.items() if operation.function is purpose]
    why = next((f": {WITHOUT_ROUTE[id]}" for id in ids if id in WITHOUT_ROUTE), "")
    what = f"`wtb {OPERATIONS[ids[0]].command}`" if ids else purpose.__name__
    return InputError(f"{what} is not done through a server{why}; do it beside the database")


def _texts(value: Any) -> list[str]:
    """Return an argument as values of a query."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Sequence):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    return [_plain(value) if isinstance(value, datetime) else str(value)]


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)
