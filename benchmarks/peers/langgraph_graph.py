"""T as a loop over LangGraph with its PostgresSaver: every cell is a thread of its own and runs all three nodes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import product
from multiprocessing.connection import Connection
from typing import Any, Literal

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row
from sqlalchemy import make_url

from benchmarks.workloads.chain import CASES, SLOTS, STEPS, VARIANTS, State, expected
from benchmarks.workloads.graph import chain

Cell = tuple[int, tuple[int, ...]]
CELLS: list[Cell] = list(product(range(CASES), product(range(VARIANTS), repeat=len(STEPS))))
Durability = Literal["sync", "exit"]  # a commit for each step, or one for each cell
Loop = Callable[[str, Durability], None]  # runs all cells, with thread ids that begin with a name


def _node(place: int, step: Callable[[State, int], State]) -> Callable[[State, RunnableConfig], State]:
    def run(state: State, config: RunnableConfig) -> State:
        return step(state, config["configurable"]["variants"][place])

    return run


@contextmanager
def _saver(url: str) -> Iterator[PostgresSaver]:
    parts = make_url(url).translate_connect_args(username="user", database="dbname")
    with psycopg.connect(**parts, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        yield PostgresSaver(connection)


def _graph(saver: PostgresSaver) -> Any:
    nodes = {name: _node(place, step) for place, (name, step) in enumerate(STEPS.items())}
    return chain(nodes).compile(checkpointer=saver)


def _run(graph: Any, thread: str, cell: Cell, durability: Durability) -> None:
    case, variants = cell
    config = {"configurable": {"thread_id": thread, "variants": variants}}
    graph.invoke({"x": case}, config, durability=durability)


@contextmanager
def threads(url: str, count: int = SLOTS) -> Iterator[Loop]:
    """Yield a loop on threads of this process."""
    _set_up(url)
    with _threads(url, count, CELLS) as loop:
        yield loop


@contextmanager
def processes(url: str, count: int = 2) -> Iterator[Loop]:
    """Yield a loop on as many threads, distributed over started, warm processes."""
    _set_up(url)
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pipes: list[Connection] = []
        for number in range(count):
            pipe, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(url, SLOTS // count, CELLS[number::count], theirs))
            process.start()
            theirs.close()
            stack.callback(process.join)
            stack.callback(pipe.close)
            pipes.append(pipe)

        def loop(name: str, durability: Durability) -> None:
            for pipe in pipes:
                pipe.send((name, durability))
            _wait(pipes)

        _wait(pipes)
        yield loop


def _wait(pipes: Sequence[Connection]) -> None:
    for pipe in pipes:
        pipe.recv()  # raises EOFError if the process failed


def _serve(url: str, count: int, cells: Sequence[Cell], pipe: Connection) -> None:
    """Run some of the cells in this process each time that the parent sends a name, until it closes the pipe."""
    with _threads(url, count, cells) as loop:
        pipe.send(None)
        while True:
            try:
                order = pipe.recv()
            except EOFError:
                return
            loop(*order)
            pipe.send(None)


def _set_up(url: str) -> None:
    with _saver(url) as saver:
        saver.setup()


@contextmanager
def _threads(url: str, count: int, cells: Sequence[Cell]) -> Iterator[Loop]:
    """Each thread has a compiled graph and a connection of its own, since a saver lets one thread in at a time."""
    with ExitStack() as stack:
        graphs = [_graph(stack.enter_context(_saver(url))) for _ in range(count)]
        pool = stack.enter_context(ThreadPoolExecutor(count))

        def loop(name: str, durability: Durability) -> None:
            def work(number: int) -> None:
                for cell in cells[number::count]:
                    _run(graphs[number], f"{name}-{cell}", cell, durability)

            list(pool.map(work, range(count)))

        for graph, cell in zip(graphs, cells, strict=False):
            _run(graph, f"warm-{cell}", cell, "sync")
        yield loop


def timed(loop: Loop, url: str, name: str, durability: Durability = "sync") -> float:
    """Return the seconds of all 640 cells; each is verified in the database afterwards."""
    start = time.perf_counter()
    loop(name, durability)
    seconds = time.perf_counter() - start
    with _saver(url) as saver:
        graph = _graph(saver)
        for cell in CELLS:
            snapshot = graph.get_state({"configurable": {"thread_id": f"{name}-{cell}"}})
            if snapshot.next or snapshot.values != expected(*cell):
                raise RuntimeError(f"a wrong cell: {cell} gave {snapshot.values}")
    return seconds
