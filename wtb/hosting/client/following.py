"""What takes more than one request: following events to an end, waiting for it, and looking now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, cast

from wtb.core.classes.frozen import frozen
from wtb.core.documents.events import EventDocument
from wtb.core.documents.executions import StandingDocument
from wtb.core.documents.sweeps import StatusDocument
from wtb.core.errors import AccessDenied, ServerError
from wtb.execution.runtime.sweep_run import Ended
from wtb.execution.state import Progress
from wtb.hosting.client.stream import Filter, Message
from wtb.operations.context import Backend
from wtb.operations.inspection.ends import Death, Ends
from wtb.operations.inspection.log import matches, severities_from
from wtb.operations.inspection.sweeps import status
from wtb.operations.running.waiting import Look

_OPEN = ("pending", "running")


class Streaming(Backend, Protocol):
    """A server whose streams can be followed."""

    def messages(self, sweep: str, wanted: Filter, after: str | None = None) -> Iterator[Message | None]:
        """Yield what comes of the log of a sweep, and None after each silence, for ever."""


@frozen
class Standing:
    """How a sweep or an execution stands.

    Attributes:
        id: Its id.
        ended: Its status, and why.
        sweep: The id of the sweep that it is or is of.
        sweep_status: The status of that.
        progress: How far it is.
        document: That of a sweep; None of an execution.
    """

    id: str
    ended: Ended
    sweep: str
    sweep_status: str
    progress: Progress
    document: StatusDocument | None = None

    @property
    def goes_on(self) -> bool:
        """Whether it goes on by itself."""
        is_left = self.document is not None and self.document["next"] is not None
        return self.ended.status in _OPEN and not is_left


def standing_of(document: StatusDocument | StandingDocument) -> Standing:
    """Return how something stands, of the document that `status` returns."""
    if "execution" in document:
        found = cast(StandingDocument, document)["execution"]
        sweep = found["sweep"]
        ended = Ended(found["status"], found["reason"])
        return Standing(found["id"], ended, sweep["id"], sweep["status"], Progress(1, sweep["id"]))
    row, cells = document["sweep"], document["cells"]
    progress = Progress(cells["total"], row["id"])
    usd, node_runs = document["cost"]["usd"], document["node_runs"]["executed"]
    progress.add(
        succeeded=cells["succeeded"], failed=cells["failed"] + cells["set_aside"], node_runs=node_runs, usd=usd
    )
    return Standing(row["id"], Ended(row["status"], row["reason"]), row["id"], row["status"], progress, document)


class Followed:
    """What somebody follows to its end: which events of it they see, and whether more will come.

    It asks nothing itself, so that who waits and who does not can use it.
    """

    def __init__(self, wanted: Filter, sweep: str, execution: str | None = None) -> None:
        """Make it.

        Args:
            wanted: Which events are to be seen.
            sweep: The id of the sweep.
            execution: The id of the execution, if it is one that is followed.
        """
        self.wanted = wanted
        self.sweep = sweep
        self.execution = execution
        self._severities = severities_from(wanted.severity)
        self._statuses = {sweep: "pending"}
        only = None if execution is None else (execution, lambda: self._statuses.get(execution, "pending"))
        self._ends = Ends(lambda: self._statuses[sweep], only)

    @classmethod
    def of(cls, standing: Standing, wanted: Filter, ref: str) -> Followed:
        """Return what is followed.

        Args:
            standing: How it stands.
            wanted: Which events are to be seen.
            ref: By what it was named: a single execution by that of its sweep is followed as a whole.
        """
        is_execution = standing.id != standing.sweep and standing.id.startswith(ref)
        return cls(wanted, standing.sweep, standing.id if is_execution else None)

    @property
    def asked(self) -> Filter:
        """What the server is asked for: with the events that tell the end."""
        return Filter(self.wanted.severity, self.wanted.kinds, self.wanted.cases, ends=True, values=self.wanted.values)

    def take(self, message: Message) -> list[EventDocument]:
        """Take what came.

        Returns:
            The events of it that are to be seen.
        """
        self._ends.see((event["kind"], event["execution"]) for event in message.events)
        return [event for event in message.events if self._is_wanted(event)]

    def _is_wanted(self, event: EventDocument) -> bool:
        is_of_it = self.execution in (None, event["execution"])
        return is_of_it and matches(event["kind"], event["severity"], self._severities, self.wanted.kinds)

    @property
    def may_have_ended(self) -> bool:
        """Whether it is worth asking how it stands."""
        return self._ends.may_be_seen

    def has_ended(self, standing: Standing) -> bool:
        """Take how what is followed stands now; return whether no more will come."""
        self._statuses |= {standing.sweep: standing.sweep_status, standing.id: standing.ended.status}
        self._ends.read_statuses()
        return self._ends.are_seen


def follow(
    server: Streaming, ref: str, wanted: Filter, execution: str | None, report: Callable[[str], None]
) -> Iterator[EventDocument]:
    """Yield the events of a sweep until it ends or pauses, as `log` of the operations does, whatever breaks meanwhile.

    Args:
        server: Whose stream it is.
        ref: A sweep: its id, the beginning of it, or its name.
        wanted: Which events.
        execution: Only events of this execution: its id, or the beginning of it.
        report: Takes the line that says that the process that runs the sweep has died.

    Raises:
        WTBError: If there is no such sweep, or the server refuses.
    """
    standing = standing_of(server.call(status, ref if execution is None else execution))
    followed = Followed.of(standing, wanted, execution or ref)
    death = Death(report)
    for message in server.messages(followed.sweep, followed.asked):
        if message is not None:
            yield from followed.take(message)
        if message is None or followed.may_have_ended:
            found = standing_now(server, followed.execution or followed.sweep)
            if found is not None and followed.has_ended(found):
                return
            if found is not None and found.document is not None:
                death.look(found.document)


def standing_now(server: Backend, id: str) -> Standing | None:
    """Return how something stands; None while the server is away, which those who follow and wait outlive."""
    try:
        return standing_of(server.call(status, id))
    except AccessDenied:
        raise
    except ServerError:
        return None


def looks(server: Backend, ref: str) -> Iterator[Look]:
    """Look at a sweep or an execution each time that a look is taken, until nothing runs of it any more.

    While the server does not answer, what was seen before is what there is to see.

    Args:
        server: Where it is.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.

    Raises:
        WTBError: If there is no such sweep or execution, or the server refuses.
    """
    standing = standing_of(server.call(status, ref))
    while True:
        yield Look(standing.progress, standing.goes_on, standing.ended)
        if not standing.goes_on:
            return
        standing = standing_now(server, standing.id) or standing
