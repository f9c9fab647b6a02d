"""`Saver`: LangGraph's checkpoints in WTB's store, for any LangGraph application.

Values are stored once, by SHA-256, whatever thread or checkpoint has them; a checkpoint names them, so that a fork
copies none. Values shorter than a digest stand in the checkpoint itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from wtb.core.errors import InputError, StateError
from wtb.core.serialization.codec import decode
from wtb.integrations.langgraph.saver import rows, validation
from wtb.integrations.langgraph.saver.rows import Head, Version, config_of, value_of
from wtb.integrations.langgraph.saver.serde import Serializer, checked_serializer
from wtb.integrations.langgraph.saver.validation import Pairing, Place, Waiting, id_of, place_of
from wtb.store.access.sessions import find_session
from wtb.store.database import DEFAULT_SESSION, Database
from wtb.store.thread_rows import ThreadTask, copy_thread, delete_checkpoints, delete_runs, delete_threads
from wtb.store.threads import Threads

P = ParamSpec("P")
R = TypeVar("R")

# A server with many threads must not hold a head of each forever.
_MAX_HEADS = 10_000


def _in_thread(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Make the async form of a method, which runs it in a thread."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # By name, so that a method that a subclass overrides is called.
        return await asyncio.to_thread(getattr(self, method.__name__), *args, **kwargs)

    return call


class Saver(BaseCheckpointSaver[Any]):
    """A checkpointer for LangGraph graphs: `builder.compile(checkpointer=Saver("postgresql://..."))`.

    Threads of Python may share it; close it, or use it in a `with`. Storing a value that cannot be stored raises
    StateError, which names the channel and the type.

    Args:
        url: A database as everywhere in WTB: `sqlite:///file.db`, `sqlite:///:memory:` or `postgresql://...`; or an
            open one.
        serde: A serializer in place of WTB's, such as one that encrypts what `Serializer` makes.
        types: Your own classes to be stored that are neither dataclasses nor pydantic models.
        session: The session that the threads belong to.

    Raises:
        InputError: For a URL, a session or types that cannot be used.
        StoreError: If the database is out of reach.

    Example:
        >>> from typing import TypedDict
        >>> from langgraph.graph import END, START, StateGraph
        >>> from wtb.integrations.langgraph import Saver
        >>> class State(TypedDict, total=False):
        ...     count: int
        >>> builder = StateGraph(State)
        >>> _ = builder.add_node("add", lambda state: {"count": state.get("count", 0) + 1})
        >>> _ = builder.add_edge(START, "add")
        >>> thread = {"configurable": {"thread_id": "ana"}}
        >>> with Saver("sqlite:///:memory:") as saver:
        ...     graph = builder.compile(checkpointer=saver)
        ...     _ = graph.invoke({"count": 1}, thread)
        ...     graph.get_state(thread).values
        {'count': 2}
    """

    def __init__(
        self,
        url: str | Database,
        serde: SerializerProtocol | None = None,
        *,
        types: Iterable[type] = (),
        session: str = DEFAULT_SESSION,
    ) -> None:
        extra_types = tuple(types)
        if serde is not None and extra_types:
            raise InputError(
                "types is given; pass it to the serializer: wtb.integrations.langgraph.Serializer(types=[...])"
            )
        super().__init__(serde=Serializer(extra_types) if serde is None else checked_serializer(serde))
        self.database = url if isinstance(url, Database) else Database(url)
        self._is_ours = self.database is not url
        self.database.prepare()
        self._opened = Threads(self.database, find_session(self.database, session).id)
        self._pairing = Pairing()
        self._lock = threading.Lock()
        self._heads: OrderedDict[Place, Head] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections; a database that was given open stays so."""
        self._opened.close()
        if self._is_ours:
            self.database.close()

    @property
    def _threads(self) -> Threads:
        if self._opened.is_closed:
            raise StateError("the saver is closed; open another one: Saver(url)")
        return self._opened

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return the saver itself: values are checked when they are stored, so that loading needs no list."""
        return self

    def get_next_version(self, current: Version | None, channel: None) -> Version:
        """Return the version after `current`: a number, or a text in threads that began with another saver."""
        return 1 if current is None else rows.next_version(current)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and the writes of its step that are not stored yet. Both are committed on return."""
        place, parent_id = place_of(config), id_of(config)
        validation.check_channels(checkpoint["channel_values"])
        # Channels that did not change keep the digests of the parent, so that their values are not encoded again.
        head = self._heads.get(place)
        before = head.channels if head is not None and head.id == parent_id else {}
        # Of a step of a run, LangGraph hands over writes, too.
        with self._pairing.take_waiting(place, parent_id if metadata.get("source") == "loop" else None) as waiting:
            written, values = rows.merge(waiting)
            while True:
                channels, new = rows.channels_of(self.serde, checkpoint, rows.without(before, new_versions))
                row = rows.row_of(place, config, checkpoint, metadata, channels)
                # The database must still have these values. A garbage collection may have removed them since.
                stored_digests = {at.digest for at in channels.values() if at.digest} - new.keys()
                if self._threads.put(row, written, {**values, **new}, stored_digests):
                    break
                before = {}  # somebody deleted what was there, and its values were collected
        self._remember(place, Head(checkpoint["id"], channels))
        return config_of(place, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote; it is committed on return, perhaps together with the checkpoint it leads to."""
        place, id = place_of(config), id_of(config)
        if not id:
            raise InputError(
                "config: it names no checkpoint_id; writes are stored with the checkpoint they were made from"
            )
        validation.check_channels(channel for channel, _ in writes)
        task: ThreadTask = {
            "thread_id": place[0],
            "namespace": place[1],
            "checkpoint_id": id,
            "task_id": validation.checked_name("task_id", task_id),
            "path": validation.checked_name("task_path", task_path),
        }
        waiting = Waiting(*rows.writes_of(self.serde, task, writes))
        with self._pairing.offer(place, id, waiting) as was_stored:
            if not was_stored:
                written, values = rows.merge([waiting])
                self._threads.put(None, written, values)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        place = place_of(config)
        for each in self._threads.find(thread_id=place[0], namespace=place[1], id=id_of(config), limit=1):
            channels, checkpoint_tuple = rows.tuple_of(self.serde, each)
            self._remember(place, Head(each.row["id"], channels))
            return checkpoint_tuple
        return None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, the newest first. `filter`: texts, numbers, bools or None that metadata must equal.

        Without a config, of all threads.
        """
        criteria, matching = validation.criteria_of(config), validation.checked_filter(filter)
        checkpoints = self._threads.find(**criteria, before=id_of(before), matching=matching, limit=limit)
        return (rows.tuple_of(self.serde, each)[1] for each in checkpoints)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes to channels, the oldest first, since the nearest ancestor that has a value of them."""
        place, id = place_of(config), id_of(config)
        validation.check_channels(channels)
        written: dict[str, list[tuple[str, str, Any]]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        if not id:
            latest = self._threads.find(thread_id=place[0], namespace=place[1], limit=1)
            id = next((each.row["id"] for each in latest), None)
        for each in self._threads.ancestors(*place, id, channels) if id and channels else ():
            short = decode(each.row["document"].encode())["short"]
            for write in reversed(each.writes):
                # Writes are read from the newest on, and those before a stored value are part of it already.
                if write.channel not in seeds:
                    written_value = value_of(self.serde, write.digest, write.value, each.values)
                    written[write.channel].append((write.task_id, write.channel, written_value))
            for channel in written.keys() - seeds.keys():
                key = each.row["state"].get(channel)
                if key or channel in short:
                    seeds[channel] = value_of(self.serde, key, short.get(channel), each.values)
            if len(seeds) == len(written):
                break
        histories: dict[str, DeltaChannelHistory] = {}
        for channel, entries in written.items():
            histories[channel] = {"writes": entries[::-1]}
            if channel in seeds:
                histories[channel]["seed"] = seeds[channel]
        return histories

    def delete_thread(self, thread_id: str) -> None:
        delete_threads(*self._mine, [validation.checked_name("thread_id", thread_id)])

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata name one of these runs, with the writes made from them."""
        delete_runs(*self._mine, validation.checked_names("run_ids", run_ids))

    def delete_checkpoints(self, thread_id: str, ids: Collection[str]) -> None:
        """Delete some checkpoints of a thread, with the writes made from them and what subgraphs stored there.

        Args:
            thread_id: The thread.
            ids: Ids of checkpoints of its outer graph; their children have no parent then.
        """
        delete_checkpoints(*self._mine, validation.checked_name("thread_id", thread_id), ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes; no value is copied."""
        copy_thread(*self._mine, *validation.checked_names("thread_id", [source_thread_id, target_thread_id]))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete threads (`delete`), or all but what their latest checkpoints need (`keep_latest`)."""
        rows.prune(*self._mine, thread_ids, strategy)

    @property
    def _mine(self) -> tuple[Database, str]:
        return self._threads.database, self._threads.session_id

    def _remember(self, place: Place, head: Head) -> None:
        with self._lock:
            self._heads[place] = head
            self._heads.move_to_end(place)
            if len(self._heads) > _MAX_HEADS:
                self._heads.popitem(last=False)

    aget_tuple = _in_thread(get_tuple)
    aput = _in_thread(put)
    aput_writes = _in_thread(put_writes)
    aget_delta_channel_history = _in_thread(get_delta_channel_history)
    adelete_thread = _in_thread(delete_thread)
    adelete_for_runs = _in_thread(delete_for_runs)
    acopy_thread = _in_thread(copy_thread)
    aprune = _in_thread(prune)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        checkpoints = self.list(config, filter=filter, before=before, limit=limit)
        # Each step runs in a thread, since reading from the database blocks.
        while (checkpoint := await asyncio.to_thread(next, checkpoints, None)) is not None:
            yield checkpoint
