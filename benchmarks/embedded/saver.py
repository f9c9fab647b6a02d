"""WTB's saver against LangGraph's PostgresSaver: the same graphs on the same PostgreSQL, in turns, each step committed.

A graph that runs alone writes through one connection with either. Of many that share a saver, PostgresSaver lets one
write at a time. The time of a step is that of a whole `invoke` over its nodes; the same graph without a saver is
measured beside, so that what a saver adds can be told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from operator import add
from typing import Annotated, Any, TypedDict

import psycopg
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from psycopg.rows import dict_row
from sqlalchemy import make_url

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds, ratios
from benchmarks.workloads.chain import SLOTS
from wtb.integrations.langgraph import Saver

NODES, TURNS = 5, 40
_REPEATS = {"line": 20, "talk": 3}
_STEPS = {"line": NODES, "talk": TURNS}
_WORDS = "It depends on what was asked, and on what had been said before that. "


class OneCommit(InMemorySaver):
    """Keeps all in memory and commits a number at each step: the lower bound of any saver on this database."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection
        connection.execute("CREATE TABLE committed (number int)")

    def put(self, *args: Any) -> Any:
        self._connection.execute("INSERT INTO committed VALUES (1)")
        return super().put(*args)


class Numbers(TypedDict):
    x: int
    seen: Annotated[list[int], add]


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def _line(saver: BaseCheckpointSaver[Any] | None) -> Any:
    """Five trivial nodes in a row."""
    graph = StateGraph(Numbers)
    before = START
    for number in range(NODES):
        graph.add_node(f"n{number}", lambda state: {"x": state["x"] + 1, "seen": [state["x"]]})
        graph.add_edge(before, f"n{number}")
        before = f"n{number}"
    graph.add_edge(before, END)
    return graph.compile(checkpointer=saver)


def _talk(saver: BaseCheckpointSaver[Any] | None) -> Any:
    """Return a graph of one node that keeps adding a message."""
    graph = StateGraph(Talk)
    graph.add_node("say", lambda state: {"messages": [AIMessage(_WORDS, id=str(len(state["messages"])))]})
    graph.add_edge(START, "say")
    graph.add_conditional_edges("say", lambda state: END if len(state["messages"]) > TURNS else "say")
    return graph.compile(checkpointer=saver)


_GRAPHS: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "line": (_line, {"x": 0, "seen": []}),
    "talk": (_talk, {"messages": [HumanMessage("What does it depend on?", id="0")]}),
}


def _timed(graph: Any, kind: str, name: str) -> float:
    """Return the milliseconds a step; the stored state of the last run is verified."""
    config: Any = {}
    start = time.perf_counter()
    for number in range(_REPEATS[kind]):
        config = {"configurable": {"thread_id": f"{kind}-{name}-{number}"}, "recursion_limit": 2 * TURNS}
        options = {"durability": "sync"} if graph.checkpointer else {}
        ended = graph.invoke(_GRAPHS[kind][1], config, **options)
    took = time.perf_counter() - start
    if graph.checkpointer and graph.get_state(config).values != ended:
        raise RuntimeError(f"{kind}: stored {graph.get_state(config).values}, expected {ended}")
    return 1000 * took / (_REPEATS[kind] * _STEPS[kind])


def _crowd(graph: Any, name: str) -> float:
    """Return the milliseconds a step of one run of the line in each slot at the same time, through one saver."""

    def run(number: int) -> None:
        config = {"configurable": {"thread_id": f"crowd-{name}-{number}"}}
        graph.invoke(_GRAPHS["line"][1], config, durability="sync")

    runs = 5 * SLOTS
    start = time.perf_counter()
    with ThreadPoolExecutor(SLOTS) as pool:
        list(pool.map(run, range(runs)))
    return 1000 * (time.perf_counter() - start) / (runs * NODES)


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    url = environment.fresh("postgresql")
    parts = make_url(url).translate_connect_args(username="user", database="dbname")
    with ExitStack() as stack:
        connection = stack.enter_context(
            psycopg.connect(**parts, autocommit=True, prepare_threshold=0, row_factory=dict_row)
        )
        theirs = PostgresSaver(connection)
        theirs.setup()
        savers: dict[str, BaseCheckpointSaver[Any] | None] = {
            "no saver": None,
            "InMemorySaver": InMemorySaver(),
            "one commit": OneCommit(connection),
            "PostgresSaver": theirs,
            "Saver": stack.enter_context(Saver(environment.fresh("postgresql"))),
            "Saver on SQLite": stack.enter_context(Saver(environment.fresh("sqlite"))),
        }
        for kind, (build, _) in _GRAPHS.items():
            graphs = {name: build(saver) for name, saver in savers.items()}
            for graph in graphs.values():
                _timed(graph, kind, "warm")
            rounds: dict[str, list[float]] = {name: [] for name in graphs}
            for number in range(runs):
                for name, graph in graphs.items():
                    rounds[name].append(_timed(graph, kind, str(number)))
            yield from _figures(kind, rounds)
        crowds = [_line(savers[name]) for name in ("PostgresSaver", "Saver")]
        for graph in crowds:
            _crowd(graph, "warm")
        turns = [[_crowd(graph, str(number)) for graph in crowds] for number in range(runs)]
        ratios = [theirs / ours for theirs, ours in turns]
        yield of_rounds(f"saver, {SLOTS} lines at a time, one saver: PostgresSaver / Saver", ratios, "x")


def _figures(kind: str, rounds: dict[str, list[float]]) -> Iterator[Figure]:
    for name, each in rounds.items():
        yield of_rounds(f"saver, {kind}, {name}: time a step", each, "ms")
    bare, in_memory, theirs, ours = (rounds[name] for name in ("no saver", "InMemorySaver", "PostgresSaver", "Saver"))
    best = [(t - b) / (o - b) for b, t, o in zip(bare, theirs, rounds["one commit"], strict=True)]
    yield of_rounds(
        f"saver, {kind}: what PostgresSaver adds / what one commit a step adds, the most there is", best, "x"
    )
    added = [(t - b) / (o - b) for b, t, o in zip(bare, theirs, ours, strict=True)]
    yield of_rounds(f"saver, {kind}: what PostgresSaver adds to a step / what Saver adds", added, "x", 2, "least")
    # LangGraph itself does more where there is a saver; this leaves that out.
    alone = [(t - k) / (o - k) for k, t, o in zip(in_memory, theirs, ours, strict=True)]
    yield of_rounds(f"saver, {kind}: the same over what InMemorySaver adds", alone, "x")
    yield of_rounds(f"saver, {kind}: the whole step, PostgresSaver / Saver", ratios(theirs, ours), "x", 2, "least")
