"""Messages, models, tools and questions to people in LangGraph graphs: as in LangGraph, and recorded by WTB."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime, create_react_agent, tools_condition
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

from tests.integrations.langgraph.graph_stepping import (
    ABC_REST,
    State,
    Stepped,
    alone,
    answer,
    graph_of,
    one_node,
    plain,
    same_as_alone,
    says,
    with_branch,
)
from tests.support.prose import sentence
from wtb.authoring.code.fingerprint import fingerprint
from wtb.authoring.context.attempt_record import Allowance
from wtb.core.questions import Answer
from wtb.core.serialization.codec import decode

Step = Callable[..., Stepped]


# Messages


def messages() -> dict[str, StateGraph[Any]]:
    def reply(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{len(state['messages'])}", id="fixed"), ("user", "again")]}

    def correct(state: MessagesState) -> dict[str, Any]:
        return {"messages": AIMessage("corrected", id="fixed")}

    def forget(state: MessagesState) -> dict[str, Any]:
        return {"messages": [RemoveMessage(id="fixed")]}

    def restart(state: MessagesState) -> dict[str, Any]:
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("new")]}

    def line(*nodes: Any) -> StateGraph[Any]:
        names = [f"n{number}" for number in range(len(nodes))]
        edges = zip([START, *names], names, strict=False)
        return graph_of(MessagesState, dict(zip(names, nodes, strict=True)), *edges)

    return {
        "added": line(reply, reply),
        "replaced by id": line(reply, correct),
        "removed": line(reply, forget),
        "removed all": line(reply, restart),
    }


@pytest.mark.parametrize("name", messages())
def test_messages_are_added_replaced_and_removed(name: str, step: Step) -> None:
    graph = messages()[name]
    inputs = {"messages": [{"role": "user", "content": "hello"}]}

    assert plain(step(graph, inputs).state) == plain(alone(graph, inputs))


def test_a_message_has_one_id_for_all_who_share_the_node_run(step: Step) -> None:
    graph = one_node(lambda state: {"messages": [AIMessage("hi"), ("user", "yes")]}, MessagesState)

    done = step(graph, {"messages": []})

    written = decode(done.results[0].writes["messages"].data)
    assert [message.id for message in written] == [message.id for message in done.state["messages"]]
    assert all(message.id for message in written)


def test_the_text_of_a_message_is_stored_as_the_text_that_it_is(step: Step) -> None:
    graph = one_node(lambda state: {"y": AIMessage("hi").text, "words": [AIMessage("yo").text]})

    state = step(graph, {"x": 0}).state

    assert state == {"x": 0, "y": "hi", "words": ["yo"]}
    assert type(state["y"]) is str


# Models and tools


class Model(BaseChatModel):
    """Returns prepared replies one after the other, with their tokens."""

    says: list[AIMessage]
    name_: str = "gpt-4o-mini"
    details: dict[str, int] = {}
    bound: list[str] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        reply = self.says[sum(isinstance(message, AIMessage) for message in messages)].model_copy()
        reply.usage_metadata = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
        reply.usage_metadata["input_token_details"] = self.details
        reply.response_metadata = {"model_name": self.name_}
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.model_copy(update={"bound": [tool.name for tool in tools]})


@tool
def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


@tool
async def later(number: int) -> int:
    """A number, later."""
    return number


class Slow(BaseTool):
    """A common form of a tool, without a sync form."""

    name: str = "slow"
    description: str = "A number, slowly."

    def _run(self, number: int) -> int:
        raise NotImplementedError("use ainvoke")

    async def _arun(self, number: int) -> int:
        return number + 1


def calls(*names: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": {"number": 21}, "id": f"id-{name}"} for name in names])


def agent_of(*tools: Any, **more: Any) -> Any:
    """Build an agent as LangGraph does, or from its parts."""
    model = Model(says=[calls(*(tool.name for tool in tools)), AIMessage("42")], **more).bind_tools(tools)

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = graph_of(MessagesState, {"think": think, "tools": ToolNode(tools)}, (START, "think"), ("tools", "think"))
    return with_branch(graph, "think", tools_condition)


QUESTION = {"messages": [HumanMessage("what is 2 * 21?")]}


@pytest.mark.parametrize("tools", [(double,), (later,), (double, later), (Slow(),)], ids=lambda tools: tools[-1].name)
def test_an_agent_with_tools_gives_what_it_gives_in_langgraph(tools: Any, step: Step) -> None:
    graph = agent_of(*tools)

    done = same_as_alone(step, graph, QUESTION)

    assert sorted(call["tool"] for call in done.calls if call["tool"]) == [tool.name for tool in tools]
    assert [call["usd"] for call in done.calls if call["model"]] == [pytest.approx(0.00021)] * 2


def test_a_node_whose_sync_form_is_not_implemented_is_awaited(step: Step) -> None:
    def lacks(state: State) -> dict[str, Any]:
        raise NotImplementedError("use ainvoke")

    async def has(state: State) -> dict[str, Any]:
        return {"words": ["awaited"]}

    graph = one_node(RunnableLambda(lacks, afunc=has))

    assert step(graph, {"x": 0}).state == alone(graph, {"x": 0})


def test_a_node_that_is_not_implemented_fails_once(step: Step) -> None:
    attempts = []

    def lacks(state: State) -> dict[str, Any]:
        attempts.append(state["x"])
        raise NotImplementedError("later")

    failure = step(one_node(lacks), {"x": 0}).failed

    assert (failure.type, attempts) == ("NotImplementedError", [0])


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_an_agent_that_langgraph_makes_is_a_graph_like_all_others(step: Step) -> None:
    model = Model(says=[calls("double"), AIMessage("42")])
    graph = create_react_agent(model, [double], prompt="You calculate.")

    done = same_as_alone(step, graph, QUESTION)

    assert done.steps == [("agent",), ("tools",), ("agent",)]
    assert [call["tokens_in"] for call in done.calls] == [1000, 0, 1000]


def test_a_model_without_a_price_counts_its_tokens_and_says_so_once(step: Step) -> None:
    model = Model(says=[AIMessage("a")] * 3, name_="unheard-of")

    def twice(state: State) -> dict[str, Any]:
        return {"words": [model.invoke("x").text, model.invoke("y").text]}

    done = step(one_node(twice), {"x": 0})

    assert done.state["words"] == ["a", "a"]
    assert [(call["tokens_in"], call["usd"]) for call in done.calls] == [(1000, 0.0)] * 2
    assert done.unknown_costs == [{"cause": "price", "what": "unheard-of"}]


def test_what_a_provider_caches_costs_what_it_costs(step: Step) -> None:
    def spent(**details: int) -> float:
        model = Model(says=[AIMessage("a")], details=details)
        graph = one_node(lambda state: {"words": [model.invoke("x").text]})
        return sum(call["usd"] for call in step(graph, {"x": 0}).calls)

    assert 0 < spent(cache_read=1000) < spent()


def test_calls_of_models_that_fail_or_do_not_count_tokens_are_kept_and_said(step: Step) -> None:
    class Broken(FakeListChatModel):
        def _call(self, *args: Any, **kwargs: Any) -> str:
            raise ConnectionError("gone")

    def tries(state: State) -> dict[str, Any]:
        try:
            Broken(responses=["never"]).invoke("x")
        except ConnectionError:
            return {"words": [FakeListChatModel(responses=["said"]).invoke("x").text]}
        return {}

    done = step(one_node(tries), {"x": 0})

    assert [decode(call["response"].encode()) for call in done.calls] == [
        {"error": "ConnectionError: gone"},
        [{"role": "ai", "content": "said"}],
    ]
    assert done.unknown_costs == [{"cause": "usage", "what": "FakeListChatModel"}]


def odd_model(spoil: Callable[[ChatResult], None]) -> Model:
    """Return a model whose response is changed."""

    class Odd(Model):
        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            reply = super()._generate(*args, **kwargs)
            spoil(reply)
            return reply

    return Odd(says=[AIMessage("a")])


@pytest.mark.parametrize(
    ("usage", "counted", "is_known"),
    [
        ({"input_tokens": 100, "output_tokens": 10, "input_token_details": {"cache_read": 500}}, (100, 10), True),
        ({"input_tokens": 100, "output_tokens": 10, "input_token_details": {"cache_creation": 500}}, (100, 10), True),
        ({"input_tokens": True, "output_tokens": 10}, (0, 10), False),
        ({"input_tokens": 100, "output_tokens": 10**15}, (100, 0), False),
        ({"input_tokens": -5, "output_tokens": 10}, (0, 10), False),
        ({"input_tokens": "100", "output_tokens": 10}, (0, 10), False),
        ({"input_tokens": 100.0, "output_tokens": 10}, (100, 10), True),
        ({"output_tokens": 10}, (0, 10), False),
        ({"input_tokens": 100, "output_tokens": 10, "input_token_details": ["cache"]}, (100, 10), True),
    ],
    ids=["more read", "more written", "bool", "10^15", "negative", "text", "float", "missing", "no details"],
)
def test_no_usage_that_a_server_reports_fails_a_node(
    step: Step, usage: dict[str, Any], counted: tuple[int, int], is_known: bool
) -> None:
    model = odd_model(lambda reply: setattr(reply.generations[0].message, "usage_metadata", usage))
    done = step(one_node(lambda state: {"words": [model.invoke("x").text]}), {"x": 0})

    assert done.failure is None, done.failure
    (call,) = done.calls
    assert (call["tokens_in"], call["tokens_out"]) == counted
    assert call["usd"] >= 0
    assert [reason["cause"] for reason in done.unknown_costs] == ([] if is_known else ["usage"])


def test_a_response_whose_metadata_are_odd_fails_no_node(step: Step) -> None:
    def spoil(reply: ChatResult) -> None:
        reply.generations[0].message.response_metadata = {"model_name": 5}
        reply.llm_output = {"token_usage": [1, 2], "model_name": ["x"]}

    model = odd_model(spoil)
    done = step(one_node(lambda state: {"words": [model.invoke("x").text]}), {"x": 0})

    assert done.failure is None, done.failure
    assert [call["model"] for call in done.calls] == ["5"]


def test_a_model_ends_the_attempt_that_may_spend_no_more(step: Step) -> None:
    model = Model(says=[AIMessage("a")])

    def twice(state: State) -> dict[str, Any]:
        return {"words": [model.invoke("x").text, model.invoke("y").text]}

    async def twice_later(state: State) -> dict[str, Any]:
        return {"words": [(await model.ainvoke("x")).text, (await model.ainvoke("y")).text]}

    for node in (twice, twice_later):
        done = step(one_node(node), {"x": 0}, allowance=Allowance(usd=0.0001))
        assert done.failed.kind == "budget"
        assert done.failed.final
        assert len(done.calls) == 1


MODEL = Model(says=[AIMessage("a")])


def asks_the_model(state: State) -> dict[str, Any]:
    return {"words": [MODEL.invoke("x").text]}


def test_a_model_that_was_used_leaves_the_code_as_it_was(step: Step) -> None:
    before = fingerprint(asks_the_model)

    step(one_node(asks_the_model), {"x": 0})

    assert set(vars(MODEL)) - set(Model.model_fields), "LangChain remembers something in the model"
    assert fingerprint(asks_the_model) == before


def test_a_chain_is_a_node(step: Step) -> None:
    chain = RunnableLambda(lambda state: state["y"]) | FakeListChatModel(responses=["said"]) | StrOutputParser()
    graph = graph_of(
        State,
        {
            "a": chain | (lambda text: {"words": [text]}),
            "b": RunnableParallel(y=chain, words=lambda state: ["b"]),
            "c": RunnablePassthrough() | RunnableLambda(lambda state: {"words": [state["y"]]}, afunc=None),
        },
        (START, "a"), ("a", "b"), ("b", "c"),
    )  # fmt: skip

    assert step(graph, {"y": "q"}).state == alone(graph, {"y": "q"})


def test_tasks_that_a_node_calls_run_within_it(step: Step) -> None:
    @task
    def square(number: int) -> int:
        return number**2

    @task
    async def square_later(number: int) -> int:
        return number**2

    def calls_tasks(state: State) -> dict[str, Any]:
        return {"x": sum(future.result() for future in [square(n) for n in range(4)])}

    async def awaits_tasks(state: State) -> dict[str, Any]:
        return {"x": state["x"] + sum(await asyncio.gather(*(square_later(n) for n in range(4))))}

    def fails(state: State) -> dict[str, Any]:
        return {"x": square("no").result()}

    graph = graph_of(State, {"a": calls_tasks, "b": awaits_tasks}, (START, "a"), ("a", "b"))
    assert step(graph, {"x": 0}).state == alone(graph, {"x": 0}) == {"x": 28, "words": []}
    failure = step(one_node(fails), {"x": 0}).failed
    assert failure.type == "TypeError"


def test_agents_hand_over_to_each_other_by_commands_of_their_tools(step: Step) -> None:
    @tool
    def to_bob(state: Annotated[Any, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Hand over to bob."""
        message = ToolMessage("handed over", tool_call_id=tool_call_id)
        return Command(goto="bob", graph=Command.PARENT, update={"messages": [*state["messages"], message]})

    @tool
    def remember(text: str, store: Annotated[Any, InjectedStore()], runtime: ToolRuntime) -> str:
        """Keep a text."""
        store.put(("texts",), runtime.tool_call_id, {"text": text})
        return f"{len(runtime.state['messages'])} {len(store.search(('texts',)))}"

    def agent(tools: list[Any], *replies: AIMessage) -> Any:
        def think(state: MessagesState) -> dict[str, Any]:
            spoke = sum(isinstance(message, AIMessage) for message in state["messages"])
            return {"messages": [replies[min(spoke, len(replies) - 1)].model_copy()]}

        graph = graph_of(
            MessagesState, {"think": think, "tools": ToolNode(tools)}, (START, "think"), ("tools", "think")
        )
        return with_branch(graph, "think", tools_condition).compile()

    def call(name: str, **args: Any) -> AIMessage:
        return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"id-{name}"}])

    def team() -> Any:
        ann = agent([to_bob, remember], call("remember", text="t"), call("to_bob"))
        bob = agent([to_bob], AIMessage("bob is here"))
        graph = graph_of(MessagesState, {"ann": ann, "bob": bob, "ends": lambda state: None}, (START, "ann"))
        return graph.add_edge("ann", "ends").compile(store=InMemoryStore())

    done = step(team(), QUESTION)

    assert done.failure is None
    assert plain(done.state) == plain(alone(team(), QUESTION))
    assert done.steps[-1] == ("bob.think", "ends")


# Questions to people


def questioner() -> dict[str, tuple[Any, list[Any]]]:
    """Graphs, and the answers to their questions."""

    def once(state: State) -> dict[str, Any]:
        return {"words": [f"got {interrupt('how?')}"]}

    def twice(state: State) -> dict[str, Any]:
        return {"words": [interrupt({"question": "first?"}), interrupt({"question": "second?"})]}

    async def later(state: State) -> dict[str, Any]:
        return {"words": [interrupt("later?")]}

    def swallows(state: State) -> dict[str, Any]:
        try:
            return {"words": [interrupt("swallowed?")]}
        except Exception:  # noqa: BLE001 - as users write it
            return {"words": ["swallowed"]}

    def refines(state: State) -> dict[str, Any]:
        number = interrupt("a number?", response_schema={"type": "integer"})
        return {"words": [str(number)]}

    def per_item(state: Any) -> dict[str, Any]:
        return {"words": [interrupt(f"item {state['n']}?")]}

    @task
    def asks(text: str) -> str:
        return str(interrupt(text))

    def by_tasks(state: State) -> dict[str, Any]:
        return {"words": [asks("t1?").result(), asks("t2?").result()]}

    def ids(state: State) -> Command[Any]:
        return Command(goto="b" if interrupt({"options": ["yes", "no"], "question": "go?"}) == "yes" else END)

    sent = graph_of(State, {"a": per_item})
    sent.add_conditional_edges(START, lambda state: [Send("a", {"n": n}) for n in range(3)], ["a"])
    sub = graph_of(State, {"in": twice, "after": says("after")}, (START, "in"), ("in", "after"))
    compiled = sub.compile()
    invoking = one_node(lambda state: {"words": compiled.invoke({"x": 1})["words"]})
    return {
        "once": (one_node(once), ["so"]),
        "twice": (one_node(twice), ["1", "2"]),
        "by an async node": (one_node(later), ["l"]),
        "swallowed": (one_node(swallows), []),
        "with a schema": (one_node(refines), [42]),
        "by sent tasks": (sent, ["0", "1", "2"]),
        "by tasks of a node": (one_node(by_tasks), ["t1", "t2"]),
        "in a graph within": (graph_of(State, {"sub": sub.compile(), "b": says("b")}, (START, "sub"), ("sub", "b")),
                              ["1", "2"]),
        "in a graph that a node invokes": (invoking, ["1", "2"]),
        "and decided by it": (graph_of(State, {"a": ids, **ABC_REST}, (START, "a")), ["yes"]),
    }  # fmt: skip


@pytest.mark.parametrize("name", questioner())
def test_an_interrupt_is_a_question_and_its_answer_resumes(name: str, step: Step) -> None:
    graph, answers = questioner()[name]

    done = step(graph, {"x": 0}, answers=answers)

    assert done.failure is None
    assert done.state == resumed(graph, {"x": 0}, answers)
    assert len(done.questions) == len(answers)


def resumed(graph: StateGraph[Any], inputs: dict[str, Any], answers: list[Any]) -> dict[str, Any]:
    """Run a graph in LangGraph and answer its interrupts one after the other. Return its state."""
    compiled = graph.compile(checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "1"}}
    asyncio.run(compiled.ainvoke(inputs, config))
    for given_answer in answers:
        first = compiled.get_state(config).interrupts[0]
        asyncio.run(compiled.ainvoke(Command(resume={first.id: given_answer}), config))
    assert not compiled.get_state(config).next
    values: dict[str, Any] = compiled.get_state(config).values
    return values


def test_questions_that_a_node_asks_at_the_same_time_are_refused(step: Step) -> None:
    @task
    def asks(text: str) -> str:
        return str(interrupt(text))

    def both(state: State) -> dict[str, Any]:
        return {"words": [future.result() for future in (asks("1?"), asks("2?"))]}

    failure = step(one_node(both), {"x": 0}).failed

    assert failure.final
    assert sentence("{} asks {} questions at the same time", "node 'a'", 2) in failure.message


@pytest.mark.parametrize(
    ("reply", "resumes"),
    [
        (Answer("approve"), True),
        (Answer("approve", feedback="go on"), "go on"),
        (Answer("approve", choice="yes", feedback="sure"), "yes"),
        (answer({"type": "edit"}), {"type": "edit"}),
        (answer(False), False),
    ],
)
def test_what_an_interrupt_returns_is_what_was_answered(reply: Answer, resumes: Any, step: Step) -> None:
    graph = one_node(lambda state: {"words": [interrupt({"options": ["yes", "no"]})]})

    done = step(graph, {"x": 0}, answers=[reply])

    assert done.state["words"] == [resumes]
    assert done.questions[0].options == ("yes", "no")


def test_null_is_no_answer_to_an_interrupt(step: Step) -> None:
    graph = one_node(lambda state: {"words": [interrupt("what?")]})

    failure = step(graph, {"x": 0}, answers=[answer(None)]).failed

    assert (failure.type, failure.final) == ("InputError", True)
    assert sentence("LangGraph cannot resume with null; answer with another value") in failure.message


ACTIONS = {"action_requests": [{"name": "send", "args": {"to": "ann"}}, {"name": "pay", "args": {}}]}


@pytest.mark.parametrize(
    ("reply", "decision"),
    [
        (Answer("approve"), {"type": "approve"}),
        (Answer("reject", feedback="too dear", by="ann"), {"type": "reject", "message": "rejected by ann: too dear"}),
    ],
)
def test_what_the_middleware_for_people_asks_is_answered_by_decisions(reply: Answer, decision: Any, step: Step) -> None:
    graph = one_node(lambda state: {"words": [interrupt(ACTIONS)]})

    done = step(graph, {"x": 0}, answers=[reply])

    assert done.state["words"] == [{"decisions": [decision] * 2}]
    assert done.questions[0].text == "send?; pay?"


def test_a_rejected_question_ends_the_node(step: Step) -> None:
    graph = one_node(lambda state: {"words": [interrupt("go?")]})

    failure = step(graph, {"x": 0}, answers=[Answer("reject", by="ann")]).failed

    assert (failure.kind, failure.message) == ("rejected", sentence("rejected by {}", "ann"))


class Decision(BaseModel):
    go: bool


def test_an_answer_of_another_shape_than_the_node_expects_fails_it(step: Step) -> None:
    def decides(state: State) -> dict[str, Any]:
        return {"words": [str(interrupt("go?", response_schema=Decision).go)]}

    graph = one_node(decides)

    assert step(graph, {"x": 0}, answers=[{"go": True}]).state["words"] == ["True"]
    failure = step(graph, {"x": 0}, answers=["what?"]).failed
    assert failure.type == "ValidationError"
