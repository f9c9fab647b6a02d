"""One suite for all stores of checkpoints: in memory, in a database, and in the threads of a LangGraph graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

import wtb
from tests.support.prose import sentence
from wtb import Workflow
from wtb.core.errors import ConflictError, InputError, NotFound, StateError
from wtb.core.ids import new_id
from wtb.core.serialization.codec import decode
from wtb.history import Checkpoint, CheckpointId, CheckpointStore, InMemoryCheckpoints, Position, Value, Writer
from wtb.integrations.langgraph import Saver, ThreadCheckpoints
from wtb.store.process_identity import ProcessIdentity
from wtb.store.runs import leases

NEXT = {"a": ("b",), "b": ("c",), "c": ()}


class State(TypedDict, total=False):
    n: int
    seen: Annotated[list[str], operator.add]


@dataclass
class Line:
    """A store with an execution, to which checkpoints of the nodes a -> b -> c are saved."""

    store: CheckpointStore
    execution: str
    claim: Callable[[], int]
    values: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.token = self.claim()

    def begin(self) -> Checkpoint:
        return self.save(None, (), ("a",), 0)

    def step(self, parent: Checkpoint, node: str) -> Checkpoint:
        return self.save(parent, (Writer(node, "default", new_id()),), NEXT[node], parent.step + 1)

    def save(
        self, parent: Checkpoint | None, writers: tuple[Writer, ...], next_nodes: tuple[str, ...], step: int
    ) -> Checkpoint:
        seen = [writer.node for writer in writers] if parent is None else [*self.seen(parent), writers[0].node]
        state = {"n": Value.of(step), "seen": Value.of(seen)}
        self.values |= {value.digest: value for value in state.values()}
        digests = {key: value.digest for key, value in state.items()}
        checkpoint = Checkpoint(
            CheckpointId(new_id()),
            None if parent is None else parent.id,
            Position(step, next_nodes),
            digests,
            writers,
            created_at=float(step + 1),
        )
        return replace(
            checkpoint, id=self.store.save(self.execution, checkpoint, self.values.values(), token=self.token)
        )

    def seen(self, checkpoint: Checkpoint) -> Any:
        return decode(self.values[checkpoint.state["seen"]].data)


def graph(saver: Any) -> Any:
    builder = StateGraph(State)
    for node in NEXT:
        builder.add_node(node, lambda state, node=node: {"n": state["n"] + 1, "seen": [node]})
    for before, after in ((START, "a"), ("a", "b"), ("b", "c"), ("c", END)):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


def native() -> Workflow:
    wf = Workflow("stored")
    nodes = {}
    for name in NEXT:
        nodes[name] = wf.node(lambda state: {"n": state["n"] + 1}, name=name)
    wf.entry(nodes["a"])
    wf.edge(nodes["a"], nodes["b"])
    wf.edge(nodes["b"], nodes["c"])
    return wf


@pytest.fixture(params=["memory", "database", "saver", "langgraph"])
def line(request: pytest.FixtureRequest, prepared_url: str, tmp_path: Path) -> Iterator[Line]:
    if request.param == "memory":
        memory = InMemoryCheckpoints()
        yield Line(memory, "e1", lambda: memory.claim("e1"))
    elif request.param == "database":
        with wtb.open(prepared_url, files=tmp_path / "files") as bench:
            execution = bench.start(native(), {"n": 0, "seen": []}, create_only=True)
            leases.register(bench.database, ProcessIdentity("one", "here", "b", 1, 0.0))

            def claim() -> int:
                bench.database.execute(leases.releasing().where(leases.executions.c.id == execution.id))
                (row,) = leases.claim(bench.database, execution.record.sweep, "one", 1, 60.0)
                return row.token

            yield Line(bench.checkpoints, execution.id, claim)
    else:
        with Saver(prepared_url) as saver:
            checkpointer = saver if request.param == "saver" else InMemorySaver()
            yield Line(ThreadCheckpoints(graph(checkpointer)), "thread", lambda: 0)


def ids(checkpoints: Iterable[Checkpoint]) -> list[str]:
    return [checkpoint.id for checkpoint in checkpoints]


def test_what_was_saved_is_loaded_and_is_the_history(line: Line) -> None:
    root = line.begin()
    first = line.step(root, "a")
    second = line.step(first, "b")

    history = line.store.history(line.execution)

    assert ids(history) == [root.id, first.id, second.id]
    assert history.path == ("a", "b")
    assert history.latest is not None
    assert history.latest.position.next == ("c",)
    loaded = line.store.load(first.id)
    assert (loaded.id, loaded.parent, loaded.state) == (first.id, root.id, first.state)
    assert [writer.node for writer in loaded.writers] == ["a"]
    assert history.boundary("b").entry == first.id


def test_a_save_below_an_earlier_checkpoint_leaves_the_line_after_it(line: Line) -> None:
    root = line.begin()
    first = line.step(root, "a")
    second = line.step(first, "b")
    sibling = line.step(first, "b")

    history = line.store.history(line.execution)

    assert ids(history) == [root.id, first.id, sibling.id]
    assert line.store.load(second.id).parent == first.id


def test_a_checkpoint_whose_parent_is_not_there_is_rejected(line: Line) -> None:
    root = line.begin()
    nowhere = replace(root, id=CheckpointId(new_id()))

    with pytest.raises(ConflictError, match=sentence("not in the history")):
        line.step(nowhere, "a")
    with pytest.raises(ConflictError, match="has begun"):
        line.begin()
    assert ids(line.store.history(line.execution)) == [root.id]


def test_a_token_that_was_superseded_saves_nothing(line: Line) -> None:
    if isinstance(line.store, ThreadCheckpoints):
        pytest.skip("LangGraph has no fencing")
    root = line.begin()
    line.claim()

    with pytest.raises(ConflictError, match=sentence("claimed by another")):
        line.step(root, "a")
    assert ids(line.store.history(line.execution)) == [root.id]


def test_what_is_not_there_is_not_found(line: Line) -> None:
    line.begin()

    for call in (line.store.load, line.store.history, line.store.delete):
        with pytest.raises(NotFound):
            call("nothing-of-this-name")


@pytest.fixture
def deletable(line: Line) -> Line:
    store = line.store
    if isinstance(store, ThreadCheckpoints) and not isinstance(store._saver, Saver):
        root = line.begin()
        with pytest.raises(StateError, match=sentence("deletes whole threads only")):
            store.delete(root.id)
        pytest.skip("its saver deletes whole threads only")
    return line


def pause(line: Line) -> None:
    """End the claim: lines of a running sweep stay."""
    database = getattr(line.store, "_database", None)
    if database is not None:
        database.execute(leases.releasing().values(status="paused"))
        database.execute(leases.sweeps.update().values(status="paused"))


def test_a_line_is_deleted_as_far_as_nothing_else_reaches_it(deletable: Line) -> None:
    line = deletable
    root = line.begin()
    first = line.step(root, "a")
    second = line.step(first, "b")
    third = line.step(second, "c")
    sibling = line.step(first, "b")
    pause(line)

    assert line.store.delete(third.id) == (third.id, second.id)

    assert ids(line.store.history(line.execution)) == [root.id, first.id, sibling.id]
    for checkpoint in (second, third):
        with pytest.raises(NotFound):
            line.store.load(checkpoint.id)


def test_what_something_else_reaches_is_not_deleted(deletable: Line) -> None:
    line = deletable
    root = line.begin()
    first = line.step(root, "a")
    second = line.step(first, "b")
    pause(line)

    with pytest.raises(ConflictError, match="head"):
        line.store.delete(second.id)
    with pytest.raises(ConflictError, match="follows"):
        line.store.delete(first.id)
    assert ids(line.store.history(line.execution)) == [root.id, first.id, second.id]


def test_langgraph_continues_from_what_was_saved() -> None:
    compiled = graph(InMemorySaver())
    line = Line(ThreadCheckpoints(compiled), "thread", lambda: 0)
    line.step(line.begin(), "a")

    final_state = compiled.invoke(None, {"configurable": {"thread_id": "thread"}})

    assert final_state == {"n": 3, "seen": ["a", "b", "c"]}
    assert line.store.history("thread").path == ("a", "b", "c")


def test_a_thread_store_needs_a_checkpointer_and_all_values() -> None:
    with pytest.raises(InputError, match="no checkpointer"):
        ThreadCheckpoints(graph(None))
    store = ThreadCheckpoints(graph(InMemorySaver()))
    lacking = Checkpoint(CheckpointId("c"), None, Position(0, ("a",)), {"n": Value.of(1).digest})
    with pytest.raises(InputError, match=sentence("the value of {} is missing", "'n'")):
        store.save("thread", lacking)


def test_a_deleted_line_of_a_rollback_takes_what_is_inside_its_nodes(prepared_url: str, tmp_path: Path) -> None:
    wf = Workflow("inside")

    @wf.node
    def first(state: dict[str, Any]) -> dict[str, Any]:
        return {"x": 1}

    @wf.node
    def second(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        ctx.checkpoint("halfway", page=1)
        return {"y": 1}

    wf.entry(first)
    wf.edge(first, second)
    with wtb.open(prepared_url, files=tmp_path / "files") as bench:
        execution = bench.start(wf, {}).wait()
        old_history = execution.history()
        execution.rollback(old_history.checkpoints[0].id)
        assert old_history.latest is not None

        deleted = bench.checkpoints.delete(old_history.latest.id)

        assert set(deleted) == {*ids(old_history.checkpoints[1:]), *ids(old_history.inside)}
        (event,) = execution.log(kinds=["sweep.collected"])
        assert event["data"]["checkpoints"] == len(deleted)
        with pytest.raises(InputError, match="was removed"):
            execution.undo_rollback()
        assert execution.resume().wait().state == {"x": 1, "y": 1}
