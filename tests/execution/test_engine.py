"""The native engine: nodes on encoded state, writes joined by reducers, and errors that name node and key."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pydantic
import pytest

from tests.execution.test_engine_contract import encoded
from tests.support.prose import sentence
from wtb.authoring.context.attempt_record import CaseView, Previous
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import FinalError, InputError, RoutingError, StateError
from wtb.core.failures import Failure
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Value
from wtb.execution.engine.executor import Surroundings
from wtb.execution.engine.native import NativeEngine
from wtb.execution.engine.protocol import Joined, Result, Root, Task


class State(TypedDict, total=False):
    x: int
    y: int
    words: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]


Run = Callable[..., Result]


@pytest.fixture
def run(surroundings: Surroundings) -> Run:
    """Run a function as the only node of a workflow: `run(fn, state, schema=..., **task)`."""

    def attempt(
        fn: Callable[..., Any],
        inputs: Mapping[str, Any] | None = None,
        *,
        schema: type | None = State,
        name: str = "a",
        rules: Mapping[str, Any] | None = None,
        variant: str = "default",
        visits: int = 0,
        **task: Any,
    ) -> Result:
        wf = Workflow("one", state=schema)
        node = wf.node(fn, name=name, **(rules or {}))
        node.variant("other", of="default", description="the same")
        wf.entry(name)
        position = Position(visits, (name,), {}, {name: visits})
        case = CaseView("case-1", ("t",), {"x": Value.of(1).data})
        of_root = {field: task.pop(field) for field in ("case", "repeat", "params", "seed") if field in task}
        root = Root(**{"case": case, **of_root})
        return NativeEngine(wf).run(Task(name, variant, encoded(inputs or {}), position, root, **task), surroundings)

    return attempt


def decoded(values: Mapping[str, Value] | None) -> dict[str, Any]:
    assert values is not None
    return {name: decode(value.data) for name, value in values.items()}


def failure(node_result: Result) -> Failure:
    assert node_result.writes is None
    assert node_result.failure is not None
    return node_result.failure


# Running a node


def test_a_node_gets_the_state_and_its_writes_are_encoded(run: Run) -> None:
    node_result = run(lambda state: {"y": state["x"] + 1}, {"x": 1})

    assert decoded(node_result.writes) == {"y": 2}
    assert node_result.failure is None
    assert node_result.duration_s >= 0


def test_what_a_node_does_not_read_is_not_decoded(surroundings: Surroundings) -> None:
    """A value that cannot be decoded fails only the nodes that read it."""
    wf = Workflow("one", state=State)
    wf.node(lambda state: {"y": state["x"]}, name="reads x")
    wf.node(lambda state: {"y": len(state["words"])}, name="reads words")
    state = {"x": Value.of(1), "words": Value("0" * 64, b'{"$gone": 1}')}

    def attempt(name: str) -> Result:
        return NativeEngine(wf).run(
            Task(name, "default", state, Position(0, (name,)), Root(CaseView("c"))), surroundings
        )

    assert decoded(attempt("reads x").writes) == {"y": 1}
    failure = attempt("reads words").failure
    assert failure is not None
    assert sentence("a stored value is damaged") in str(failure)


def test_a_node_that_returns_its_state_writes_what_is_stored(run: Run) -> None:
    def changes_one(state: State) -> State:
        state["words"].append("b")
        return state

    inputs = {"x": 1, "words": ["a"]}

    assert run(lambda state: state, inputs).writes == encoded(inputs)
    assert decoded(run(changes_one, inputs).writes) == {"x": 1, "words": ["a", "b"]}


def test_a_node_sees_what_surrounds_it(run: Run) -> None:
    seen: dict[str, Any] = {}
    previous = Previous(1, 3, "ValueError: no")

    def look(state: State, ctx: Any) -> None:
        seen.update(
            case=(ctx.case.id, ctx.case.tags, ctx.case.input),
            place=(ctx.node, ctx.variant, ctx.repeat, ctx.visit, ctx.attempt),
            params=dict(ctx.params),
            previous=ctx.previous,
        )

    run(look, repeat=2, attempt=3, visits=4, variant="other", params={"model": "m"}, previous=previous)

    assert seen == {
        "case": ("case-1", ("t",), {"x": 1}),
        "place": ("a", "other", 2, 4, 3),
        "params": {"model": "m"},
        "previous": previous,
    }


# Random numbers


def drawn(run: Run, **task: Any) -> float:
    draws: list[float] = []

    def draw(state: State, ctx: Any) -> None:
        draws.append(ctx.rng.random())

    assert run(draw, **task).failure is None
    return draws[0]


def test_random_numbers_are_the_same_for_every_variant_and_every_time(run: Run) -> None:
    assert drawn(run, seed=1) == drawn(run, seed=1) == drawn(run, seed=1, variant="other")


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 2},
        {"case": CaseView("case-2")},
        {"repeat": 1},
        {"visits": 1},
        {"attempt": 2},
        {"name": "b"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_random_numbers_differ_by(other: dict[str, Any], run: Run) -> None:
    assert drawn(run, **{"seed": 1, **other}) != drawn(run, seed=1)


# What cannot be written


def test_the_output_that_was_refused_is_left_for_the_next_attempt(run: Run) -> None:
    assert run(lambda state: {"why": 1}).record.output == """"{'why': 1}\""""


def test_an_unknown_key_is_an_error_with_a_near_match(run: Run) -> None:
    failed = failure(run(lambda state: {"word": []}))

    assert (
        sentence("{} wrote key {}, which the state does not have{}", "node 'a'", "'word'", "; did you mean 'words'?")
        in failed.message
    )


def test_without_a_schema_any_key_may_be_written(run: Run) -> None:
    assert decoded(run(lambda state: {"anything": 1}, schema=None).writes) == {"anything": 1}


@pytest.mark.parametrize("returned", [[1], "text", 7])
def test_what_is_no_dict_is_refused(returned: Any, run: Run) -> None:
    failed = failure(run(lambda state: returned))

    assert sentence("{} returned {}; expected a dict", "node 'a'", type(returned).__name__) in failed.message


# Failures


@pytest.mark.parametrize(
    ("error", "rules", "final"),
    [
        (ValueError("no"), {}, False),
        (FinalError("no"), {}, True),
        (InputError("no"), {}, True),
        (KeyError("no"), {"final": [LookupError]}, True),
        (ValueError("no"), {"final": [LookupError]}, False),
        (SystemExit(1), {}, False),
    ],
)
def test_an_error_is_a_failure_that_names_the_node(
    error: BaseException, rules: Mapping[str, Any], final: bool, run: Run
) -> None:
    def fail(state: State) -> None:
        raise error

    failed = failure(run(fail, rules=rules))

    assert (failed.type, failed.node, failed.final) == (type(error).__name__, "a", final)


def test_an_async_node_that_exits_is_a_failure_and_the_next_one_runs(run: Run) -> None:
    async def leave(state: State) -> None:
        raise SystemExit(1)

    async def stay(state: State) -> dict[str, Any]:
        return {"y": 1}

    assert failure(run(leave)).type == "SystemExit"
    assert decoded(run(stay, timeout=10.0).writes) == {"y": 1}


# Shapes of state


@dataclasses.dataclass
class Data:
    x: int = 0
    words: Annotated[list[str], operator.add] = dataclasses.field(default_factory=list)


class Model(pydantic.BaseModel):
    x: int = 0
    words: Annotated[list[str], operator.add] = []


@pytest.mark.parametrize("shape", [Data, Model])
def test_a_node_gets_an_instance_of_the_class_of_the_state(shape: type, run: Run) -> None:
    seen: list[Any] = []

    def look(state: Any) -> dict[str, Any]:
        seen.append((type(state), state.x, state.words))
        return {"x": state.x + 1}

    assert decoded(run(look, {"x": 1}, schema=shape).writes) == {"x": 2}
    assert seen == [(shape, 1, [])]


def test_a_write_of_another_type_than_a_pydantic_state_declares_is_refused(run: Run) -> None:
    failed = failure(run(lambda state: {"x": "1"}, schema=Model))

    assert "node 'a' wrote key 'x': Input should be a valid integer, found '1'" in failed.message


def test_a_dataclass_that_cannot_be_made_yet_names_the_missing_key(run: Run) -> None:
    @dataclasses.dataclass
    class Strict:
        needed: int

    failed = failure(run(lambda state: None, schema=Strict))

    assert sentence("state has no {} yet", "'needed'") in failed.message


# Joining


def engine(schema: type | None = State, **options: Any) -> NativeEngine:
    """a -> {b, c} -> d"""
    wf = Workflow("diamond", state=schema, **options)
    for name in "abcd":
        wf.node(lambda state: None, name=name)
    wf.entry("a")
    wf.edge("a", "b")
    wf.edge("a", "c")
    wf.edge(["b", "c"], "d")
    return NativeEngine(wf)


BOTH = Position(1, ("b", "c"), {}, {"a": 1})
ROOT = Root(CaseView("c"))


def joined(state: Mapping[str, Any], *writes: tuple[str, Mapping[str, Any]], **options: Any) -> Joined:
    return engine(**options).join(encoded(state), BOTH, [(node, encoded(update)) for node, update in writes], ROOT)


def test_a_reducer_joins_writes_in_the_order_of_declaration() -> None:
    writes = ("b", {"words": ["b"], "total": 2}), ("c", {"words": ["c"]})

    assert decoded(joined({"words": ["a"], "total": 1}, *writes).changed) == {"words": ["a", "b", "c"], "total": 3}
    assert decoded(joined({}, *writes).changed) == {"words": ["b", "c"], "total": 2}, "from the empty value of its type"


def test_where_the_type_has_no_empty_value_the_first_write_is_the_start() -> None:
    class Best(TypedDict, total=False):
        best: Annotated[int | None, lambda old, new: max(old, new)]

    assert decoded(joined({}, ("b", {"best": 2}), schema=Best).changed) == {"best": 2}
    assert decoded(joined({"best": 5}, ("b", {"best": 2}), schema=Best).changed) == {}


@pytest.mark.parametrize("shape", [Data, Model])
def test_dataclasses_and_models_have_reducers_too(shape: type) -> None:
    assert decoded(joined({"words": ["a"]}, ("b", {"words": ["b"]}), schema=shape).changed) == {"words": ["a", "b"]}


def test_what_a_reducer_returns_and_cannot_be_stored_names_node_and_key() -> None:
    class Odd(TypedDict, total=False):
        odd: Annotated[list[Any], lambda old, new: open]

    with pytest.raises(StateError, match="on the write of node 'b', of key 'odd' cannot be stored"):
        joined({}, ("b", {"odd": [1]}), schema=Odd)


def test_a_step_moves_the_position_and_counts_visits() -> None:
    position = joined({}, ("b", {}), ("c", {})).position

    assert position == Position(2, ("d",), {}, {"a": 1, "b": 1, "c": 1})


def test_a_join_that_fails_leaves_the_node_run_accepted(surroundings: Surroundings) -> None:
    wf = Workflow("one", state=State)
    wf.node(lambda state: {"x": 1}, name="a")
    wf.entry("a")
    wf.branch("a", {"x": END}, by=lambda state: state["nope"])
    task = Task("a", "default", {}, Position(0, ("a",)), Root(CaseView("c")), join=True)

    node_result = NativeEngine(wf).run(task, surroundings)

    assert node_result.failure is None
    assert isinstance(node_result.joined, Failure)
    assert node_result.joined.type == "KeyError"


def test_a_loop_that_does_not_end_is_stopped_at_the_step_limit() -> None:
    wf = Workflow("round", max_steps=3)
    wf.node(lambda state: None, name="a")
    wf.entry("a")
    wf.edge("a", "a", when=lambda state: True)
    wf.edge("a", END, default=True)
    position = Position(0, ("a",))
    for _ in range(2):
        position = NativeEngine(wf).join({}, position, [("a", {})], ROOT).position

    with pytest.raises(RoutingError, match=r"still going after 3 steps, next 'a': a loop .* Workflow\(max_steps=...\)"):
        NativeEngine(wf).join({}, position, [("a", {})], ROOT)


def test_an_execution_may_use_all_its_steps() -> None:
    wf = Workflow("short", max_steps=1)
    wf.node(lambda state: None, name="a")
    wf.entry("a")

    assert NativeEngine(wf).join({}, NativeEngine(wf).begin({}, ROOT).position, [("a", {})], ROOT).position.next == ()


# Files


def test_a_link_in_the_workspace_fails_the_attempt_for_good(run: Run, tmp_path: Path) -> None:
    def link(state: State, ctx: Any) -> None:
        (ctx.workspace / "out").symlink_to(tmp_path)

    failed = failure(run(link))

    assert failed.final
    assert "'out' is a symbolic link" in failed.message


def test_a_node_that_asks_for_no_workspace_costs_no_directory(run: Run, tmp_path: Path) -> None:
    run(lambda state, ctx: None)

    assert not (tmp_path / "attempts").exists()
