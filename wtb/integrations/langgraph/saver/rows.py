"""LangGraph's checkpoints and writes as the rows that are stored, and back."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
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

from wtb.core.errors import StateError
from wtb.core.serialization.codec import decode, digest, encode
from wtb.core.values import Value
from wtb.integrations.langgraph.saver.serde import from_bytes, to_bytes
from wtb.integrations.langgraph.saver.validation import checked_json, checked_name, id_of
from wtb.integrations.langgraph.saver.write_buffer import Place, Waiting
from wtb.store.threads.queries import Found
from wtb.store.threads.rows import ThreadCheckpoint, ThreadMetadata, ThreadTask, ThreadWrite

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
    """Where each channel's value is, and the values to store, by digest."""
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
    rest = {key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")}
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
    """The rows of what a task wrote, and the values to store, by digest."""
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
    """The rows and values of several calls, as if one had come after the other."""
    rows: dict[tuple[str, str, int], ThreadWrite] = {}
    values: dict[str, bytes] = {}
    for writes in waiting:
        values |= writes.values
        for row in writes.rows:
            key = (row["checkpoint_id"], row["task_id"], row["number"])
            if row["number"] < 0 or key not in rows:
                rows[key] = row
    return list(rows.values()), values


def tuple_of(serde: SerializerProtocol, found: Found) -> tuple[dict[str, Stored], CheckpointTuple]:
    """Where a checkpoint's values are, and the checkpoint as LangGraph takes it."""
    row, place = found.row, (found.row["thread_id"], found.row["namespace"])
    document = decode(row["document"].encode())
    rest, versions = document["checkpoint"], document["checkpoint"]["channel_versions"]
    channels = {channel: Stored(versions.get(channel), key, None) for channel, key in row["state"].items()}
    channels |= {channel: Stored(versions.get(channel), None, text) for channel, text in document["short"].items()}
    values = {channel: value_of(serde, at.digest, at.short, found.values) for channel, at in channels.items()}
    pending = [
        (each.task_id, each.channel, value_of(serde, each.digest, each.value, found.values)) for each in found.writes
    ]
    parent = config_of(place, row["parent_id"]) if row["parent_id"] else None
    checkpoint: Any = {**rest, "id": row["id"], "channel_values": values}
    metadata: Any = row["metadata"]
    return channels, CheckpointTuple(config_of(place, row["id"]), checkpoint, metadata, parent, pending)


def value_of(serde: SerializerProtocol, key: str | None, short: str | None, values: Mapping[str, Value]) -> Any:
    return from_bytes(serde, values[key].data if key else (short or "").encode())


def _place(serde: SerializerProtocol, channel: str, value: Any, new: dict[str, bytes]) -> tuple[str | None, str | None]:
    """Digest of a value, which is added to the new ones, or the value itself. Raises StateError naming the channel."""
    try:
        data = to_bytes(serde, value)
    except StateError as error:
        raise StateError(f"channel {channel!r}: {error}") from None
    if len(data) <= _SHORT:
        return None, data.decode()
    key = digest(data)
    new[key] = data
    return key, None


def _plain(metadata: CheckpointMetadata) -> ThreadMetadata:
    """Metadata are plain JSON, so that they can be searched."""
    quick = _quick(metadata)
    try:
        text = json.dumps(metadata, allow_nan=False) if quick is None else quick
    except (TypeError, ValueError) as error:
        raise StateError(f"metadata: {error}; expected what JSON can hold") from None
    plain: ThreadMetadata = orjson.loads(checked_json("metadata", text))
    return plain


def _document(given: object) -> str:
    """Typed JSON, which differs from JSON where a value is not plain, or a key looks like a tag."""
    quick = _quick(given)
    return encode(given).decode() if quick is None or '"$' in quick else quick


def _quick(given: Any) -> str | None:
    """JSON of what is plain, several times as quick; None where it would not come back equal."""
    try:
        data = orjson.dumps(given)
    except TypeError:
        return None
    return data.decode() if orjson.loads(data) == given else None
