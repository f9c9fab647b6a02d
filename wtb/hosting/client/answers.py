"""What a server answers: whether to ask again, errors as they were raised, and which version it is of."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import httpx

from wtb.core import errors
from wtb.core.errors import AccessDenied, InputError, ServerError, WTBError
from wtb.core.version import __version__
from wtb.hosting.client.requests import Request

if TYPE_CHECKING:
    from wtb.hosting.api.problems import ProblemDocument

ATTEMPTS = 5
FIRST_PAUSE_S = 0.2  # doubled after each attempt
LONGEST_PAUSE_S = 10.0
WAIT_S = 20.0  # for what is under way, in one request
_AWAY = frozenset({429, 502, 503, 504})  # the server, or what stands before it, may be back in a moment
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_ERRORS: Mapping[str, type[WTBError]] = {
    name: found for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, WTBError)
}

Outcome = httpx.Response | httpx.TransportError


def is_away(outcome: Outcome) -> bool:
    """Return whether there was no answer, or one that says that there may be one in a moment."""
    return isinstance(outcome, httpx.TransportError) or outcome.status_code in _AWAY


class Retries:
    """When a request is sent again: what reads, what a server knows again, and what has never reached it."""

    def __init__(self, request: Request, *, knows_keys: bool) -> None:
        """Make it.

        Args:
            request: What is sent.
            knows_keys: Whether the server carries a write of the same key out once only.
        """
        self._may_repeat = request.reads or knows_keys
        self._attempts = 0

    def pause(self, outcome: Outcome) -> float | None:
        """Return the seconds to wait before it is sent again, or None if the outcome stands."""
        self._attempts += 1
        if self._attempts == ATTEMPTS or not is_away(outcome):
            return None
        if not self._may_repeat and not isinstance(outcome, _UNSENT):
            return None
        asked = "" if isinstance(outcome, httpx.TransportError) else outcome.headers.get("Retry-After", "")
        doubled: float = FIRST_PAUSE_S * 2 ** (self._attempts - 1) * random.uniform(0.5, 1.0)
        return min(float(asked) if asked.isdigit() else doubled, LONGEST_PAUSE_S)


def look_again(response: httpx.Response, timeout: float) -> Request | None:
    """Return the request for what comes of an operation that is under way; None if the response has it.

    Args:
        response: To what was asked.
        timeout: Seconds after which a request is given up.
    """
    where = response.headers.get("Location")
    if response.status_code != httpx.codes.ACCEPTED or where is None:
        return None
    return Request("GET", f"{where}/result", [("wait", f"{min(WAIT_S, timeout / 2):g}")])


def check(url: str, outcome: Outcome) -> httpx.Response:
    """Return a response that has what was asked for; its body must have been read if it has not.

    Raises:
        WTBError: The error of the operation, as the server raised it; or why there is no answer.
    """
    if isinstance(outcome, httpx.TransportError):
        raise ServerError(f"the server {url} is out of reach ({_why(outcome)}); is `wtb serve` running there?")
    if not outcome.is_success:
        raise _error_of(url, outcome)
    return outcome


def broken_off(url: str, error: httpx.TransportError) -> ServerError:
    """Return the error that an answer did not come whole."""
    return ServerError(f"the server {url} broke its answer off ({_why(error)}); ask again")


def _why(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    return str(error) or type(error).__name__


def _error_of(url: str, response: httpx.Response) -> WTBError:
    """Return the error that a response is: of the operation, with its class and words, or about the server."""
    problem = _problem(response)
    if problem is None:
        what = f"HTTP {response.status_code} {response.reason_phrase}"
        return ServerError(f"{url} answers {what}, and not as `wtb serve` does; is it the right address?")
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
    """Return the problem that a response says; None if it says none."""
    if response.headers.get("Content-Type", "").partition(";")[0] != "application/problem+json":
        return None
    try:
        found = json.loads(response.content)
    except ValueError:
        return None
    return cast("ProblemDocument", found) if isinstance(found, dict) else None


def check_version(url: str, found: str, own: str = __version__) -> str | None:
    """Compare the version of a server with that of this client.

    Args:
        url: Where it is, for people.
        found: The server's.
        own: This one's.

    Returns:
        What people are to know, if the two differ; None if there is nothing to tell.

    Raises:
        ServerError: If they do not go together, as of different major versions.
    """
    theirs, ours = _numbers(found), _numbers(own)
    if theirs[0] != ours[0]:
        wanted = f"pip install 'workflow-test-bench[client]=={theirs[0]}.*'"
        raise ServerError(f"the server {url} is WTB {found} and this is {own}, which do not go together: {wanted}")
    if theirs[1] == ours[1]:
        return None
    if theirs > ours:
        return f"the server {url} is WTB {found} and this is {own}: what is new there is not known here"
    return f"the server {url} is WTB {found} and this is {own}: it may not know all that is asked"


def _numbers(version: str) -> tuple[int, int]:
    """Return the major and the minor number of a version."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()):
        raise ServerError(f"{version!r} is no version of WTB; is it the right address?")
    return int(major), int(minor)
