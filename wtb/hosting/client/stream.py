"""A stream of events that outlives its connections: what is asked, what comes, and when it is asked for again.

Source: the HTML standard, "Server-sent events": the fields of a message, `retry`, and `Last-Event-ID`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from wtb.core.classes.frozen import frozen
from wtb.core.documents.events import EventDocument
from wtb.core.documents.executions import StandingDocument
from wtb.core.documents.sweeps import StatusDocument
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.client.answers import Outcome, check, is_away
from wtb.hosting.client.requests import Request

SILENCE_S = 40.0  # the server sends a comment after 15 s: whoever hears nothing for so long is heard by nobody
_LONGEST_PAUSE_S = 15.0


@frozen
class Message:
    """What comes of the log of a sweep at a time.

    Attributes:
        id: The position in the log that comes with it, to continue from.
        events: The oldest first.
        status: How the sweep stands, where events before this were left out: the log was restored from elsewhere.
    """

    id: str
    events: Sequence[EventDocument] = ()
    status: StatusDocument | StandingDocument | None = None


@frozen
class Filter:
    """Which events are meant.

    Attributes:
        severity: The least that is sent: debug, info, warning or error.
        kinds: What their kinds begin with; nothing for all.
        cases: Name the case of each, and the variants of its combination.
        ends: Those, too, by which one knows whether there is more to come.
        values: Add what nodes wrote, results, and the arguments of tools.
    """

    severity: str = "debug"
    kinds: Sequence[str] = ()
    cases: bool = False
    ends: bool = False
    values: bool = False

    @property
    def query(self) -> Sequence[tuple[str, str]]:
        """It as arguments of a request."""
        chosen = [name for name in ("cases", "ends", "values") if getattr(self, name)]
        return [
            ("severity", self.severity),
            *(("kinds", kind) for kind in self.kinds),
            *((one, "true") for one in chosen),
        ]


@dataclass
class Stream:
    """Where a stream is, through all its connections.

    Attributes:
        sweep: The id of the sweep, and no name: another sweep may have that by the next connection.
        wanted: Which events.
        after: The id of the last message that came whole, or where to begin.
    """

    sweep: str
    wanted: Filter
    after: str | None = None
    _retry_s: float = field(default=1.0, init=False)
    _failures: int = field(default=0, init=False)
    _id: str = field(default="", init=False)
    _data: list[str] = field(default_factory=list, init=False)

    def request(self) -> Request:
        """Return the request for what comes next. What came of a message that was cut off is forgotten."""
        self._id, self._data = "", []
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.after is not None:
            headers["Last-Event-ID"] = self.after
        return Request("GET", f"{PREFIX}/sweeps/{quote(self.sweep, safe='')}/events", self.wanted.query, None, headers)

    def take(self, line: str) -> Message | None:
        """Take a line that came, without its end.

        Returns:
            A message, once it is whole.
        """
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "data":
            self._data.append(value)
        elif name == "retry" and value.isdigit():
            self._retry_s = int(value) / 1000
        if line or not self._data:
            return None
        document = json.loads("\n".join(self._data))
        self.after, self._data, self._failures = self._id, [], 0
        return Message(self._id, document.get("events", ()), document.get("status"))

    def taken(self, lines: Iterable[str]) -> Iterator[Message | None]:
        """Take lines; yield the messages in them, and None for each comment, which says that there is nothing new."""
        for line in lines:
            message = self.take(line)
            if message is not None or line.startswith(":"):
                yield message

    def pause(self, url: str, outcome: Outcome) -> float:
        """Return how many seconds to wait, after a connection ended or there was none, before the next.

        Args:
            url: The server, for people.
            outcome: The response, which may have been fine until it broke off, or why there is none.

        Raises:
            WTBError: If the server refuses: it would do so again.
        """
        if not is_away(outcome):
            check(url, outcome)
        self._failures += 1
        doubled: float = self._retry_s * 2.0 ** (min(self._failures, 10) - 1)
        return min(doubled, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)

    @property
    def is_lost(self) -> bool:
        """Whether several connections in a row brought nothing."""
        return self._failures == 3


class Lines:
    """Bytes cut into lines at line feeds alone: text may hold other characters that some take for ends of lines."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, piece: bytes) -> list[str]:
        """Take what came next.

        Returns:
            The lines that are whole by it, without their ends.
        """
        *whole, self._rest = (self._rest + piece).split(b"\n")
        return [line.decode() for line in whole]
