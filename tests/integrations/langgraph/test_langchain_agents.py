"""Agents of LangChain with each of its middlewares: prepared at once, and run as LangChain runs them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from langchain.agents import create_agent, middleware
from langchain.agents.middleware import AgentMiddleware
from langchain_core._api import suppress_langchain_beta_warning
from langchain_core.decisions import BaseDecisionModel, ClassifierResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from packaging.version import Version

from tests.integrations.langgraph.graph_stepping import Stepped, alone, answer, plain
from wtb.authoring.code.fingerprint import fingerprints
from wtb.authoring.code.import_paths import as_workflow
from wtb.authoring.code.source_file import SourceFile
from wtb.authoring.code.walk import Walk

Step = Callable[..., Stepped]
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Adding(BaseChatModel):
    """A model that calls the tool `add` several times, and then ends."""

    times: int = 2
    calls: list[dict[str, Any]] = [{"name": "add", "args": {"a": 1, "b": 2}}]

    @property
    def _llm_type(self) -> str:
        return "adding"

    def bind_tools(self, tools: Any, **more: Any) -> BaseChatModel:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **more: Any) -> ChatResult:
        so_far = sum(isinstance(message, AIMessage) and bool(message.tool_calls) for message in messages)
        templates = self.calls if so_far < self.times else []
        calls = [{**call, "id": f"call-{so_far}-{n}", "type": "tool_call"} for n, call in enumerate(templates)]
        text = f"{so_far} done"
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, tool_calls=calls, id=f"ai-{so_far}"))])


class Deciding(BaseDecisionModel):
    """A model that takes the first of several choices, and thinks that nothing is risky."""

    model: str = "deciding"

    @property
    def _provider(self) -> str:
        return "tests"

    def _classify(self, state: Any, questions: dict[str, Any]) -> ClassifierResponse:
        answers: dict[str, Any] = {}
        for name, question in questions.items():
            if question.type == "noul":
                answers[name] = {"type": "noul", "noul": 0.1}
            else:
                first = next(iter(question.criteria))
                answers[name] = {"type": "choice", "choice": first, "probabilities": {first: 1.0}, "confidence": 1.0}
        return ClassifierResponse(model=self.model, answers=answers)


def routed() -> AgentMiddleware[Any, Any]:
    choices = {"only": middleware.ModelChoice(model=Adding(), criteria="whatever is asked")}
    with suppress_langchain_beta_warning():
        return middleware.ModelRouterMiddleware(choices=choices, instructions="Choose.", classifier=Deciding())


def asked_about(name: str) -> AgentMiddleware[Any, Any]:
    return middleware.HumanInTheLoopMiddleware(interrupt_on={name: True})


MIDDLEWARE: dict[str, Callable[[], AgentMiddleware[Any, Any]]] = {
    "AgentMiddleware": lambda: type("Mine", (AgentMiddleware,), {"name": "mine"})(),
    "AutoModeMiddleware": lambda: middleware.AutoModeMiddleware(tools=["add"], classifier=Deciding()),
    "ContextEditingMiddleware": middleware.ContextEditingMiddleware,
    "FilesystemFileSearchMiddleware": lambda: middleware.FilesystemFileSearchMiddleware(root_path="."),
    "HumanInTheLoopMiddleware": lambda: asked_about("another"),
    "LLMToolEmulator": lambda: middleware.LLMToolEmulator(tools=[], model=Adding()),
    "LLMToolSelectorMiddleware": lambda: middleware.LLMToolSelectorMiddleware(always_include=["add"], model=Adding()),
    "ModelCallLimitMiddleware": lambda: middleware.ModelCallLimitMiddleware(run_limit=2),
    "ModelFallbackMiddleware": lambda: middleware.ModelFallbackMiddleware(Adding()),
    "ModelRefusalMiddleware": middleware.ModelRefusalMiddleware,
    "ModelRetryMiddleware": middleware.ModelRetryMiddleware,
    "ModelRouterMiddleware": routed,
    "PIIMiddleware": lambda: middleware.PIIMiddleware("email", apply_to_output=True),
    "ProviderToolSearchMiddleware": middleware.ProviderToolSearchMiddleware,
    "ShellToolMiddleware": middleware.ShellToolMiddleware,
    "SummarizationMiddleware": lambda: middleware.SummarizationMiddleware(model=Adding(), trigger=("messages", 50)),
    "TodoListMiddleware": middleware.TodoListMiddleware,
    "ToolCallLimitMiddleware": lambda: middleware.ToolCallLimitMiddleware(run_limit=1),
    "ToolErrorMiddleware": lambda: middleware.ToolErrorMiddleware(on_error=lambda error, request: "failed"),
    "ToolRetryMiddleware": middleware.ToolRetryMiddleware,
}
NEWEST = "1.5.2"  # of the releases whose middlewares are here
LEAVES_PIPES_OPEN = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # LangChain's shell
NOT_FOR_ANY_MODEL = {"LLMToolSelectorMiddleware", "ProviderToolSearchMiddleware"}  # they need what ours has not


def agent(*middlewares: AgentMiddleware[Any, Any], model: BaseChatModel | None = None) -> Any:
    return create_agent(model or Adding(), tools=[add], middleware=middlewares)


def test_every_middleware_of_langchain_is_tried() -> None:
    """Covers releases up to NEWEST; middlewares of later ones are named."""
    public = {name: getattr(middleware, name) for name in middleware.__all__}
    classes = {name for name, kind in public.items() if inspect.isclass(kind) and issubclass(kind, AgentMiddleware)}

    if Version(version("langchain")) > Version(NEWEST) and classes > MIDDLEWARE.keys():
        pytest.skip(f"there is more than LangChain {NEWEST} had: {sorted(classes - MIDDLEWARE.keys())}")
    assert classes == MIDDLEWARE.keys()


@pytest.mark.parametrize("name", MIDDLEWARE)
def test_to_prepare_an_agent_reads_no_file_of_langchain_and_each_of_the_users_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[Any] = []
    parsed: list[str] = []
    describe, parse = Walk.describe, SourceFile.parse
    monkeypatch.setattr(Walk, "describe", lambda walk, subject: described.append(subject) or describe(walk, subject))
    monkeypatch.setattr(SourceFile, "parse", lambda lines: parsed.append("".join(lines)) or parse(lines))

    workflow = as_workflow(agent(MIDDLEWARE[name]()), "tests:agent")
    workflow.validate()
    code_fingerprints = fingerprints(workflow.nodes.values(), {})

    assert code_fingerprints.keys() == workflow.nodes.keys()
    assert len(described) < 100
    assert [source[:300] for source in parsed if "def test_every_middleware_of_langchain_is_tried" not in source] == []
    assert len(parsed) <= 1


@pytest.mark.filterwarnings(*LEAVES_PIPES_OPEN)
@pytest.mark.parametrize("name", [name for name in MIDDLEWARE if name not in NOT_FOR_ANY_MODEL])
def test_an_agent_does_what_it_does_in_langchain(name: str, step: Step) -> None:
    expected = alone(agent(MIDDLEWARE[name]()), HELLO)

    stepped = step(agent(MIDDLEWARE[name]()), HELLO)

    assert stepped.failure is None
    assert plain(stepped.state["messages"]) == plain(expected["messages"])


def test_an_agent_asks_a_person_before_it_calls_a_tool(step: Step) -> None:
    asking = agent(asked_about("add"), model=Adding(times=1))

    stepped = step(asking, HELLO, answers=[answer({"decisions": [{"type": "approve"}]})])

    assert stepped.failure is None
    assert [question.text for question in stepped.questions] == ["add?"]
    assert [message.text for message in stepped.state["messages"]] == ["hello", "0 done", "3", "1 done"]


def test_an_agent_keeps_a_list_of_what_is_to_be_done(step: Step) -> None:
    todos = [{"content": "add", "status": "in_progress"}]
    model = Adding(times=1, calls=[{"name": "write_todos", "args": {"todos": todos}}])

    stepped = step(agent(middleware.TodoListMiddleware(), model=model), HELLO)

    assert stepped.failure is None
    assert stepped.state["todos"] == todos


def test_the_calls_of_models_and_tools_are_limited_over_all_steps(step: Step) -> None:
    of_models, of_tools = middleware.ModelCallLimitMiddleware, middleware.ToolCallLimitMiddleware

    stepped = step(agent(of_models(run_limit=3), of_tools(run_limit=2), model=Adding(times=10)), HELLO)

    assert stepped.failure is None
    assert stepped.ran.count("model") == 3
    done = [message.status for message in stepped.state["messages"] if isinstance(message, ToolMessage)]
    assert done.count("success") == 2


@pytest.mark.filterwarnings(*LEAVES_PIPES_OPEN)
def test_an_agent_has_a_shell_in_each_step(step: Step) -> None:
    model = Adding(times=2, calls=[{"name": "shell", "args": {"command": "echo $GREETING; export GREETING=bye"}}])
    shell = middleware.ShellToolMiddleware(startup_commands="export GREETING=good-day")

    stepped = step(agent(shell, model=model), HELLO)

    assert stepped.failure is None
    printed = [message.text for message in stepped.state["messages"] if isinstance(message, ToolMessage)]
    assert printed == ["good-day\n"] * 2
