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
from wtb.core.mappings import State
from wtb.core.serialization.codec import decode, digest, encode
from wtb.core.tree.checkpoints import HIDDEN, Position
from wtb.core.values import Value, Values, differing, stored
from wtb.integrations.langgraph.authoring.nodes import Graph, full_name
from wtb.integrations.langgraph.engine.frames import (
    IN_PLACE,
    Branch,
    Frame,
    Write,
    channel_value,
    is_missing,
    open_channels,
)
from wtb.integrations.langgraph.engine.messages import with_ids

COMMAND = HIDDEN + "command"  # a Command for a graph further out, in place of writes
AGAIN = "|"  # before the number of a further write to a channel: LangGraph has no node with it in its name


class StoredSend(TypedDict):
    """A `Send` as it is stored."""

    node: str
    arg: Any
    timeout: Any


class KeptTask(NamedTuple):
    """A task of a kept frame, which the position has as a list.

    kind, number: its path, as LangGraph's. is_done: its writes are in the state. inner: the graph that it steps
    through.
    """

    kind: str
    number: int
    node: str
    is_done: bool
    inner: KeptFrame | None


class KeptFrame(TypedDict):
    """What a position keeps of a frame, as JSON.

    internal: channel of LangGraph's own -> its value as typed JSON. tasks: each as `KeptTask` has it. Of a graph that
    has not run yet: given, a digest of the state around it when it was entered; entered, of each of its own keys.
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


def _tasks(kept: KeptFrame) -> Iterator[KeptTask]:
    return (KeptTask(*one) for one in kept["tasks"])


class Known:
    """Values by the objects that were decoded from them, so that what only passes through is not encoded again."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, Value]] = {}

    def decode(self, value: Value) -> Any:
        decoded = decode(value.data)
        self._found[id(decoded)] = decoded, value
        return decoded

    def value(self, decoded: Any) -> Value | None:
        found = self._found.get(id(decoded))
        return None if found is None else found[1]


_UNCHANGING = (str, bytes, int, float, bool, NoneType)


def changed_in_place(frame: Frame, known: Known) -> Iterator[Write]:
    """Yield the values of a frame that are not what they were decoded from, as writes that `take_over_changes` reads.

    LangGraph gives nodes the objects that its channels hold: what a node changes in them is there for the next one.
    """
    for name, channel in frame.channels.items():
        content = None if is_internal(frame.graph, name) else channel_value(channel)
        if isinstance(content, _UNCHANGING) or (before := known.value(content)) is None:
            continue
        data = encode(content)
        if data != before.data and data != encode(decode(before.data)):  # which the type may write in another order
            yield IN_PLACE + name, content


def is_internal(graph: Graph, channel: str) -> bool:
    """Whether a channel is LangGraph's own, such as `branch:to:node`."""
    return channel not in graph.builder.channels  # type: ignore[attr-defined]


# Writes of a task: an ordered list of (channel, value), where one channel may come twice


def write_values(graph: Graph, who: str, writes: Iterable[Write]) -> dict[str, Value]:
    """Writes by key: the channel, hidden where it is LangGraph's own, with a number where it comes again.

    An untracked value that cannot be stored, such as a session of a shell, is left out: it lasts for its step.
    """
    values: dict[str, Value] = {}
    times: Counter[str] = Counter()
    for channel, value in writes:
        if _is_fleeting(graph, channel, value):
            continue
        key = HIDDEN + channel if is_internal(graph, channel) else channel
        plain = _plain_send(value, graph) if isinstance(value, Send) else value
        numbered = f"{key}{AGAIN}{times[key]}" if times[key] else key
        values[numbered] = stored(f"{who} key", channel, plain)
        times[key] += 1
    return values


def writes_of(values: Values, known: Known) -> list[Write]:
    """The same as a list; databases need not keep the order of keys."""
    found = []
    for key, value in sorted(values.items(), key=lambda item: int(item[0].partition(AGAIN)[2] or 0)):
        channel = key.partition(AGAIN)[0].removeprefix(HIDDEN)
        decoded = known.decode(value)
        found.append((channel, _send(decoded) if channel == TASKS else decoded))
    return found


def command_value(who: str, command: Command[Any]) -> Value:
    """Raises StateError, which names the node."""
    goto = command.goto if isinstance(command.goto, list | tuple) else [command.goto] if command.goto else []
    targets = [_plain_send(one) if isinstance(one, Send) else one for one in goto]
    update = with_ids(command.update)
    return stored(who, "Command", {"graph": command.graph, "update": update, "goto": targets})


def command_of(value: Value) -> Command[Any]:
    fields = decode(value.data)
    goto = [one if isinstance(one, str) else _send(one) for one in fields["goto"]]
    return Command(graph=fields["graph"], update=fields["update"], goto=goto)


def _plain_send(packet: Send, graph: Graph | None = None) -> StoredSend:
    """graph: that is sent within, where its state may be among what is sent."""
    arg = packet.arg
    if graph is not None and isinstance(arg, dict):
        arg = {key: value for key, value in arg.items() if not _is_fleeting(graph, key, value)}
    return {"node": packet.node, "arg": arg, "timeout": packet.timeout}


def _is_fleeting(graph: Graph, channel: Any, value: Any) -> bool:
    """Whether a value is of a channel that is not tracked, and cannot be stored."""
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


def freeze(root: Frame, state: Values, known: Known) -> tuple[dict[str, Value], tuple[str, ...], Any]:
    """A frame as (values that are new, keys that were removed, what the position keeps of it). state: before it."""
    there: dict[str, Value] = {}
    kept = _freeze(root, state, known, there) if root.branches else None
    if not root.branches:  # it has ended: only its values are left
        there |= dict(_values(root, state, known))
    return differing(there, state), tuple(key for key in state if key not in there), kept


def _freeze(frame: Frame, state: Values, known: Known, there: dict[str, Value]) -> KeptFrame:
    there |= dict(_values(frame, state, known))
    internal: dict[str, str] = {}
    tasks: list[list[Any]] = []
    mark: str | None = None
    for name, channel in frame.channels.items():
        if name != TASKS and is_internal(frame.graph, name) and not is_missing(content := channel_value(channel)):
            internal[name] = encode(content).decode()
    for number, branch in enumerate(frame.branches):
        inner = None
        if branch.inner is not None:
            inner = _freeze(branch.inner, state, known, there)
            if branch.inner.is_fresh():
                mark = inner["given"] = mark or _mark(frame.graph, frame.label, there)
                inner["entered"] = _marks(branch.inner, there)
        if branch.writes is not None:
            written = write_values(frame.graph, f"node {frame.node_name(branch.node)!r}", branch.writes)
            there |= {f"{HIDDEN}{frame.label}{number}/{key}": value for key, value in written.items()}
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


def _values(frame: Frame, state: Values, known: Known) -> Iterator[tuple[str, Value]]:
    for name, channel in frame.channels.items():
        if name == TASKS:
            for number, packet in enumerate(channel.get() if channel.is_available() else ()):
                key = f"{HIDDEN}{frame.label}send/{number}"
                yield key, stored("what was sent to", packet.node, _plain_send(packet))
        elif not is_internal(frame.graph, name):
            key = frame.label + name
            if frame.stored and name not in frame.changed and key in state:
                yield key, state[key]
            elif not is_missing(content := channel_value(channel)):
                value = known.value(content) if isinstance(channel, LastValue) else None
                yield key, value or stored("the value of key", key, content)


def _mark(graph: Graph, label: str, values: Values) -> str:
    """By which one sees that a person has changed the state around a graph since it was entered."""
    digests = [values[label + name].digest for name in graph.channels if label + name in values]
    return digest("".join(digests).encode())[:16]


def _marks(frame: Frame, values: Values) -> dict[str, str]:
    """The same for each key of a graph that was entered just now."""
    keys = ((name, frame.label + name) for name in frame.channels if not is_internal(frame.graph, name))
    return {name: values[key].digest[:12] for name, key in keys if key in values}


def way_to(kept: KeptFrame, node: str, number: int) -> tuple[int, ...]:
    """The tasks, by their places, that lead to one that is to be run. number: among those of its node."""
    return next(islice((way for name, way in _ways(kept) if name == node), number, None))


def _ways(kept: KeptFrame, way: tuple[int, ...] = ()) -> Iterator[tuple[str, tuple[int, ...]]]:
    for place, task in enumerate(_tasks(kept)):
        if task.inner is not None:
            yield from _ways(task.inner, (*way, place))
        elif not task.is_done:
            yield full_name(kept["graph"], task.node), (*way, place)


def thaw(
    graphs: Mapping[str, Graph], kept: KeptFrame, state: Values, known: Known, way: Sequence[int] | None = None
) -> Frame:
    """The frame that a position keeps. graphs: by the names of the nodes that they are.

    way: to one task, where only this is to be run: of all other tasks nothing is read.
    """
    hidden = [] if way else sorted(key for key in state if key.startswith(HIDDEN))
    return _thaw_frame(graphs, kept, state, known, hidden, way)


def _thaw_frame(
    graphs: Mapping[str, Graph],
    kept: KeptFrame,
    state: Values,
    known: Known,
    hidden: Sequence[str],
    way: Sequence[int] | None,
) -> Frame:
    """hidden: the engine's own keys of the state, in order."""
    graph, label = graphs[kept["graph"]], kept["label"]
    tasks = [(place, task) for place, task in enumerate(_tasks(kept)) if not way or place == way[0]]
    values = {name: decode(text.encode()) for name, text in kept["internal"].items()}
    for name in graph.channels:
        if (value := state.get(label + name)) is not None and not is_internal(graph, name):
            values[name] = known.decode(value)
    start = f"{HIDDEN}{label}send/"
    if not way and (sends := _under(state, hidden, start)):
        values[TASKS] = [_send(known.decode(sends[str(number)])) for number in range(len(sends))]
    elif way and tasks[0][1].kind == PUSH:
        number = tasks[0][1].number
        values[TASKS] = [*[None] * number, _send(known.decode(state[f"{start}{number}"]))]
    channels, managed = open_channels(graph, values)
    frame = Frame(
        graph,
        kept["graph"],
        label,
        channels,
        managed,
        dict(kept["versions"]),
        {node: dict(seen) for node, seen in kept["seen"].items()},
        kept["step"],
        kept["stop"],
        stored=True,
    )
    if (entered := kept.get("entered")) is not None:
        now = _marks(frame, state)
        frame.edited = {name for name in frame.channels if now.get(name) != entered.get(name)}
    mark = None
    for place, task in tasks:
        branch = Branch((task.kind, task.number), task.node)
        inner = task.inner
        if task.is_done:
            branch.writes = writes_of(_under(state, hidden, f"{HIDDEN}{label}{place}/"), known)
        if inner is not None:
            branch.inner = _thaw_frame(graphs, inner, state, known, hidden, way[1:] if way else None)
            if "given" in inner:
                mark = mark or _mark(graph, label, state)
                branch.stale = inner["given"] != mark
        frame.branches.append(branch)
    return frame


def _under(state: Values, hidden: Sequence[str], start: str) -> dict[str, Value]:
    """The values whose keys begin so, by the rest of the key."""
    first = bisect_left(hidden, start)
    keys = takewhile(lambda key: key.startswith(start), islice(hidden, first, None))
    return {key.removeprefix(start): state[key] for key in keys}


def next_nodes(root: Frame) -> tuple[tuple[str, ...], dict[str, int]]:
    """The next nodes in the order of their first task, and how many tasks those have that have several."""
    count: dict[str, int] = {}
    for frame, branch in root.leaves():
        name = frame.node_name(branch.node)
        count[name] = count.get(name, 0) + 1
    return tuple(count), {name: number for name, number in count.items() if number > 1}


def leaves_by_key(root: Frame, position: Position) -> dict[str, tuple[Frame, Branch]]:
    """The tasks that are to be run, by the keys that the position gives them."""
    found: dict[str, list[tuple[Frame, Branch]]] = {}
    for frame, branch in root.leaves():
        found.setdefault(frame.node_name(branch.node), []).append((frame, branch))
    return {task.key: found[task.node][task.number] for task in position.tasks}


def plain_state(graph: Graph, state: Values, known: Known) -> State:
    """The values of a graph's own keys that are there."""
    return {
        name: known.decode(state[name]) for name in graph.channels if name in state and not is_internal(graph, name)
    }
