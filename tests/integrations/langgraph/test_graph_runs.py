"""Arguments, failures, caches and stores of nodes of LangGraph graphs: as in LangGraph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.config import get_config, get_store, get_stream_writer
from langgraph.errors import GraphRecursionError, NodeError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, StreamWriter, TimeoutPolicy, interrupt

from tests.integrations.langgraph.graph_stepping import (
    ABC,
    QUICK,
    Flaky,
    State,
    Stepped,
    alone,
    graph_of,
    one_node,
    plain,
    says,
    with_branch,
)
from tests.support.prose import sentence
from wtb.authoring.code.import_paths import as_workflow
from wtb.core.errors import InputError, WorkflowError, WTBError
from wtb.handles.start import start
from wtb.integrations.langgraph import variants

Step = Callable[..., Stepped]


# What nodes are given


@dataclass
class Settings:
    k: int = 2
    name: str = "none"


def test_a_node_is_given_what_it_asks_for_by_name(step: Step) -> None:
    def asks(
        state: State, config: RunnableConfig, *, runtime: Runtime[Settings], store: BaseStore, writer: StreamWriter
    ) -> dict[str, Any]:
        writer({"k": runtime.context.k})
        store.put(("notes",), "n", {"text": "kept"})
        get_stream_writer()("by function")
        note = get_store().get(("notes",), "n")
        assert note is not None
        assert runtime.store is store
        assert get_config()["configurable"]["k"] == 7
        configurable = config["configurable"]
        return {"words": [note.value["text"], str(runtime.context.k), configurable["name"], configurable["thread_id"]]}

    graph = graph_of(State, {"a": asks}, (START, "a"), context_schema=Settings).compile(store=InMemoryStore())

    done = step(graph, {"x": 0}, params={"k": 7, "name": "ann"}, case="c", repeat=2)

    assert done.state == {"x": 0, "words": ["kept", "7", "ann", "c/2"]}
    assert [details for kind, details in done.events if kind == "node.stream"] == [
        {"name": "stream", "data": {"k": 7}},
        {"name": "stream", "data": "by function"},
    ]


def test_a_context_has_its_defaults_where_no_parameters_are_given(step: Step) -> None:
    graph = graph_of(
        State, {"a": lambda state, runtime: {"words": [str(runtime.context)]}}, (START, "a"), context_schema=Settings
    )

    assert step(graph, {"x": 0}).state == alone(graph, {"x": 0})
    assert step(graph, {"x": 0}, params={"k": 1}).state["words"] == [str(Settings(1))]


def test_what_a_graph_was_configured_with_reaches_its_nodes(step: Step) -> None:
    def read_config(state: State, config: RunnableConfig) -> dict[str, Any]:
        metadata = config["metadata"]
        node = metadata["langgraph_node"], str(metadata["langgraph_step"])
        return {"words": [*sorted(config["tags"]), metadata["team"], config["configurable"]["model"], *node]}

    graph = graph_of(State, {"a": read_config, "b": read_config}, (START, "a"), ("a", "b")).compile()
    configured = graph.with_config(tags=["night"], metadata={"team": "x"}, configurable={"model": "small"})

    assert plain(step(configured, {"x": 0}).state) == alone(configured, {"x": 0})


# Failing and trying again


@pytest.mark.parametrize(
    ("policy", "errors", "attempts"),
    [
        (RetryPolicy(max_attempts=3, **QUICK), [ConnectionError(), ConnectionError()], 3),
        (RetryPolicy(max_attempts=2, **QUICK), [ConnectionError(), ConnectionError()], 2),
        (RetryPolicy(max_attempts=3, **QUICK), [ValueError("no")], 1),  # not among LangGraph's defaults
        (RetryPolicy(max_attempts=3, retry_on=ValueError, **QUICK), [ValueError("once")], 2),
        (RetryPolicy(max_attempts=3, retry_on=[KeyError, ValueError], **QUICK), [ValueError("once")], 2),
        (RetryPolicy(max_attempts=3, retry_on=lambda e: "once" in str(e), **QUICK), [ValueError("once")], 2),
        (
            [RetryPolicy(retry_on=KeyError, max_attempts=4, **QUICK),
             RetryPolicy(retry_on=ValueError, max_attempts=2, **QUICK)],
            [KeyError("k"), ValueError("v"), ValueError("v")],
            2,
        ),
    ],
)  # fmt: skip
def test_a_node_is_tried_as_often_as_its_policies_say(
    policy: Any, errors: list[Exception], attempts: int, step: Step
) -> None:
    def graph(node: Flaky) -> StateGraph[Any]:
        return one_node(node, retry_policy=policy)

    try:
        expected = alone(graph(Flaky(*errors)), {"x": 0})
    except Exception as error:  # noqa: BLE001 - whatever LangGraph raises
        expected = type(error).__name__
    done = step(graph(Flaky(*errors)), {"x": 0})

    assert len(done.ran) == attempts
    assert (done.failure.type if done.failure else done.state) == expected


def test_a_node_is_told_which_attempt_it_is(step: Step) -> None:
    def graph() -> StateGraph[Any]:
        attempts: list[str] = []

        def tells(state: State, runtime: Runtime) -> dict[str, Any]:
            assert runtime.execution_info is not None
            attempts.append(str(runtime.execution_info.node_attempt))
            if len(attempts) < 3:
                raise ConnectionError
            return {"words": attempts}

        return one_node(tells, retry_policy=RetryPolicy(**QUICK))

    assert step(graph(), {"x": 0}).state == alone(graph(), {"x": 0}) == {"x": 0, "words": ["1", "2", "3"]}


def test_an_answer_costs_a_node_none_of_its_attempts(step: Step) -> None:
    fails = Flaky(ConnectionError(), ConnectionError())

    def asks(state: State) -> dict[str, Any]:
        interrupt("go?")
        return fails(state)

    builder = one_node(asks, retry_policy=RetryPolicy(max_attempts=3, **QUICK))

    done = step(builder, {"x": 0}, answers=["yes"])

    assert done.failure is None
    assert len(done.ran) == 4


def test_an_error_handler_stands_in_for_a_node_that_failed_for_good(step: Step) -> None:
    def handles(state: State, error: NodeError) -> Command[Any]:
        return Command(update={"words": [f"{error.node}: {error.error}"]}, goto="c")

    def graph() -> StateGraph[Any]:
        builder: StateGraph[Any] = StateGraph(State)
        policy = RetryPolicy(max_attempts=2, retry_on=ValueError, **QUICK)
        builder.add_node("a", Flaky(ValueError("1"), ValueError("2")), retry_policy=policy, error_handler=handles)
        builder.add_node("b", says("b")).add_node("c", says("c"))
        return builder.add_edge(START, "a").add_edge("a", "b")

    done = step(graph(), {"x": 0})

    assert done.state == alone(graph(), {"x": 0})
    assert done.state["words"] == ["a: 2", "c"]


def test_defaults_for_all_nodes_hold(step: Step) -> None:
    def handles(state: State) -> dict[str, Any]:
        return {"words": ["handled"]}

    def graph() -> StateGraph[Any]:
        builder = graph_of(State, {"a": Flaky(*[ValueError("1")] * 3), "b": says("b")}, (START, "a"), ("a", "b"))
        return builder.set_node_defaults(
            retry_policy=RetryPolicy(max_attempts=3, retry_on=ValueError, **QUICK), error_handler=handles
        )

    assert step(graph(), {"x": 0}).state == alone(graph(), {"x": 0})


def test_a_node_that_takes_too_long_fails_and_says_so(step: Step) -> None:
    async def hangs(state: State) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    own: StateGraph[Any] = StateGraph(State)
    own.add_node("a", hangs, timeout=TimeoutPolicy(run_timeout=0.05)).add_edge(START, "a")
    whole = one_node(hangs).compile()
    whole.step_timeout = 0.05

    assert (failure := step(own, {"x": 0}).failure)
    assert failure.type == "NodeTimeoutError"
    assert (failure := step(whole, {"x": 0}).failure)
    assert failure.kind == "timeout"


def test_a_variant_that_cannot_have_the_deadline_of_its_node_is_refused() -> None:
    async def awaits(state: State) -> dict[str, Any]:
        return {}

    builder = one_node(awaits, timeout=1.0)

    with pytest.raises(WorkflowError, match=r"node 'a', variant 'sync': LangGraph does not take it .* async"):
        as_workflow(variants(builder).add("a", "sync", says("a")), "tests:graph").validate()


def test_a_loop_that_does_not_end_is_a_clear_failure(step: Step) -> None:
    failure = step(endless().compile().with_config(recursion_limit=5), {"x": 0}).failed

    assert failure.kind == "routing"
    assert sentence("Recursion limit of {} reached", 5) in failure.message
    assert sentence("`recursion_limit` raises the limit") in failure.message


def endless(times: int = 1_000_000) -> StateGraph[Any]:
    route = lambda state: END if len(state["words"]) >= times else "a"  # noqa: E731
    return with_branch(one_node(says("a")), "a", route)


@pytest.mark.parametrize(("outer", "inner"), [(None, 4), (None, 6), (4, None), (4, 30), (6, 4), (6, None), (2, 1)])
def test_limits_of_steps_hold_as_in_langgraph(outer: int | None, inner: int | None, step: Step) -> None:
    sub = endless(5).compile()
    nodes = {"a": says("a"), "sub": sub.with_config(recursion_limit=inner) if inner else sub, "c": says("c")}
    graph = graph_of(State, nodes, (START, "sub"), ("sub", "c")).compile()
    graph = graph.with_config(recursion_limit=outer) if outer else graph
    try:
        expected = alone(graph, {"x": 0})
    except GraphRecursionError:
        expected = "routing"

    done = step(graph, {"x": 0})

    assert (done.failure.kind if done.failure else done.state) == expected


def test_each_variant_of_a_graph_has_its_own_limit_of_steps(step: Step) -> None:
    short, long = (endless(words).compile().with_config(recursion_limit=words + 1) for words in (2, 8))
    workflow = as_workflow(variants(short).add("graph", "long", long), "tests:graph")

    assert step(workflow, {"x": 0}, choose={"graph": "long"}).state["words"] == ["a"] * 8
    assert step(workflow, {"x": 0}).state["words"] == ["a"] * 2


def test_the_trace_of_a_failure_holds_the_users_own_frames(step: Step) -> None:
    def deep(number: int) -> int:
        return 1 // number if number == 0 else deep(number - 1)

    for node in (lambda state: deep(2), RunnableLambda(lambda state: deep(2)) | RunnableLambda(str)):
        failure = step(one_node(node), {"x": 0}).failed
        assert failure.type == "ZeroDivisionError"
        assert failure.trace.count("File ") == 4
        assert "langgraph" not in failure.trace.replace(__file__, "")
        assert "langchain" not in failure.trace


# Caches and stores


def counted(cache: InMemoryCache[Any]) -> tuple[Any, list[int]]:
    """A graph whose node is cached, and its runs."""
    runs: list[int] = []

    def costly(state: State, *, plus: int = 0) -> dict[str, Any]:
        runs.append(state["x"])
        return {"words": [f"{state['x'] + plus}"]}

    builder = one_node(costly, cache_policy=CachePolicy())
    builder.add_node("b", lambda state: {"words": ["b"]}).add_edge("a", "b")
    return builder.compile(cache=cache), runs


def test_a_cached_node_runs_once_for_the_same_input_but_not_for_other_variants_and_repeats(step: Step) -> None:
    graph, runs = counted(InMemoryCache())
    workflow = as_workflow(variants(graph).add("a", "plus", plus=5), "tests:graph")

    same = [step(workflow, {"x": 1}, case=case).state["words"] for case in ("one", "two")]
    assert (same, runs) == ([["1", "b"]] * 2, [1])

    assert step(workflow, {"x": 1}, choose={"a": "plus"}).state["words"] == ["6", "b"]
    assert step(workflow, {"x": 1}, repeat=1).state["words"] == ["1", "b"]
    assert step(workflow, {"x": 2}).state["words"] == ["2", "b"]
    assert runs == [1, 1, 1, 2]


def test_a_result_from_a_cache_brings_what_the_node_put_into_the_store(step: Step) -> None:
    def puts(state: State, *, store: BaseStore) -> dict[str, Any]:
        store.put(("n",), "k", {"v": 1})
        store.delete(("n",), "gone")
        return {"words": ["put"]}

    def reads(state: State, *, store: BaseStore) -> dict[str, Any]:
        return {"words": [note.key for note in store.search(("n",))]}

    store: InMemoryStore = InMemoryStore()
    store.put(("n",), "gone", {})
    builder = one_node(puts, cache_policy=CachePolicy())
    builder.add_node("b", reads).add_edge("a", "b")
    graph = builder.compile(cache=InMemoryCache(), store=store)

    assert [step(graph, {"x": 1}, case=case).state["words"] for case in ("one", "two")] == [["put", "k"]] * 2


def test_messages_from_a_cache_have_the_ids_that_they_had(step: Step) -> None:
    builder: StateGraph[Any] = StateGraph(MessagesState)
    builder.add_node("a", lambda state: {"messages": [AIMessage("hi")]}, cache_policy=CachePolicy())
    graph = builder.add_edge(START, "a").compile(cache=InMemoryCache())

    first, second = (step(graph, {"messages": []}).state["messages"][0].id for _ in range(2))
    assert first == second


def remembers(state: State, *, store: BaseStore) -> dict[str, Any]:
    seen = store.get(("seen",), "n")
    store.put(("seen",), "n", {"n": (seen.value["n"] if seen else 0) + 1})
    return {}


def test_what_a_node_puts_into_the_store_is_seen_downstream_and_by_no_other_cell(step: Step) -> None:
    async def reads(state: State, *, store: BaseStore) -> dict[str, Any]:
        await store.aput(("seen",), "async", {"n": 10})
        await store.adelete(("seen",), "gone")
        notes = await store.asearch(("seen",))
        return {"words": sorted(f"{note.key} {note.value['n']}" for note in notes)}

    def prefilled() -> Any:
        store = InMemoryStore()
        store.put(("seen",), "n", {"n": 5})
        store.put(("seen",), "gone", {"n": 0})
        nodes = {"a": remembers, "b": remembers, "c": reads, "d": reads}
        return graph_of(State, nodes, (START, "a"), ("a", "b"), ("b", "c"), ("c", "d")).compile(store=store)

    graph = prefilled()
    done = [step(graph, {"x": 0}) for _ in range(2)]

    assert done[0].state == done[1].state == alone(prefilled(), {"x": 0})
    assert done[0].state["words"] == ["async 10", "n 7"] * 2
    assert [note.value for note in graph.store.search(("seen",))] == [{"n": 5}, {"n": 0}]


def test_what_is_in_a_store_is_embedded_once(step: Step) -> None:
    embedded: list[str] = []

    def embed(texts: Sequence[str]) -> list[list[float]]:
        embedded.extend(texts)
        return [[float(text.count("a")), float(text.count("b"))] for text in texts]

    def puts(state: State, *, store: BaseStore) -> dict[str, Any]:
        store.put(("notes",), "two", {"text": "bbb"})
        store.put(("notes",), "none", {"text": "aabb"}, index=False)
        return {}

    def finds(state: State, *, store: BaseStore) -> dict[str, Any]:
        return {"words": [note.key for note in store.search(("notes",), query="b", limit=2)]}

    def prefilled() -> Any:
        store = InMemoryStore(index={"dims": 2, "embed": embed, "fields": ["text"]})
        store.put(("notes",), "one", {"text": "aaa"})
        nodes = {"a": puts, "b": finds, "c": finds}
        return graph_of(State, nodes, (START, "a"), ("a", "b"), ("b", "c")).compile(store=store)

    expected = alone(prefilled(), {"x": 0})
    once = list(embedded)
    embedded.clear()

    assert step(prefilled(), {"x": 0}).state == expected
    assert embedded == once


def test_a_store_outside_the_process_is_used_as_it_is(step: Step) -> None:
    class Mine(InMemoryStore):
        """Any other store."""

    store = Mine()
    graph = one_node(remembers).compile(store=store)

    for _ in range(2):
        assert step(graph, {"x": 0}).hidden == {}

    note = store.get(("seen",), "n")
    assert note is not None
    assert note.value == {"n": 2}


# Whole sweeps


def sweep_of(make: Any, graph: Any, vary: dict[str, Any] | None = None, **more: Any) -> Any:
    workflow = as_workflow(graph, "tests:graph")
    bench = make(workflow, [{"id": "one", "input": more.pop("case_input", {"x": 0})}], vary, **more)
    bench.run()
    return bench


def test_retries_are_attempts_of_the_node_run(memory_bench: Any) -> None:
    fails = Flaky(ConnectionError(), ConnectionError())
    builder = one_node(fails, retry_policy=RetryPolicy(max_attempts=3, **QUICK))

    sweep = sweep_of(memory_bench, builder)

    assert sweep.counts == {"succeeded": 1}
    assert [run["attempts"] for run in sweep.node_runs] == [3]


def test_parameters_of_a_sweep_are_the_context_of_the_graph(memory_bench: Any) -> None:
    def configured(state: State, config: RunnableConfig, runtime: Runtime[Settings]) -> dict[str, Any]:
        return {"words": [f"{runtime.context.k} {config['configurable']['k']}"]}

    graph = graph_of(State, {"a": configured}, (START, "a"), context_schema=Settings)

    assert sweep_of(memory_bench, graph, params={"k": 9}).cells()[0].state["words"] == ["9 9"]
    with pytest.raises(WTBError, match="context"):
        sweep_of(memory_bench, graph, params={"kk": 9})


def test_every_cell_has_a_store_and_messages_of_its_own_and_what_is_shared_once(memory_bench: Any) -> None:
    def puts(state: Any, *, store: BaseStore, k: int = 0) -> dict[str, Any]:
        store.put(("notes",), "b", {"k": k})
        return {}

    def speaks(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("c")]}

    def reads(state: Any, *, store: BaseStore) -> dict[str, Any]:
        note = store.get(("notes",), "b")
        assert note is not None
        return {"messages": [AIMessage(str(note.value["k"]), id="d")]}

    edges = [(START, "b"), (START, "c"), (["b", "c"], "d")]
    graph = graph_of(MessagesState, {"b": puts, "c": speaks, "d": reads}, *edges).compile(store=InMemoryStore())
    beside = variants(graph).add("b", "one", k=1).add("b", "two", k=2)

    sweep = sweep_of(memory_bench, beside, {"b": ["default", "one", "two"]}, case_input={"messages": []})

    histories = [cell.state["messages"] for cell in sweep.cells()]
    assert [messages[-1].text for messages in histories] == ["0", "1", "2"]
    assert len({messages[0].id for messages in histories}) == 1
    assert sweep.executed == 3 + 1 + 3


def test_a_sweep_may_begin_wherever_a_function_says(memory_bench: Any) -> None:
    async def either(state: State) -> str:
        return "a" if state["x"] else END

    graph = with_branch(graph_of(State, ABC, ("a", "b")), START, either)

    assert sweep_of(memory_bench, graph, case_input={"x": 1}).cells()[0].state == alone(graph, {"x": 1})
    ended = sweep_of(memory_bench, graph, case_input={"x": 0})
    assert ended.counts == {"succeeded": 1}
    assert ended.cells()[0].state == alone(graph, {"x": 0})


def test_the_thread_is_the_case_and_the_repeat(memory_bench: Any) -> None:
    def configured(state: State, config: RunnableConfig, *, k: int = 0) -> dict[str, Any]:
        return {"y": config["configurable"]["thread_id"]}

    beside = variants(one_node(configured)).add("a", "other", k=1)

    sweep = sweep_of(memory_bench, beside, {"a": ["default", "other"]}, repeats=2)

    assert [(cell.repeat, cell.state["y"]) for cell in sweep.cells()] == [
        (0, "one/0"), (0, "one/0"), (1, "one/1"), (1, "one/1"),
    ]  # fmt: skip


def test_a_person_changes_keys_of_the_graphs_that_are_under_way_each_by_its_name(sqlite_url: str) -> None:
    tells = lambda state: {"words": [f"x is {state['x']}"]}  # noqa: E731
    out = TypedDict("Out", {"words": list[str]})  # type: ignore[misc]  # noqa: UP013
    inner = graph_of(State, {"a": says(), "b": tells}, (START, "a"), ("a", "b"), output_schema=out)
    nodes = {"s": says(), "sub": inner.compile()}
    sends = [Send("sub", {"x": number}) for number in range(2)]
    graph = with_branch(graph_of(State, nodes, (START, "s")), "s", lambda state: sends, ["sub"])
    run = start(as_workflow(graph, "tests:graph"), {"x": 1}, breakpoints=["sub.b"], db=sqlite_url).wait()

    with pytest.raises(
        InputError, match=r"'sub\.x' is of a graph that is not under way here .* sub\|0\.x, .*sub\|1\.x"
    ):
        run.resume({"sub.x": 9})
    with pytest.raises(InputError, match=r"'sub\|2\.x' is of a graph that is not under way"):
        run.resume({"sub|2.x": 9})
    with pytest.raises(InputError, match=r"key 'sub\|1\.x': found 'nine'; expected int"):
        run.resume({"sub|1.x": "nine"})
    run.resume({"sub|1.x": 9})

    assert run.wait().state["words"] == ["x is 0", "x is 9"]


def test_where_a_graph_is_compiled_to_be_interrupted_a_sweep_pauses(memory_bench: Any) -> None:
    graph = graph_of(State, ABC, (START, "a"), ("a", "b"), ("b", "c"))

    sweep = sweep_of(memory_bench, graph.compile(interrupt_before=["b"]))

    assert (sweep.status, sweep.executed) == ("paused", 1)
