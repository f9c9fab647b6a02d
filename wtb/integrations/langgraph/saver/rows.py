"""LangGraph's checkpoints and writes as the rows that are stored, and back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR

from wtb.core.errors import InputError, StateError
from wtb.core.serialization.codec import decode, digest, encode
from wtb.core.values import Value
from wtb.integrations.langgraph.saver.serde import from_bytes, to_bytes
from wtb.integrations.langgraph.saver.validation import Place, Waiting, checked_json, checked_name, checked_names, id_of
from wtb.store.database import Database
from wtb.store.thread_rows import (
    Outline,
    ThreadCheckpoint,
    ThreadMetadata,
    ThreadTask,
    ThreadWrite,
    delete_threads,
    outlines,
    remove_checkpoints,
)
from wtb.store.threads import Found

Version = int | float | str
"""Of a channel's value: it grows with each step that writes to the channel."""

_SHORT = 64  # bytes: a digest is as long


class Stored(NamedTuple):
    """Where a channel's value is: in the table of values under a digest, or here, where it is short."""

    version: Any
    digest: str | None
    short: str | None


class Head(NamedTuple):
    """The checkpoint of a thread that was stored or read last."""

    id: str
    channels: Mapping[str, Stored]


def next_version(current: Version) -> Version:
    """Raises StateError for a text that does not begin with a number, as those of LangGraph's own savers do."""
    if not isinstance(current, str):
        return current + 1
    number, dot, _ = current.partition(".")
    if not (number.isascii() and number.isdigit()):
        raise StateError(f"the version of a channel is {current!r:.100}; expected a number, or a text like '0002.31'")
    # LangGraph compares texts; they compare as their numbers do while those are of one length.
    return f"{int(number) + 1:0{len(number)}}{dot and '.0000000000000000'}"


def config_of(place: Place, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": place[0], "checkpoint_ns": place[1], "checkpoint_id": id}}


def without(channels: Mapping[str, Stored], changed: Collection[str]) -> dict[str, Stored]:
    return {channel: at for channel, at in channels.items() if channel not in changed}


def channels_of(
    serde: SerializerProtocol, checkpoint: Checkpoint, unchanged: Mapping[str, Stored]
) -> tuple[dict[str, Stored], dict[str, bytes]]:
    """Return the place of each channel's value, and the values to store, by digest."""
    channels: dict[str, Stored] = {}
    new: dict[str, bytes] = {}
    for channel, value in checkpoint["channel_values"].items():
        version = checkpoint["channel_versions"].get(channel)
        at = unchanged.get(channel)
        if at is None or version is None or at.version != version:
            at = Stored(version, *_place(serde, channel, value, new))
        channels[channel] = at
    return channels, new


def row_of(
    place: Place,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    channels: Mapping[str, Stored],
) -> ThreadCheckpoint:
    rest = {key: field for key, field in checkpoint.items() if key not in ("id", "channel_values")}
    short = {channel: at.short for channel, at in channels.items() if at.short is not None}
    described = _plain(get_serializable_checkpoint_metadata(config, metadata))
    run_id = described.get("run_id")
    return {
        "thread_id": place[0],
        "namespace": place[1],
        "id": checkpoint["id"],
        "parent_id": id_of(config),
        "run_id": None if run_id is None else checked_name("run_id", run_id),
        "state": {channel: at.digest for channel, at in channels.items() if at.digest},
        "document": _document({"checkpoint": rest, "short": short}),
        "metadata": described,
    }


def writes_of(
    serde: SerializerProtocol, task: ThreadTask, writes: Sequence[tuple[str, Any]]
) -> tuple[list[ThreadWrite], dict[str, bytes]]:
    """Return the rows of a task's writes, and the values to store, by digest."""
    rows: list[ThreadWrite] = []
    new: dict[str, bytes] = {}
    for number, (channel, value) in enumerate(writes):
        if channel == ERROR and isinstance(value, BaseException):
            value = repr(value)  # what LangGraph shows of it, and what its handler gets when a run is resumed
        key, short = _place(serde, channel, value, new)
        place = WRITES_IDX_MAP.get(channel, number)
        rows.append({**task, "number": place, "channel": channel, "digest": key, "value": short})
    return rows, new


def merge(waiting: Sequence[Waiting]) -> tuple[list[ThreadWrite], dict[str, bytes]]:
    """Merge the rows and values of several calls, as if they had come one after the other."""
    rows: dict[tuple[str, str, int], ThreadWrite] = {}
    values: dict[str, bytes] = {}
    for writes in waiting:
        values |= writes.values
        for row in writes.rows:
            key = (row["checkpoint_id"], row["task_id"], row["number"])
            # As in LangGraph's own savers: errors and interrupts replace earlier ones; of other writes the first stays.
            if row["number"] < 0 or key not in rows:
                rows[key] = row
    return list(rows.values()), values


def tuple_of(serde: SerializerProtocol, stored: Found) -> tuple[dict[str, Stored], CheckpointTuple]:
    """Return the places of a checkpoint's values, and the checkpoint as LangGraph takes it."""
    row, place = stored.row, (stored.row["thread_id"], stored.row["namespace"])
    document = decode(row["document"].encode())
    rest, versions = document["checkpoint"], document["checkpoint"]["channel_versions"]
    channels = {channel: Stored(versions.get(channel), key, None) for channel, key in row["state"].items()}
    channels |= {channel: Stored(versions.get(channel), None, text) for channel, text in document["short"].items()}
    values = {channel: value_of(serde, at.digest, at.short, stored.values) for channel, at in channels.items()}
    pending = [
        (each.task_id, each.channel, value_of(serde, each.digest, each.value, stored.values)) for each in stored.writes
    ]
    parent = config_of(place, row["parent_id"]) if row["parent_id"] else None
    checkpoint: Any = {**rest, "id": row["id"], "channel_values": values}
    metadata: Any = row["metadata"]
    return channels, CheckpointTuple(config_of(place, row["id"]), checkpoint, metadata, parent, pending)


def value_of(serde: SerializerProtocol, key: str | None, short: str | None, values: Mapping[str, Value]) -> Any:
    return from_bytes(serde, values[key].data if key else (short or "").encode())


def _place(serde: SerializerProtocol, channel: str, value: Any, new: dict[str, bytes]) -> tuple[str | None, str | None]:
    """Return the digest of a value, which is added to `new`, or a short value itself. Raises StateError."""
    try:
        encoded = to_bytes(serde, value)
    except StateError as error:
        raise StateError(f"channel {channel!r}: {error}") from None
    if len(encoded) <= _SHORT:
        return None, encoded.decode()
    key = digest(encoded)
    new[key] = encoded
    return key, None


def _plain(metadata: CheckpointMetadata) -> ThreadMetadata:
    """Return metadata as plain JSON, which can be searched."""
    quick = _quick(metadata)
    try:
        text = json.dumps(metadata, allow_nan=False) if quick is None else quick
    except (TypeError, ValueError) as error:
        raise StateError(f"metadata: {error}; expected what JSON can hold") from None
    plain: ThreadMetadata = orjson.loads(checked_json("metadata", text))
    return plain


def _document(content: object) -> str:
    """Return typed JSON, which differs from JSON if a value is not plain, or a key looks like a tag."""
    quick = _quick(content)
    return encode(content).decode() if quick is None or '"$' in quick else quick


def _quick(content: Any) -> str | None:
    """Return JSON of plain content, several times as quick; None if it would not come back equal."""
    try:
        encoded = orjson.dumps(content)
    except TypeError:
        return None
    # orjson also dumps dataclasses, dates and UUIDs, which would come back as something else.
    return encoded.decode() if orjson.loads(encoded) == content else None


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
    """Yield (namespace, ids of unneeded checkpoints), from all checkpoints of a thread, the newest first.

    Checkpoints from which the latest one is rebuilt stay: delta channels keep only writes since a snapshot.
    """
    by_namespace: dict[str, dict[str, Outline]] = {}
    for row in rows:
        by_namespace.setdefault(row.namespace, {})[row.id] = row
    needed = {namespace: _needed(those) for namespace, those in by_namespace.items()}
    for namespace, those in by_namespace.items():
        # A call of a subgraph goes with the checkpoint of the graph that it was made from, once that is stored.
        caller = next(iter(those.values())).metadata.get("parents", {}).get("")
        is_call = ":" in namespace and caller in by_namespace.get("", {}) and caller not in needed[""]
        unneeded = [id for id in those if is_call or id not in needed[namespace]]
        if unneeded:
            yield namespace, unneeded


def _needed(rows: Mapping[str, Outline]) -> set[str]:
    """Return the latest of a namespace, and its ancestors up to one from which all delta channels have a value."""
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
