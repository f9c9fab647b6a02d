"""A collector of OpenTelemetry, as it is sent spans over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from wtb.core.errors import WTBError

_MOST_ANSWER: Final = 1_000_000  # bytes that are read of what a collector says


class CollectorError(WTBError):
    """A collector did not take what it was sent."""


class _NoRedirects(HTTPRedirectHandler):
    """Has a redirection be an error: headers with keys go where they were meant to, and nowhere else."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def send(url: str, request: object, headers: Mapping[str, str], timeout: float) -> int:
    """Send spans.

    Args:
        url: Where.
        request: Them.
        headers: Headers of the request.
        timeout: Seconds until it must have answered.

    Returns:
        How many of them it refused.

    Raises:
        CollectorError: If it is away, hangs or refuses.
    """
    sent = Request(url, json.dumps(request).encode(), {"Content-Type": "application/json", **headers}, method="POST")
    try:
        with build_opener(_NoRedirects).open(sent, timeout=timeout) as answer:
            said = json.loads(answer.read(_MOST_ANSWER) or b"{}")
    except HTTPError as error:
        error.close()
        raise CollectorError(
            f"the collector at {url} answers {error.code} {error.reason}; send it again later"
        ) from None
    except (OSError, HTTPException) as error:
        raise CollectorError(f"the collector at {url} does not answer: {error}; send it again later") from None
    except ValueError:
        raise CollectorError(f"what answers at {url} is no collector: it does not answer in JSON") from None
    return _rejected(said)


def _rejected(said: object) -> int:
    partial = said.get("partialSuccess") if isinstance(said, dict) else None
    found = partial.get("rejectedSpans", 0) if isinstance(partial, dict) else 0
    return int(found) if str(found).isdecimal() else 0
