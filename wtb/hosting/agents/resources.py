"""Whole documents, for whoever wants more than a reply holds: what GET of the REST API answers, by the same table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, get_type_hints
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import TypeAdapter, ValidationError

from wtb.core.errors import AccessDenied, InputError, NotFound
from wtb.core.mappings import Arguments
from wtb.display.json_text import as_json
from wtb.hosting.api.routes import PREFIX, ROUTES, Lines, Route
from wtb.operations.auditing import note_refusal
from wtb.operations.context import Context, Origin
from wtb.operations.identity import Identity
from wtb.operations.registry import arguments_of

SCHEME: Final = "wtb:"
TEMPLATE: Final = f"{SCHEME}{PREFIX}/{{+path}}"
MOST_BYTES: Final = 1_000_000


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+\})", path)
    return re.compile("".join(f"(?P<{one[1:-1]}>[^/]+)" if one.startswith("{") else re.escape(one) for one in parts))


_READS: Final = [(_pattern(route.path), route) for route in ROUTES if route.method == "GET"]


def read(context: Context, uri: str, identity: Identity, address: str | None = None) -> str:
    """Return a document.

    Args:
        context: Where operations act.
        uri: Which, such as `wtb:/api/v1/sweeps/ID/matrix`.
        identity: Who asks.
        address: From where; None for this machine.

    Returns:
        JSON.

    Raises:
        NotFound: If there is nothing of this name.
        AccessDenied: If they may not read it.
        InputError: If it is too long, or what is asked for does not fit.
    """
    route, given = _found(uri)
    refusal = identity.refusal(route.needs, everywhere=route.operation.everywhere)
    origin = Origin(f"mcp {route.path}", address, identity.token)
    if refusal is not None:
        denied = AccessDenied(refusal)
        note_refusal(context.noting_for(identity.attribution, origin), route.name, denied)
        raise denied
    acting = context.acting_as(identity, route.needs, origin)
    found = route.present(route.function(acting, **given))
    pieces = found.pieces if isinstance(found, Lines) else [as_json(found)]
    content = bytearray()
    for piece in pieces:
        content += piece.encode() if isinstance(piece, str) else piece
        if len(content) > MOST_BYTES:
            raise InputError(f"{uri} is longer than {MOST_BYTES:,} bytes; ask the REST API for it")
    try:
        return content.decode()
    except UnicodeDecodeError:  # a file that a node left
        raise InputError(f"{uri} is no text; ask the REST API for it") from None


def _found(uri: str) -> tuple[Route, Arguments]:
    try:
        split = urlsplit(uri)
    except ValueError:  # of brackets that are no address
        raise NotFound(f"there is no resource {uri[:200]!r}; expected {TEMPLATE}") from None
    path = split.path.removeprefix(PREFIX)
    if f"{split.scheme}:" != SCHEME or path == split.path:
        raise NotFound(f"there is no resource {uri[:200]!r}; expected {TEMPLATE}")
    for pattern, route in _READS:
        match = pattern.fullmatch(path)
        if match is not None:
            asked = {name: unquote(value) for name, value in match.groupdict().items()}
            return route, {**asked, **_query(route, split.query)}
    raise NotFound(f"there is no resource {uri[:200]!r}; expected {TEMPLATE}")


def _query(route: Route, query: str) -> Arguments:
    """Return what stands behind `?`, as the arguments of the operation are: numbers, switches, texts and lists."""
    known = set(arguments_of(route.function)) - route.left_out
    given = parse_qs(query, keep_blank_values=True)
    if unknown := given.keys() - known:
        raise InputError(f"{route.path} has no {sorted(unknown)[0]!r}; it has {', '.join(sorted(known))}")
    hints = get_type_hints(route.function)
    return {name: _as(name, hints[name], values) for name, values in given.items()}


def _as(name: str, hint: Any, values: Sequence[str]) -> Any:
    for wanted in (values[-1], list(values)):
        with suppress(ValidationError):
            return TypeAdapter(hint).validate_python(wanted)
    raise InputError(f"{name} is {values[-1][:100]!r}, which it cannot be", argument=name)
