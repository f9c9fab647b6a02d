"""T as a loop over LangGraph with its PostgresSaver: every cell is a thread of its own and runs all three nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row
from sqlalchemy import make_url

from benchmarks.workloads.chain import CASES, SLOTS, STEPS, VARIANTS, State, expected
from benchmarks.workloads.graph import chain

Cell = tuple[int, tuple[int, ...]]
CELLS: list[Cell] = list(product(range(CASES), product(range(VARIANTS), repeat=len(STEPS))))


def _node(place: int, step: Callable[[State, int], State]) -> Callable[[State, RunnableConfig], State]:
    def run(state: State, config: RunnableConfig) -> State:
        return step(state, config["configurable"]["variants"][place])

    return run


def _graph(saver: PostgresSaver) -> Any:
    nodes = {name: _node(place, step) for place, (name, step) in enumerate(STEPS.items())}
    return chain(nodes).compile(checkpointer=saver)


@contextmanager
def threads(url: str) -> Iterator[list[Any]]:
    """A compiled graph for each thread, on a connection of its own, since a saver lets one thread in at a time."""
    parts = make_url(url).translate_connect_args(username="user", database="dbname")
    with ExitStack() as stack:
        graphs = []
        for number in range(SLOTS):
            connection = stack.enter_context(
                psycopg.connect(**parts, autocommit=True, prepare_threshold=0, row_factory=dict_row)
            )
            saver = PostgresSaver(connection)
            if not number:
                saver.setup()
            graphs.append(_graph(saver))
            _run(graphs[-1], f"warm-{number}", CELLS[number])
        yield graphs


def _run(graph: Any, thread: str, cell: Cell) -> None:
    case, variants = cell
    config = {"configurable": {"thread_id": thread, "variants": variants}}
    graph.invoke({"x": case}, config, durability="sync")


def timed(graphs: list[Any], name: str) -> float:
    """Seconds for all 640 cells; each is verified in the database afterwards."""

    def work(number: int) -> None:
        for cell in CELLS[number :: len(graphs)]:
            _run(graphs[number], f"{name}-{cell}", cell)

    begun = time.perf_counter()
    with ThreadPoolExecutor(len(graphs)) as pool:
        list(pool.map(work, range(len(graphs))))
    seconds = time.perf_counter() - begun
    for cell in CELLS:
        found = graphs[0].get_state({"configurable": {"thread_id": f"{name}-{cell}"}})
        if found.next or found.values != expected(*cell):
            raise RuntimeError(f"a wrong cell: {cell} gave {found.values}")
    return seconds
