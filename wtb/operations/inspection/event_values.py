"""Values of events: the log holds their digests, and readers may ask for the values themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from wtb.core.documents.events import EventDocument
from wtb.core.serialization.plain_json import readable
from wtb.store.bulk import parts
from wtb.store.database import Database
from wtb.store.read import details, queries
from wtb.store.tables.control import InvocationRow

PART: Final = 100  # events whose values are in memory at a time
_DIGESTS: Final = {"node_run.succeeded": "writes", "execution.completed": "result"}  # kind -> key of its data


def with_values(database: Database, events: Sequence[EventDocument]) -> Iterator[EventDocument]:
    """Yield events with what their nodes wrote, their results, and arguments and results of calls of tools.

    A value that was removed since is left out.
    """
    for part in parts(events, PART):
        values = details.stored_values(database, [digest for event in part for digest in _digests(event).values()])
        calls = _calls(database, part)
        for event in part:
            data = cast("dict[str, Any]", event["data"])
            if event["kind"] in _DIGESTS:
                digests = _digests(event).items()
                data["values"] = {key: readable(values[digest]) for key, digest in digests if digest in values}
            elif (call := calls.get(_identity(data))) is not None and event["kind"] == "tool.called":
                data["arguments"] = readable(call.arguments.encode())
                data["result"] = None if call.result is None else readable(call.result.encode())
            yield event


def _digests(event: EventDocument) -> Mapping[str, str]:
    key = _DIGESTS.get(event["kind"])
    digests: Mapping[str, str] = cast("dict[str, Any]", event["data"]).get(key, {}) if key else {}
    return digests


def _calls(database: Database, events: Iterable[EventDocument]) -> dict[tuple[object, ...], InvocationRow]:
    data = [cast("dict[str, Any]", event["data"]) for event in events if event["kind"] == "tool.called"]
    ids = sorted({str(call["node_run"]) for call in data if "number" in call})
    rows = queries.invocation_rows(database, ids) if ids else []
    return {(row.node_run_id, row.attempt, row.number): row for row in rows}


def _identity(data: Mapping[str, Any]) -> tuple[object, ...]:
    return data.get("node_run"), data.get("attempt"), data.get("number")
