"""What of a thread may go when only its latest state is to be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wtb.core.errors import InputError
from wtb.core.serialization.codec import decode
from wtb.integrations.langgraph.saver.validation import checked_names
from wtb.store.database import Database
from wtb.store.threads.rows import Outline, delete_threads, outlines, remove_checkpoints

STRATEGIES = ("keep_latest", "delete")


def prune(database: Database, session_id: str, thread_ids: Sequence[str], strategy: str) -> None:
    """Raises InputError for an unknown strategy, and for one thread in place of a list."""
    ids = checked_names("thread_ids", thread_ids)
    if strategy not in STRATEGIES:
        raise InputError(f"strategy: found {strategy!r}, expected one of: {', '.join(STRATEGIES)}")
    if strategy == "delete":
        delete_threads(database, session_id, ids)
        return
    for thread_id in ids:
        for namespace, unneeded in _unneeded(outlines(database, session_id, thread_id)):
            remove_checkpoints(database, session_id, thread_id, namespace, unneeded)


def _unneeded(rows: Sequence[Outline]) -> Iterator[tuple[str, list[str]]]:
    """(namespace, ids of its checkpoints that nothing needs), of all checkpoints of a thread, the newest first.

    Those that the latest one is rebuilt from stay: channels that keep only what was written since a snapshot.
    """
    by_namespace: dict[str, dict[str, Outline]] = {}
    for row in rows:
        by_namespace.setdefault(row.namespace, {})[row.id] = row
    kept = {namespace: _needed(those) for namespace, those in by_namespace.items()}
    for namespace, those in by_namespace.items():
        # A call of a subgraph goes with the checkpoint of the graph that it was made from, once that is stored.
        caller = next(iter(those.values())).metadata.get("parents", {}).get("")
        is_call = ":" in namespace and caller in by_namespace.get("", {}) and caller not in kept[""]
        unneeded = [id for id in those if is_call or id not in kept[namespace]]
        if unneeded:
            yield namespace, unneeded


def _needed(rows: Mapping[str, Outline]) -> set[str]:
    """The latest of a namespace, and its ancestors up to where all its delta channels have a value."""
    row: Outline | None = next(iter(rows.values()))
    needed: set[str] = set()
    missing = set(row.metadata.get("counters_since_delta_snapshot") or ()) if row else set()
    while row is not None:
        needed.add(row.id)
        missing -= _channels(row)
        row = rows.get(row.parent_id or "") if missing else None
    return needed


def _channels(row: Outline) -> set[str]:
    return {*row.state, *decode(row.document.encode())["short"]}
