"""The `Saver` for LangGraph loses nothing, in both databases, whatever is killed or deleted meanwhile."""

from __future__ import annotations

import asyncio
import operator
import signal
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import INTERRUPT, _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Interrupt, Overwrite, Send, interrupt

from tests.support.forkserver import Script
from tests.support.prose import sentence
from wtb.config.retention_policy import Policy
from wtb.core.errors import DamagedError, InputError, StateError, StoreError
from wtb.core.serialization.codec import digest, encode
from wtb.integrations.langgraph import Saver
from wtb.integrations.langgraph.saver import validation
from wtb.integrations.langgraph.saver.serde import Serializer
from wtb.operations.garbage_collection import apply_policy
from wtb.store import threads as threads
from wtb.store.access import sessions
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import deletion
from wtb.store.read import queries as reading
from wtb.store.tables.schema import thread_checkpoints, thread_writes, values
from wtb.store.thread_rows import remove_checkpoints
from wtb.store.threads import Threads

LONG = "a text that is longer than the digest of it, which stands in the table of values. " * 3
CONFIG = {"configurable": {"thread_id": "one"}}
OUTER: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}


class Numbers(TypedDict):
    x: int
    text: str
    seen: Annotated[list[int], operator.add]


class Plain:
    """Neither a dataclass nor a model."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and self.x == other.x

    __hash__ = None  # type: ignore[assignment]


class Pair(NamedTuple):
    left: int
    right: str


class Reversed:
    """A cipher that a test can see through."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


@pytest.fixture
def saver(prepared_url: str) -> Iterator[Saver]:
    with Saver(prepared_url) as opened:
        yield opened


def line(saver: BaseCheckpointSaver[Any], nodes: int = 3, **options: Any) -> Any:
    """Nodes a, b, c, ... each of which adds one."""
    graph = StateGraph(Numbers)
    names = [chr(ord("a") + number) for number in range(nodes)]
    for name in names:
        graph.add_node(name, lambda state: {"x": state["x"] + 1, "seen": [state["x"]]})
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=saver, **options)


def start(x: int = 0) -> dict[str, Any]:
    return {"x": x, "text": LONG, "seen": []}


def count(saver: Saver, table: sa.Table) -> int:
    with saver.database.read() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def digests(saver: Saver) -> set[str]:
    with saver.database.read() as connection:
        return set(connection.scalars(sa.select(values.c.digest)))


def stored_at(saver: Saver, config: Any) -> CheckpointTuple:
    """Return the checkpoint of a config, which must be there."""
    stored = saver.get_tuple(config)
    assert stored is not None
    return stored


def put(saver: Saver, parent: Any = None, new: tuple[str, ...] | None = None, **channels: Any) -> Any:
    """Store a checkpoint by hand; `new` are the channels that have changed, by default all."""
    checkpoint = {**empty_checkpoint(), "channel_values": channels, "channel_versions": dict.fromkeys(channels, 1)}
    changed = dict.fromkeys(channels if new is None else new, 1)
    return saver.put(parent or OUTER, checkpoint, {"source": "update", "step": 0, "parents": {}}, changed)


def test_it_has_every_capability_that_the_conformance_suite_knows(saver: Saver) -> None:
    @checkpointer_test(name="wtb")
    async def open_saver() -> AsyncGenerator[BaseCheckpointSaver[int], None]:
        yield saver

    results = asyncio.run(validate(open_saver)).results

    assert results.keys() == {capability.value for capability in Capability}
    for name, outcome in results.items():
        assert (outcome.detected, outcome.passed, outcome.failures) == (True, True, []), name


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_finds_its_state_again_however_often_it_commits(saver: Saver, durability: Any) -> None:
    graph = line(saver)

    ended = graph.invoke(start(), CONFIG, durability=durability)

    assert ended == {"x": 3, "text": LONG, "seen": [0, 1, 2]}
    assert graph.get_state(CONFIG).values == ended
    if durability == "sync":
        assert [state.values.get("x") for state in graph.get_state_history(CONFIG)] == [3, 2, 1, 0, None]


@pytest.mark.parametrize("is_async", [True, False])
def test_graphs_and_threads_of_python_share_a_saver(saver: Saver, is_async: bool) -> None:
    graph = line(saver)
    configs = [{"configurable": {"thread_id": str(number)}} for number in range(8)]

    async def run() -> list[Any]:
        await asyncio.gather(*(graph.ainvoke(start(i), c, durability="sync") for i, c in enumerate(configs)))
        return [[state async for state in graph.aget_state_history(config)] for config in configs]

    if is_async:
        histories = asyncio.run(run())
    else:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: graph.invoke(start(i), configs[i], durability="sync"), range(8)))
        histories = [graph.get_state_history(config) for config in configs]

    for i, history in enumerate(histories):
        assert [state.values.get("x") for state in history] == [i + 3, i + 2, i + 1, i, None]


def test_an_interrupted_graph_is_resumed(saver: Saver) -> None:
    def ask(state: Numbers) -> dict[str, Any]:
        return {"x": interrupt({"question": LONG, "x": state["x"]})}

    graph = StateGraph(Numbers).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=saver)

    graph.invoke(start(), CONFIG, durability="sync")
    (pending_interrupt,) = graph.get_state(CONFIG).interrupts
    ended = graph.invoke(Command(resume=7), CONFIG, durability="sync")

    assert pending_interrupt.value == {"question": LONG, "x": 0}
    assert ended["x"] == graph.get_state(CONFIG).values["x"] == 7


def test_what_a_failed_step_had_done_is_not_done_again(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    has_stored, put_writes = threading.Event(), saver.put_writes

    def store(*args: Any) -> None:
        put_writes(*args)
        if any(channel == "seen" and value for channel, value in args[1]):  # of the node: the input's is empty
            has_stored.set()

    monkeypatch.setattr(saver, "put_writes", store)

    def node(name: str, error: type[Exception] | None = None) -> Callable[[Numbers], dict[str, Any]]:
        def run(state: Numbers) -> dict[str, Any]:
            ran.append(name)
            if error and ran.count(name) == 1:
                assert has_stored.wait(60)  # LangGraph lets go of what ends while a step fails
                raise error(LONG)
            return {"seen": [len(ran)]}

        return run

    graph = StateGraph(Numbers).add_node("good", node("good")).add_node("bad", node("bad", ValueError))
    compiled = graph.add_edge(START, "good").add_edge(START, "bad").compile(checkpointer=saver)

    with pytest.raises(ValueError, match=sentence("longer than {}", "the digest")):
        compiled.invoke(start(), CONFIG, durability="sync")
    failed = {task.name: task.error for task in compiled.get_state(CONFIG).tasks}
    compiled.invoke(None, CONFIG, durability="sync")

    assert failed["bad"] == repr(ValueError(LONG))
    assert sorted(ran) == ["bad", "bad", "good"]


def test_a_fork_by_an_update_of_an_old_checkpoint_copies_no_value(saver: Saver) -> None:
    graph = line(saver)
    graph.invoke(start(), CONFIG, durability="sync")
    before = digests(saver)
    old = next(state for state in graph.get_state_history(CONFIG) if state.next == ("b",))

    forked = graph.update_state(old.config, {"x": 100})
    ended = graph.invoke(None, forked, durability="sync")

    assert ended == {"x": 102, "text": LONG, "seen": [0, 100, 101]}
    assert digests(saver) == before
    assert {state.values.get("x") for state in graph.get_state_history(CONFIG)} == {None, 0, 1, 2, 3, 100, 101, 102}


@pytest.mark.parametrize("of_none", [{"checkpoint_id": None}, {"checkpoint_ns": None}, {"checkpoint_id": ""}])
def test_none_in_a_config_is_none_in_particular(saver: Saver, of_none: dict[str, Any]) -> None:
    line(saver).invoke(start(), CONFIG, durability="sync")
    config = {"configurable": {**CONFIG["configurable"], **of_none}}

    listed = list(saver.list(config))
    latest = saver.get_tuple(config)

    assert [each.metadata["step"] for each in listed] == [3, 2, 1, 0, -1]
    assert latest is not None
    assert latest.config == listed[0].config
    assert list(saver.list(None, before={"configurable": {"checkpoint_id": None}})) == listed


def test_a_config_without_a_thread_is_refused(saver: Saver) -> None:
    for ask in (saver.get_tuple, lambda config: list(saver.list(config))):
        with pytest.raises(InputError, match=sentence("thread_id: found None")):
            ask({"configurable": {"thread_id": None}})


@pytest.mark.parametrize("how", ["replayed", "forked"])
def test_a_subgraph_with_a_memory_of_its_own_has_it_when_its_thread_is_replayed_or_forked(
    saver: Saver, how: str
) -> None:
    inner = StateGraph(Numbers).add_node("count", lambda state: {"seen": [len(state["seen"])]})
    remembering = inner.add_edge(START, "count").compile(checkpointer=True)

    def call(state: Numbers) -> dict[str, Any]:
        return {"x": len(remembering.invoke({"seen": []})["seen"])}

    graph = StateGraph(Numbers).add_node("call", call).add_edge(START, "call").compile(checkpointer=saver)
    counted = [graph.invoke(start(), CONFIG, durability="sync")["x"] for _ in range(2)]
    second = next(state for state in graph.get_state_history(CONFIG) if state.next == ("call",))

    config = second.config if how == "replayed" else graph.update_state(second.config, {"text": "another"})

    assert counted == [1, 2]
    assert graph.invoke(None, config)["x"] == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_thread_that_began_with_langgraphs_own_saver_continues(saver: Saver, is_async: bool) -> None:
    old, graph = InMemorySaver(), line(saver, interrupt_before=["c"])
    line(old, interrupt_before=["c"]).invoke(start(), CONFIG)
    for each in reversed(list(old.list(CONFIG))):
        place = each.parent_config or OUTER
        moved = saver.put(place, each.checkpoint, each.metadata, each.checkpoint["channel_versions"])
        for task_id, channel, value in each.pending_writes or ():
            saver.put_writes(moved, [(channel, value)], task_id)

    ended = asyncio.run(graph.ainvoke(None, CONFIG)) if is_async else graph.invoke(None, CONFIG)
    continued = graph.invoke(start(10), CONFIG)

    assert ended == {"x": 3, "text": LONG, "seen": [0, 1, 2]}
    assert continued["x"] == 12


def test_a_version_that_nobody_can_count_on_from_is_named(saver: Saver) -> None:
    following = {None: 1, 1: 2, "0009": "0010", "0099.271": "0100.0000000000000000"}
    assert {current: saver.get_next_version(current, None) for current in following} == following
    with pytest.raises(StateError, match=sentence("the version of a channel is {}", "'first'")):
        saver.get_next_version("first", None)


def test_a_copied_thread_continues_by_itself_and_copies_no_value(saver: Saver) -> None:
    graph = line(saver, interrupt_before=["c"])
    graph.invoke(start(), CONFIG, durability="sync")
    before, other = digests(saver), {"configurable": {"thread_id": "other"}}

    saver.copy_thread("one", "other")
    copied = digests(saver)
    graph.invoke(None, other, durability="sync")

    assert copied == before
    assert graph.get_state(other).values["x"] == 3
    assert graph.get_state(CONFIG).values["x"] == 2


def test_a_value_of_a_hundred_checkpoints_is_stored_once(saver: Saver) -> None:
    config = None
    for number in range(100):
        config = put(saver, config, number=number, text=LONG, also=LONG)
        saver.put_writes(config, [("text", LONG)], str(number))

    assert count(saver, thread_checkpoints) == 100
    assert count(saver, values) == 1


def test_a_value_that_does_not_change_is_read_once_for_a_whole_history(
    saver: Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = None
    for number in range(2 * threads.PAGE + 10):
        config = put(saver, config, number=number, text=LONG)
        saver.put_writes(config, [("text", LONG)], "task")
    read: list[str] = []
    monkeypatch.setattr(reading, "digest", lambda content: read.append(content) or digest(content))

    history = list(saver.list(CONFIG))

    expected = [{"number": number, "text": LONG} for number in reversed(range(2 * threads.PAGE + 10))]
    assert [each.checkpoint["channel_values"] for each in history] == expected
    assert {write for each in history for write in each.pending_writes} == {("task", "text", LONG)}
    assert len(read) == 1


def test_lists_are_read_in_pages_and_filtered_by_the_database(saver: Saver) -> None:
    for number in range(130):
        config = {"configurable": {"thread_id": str(number % 2), "checkpoint_ns": ""}}
        metadata: Any = {"source": "loop" if number % 10 else "input", "step": number, "odd": number % 2 == 1}
        saver.put(config, empty_checkpoint(), metadata, {})

    steps = [each.metadata["step"] for each in saver.list(None)]
    some = [each.metadata["step"] for each in saver.list(None, filter={"source": "input", "odd": False}, limit=12)]
    (middle,) = saver.list(None, filter={"step": 115})
    earlier = [each.metadata["step"] for each in saver.list(None, before=middle.config, limit=105)]

    assert steps == list(reversed(range(130)))
    assert some == list(range(120, 0, -10))
    assert earlier == list(range(114, 9, -1))


STORED = [
    {"plain": [1, 2.5, None, True, "ü\0"]},
    (1, {2, 3}, b"\0\xff", {4: frozenset("a")}),
    float("inf"),
    [HumanMessage("hi", id="1"), AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "2"}])],
    ToolMessage("done", tool_call_id="2", artifact={"rows": (1, 2)}),
    Document("text", metadata={"page": 3}),
    Send("node", {"x": HumanMessage("hi", id="1")}),
    Command(update={"x": 1}, goto=[Send("a", 1), "b"], resume={"id": "yes"}),
    Interrupt(value={"question": "?"}, id="abc"),
    Overwrite([1]),
    _DeltaSnapshot([HumanMessage("hi", id="1")]),
    Plain(3),
    Pair(1, "b"),
    {"$serde": 1, "more": 2},
    {"$serde": ["wtb", "MQ=="], "more": 2},
    {"$serde": ["wtb", "MQ=="]},
    "$serde:",
]


@pytest.mark.parametrize("value", STORED, ids=lambda value: type(value).__name__)
def test_values_come_back_equal_and_of_the_same_type(sqlite_url: str, value: Any) -> None:
    with Saver(sqlite_url, types=[Plain, Pair]) as saver:
        config = put(saver, channel=value)
        saver.put_writes(config, [("channel", value), (INTERRUPT, [value])], "task")
        stored = stored_at(saver, config)

    (first, second) = stored.pending_writes
    for back in (stored.checkpoint["channel_values"]["channel"], second[2], first[2][0]):
        assert type(back) is type(value)
        assert back == value
    assert first[1] == INTERRUPT  # special ones have their places before the others


@pytest.mark.parametrize("unknown", [Plain(1), [Pair(1, "b")], {"a": deque([1])}, ValueError("x"), object, open])
def test_an_unknown_type_is_refused_by_channel_and_name(sqlite_url: str, unknown: Any) -> None:
    refused = r"channel 'bad': .* cannot be stored: found \w+"
    with Saver(sqlite_url) as saver:
        config = put(saver, good=1)
        with pytest.raises(StateError, match=refused):
            put(saver, config, bad=unknown)
        with pytest.raises(StateError, match=refused):
            saver.put_writes(config, [("good", 1), ("bad", unknown)], "task")
        stored = stored_at(saver, {"configurable": {"thread_id": "one"}})

    assert stored.checkpoint["channel_values"] == {"good": 1}
    assert stored.pending_writes == []


def test_what_to_do_about_a_value_that_cannot_be_stored_is_said(sqlite_url: str) -> None:
    with Saver(sqlite_url) as saver, pytest.raises(StateError, match=r"or name it: Saver\(url, types=\[\.\.\.\]\)"):
        put(saver, bad=Plain(1))
    with Saver(sqlite_url) as saver, pytest.raises(StateError, match="channel 'picture'") as refused:
        put(saver, picture=bytes(50 * 2**20))

    assert sentence("keep it in a file or an object store, and its path or key in the state") in str(refused.value)
    assert "ctx.workspace" not in str(refused.value)


def test_a_type_that_is_no_longer_listed_is_not_loaded(sqlite_url: str) -> None:
    with Saver(sqlite_url, types=[Plain]) as saver:
        config = put(saver, channel=Plain(1))

    with Saver(sqlite_url) as saver, pytest.raises(StateError, match=sentence("{} is not among the types", ":Plain")):
        saver.get_tuple(config)


def renamed(name: str, kind: type) -> type:
    """`kind` as if it had been written under `name` at the top of this module."""
    kind.__module__, kind.__qualname__ = __name__, name
    return kind


def test_a_named_tuple_comes_back_by_the_names_of_its_fields(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Saver(sqlite_url, types=[Pair]) as saver:
        config = put(saver, channel=Pair(1, "b"))

    turned = renamed("Pair", NamedTuple("Pair", [("right", str), ("left", int)]))
    monkeypatch.setattr(sys.modules[__name__], "Pair", turned)
    with Saver(sqlite_url, types=[turned]) as saver:
        stored = stored_at(saver, config)

    assert stored.checkpoint["channel_values"]["channel"]._asdict() == {"left": 1, "right": "b"}


class Noted(Pair):
    """May have attributes beside its fields, since it has no slots."""


def test_a_named_tuple_that_is_more_than_its_fields_is_refused(sqlite_url: str) -> None:
    noted = Noted(1, "b")
    noted.note = "kept by nobody"  # type: ignore[attr-defined]
    with Saver(sqlite_url, types=[Noted]) as saver, pytest.raises(StateError, match=r"found .*Noted; .* tuple\(...\)"):
        put(saver, channel=noted)


def test_an_object_without_a_value_in_a_slot_is_refused(sqlite_url: str) -> None:
    empty = Slotted()
    del empty.right
    words = sentence("no value for {}; give it", "right")
    with Saver(sqlite_url, types=[Slotted]) as saver, pytest.raises(StateError, match=words):
        put(saver, channel=empty)


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self) -> None:
        self.left, self.right = 1, "b"


MORE = "Pair has no value for more; give it one"
LESS = "Pair no longer has right; load it with"


@pytest.mark.parametrize(
    ("stored", "now", "reason"),
    [
        (Pair(1, "b"), NamedTuple("Pair", [("left", int), ("right", str), ("more", int)]), MORE),
        (Pair(1, "b"), NamedTuple("Pair", [("left", int)]), LESS),
        (Slotted(), type("Pair", (), {"__slots__": ("left", "right", "more")}), MORE.replace("Pair", "Slotted")),
        (Slotted(), type("Pair", (), {"__slots__": ("left",)}), LESS.replace("Pair", "Slotted")),
    ],
    ids=["named tuple, more", "named tuple, less", "slots, more", "slots, less"],
)
def test_a_type_whose_fields_changed_is_not_loaded(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, stored: Any, now: type, reason: str
) -> None:
    name = type(stored).__name__
    with Saver(sqlite_url, types=[type(stored)]) as saver:
        config = put(saver, channel=stored)

    monkeypatch.setattr(sys.modules[__name__], name, renamed(name, now))
    with Saver(sqlite_url, types=[now]) as saver, pytest.raises(StateError, match=reason):
        saver.get_tuple(config)


def test_types_and_serializers_that_cannot_be_used_and_a_session_that_is_not_there_are_refused(
    subtests: pytest.Subtests,
) -> None:
    class Inside:
        pass

    no_guess = r"give wtb\.integrations\.langgraph\.Serializer\(\)"
    for options, words in (
        ({"types": [deque]}, sentence("{} are more than their attributes", "deque")),
        ({"types": [Inside]}, "inside a function"),
        ({"serde": JsonPlusSerializer()}, no_guess),
        ({"serde": EncryptedSerializer(Reversed(), JsonPlusSerializer())}, no_guess),
        ({"session": "team"}, sentence("there is no session {}", "'team'")),
    ):
        with subtests.test(repr(options)), pytest.raises(InputError, match=words):
            Saver("sqlite://", **options)  # type: ignore[arg-type]


def test_values_are_encrypted_by_a_serializer_that_does(database_url: str) -> None:
    with Saver(database_url, EncryptedSerializer(Reversed(), Serializer())) as saver:
        graph = line(saver)
        ended = graph.invoke(start(), CONFIG, durability="sync")
        assert graph.get_state(CONFIG).values == ended
        with saver.database.read() as connection:
            columns = (values.c.data, thread_writes.c.value)
            stored = [text for column in columns for text in connection.scalars(sa.select(column))]

    assert all(text is None or text.startswith('$serde:["wtb+reversed",') for text in stored)


def test_a_damaged_value_is_found_by_its_hash(saver: Saver) -> None:
    config = put(saver, text=LONG)
    with saver.database.write() as connection:
        connection.execute(values.update().values(data='"another text"'))

    with pytest.raises(DamagedError, match="another hash"):
        saver.get_tuple(config)


def collected(saver: Saver, folder: Path) -> int:
    """Collect garbage and return the number of removed values."""
    collection = apply_policy(saver.database, FileStore(folder / "files"), Policy())
    return collection.removed["values"].count


def test_a_collection_spares_what_threads_name_and_removes_what_a_deleted_one_named(
    saver: Saver, tmp_path: Path
) -> None:
    config = put(saver, text=LONG)
    saver.put_writes(config, [("text", LONG.upper())], "task")
    other = saver.put({"configurable": {"thread_id": "two", "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})
    saver.put_writes(other, [("text", LONG.title())], "task")

    assert collected(saver, tmp_path) == 0
    saver.delete_thread("one")
    would = apply_policy(saver.database, FileStore(tmp_path / "files"), Policy(), dry_run=True)
    assert would.removed["values"].count == 2
    assert collected(saver, tmp_path) == 2
    stored = stored_at(saver, other)
    assert stored.pending_writes == [("task", "text", LONG.title())]


def test_a_value_that_was_collected_meanwhile_is_stored_again(saver: Saver, tmp_path: Path) -> None:
    parent = put(saver, text=LONG)
    saver.delete_thread("one")
    assert collected(saver, tmp_path) == 1

    config = put(saver, parent, new=(), text=LONG)

    stored = stored_at(saver, config)
    assert stored.checkpoint["channel_values"] == {"text": LONG}


def test_values_survive_collections_that_run_all_the_time(saver: Saver, tmp_path: Path) -> None:
    stop = threading.Event()

    def collect_all_the_time() -> int:
        removed = 0
        while not stop.is_set():
            removed += collected(saver, tmp_path)
        return removed

    with ThreadPoolExecutor(1) as pool:
        collecting = pool.submit(collect_all_the_time)
        try:
            for number in range(40):
                parent = put(saver, text=LONG)
                saver.delete_thread("one")
                child = put(saver, parent, new=(), text=LONG)
                saver.put_writes(child, [("text", LONG + str(number))], "task")
                stored = stored_at(saver, child)
                assert stored.checkpoint["channel_values"] == {"text": LONG}
                assert stored.pending_writes == [("task", "text", LONG + str(number))]
        finally:
            stop.set()
    assert collecting.result() > 0


def test_pruning_keeps_what_the_latest_state_is_rebuilt_from(saver: Saver) -> None:
    class State(TypedDict):
        items: Annotated[list[Any], DeltaChannel(lambda state, writes: [*state, *chain.from_iterable(writes)])]

    graph = StateGraph(State).add_node("add", lambda state: {"items": [len(state["items"])]})
    compiled = graph.add_edge(START, "add").compile(checkpointer=saver)
    for _ in range(4):
        compiled.invoke({"items": ["more"]}, CONFIG, durability="sync")
    line(saver).invoke(start(), {"configurable": {"thread_id": "two"}}, durability="sync")
    expected = ["more", 1, "more", 3, "more", 5, "more", 7]
    assert compiled.get_state(CONFIG).values == {"items": expected}

    saver.prune(["one", "two"])

    assert compiled.get_state(CONFIG).values == {"items": expected}
    assert asyncio.run(compiled.aget_state(CONFIG)).values == {"items": expected}
    (latest,) = saver.list({"configurable": {"thread_id": "two"}})
    assert latest.parent_config is None
    assert latest.checkpoint["channel_values"]["x"] == 3


def test_a_step_is_one_transaction(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "PATIENCE_S", 60.0)  # however busy this machine is
    stored: list[tuple[bool, bool]] = []
    store, put_one = Threads.put, Saver.put
    writing, came = threading.Event(), threading.Event()

    def noted(self: Threads, checkpoint: Any, writes: Any, *values: Any) -> bool:
        stored.append((checkpoint is not None, bool(writes)))
        if checkpoint is None:  # the writes of the first step are still being stored as its checkpoint comes
            writing.set()
            came.wait(60)
        elif checkpoint["metadata"]["source"] == "loop":
            came.set()
        return store(self, checkpoint, writes, *values)

    def put_after(self: Saver, config: Any, checkpoint: Any, metadata: Any, new: Any) -> Any:
        if metadata["source"] == "loop":
            writing.wait(60)
        return put_one(self, config, checkpoint, metadata, new)

    monkeypatch.setattr(Threads, "put", noted)
    monkeypatch.setattr(Saver, "put", put_after)

    line(saver).invoke(start(), CONFIG, durability="sync")

    assert sorted(stored[:3]) == [(False, True), (True, False), (True, False)]  # the input, and its distribution
    assert stored[3:] == [(True, True)] * 3  # the nodes


def test_pruning_refuses_what_it_cannot_do(sqlite_url: str) -> None:
    with Saver(sqlite_url) as saver:
        with pytest.raises(InputError, match=r"expected a list of them: \['one'\]"):
            saver.prune("one")
        with pytest.raises(InputError, match="expected one of: keep_latest, delete"):
            saver.prune(["one"], strategy="oldest")


def test_sessions_do_not_see_each_others_threads_and_take_them_along_when_deleted(saver: Saver) -> None:
    team = sessions.create(saver.database, "team")
    with Saver(saver.database, session="team") as theirs:
        config = put(theirs, text=LONG)
        theirs.put_writes(config, [("text", LONG)], "task")
        put(saver, mine=1)
        assert next(saver.list(None)).checkpoint["channel_values"] == {"mine": 1}
        assert next(theirs.list(None)).checkpoint["channel_values"] == {"text": LONG}

        deletion.delete_session(saver.database, team.id, may_live=lambda owner, expired: True)

        for use in (lambda: put(theirs, text=LONG), lambda: theirs.put_writes(config, [("text", LONG)], "task")):
            assert (count(saver, thread_checkpoints), count(saver, thread_writes)) == (1, 0)
            with pytest.raises(InputError, match=sentence("the session was deleted")):
                use()
    assert (count(saver, thread_checkpoints), count(saver, thread_writes)) == (1, 0)


def test_it_continues_after_the_server_has_ended_its_connections(fresh_postgres_url: str) -> None:
    with Saver(fresh_postgres_url) as saver:
        config = put(saver, x=1)
        with Database(fresh_postgres_url).write() as other:
            others = "datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
            other.execute(sa.text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))

        stored = stored_at(saver, put(saver, config, x=2))

    assert stored.checkpoint["channel_values"] == {"x": 2}


KILLED = """
import os, signal, sys
os.dup2(1, 2)
from langgraph.graph import START, StateGraph
from wtb.integrations.langgraph import Saver

def node(name):
    def run(state):
        print(name, flush=True)
        if sys.argv[2] == name:
            os.kill(os.getpid(), signal.SIGKILL)
        return {name: 1}
    return run

graph = StateGraph(dict)
before = START
for name in "abc":
    before = graph.add_node(name, node(name)).add_edge(before, name) and name
saver = Saver(sys.argv[1])
config = {"configurable": {"thread_id": "one"}}
compiled = graph.compile(checkpointer=saver)
if sys.argv[2] == "put":  # between a checkpoint and its writes, told of what was stored
    compiled.invoke({"x": 0}, config, durability="sync")
    stored = saver.get_tuple(config)
    saver.put_writes(stored.config, [("__root__", {"y": 1})], "task")
    print(stored.config["configurable"]["checkpoint_id"], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
compiled.invoke(None if sys.argv[2] == "resumed" else {"x": 0}, config, durability="sync")
"""


def run_apart(url: str, how: str) -> tuple[int, list[str]]:
    """Run a process. Return its exit code and the words that it prints, including stderr."""
    with Script(KILLED, url, how, kind="langgraph") as process:
        printed = process.communicate(60)
        return process.wait(), printed.split()


def test_another_process_resumes_where_one_was_killed(database_url: str) -> None:
    killed = run_apart(database_url, "b")
    resumed = run_apart(database_url, "resumed")

    assert killed == (-signal.SIGKILL, ["a", "b"])
    assert resumed == (0, ["b", "c"])


def test_what_was_said_to_be_stored_outlives_its_process(database_url: str) -> None:
    code, printed = run_apart(database_url, "put")

    with Saver(database_url) as saver:
        stored = stored_at(saver, CONFIG)

    assert code == -signal.SIGKILL
    assert stored.checkpoint["id"] == printed[-1]
    assert stored.pending_writes == [("task", "__root__", {"y": 1})]


def test_threads_of_python_share_no_more_connections_than_there_may_be(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_MOST_CONNECTIONS", 2)
    opened: list[int] = []
    all_sent, third, detached = threading.Barrier(8), threading.Event(), Database.detached

    def noted(self: Database) -> Any:
        opened.append(1)
        if len(opened) > 2:
            third.set()
        return detached(self)

    with Saver(fresh_postgres_url) as saver, ThreadPoolExecutor(8) as pool:
        monkeypatch.setattr(Database, "detached", noted)
        other = detached(saver.database)
        other.autocommit = False
        other.execute('LOCK TABLE "values" IN EXCLUSIVE MODE')  # whoever has a connection keeps it

        def save(number: int) -> None:
            config = {"configurable": {"thread_id": str(number), "checkpoint_id": "1"}}
            all_sent.wait(60)
            saver.put_writes(config, [("x", LONG)], "task")

        running = [pool.submit(save, number) for number in range(8)]
        is_more = third.wait(1)  # none comes, however long this waits
        other.close()
        for each in running:
            each.result(60)

    assert not is_more
    assert len(opened) == 2


def test_what_is_written_to_a_delta_channel_is_read_without_other_channels(saver: Saver) -> None:
    first = put(saver, text=LONG, items=LONG.upper())
    saver.put_writes(first, [("text", LONG), ("items", [1])], "task")
    second = put(saver, first, text=LONG)
    with saver.database.write() as connection:
        connection.execute(values.update().where(values.c.data == encode(LONG).decode()).values(data='"damaged"'))

    channel_history = saver.get_delta_channel_history(config=second, channels=["items"])

    assert channel_history == {"items": {"writes": [("task", "items", [1])], "seed": LONG.upper()}}


def test_a_collection_removes_writes_without_a_session(saver: Saver, tmp_path: Path) -> None:
    config = put(saver, x=1)
    saver.put_writes(config, [("text", LONG)], "task")
    with saver.database.write() as connection:  # as stored while the session was being deleted
        connection.execute(thread_writes.update().values(session_id="gone"))

    assert collected(saver, tmp_path) == 1
    assert count(saver, thread_writes) == 0


def test_many_ids_are_deleted_at_once(saver: Saver) -> None:
    ids = [str(number) for number in range(300_000)]  # more than a statement may have parameters
    put(saver, x=1)

    saver.delete_for_runs(ids)
    remove_checkpoints(saver.database, "default", "one", "", ids)
    assert count(saver, thread_checkpoints) == 1
    saver.prune([*ids, "one"], strategy="delete")

    assert count(saver, thread_checkpoints) == 0


def test_what_cannot_be_stored_or_found_is_refused_before_it_is_sent(saver: Saver) -> None:
    config = put(saver, x=1)
    nul: Any = {"x": {"deep": ["\\a\0b"]}}
    no_nul: Any = {"x": "\\u0000"}

    for use in (
        lambda: saver.put_writes(CONFIG, [("x", 1)], "task"),
        lambda: saver.put_writes(config, [("a\0b", 1)], "task"),
        lambda: saver.put_writes(config, [("x", 1)], "a\0b"),
        lambda: saver.put_writes(config, [("x", 1)], "task", "half \ud800"),
        lambda: saver.get_tuple({"configurable": {"thread_id": "a\0b"}}),
        lambda: saver.get_tuple({"configurable": {"thread_id": "one", "checkpoint_id": "a\0b"}}),
        lambda: put(saver, config, **{"a\0b": 1}),
        lambda: saver.put(config, empty_checkpoint(), nul, {}),
        lambda: saver.delete_thread("a\0b"),
        lambda: saver.delete_for_runs("one"),
        lambda: saver.list(None, filter={"source": "\0"}),
        lambda: saver.list(None, filter={"source": {"update"}}),
        lambda: saver.list(None, filter={"parents": {}}),
        lambda: saver.list(None, filter={"step": 2**64}),
        lambda: saver.list(None, filter={"step": float("nan")}),
    ):
        with pytest.raises(InputError, match=r"expected|NUL|checkpoint_id"):
            use()
    saver.put(config, empty_checkpoint(), no_nul, {})

    assert count(saver, thread_checkpoints) == 2
    assert count(saver, thread_writes) == 0


def test_what_the_server_refuses_is_told_without_values(fresh_postgres_url: str) -> None:
    with Saver(fresh_postgres_url) as saver, pytest.raises(StoreError, match="invalid input syntax") as raised:
        saver._threads._execute("SELECT %s::json", ['{"secret": oh}'])

    assert "secret" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_metadata_are_compared_by_value(saver: Saver) -> None:
    for step, n in enumerate((1, 1.0, True, "1", None)):
        metadata: Any = {"source": "update", "step": step, "n": n, 'a"b': 0.1 if step == 0 else "0.1"}
        saver.put({"configurable": {"thread_id": "one"}}, empty_checkpoint(), metadata, {})
    saver.put({"configurable": {"thread_id": "one"}}, empty_checkpoint(), {"source": "update", "step": 5}, {})

    def steps(**filter: Any) -> list[int]:
        return [each.metadata["step"] for each in saver.list(None, filter=filter)]

    assert [steps(n=n) for n in (1, 1.0, True, "1", None)] == [[1, 0], [1, 0], [2], [3], [4]]
    assert [steps(**{'a"b': 0.1, "n": n}) for n in (1, "1")] == [[0], []]


def test_children_of_deleted_runs_have_no_parent(saver: Saver) -> None:
    of_run: Any = {"source": "update", "step": 0, "run_id": "gone"}
    parent = saver.put(OUTER, empty_checkpoint(), of_run, {})
    saver.put_writes(parent, [("x", 1)], "task")
    child = put(saver, parent, x=1)

    saver.delete_for_runs(["gone"])

    (child_checkpoint,) = saver.list(CONFIG)
    assert (child_checkpoint.config, child_checkpoint.parent_config) == (child, None)
    assert count(saver, thread_writes) == 0


def test_after_a_look_at_old_checkpoints_the_head_is_still_known(saver: Saver) -> None:
    first = put(saver, text=LONG)
    second = put(saver, first, text=LONG)

    assert len(list(saver.list(CONFIG))) == 2

    assert saver._heads[("one", "")].id == second["configurable"]["checkpoint_id"]


def test_a_closed_saver_says_so(database_url: str) -> None:
    opened = Database(database_url)
    saver = Saver(opened)
    config = put(saver, x=1)
    saver.close()

    for use in (
        lambda: put(saver, x=1),
        lambda: saver.put_writes(config, [("x", 1)], "task"),
        lambda: saver.get_tuple(config),
        lambda: saver.list(None),
        lambda: saver.delete_thread("one"),
    ):
        with pytest.raises(StateError, match=sentence("the saver is closed")):
            use()
    opened.close()


@pytest.mark.parametrize("channel", ["$set", "$tuple", "$"])
def test_a_channel_that_is_called_like_a_tag_is_stored(sqlite_url: str, channel: str) -> None:
    with Saver(sqlite_url) as saver:
        stored = stored_at(saver, put(saver, **{channel: 1}))

    assert stored.checkpoint["channel_values"] == {channel: 1}
    assert stored.checkpoint["channel_versions"] == {channel: 1}
