"""LangGraph's channels, versions and tasks as WTB's state and position, and back: the one place that maps them.

A channel of the outermost graph is the state's key of that name; one of a graph within is `sub.name`. What LangGraph
keeps for itself (who triggers whom, what waits at a join, what was sent) is in the position, or under keys that begin
with `~`. So a checkpoint of WTB holds all that a checkpoint of LangGraph does, each value once by its content.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from types import NoneType
from typing import Any, NamedTuple, NotRequired, TypedDict

from langgraph._internal._constants import PUSH, TASKS
from langgraph.channels.last_value import LastValue
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.types import Command, Send

from wtb.core.errors import StateError
from wtb.core.serialization.codec import decode, digest, encode
from wtb.core.tree.checkpoints import HIDDEN, Position
from wtb.core.values import State, Value, Values, differing, stored
from wtb.integrations.langgraph.frames import (
    IN_PLACE,
    Branch,
    Frame,
    Write,
    channel_value,
    is_missing,
    open_channels,
)
from wtb.integrations.langgraph.messages import with_ids
from wtb.integrations.langgraph.nodes import Graph, full_name

COMMAND = HIDDEN + "command"  # a Command for a graph further out, in place of writes
REPEAT_MARK = "|"  # before the number of a further write to a channel: LangGraph has no node with it in its name


class StoredSend(TypedDict):
    """A `Send` as it is stored."""

    node: str
    arg: Any
    timeout: Any


class KeptTask(NamedTuple):
    """A task of a kept frame, which the position has as a list.

    Attributes:
        kind: The first part of LangGraph's path of the task.
        number: The second part of it.
        node: The node that it runs.
        is_done: Its writes are in the state.
        inner: The graph that it steps through, if it does.
    """

    kind: str
    number: int
    node: str
    is_done: bool
    inner: KeptFrame | None


class KeptFrame(TypedDict):
    """The part of a frame that a position keeps, as JSON.

    Attributes:
        graph: The frame's `name`.
        label: The frame's `label`.
        step: The number of the present step.
        stop: The step at which LangGraph's limit of steps is reached.
        versions: The version of each channel.
        seen: The versions of channels that each node has seen.
        internal: The values of LangGraph's own channels, as typed JSON.
        tasks: The tasks of the step, each with the fields of `KeptTask`.
        given: A digest of the state around the graph when it was entered. Only for a graph that has not run yet.
        entered: Digests of each of the graph's own keys when it was entered. Only for a graph that has not run yet.
    """

    graph: str
    label: str
    step: int
    stop: int
    versions: dict[str, int]
    seen: dict[str, dict[str, int]]
    internal: dict[str, str]
    tasks: list[list[Any]]
    given: NotRequired[str]
    entered: NotRequired[dict[str, str]]


def _tasks(kept_frame: KeptFrame) -> Iterator[KeptTask]:
    return (KeptTask(*fields) for fields in kept_frame["tasks"])


class DecodedValues:
    """Values by the objects that were decoded from them, so that what only passes through is not encoded again."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Any, Value]] = {}

    def decode(self, value: Value) -> Any:
        decoded = decode(value.data)
        # The object is kept as well: once it were collected, another one could get its id.
        self._by_id[id(decoded)] = decoded, value
        return decoded

    def value(self, decoded: Any) -> Value | None:
        pair = self._by_id.get(id(decoded))
        return None if pair is None else pair[1]


_UNCHANGING = (str, bytes, int, float, bool, NoneType)


def changed_in_place(frame: Frame, decoded_values: DecodedValues) -> Iterator[Write]:
    """Yield the values of a frame that differ from what they were decoded from, for `apply_in_place_changes`.

    LangGraph gives nodes the objects that its channels hold: what a node changes in them is there for the next one.
    """
    for name, channel in frame.channels.items():
        content = None if is_internal(frame.graph, name) else channel_value(channel)
        if isinstance(content, _UNCHANGING) or (before := decoded_values.value(content)) is None:
            continue
        encoded = encode(content)
        # A type may write the same content in another order.
        if encoded != before.data and encoded != encode(decode(before.data)):
            yield IN_PLACE + name, content


def is_internal(graph: Graph, channel: str) -> bool:
    """Return whether a channel is LangGraph's own, such as `branch:to:node`."""
    return channel not in graph.builder.channels  # type: ignore[attr-defined]


# Writes of a task: an ordered list of (channel, value), where one channel may come twice


def write_values(graph: Graph, who: str, writes: Iterable[Write]) -> dict[str, Value]:
    """Return writes by key: the channel, hidden if it is LangGraph's own, with a number if it comes again.

    An untracked value that cannot be stored, such as a session of a shell, is left out: it lasts for its step.
    """
    values: dict[str, Value] = {}
    times: Counter[str] = Counter()
    for channel, value in writes:
        if _is_fleeting(graph, channel, value):
            continue
        key = HIDDEN + channel if is_internal(graph, channel) else channel
        plain = _plain_send(value, graph) if isinstance(value, Send) else value
        numbered = f"{key}{REPEAT_MARK}{times[key]}" if times[key] else key
        values[numbered] = stored(f"{who} key", channel, plain)
        times[key] += 1
    return values


def writes_of(values: Values, decoded_values: DecodedValues) -> list[Write]:
    """Return the writes as a list, in order of their numbers: databases need not keep the order of keys."""
    writes = []
    for key, value in sorted(values.items(), key=lambda pair: int(pair[0].partition(REPEAT_MARK)[2] or 0)):
        channel = key.partition(REPEAT_MARK)[0].removeprefix(HIDDEN)
        decoded = decoded_values.decode(value)
        writes.append((channel, _send(decoded) if channel == TASKS else decoded))
    return writes


def command_value(who: str, command: Command[Any]) -> Value:
    """Store a Command as a value. Raises StateError that names the node."""
    goto = command.goto if isinstance(command.goto, list | tuple) else [command.goto] if command.goto else []
    targets = [_plain_send(target) if isinstance(target, Send) else target for target in goto]
    update = with_ids(command.update)
    return stored(who, "Command", {"graph": command.graph, "update": update, "goto": targets})


def command_of(value: Value) -> Command[Any]:
    fields = decode(value.data)
    goto = [target if isinstance(target, str) else _send(target) for target in fields["goto"]]
    return Command(graph=fields["graph"], update=fields["update"], goto=goto)


def _plain_send(packet: Send, graph: Graph | None = None) -> StoredSend:
    """Return a `Send` as plain data. `graph` is the one it is sent within, if its state may be part of the argument."""
    arg = packet.arg
    if graph is not None and isinstance(arg, dict):
        arg = {key: argument for key, argument in arg.items() if not _is_fleeting(graph, key, argument)}
    return {"node": packet.node, "arg": arg, "timeout": packet.timeout}


def _is_fleeting(graph: Graph, channel: Any, value: Any) -> bool:
    """Return whether a value is of a channel that is not tracked, and cannot be stored."""
    if not isinstance(graph.channels.get(channel), UntrackedValue):
        return False
    try:
        encode(value)
    except StateError:
        return True
    return False


def _send(fields: StoredSend) -> Send:
    return Send(fields["node"], fields["arg"], timeout=fields["timeout"])


# Frames


def freeze(root: Frame, state: Values, decoded_values: DecodedValues) -> tuple[dict[str, Value], tuple[str, ...], Any]:
    """Return new values, removed keys and what the position keeps of a frame. `state` is the one before it."""
    values: dict[str, Value] = {}
    kept_frame = _freeze(root, state, decoded_values, values) if root.branches else None
    if not root.branches:  # it has ended: only its values are left
        values |= dict(_values(root, state, decoded_values))
    return differing(values, state), tuple(key for key in state if key not in values), kept_frame


def _freeze(frame: Frame, state: Values, decoded_values: DecodedValues, values: dict[str, Value]) -> KeptFrame:
    values |= dict(_values(frame, state, decoded_values))
    internal: dict[str, str] = {}
    tasks: list[list[Any]] = []
    mark: str | None = None
    for name, channel in frame.channels.items():
        if name != TASKS and is_internal(frame.graph, name) and not is_missing(content := channel_value(channel)):
            internal[name] = encode(content).decode()
    for number, branch in enumerate(frame.branches):
        inner = None
        if branch.inner is not None:
            inner = _freeze(branch.inner, state, decoded_values, values)
            if branch.inner.is_fresh():
                mark = inner["given"] = mark or _mark(frame.graph, frame.label, values)
                inner["entered"] = _marks(branch.inner, values)
        if branch.writes is not None:
            written = write_values(frame.graph, f"node {frame.node_name(branch.node)!r}", branch.writes)
            values |= {f"{HIDDEN}{frame.label}{number}/{key}": value for key, value in written.items()}
        tasks.append([*branch.path, branch.node, branch.writes is not None, inner])
    return {
        "graph": frame.name,
        "label": frame.label,
        "step": frame.step,
        "stop": frame.stop,
        "versions": frame.versions,
        "seen": frame.seen,
        "internal": internal,
        "tasks": tasks,
    }


def _values(frame: Frame, state: Values, decoded_values: DecodedValues) -> Iterator[tuple[str, Value]]:
    for name, channel in frame.channels.items():
        if name == TASKS:
            for number, packet in enumerate(channel.get() if channel.is_available() else ()):
                key = f"{HIDDEN}{frame.label}send/{number}"
                yield key, stored("what was sent to", packet.node, _plain_send(packet))
        elif not is_internal(frame.graph, name):
            key = frame.label + name
            # An unchanged value keeps its bytes. Encoding it again could write them in another order.
            if frame.stored and name not in frame.changed and key in state:
                yield key, state[key]
            elif not is_missing(content := channel_value(channel)):
                value = decoded_values.value(content) if isinstance(channel, LastValue) else None
                yield key, value or stored("the value of key", key, content)


def _mark(graph: Graph, label: str, values: Values) -> str:
    """Return a digest that shows whether a person has changed the state around a graph since it was entered."""
    digests = [values[label + name].digest for name in graph.channels if label + name in values]
    return digest("".join(digests).encode())[:16]


def _marks(frame: Frame, values: Values) -> dict[str, str]:
    """Return such a digest for each key of a graph that was entered just now."""
    keys = ((name, frame.label + name) for name in frame.channels if not is_internal(frame.graph, name))
    return {name: values[key].digest[:12] for name, key in keys if key in values}


def way_to(kept_frame: KeptFrame, node: str, number: int) -> tuple[int, ...]:
    """Return the places of the tasks that lead to one to be run; `number` counts the tasks of its node."""
    return next(islice((way for name, way in _ways(kept_frame) if name == node), number, None))


def _ways(kept_frame: KeptFrame, way: tuple[int, ...] = ()) -> Iterator[tuple[str, tuple[int, ...]]]:
    for place, task in enumerate(_tasks(kept_frame)):
        if task.inner is not None:
            yield from _ways(task.inner, (*way, place))
        elif not task.is_done:
            yield full_name(kept_frame["graph"], task.node), (*way, place)


def thaw(
    graphs: Mapping[str, Graph],
    kept_frame: KeptFrame,
    state: Values,
    decoded_values: DecodedValues,
    way: Sequence[int] | None = None,
) -> Frame:
    """Restore the frame of a position. `graphs` has the graphs by the names of their nodes.

    way: The way to a task, if only this one is run. Nothing of other tasks is read.
    """
    hidden = [] if way else sorted(key for key in state if key.startswith(HIDDEN))
    return _thaw_frame(graphs, kept_frame, state, decoded_values, hidden, way)


def _thaw_frame(
    graphs: Mapping[str, Graph],
    kept_frame: KeptFrame,
    state: Values,
    decoded_values: DecodedValues,
    hidden: Sequence[str],
    way: Sequence[int] | None,
) -> Frame:
    """Restore a frame and those in it. `hidden` has the engine's own keys of the state, in order."""
    graph, label = graphs[kept_frame["graph"]], kept_frame["label"]
    tasks = [(place, task) for place, task in enumerate(_tasks(kept_frame)) if not way or place == way[0]]
    values = {name: decode(text.encode()) for name, text in kept_frame["internal"].items()}
    for name in graph.channels:
        if (value := state.get(label + name)) is not None and not is_internal(graph, name):
            values[name] = decoded_values.decode(value)
    start = f"{HIDDEN}{label}send/"
    if not way and (sends := _under(state, hidden, start)):
        values[TASKS] = [_send(decoded_values.decode(sends[str(number)])) for number in range(len(sends))]
    elif way and tasks[0][1].kind == PUSH:
        number = tasks[0][1].number
        # LangGraph finds a task by its index, so the packets before it are replaced by empty ones and not decoded.
        values[TASKS] = [*[None] * number, _send(decoded_values.decode(state[f"{start}{number}"]))]
    channels, managed = open_channels(graph, values)
    frame = Frame(
        graph,
        kept_frame["graph"],
        label,
        channels,
        managed,
        dict(kept_frame["versions"]),
        {node: dict(seen) for node, seen in kept_frame["seen"].items()},
        kept_frame["step"],
        kept_frame["stop"],
        stored=True,
    )
    if (entered := kept_frame.get("entered")) is not None:
        now = _marks(frame, state)
        frame.edited = {name for name in frame.channels if now.get(name) != entered.get(name)}
    mark = None
    for place, task in tasks:
        branch = Branch((task.kind, task.number), task.node)
        inner = task.inner
        if task.is_done:
            branch.writes = writes_of(_under(state, hidden, f"{HIDDEN}{label}{place}/"), decoded_values)
        if inner is not None:
            branch.inner = _thaw_frame(graphs, inner, state, decoded_values, hidden, way[1:] if way else None)
            if "given" in inner:
                mark = mark or _mark(graph, label, state)
                branch.stale = inner["given"] != mark
        frame.branches.append(branch)
    return frame


def _under(state: Values, hidden: Sequence[str], start: str) -> dict[str, Value]:
    """Return the values whose keys begin with `start`, by the rest of the key."""
    first = bisect_left(hidden, start)
    keys = takewhile(lambda key: key.startswith(start), islice(hidden, first, None))
    return {key.removeprefix(start): state[key] for key in keys}


def next_nodes(root: Frame) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the next nodes in the order of their first task, and the number of tasks of nodes that have several."""
    count = Counter(frame.node_name(branch.node) for frame, branch in root.leaves())
    return tuple(count), {name: number for name, number in count.items() if number > 1}


def leaves_by_key(root: Frame, position: Position) -> dict[str, tuple[Frame, Branch]]:
    """Return the tasks that are to be run, by the keys that the position gives them."""
    by_node: dict[str, list[tuple[Frame, Branch]]] = {}
    for frame, branch in root.leaves():
        by_node.setdefault(frame.node_name(branch.node), []).append((frame, branch))
    return {task.key: by_node[task.node][task.number] for task in position.tasks}


def plain_state(graph: Graph, state: Values, decoded_values: DecodedValues) -> State:
    """Return the values of a graph's own keys that are there."""
    return {
        name: decoded_values.decode(state[name])
        for name in graph.channels
        if name in state and not is_internal(graph, name)
    }
