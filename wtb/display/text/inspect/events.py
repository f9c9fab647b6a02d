"""The event log in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wtb.core import texts
from wtb.core.documents.events import EventCountsDocument, EventDocument
from wtb.core.documents.events.texts import event_text
from wtb.display.tables import grid, wrapped


def lines(events: Iterable[EventDocument], width: int, color: bool = False) -> Iterator[str]:
    """Time, severity, case and words of each event; the date where it changes.

    An event may say its `case` and its `choices` beside what the log holds.
    """
    day = ""
    for event in events:
        date = texts.moment(event["at"])[:10]
        if date != day:
            day = date
            yield date
        front = f"{texts.clock(event['at'])}  {event['severity']:<7}  "
        case = f"{event['case']}: " if event.get("case") else ""
        text = event_text(event["kind"], event["data"], event.get("choices"))
        found = wrapped(case + text, width, " " * len(front))
        yield texts.colored(front, event["severity"], color) + found[0].lstrip()
        yield from found[1:]


def counts(document: EventCountsDocument, width: int, color: bool = False) -> str:
    """How many events there are of each kind and severity."""
    rows = [[row["kind"], row["severity"], f"{row['count']:,}"] for row in document["events"]]
    return grid(["kind", "severity", "count"], rows, width, right={"count"}, color=color)
