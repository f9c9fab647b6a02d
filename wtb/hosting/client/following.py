"""A stream of events that outlives its connections, and what follows it to an end, waits, or looks again."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast
from urllib.parse import quote

import httpx

from wtb.core.documents.all_events import EventDocument
from wtb.core.documents.executions import StandingDocument
from wtb.core.documents.sweeps import StatusDocument
from wtb.core.errors import AccessDenied, ServerError
from wtb.core.frozen import frozen
from wtb.execution.runtime.sweep_run import Ended
from wtb.execution.state import Progress
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.client.connection import Connection, as_sent, timeouts
from wtb.hosting.client.requests import Outcome, Request, check, is_away
from wtb.operations.context import Backend
from wtb.operations.inspection.ends import Death, Ends
from wtb.operations.inspection.log import matches, severities_from
from wtb.operations.inspection.sweeps import status
from wtb.operations.running.waiting import Look

SILENCE_S = 40.0  # the server sends a comment every 15 s, so a longer silence means that the connection is lost
_LONGEST_PAUSE_S = 15.0


@frozen
class Message:
    """A message of the log of a sweep.

    Attributes:
        id: Its position in the log, to continue from.
        events: Its events, oldest first.
        status: The status of the sweep, if events before this were left out because the log was restored.
    """

    id: str
    events: Sequence[EventDocument] = ()
    status: StatusDocument | StandingDocument | None = None


@frozen
class Filter:
    """A selection of events.

    Attributes:
        severity: The lowest severity: debug, info, warning or error.
        kinds: Prefixes of kinds; empty for all.
        cases: Whether to add the case of each, and the variants of its combination.
        ends: Whether to include events that show whether more will come.
        values: Whether to add writes of nodes, results, and arguments of tools.
    """

    severity: str = "debug"
    kinds: Sequence[str] = ()
    cases: bool = False
    ends: bool = False
    values: bool = False

    @property
    def query(self) -> Sequence[tuple[str, str]]:
        """The selection as a query."""
        switches = [name for name in ("cases", "ends", "values") if getattr(self, name)]
        return [
            ("severity", self.severity),
            *(("kinds", kind) for kind in self.kinds),
            *((name, "true") for name in switches),
        ]


@dataclass
class Stream:
    """The position of a stream over all its connections.

    Attributes:
        sweep: The id of the sweep, not its name, which another sweep may have by the next connection.
        event_filter: The events to return.
        after: The id of the last complete message, or the position to begin at.
    """

    sweep: str
    event_filter: Filter
    after: str | None = None
    _retry_s: float = field(default=1.0, init=False)
    _failures: int = field(default=0, init=False)
    _id: str = field(default="", init=False)
    _data: list[str] = field(default_factory=list, init=False)

    def request(self) -> Request:
        """Return the request for the next messages, and drop the beginning of a message that was cut off."""
        self._id, self._data = "", []
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.after is not None:
            headers["Last-Event-ID"] = self.after
        return Request(
            "GET", f"{PREFIX}/sweeps/{quote(self.sweep, safe='')}/events", self.event_filter.query, None, headers
        )

    def take(self, line: str) -> Message | None:
        """Process a line, without its end.

        Returns:
            A message, once it is complete.
        """
        name, _, content = line.partition(":")
        content = content.removeprefix(" ")
        if name == "id":
            self._id = content
        elif name == "data":
            self._data.append(content)
        elif name == "retry" and content.isdigit():
            self._retry_s = int(content) / 1000
        if line or not self._data:
            return None
        document = json.loads("\n".join(self._data))
        self.after, self._data, self._failures = self._id, [], 0
        return Message(self._id, document.get("events", ()), document.get("status"))

    def read_messages(self, lines: Iterable[str]) -> Iterator[Message | None]:
        """Process lines. Yields their messages, and None for each comment, which means that there is nothing new."""
        for line in lines:
            message = self.take(line)
            if message is not None or line.startswith(":"):
                yield message

    def pause(self, url: str, outcome: Outcome) -> float:
        """Return the seconds to wait before the next connection.

        Args:
            url: The server, for messages.
            outcome: The response, which may have been fine until it broke off, or the error.

        Raises:
            WTBError: If the server rejects the request, as it would do again.
        """
        if not is_away(outcome):
            check(url, outcome)
        self._failures += 1
        doubled: float = self._retry_s * 2.0 ** (min(self._failures, 10) - 1)
        return min(doubled, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)

    @property
    def is_lost(self) -> bool:
        """True once, when three connections in a row have brought nothing."""
        return self._failures == 3


class Lines:
    """Bytes split into lines at line feeds only, because text may contain other characters that split lines."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, piece: bytes) -> list[str]:
        """Add received bytes.

        Returns:
            The lines that these bytes complete, without their ends.
        """
        *whole, self._rest = (self._rest + piece).split(b"\n")
        return [line.decode() for line in whole]


async def messages(connection: Connection, sweep: str, event_filter: Filter) -> AsyncGenerator[Message | None, None]:
    """Yield the messages of the log of a sweep, for ever and despite broken connections; see `Server.messages`.

    Args:
        connection: The server, whose version is known.
        sweep: The id of the sweep.
        event_filter: The events to return.

    Returns:
        Messages, and None after each silence.

    Raises:
        WTBError: If there is no such sweep, or the server rejects the request.
    """
    stream = Stream(sweep, event_filter)
    async with httpx.AsyncClient(**connection.options) as http:
        while True:
            outcome: Outcome
            try:
                async with http.stream(**as_sent(stream.request()), timeout=timeouts(SILENCE_S)) as response:
                    outcome = response
                    if not response.is_success:
                        await response.aread()
                    else:
                        lines = Lines()
                        async for piece in response.aiter_bytes():
                            for message in stream.read_messages(lines.add(piece)):
                                yield message
            except httpx.TransportError as error:
                outcome = error
            pause = stream.pause(connection.url, outcome)
            if stream.is_lost:
                connection.warn_of_loss()
            await asyncio.sleep(pause)


_OPEN = ("pending", "running")


class Streaming(Backend, Protocol):
    """A server whose streams can be followed."""

    def messages(self, sweep: str, event_filter: Filter, after: str | None = None) -> Iterator[Message | None]:
        """Yield messages of the log of a sweep, and None after each silence, for ever."""


@frozen
class Standing:
    """The status of a sweep or an execution.

    Attributes:
        id: Its id.
        ended: Its status, with the reason.
        sweep: The id of the sweep that it is or belongs to.
        sweep_status: The status of that sweep.
        progress: Its progress.
        document: The document of a sweep; None for an execution.
    """

    id: str
    ended: Ended
    sweep: str
    sweep_status: str
    progress: Progress
    document: StatusDocument | None = None

    @property
    def is_running(self) -> bool:
        """True if it continues by itself."""
        is_left = self.document is not None and self.document["next"] is not None
        return self.ended.status in _OPEN and not is_left


def standing_of(document: StatusDocument | StandingDocument) -> Standing:
    """Make a status from the document of `status`."""
    if "execution" in document:
        execution = cast(StandingDocument, document)["execution"]
        sweep = execution["sweep"]
        ended = Ended(execution["status"], execution["reason"])
        return Standing(execution["id"], ended, sweep["id"], sweep["status"], Progress(1, sweep["id"]))
    row, cells = document["sweep"], document["cells"]
    progress = Progress(cells["total"], row["id"])
    usd, node_runs = document["cost"]["usd"], document["node_runs"]["executed"]
    progress.add(
        succeeded=cells["succeeded"], failed=cells["failed"] + cells["set_aside"], node_runs=node_runs, usd=usd
    )
    return Standing(row["id"], Ended(row["status"], row["reason"]), row["id"], row["status"], progress, document)


class Followed:
    """A sweep or execution that is followed to its end: the selected events, and whether more will come.

    It sends no requests itself, so that blocking and async clients can use it.
    """

    def __init__(self, event_filter: Filter, sweep: str, execution: str | None = None) -> None:
        """Make it.

        Args:
            event_filter: The events to return.
            sweep: The id of the sweep.
            execution: The id of the execution, if only that is followed.
        """
        self.event_filter = event_filter
        self.sweep = sweep
        self.execution = execution
        self._severities = severities_from(event_filter.severity)
        self._statuses = {sweep: "pending"}
        only = None if execution is None else (execution, lambda: self._statuses.get(execution, "pending"))
        self._ends = Ends(lambda: self._statuses[sweep], only)

    @classmethod
    def of(cls, standing: Standing, event_filter: Filter, ref: str) -> Followed:
        """Make it from a status.

        Args:
            standing: The status.
            event_filter: The events to return.
            ref: The reference by which it was found. By that of its sweep, a single execution is followed as a sweep.
        """
        is_execution = standing.id != standing.sweep and standing.id.startswith(ref)
        return cls(event_filter, standing.sweep, standing.id if is_execution else None)

    @property
    def server_filter(self) -> Filter:
        """The filter for the server, which includes events that show the end."""
        return Filter(
            self.event_filter.severity,
            self.event_filter.kinds,
            self.event_filter.cases,
            ends=True,
            values=self.event_filter.values,
        )

    def take(self, message: Message) -> list[EventDocument]:
        """Process a message.

        Returns:
            Its selected events.
        """
        self._ends.see((event["kind"], event["execution"]) for event in message.events)
        return [event for event in message.events if self._is_wanted(event)]

    def _is_wanted(self, event: EventDocument) -> bool:
        is_of_it = self.execution in (None, event["execution"])
        return is_of_it and matches(event["kind"], event["severity"], self._severities, self.event_filter.kinds)

    @property
    def may_have_ended(self) -> bool:
        """True if the end may have come, so that the status should be read."""
        return self._ends.may_be_seen

    def has_ended(self, standing: Standing) -> bool:
        """Process the present status. Returns whether no more events will come."""
        self._statuses |= {standing.sweep: standing.sweep_status, standing.id: standing.ended.status}
        self._ends.read_statuses()
        return self._ends.are_seen


def follow(
    server: Streaming, ref: str, event_filter: Filter, execution: str | None, report: Callable[[str], None]
) -> Iterator[EventDocument]:
    """Yield the events of a sweep until it ends or pauses, as the operation `log` does, despite broken connections.

    Args:
        server: The server.
        ref: A sweep: its id, the beginning of it, or its name.
        event_filter: The events to return.
        execution: Only events of this execution: its id, or the beginning of it.
        report: Called with a line if the process that runs the sweep has died.

    Raises:
        WTBError: If there is no such sweep, or the server refuses.
    """
    standing = standing_of(server.call(status, ref if execution is None else execution))
    followed = Followed.of(standing, event_filter, execution or ref)
    death = Death(report)
    for message in server.messages(followed.sweep, followed.server_filter):
        if message is not None:
            yield from followed.take(message)
        if message is None or followed.may_have_ended:
            current = standing_now(server, followed.execution or followed.sweep)
            if current is not None and followed.has_ended(current):
                return
            if current is not None and current.document is not None:
                death.look(current.document)


def standing_now(server: Backend, id: str) -> Standing | None:
    """Return the present status; None while the server is away, which followers outlive."""
    try:
        return standing_of(server.call(status, id))
    # A subclass of ServerError, but a revoked token does not come back as a server does.
    except AccessDenied:
        raise
    except ServerError:
        return None


def looks(server: Backend, ref: str) -> Iterator[Look]:
    """Yield the status of a sweep or an execution at each step, until nothing of it runs any more.

    While the server is away, the last known status is repeated.

    Args:
        server: The server.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.

    Raises:
        WTBError: If there is no such sweep or execution, or the server refuses.
    """
    standing = standing_of(server.call(status, ref))
    while True:
        yield Look(standing.progress, standing.is_running, standing.ended)
        if not standing.is_running:
            return
        standing = standing_now(server, standing.id) or standing
