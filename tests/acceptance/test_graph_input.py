"""Invalid LangGraph graphs, and invalid variants beside them, are refused before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

GRAPHS = """
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional, TypedDict

import typing_extensions
from langgraph.channels import EphemeralValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import MessagesState
from langgraph.pregel import NodeBuilder, Pregel
from pydantic import BaseModel


class State(TypedDict, total=False):
    q: str
    answer: str


class Inner(TypedDict, total=False):
    answer: str
    words: int


def retrieve(state: State):
    return {"q": state["q"]}


def write(state: Inner):
    return {"answer": "an answer"}


def line(shape=State, *, name="retrieve", inner="write", **given):
    draft = StateGraph(Inner)
    draft.add_node(inner, write)
    draft.add_edge(START, inner)
    graph = StateGraph(shape, **given)
    graph.add_node(name, retrieve)
    graph.add_node("draft", draft.compile())
    graph.add_edge(START, name)
    graph.add_edge(name, "draft")
    return graph


graph = line()


def bm25(state: State, *, k: int):
    return {}


def other(state: Inner):
    return {}


class Strange(TypedDict):
    query: str


class Stranger(typing_extensions.TypedDict):
    query: str


def strange(state: Strange):
    return {}


def stranger(state: Stranger):
    return {}


def nothing():
    return {}


class Retriever:
    pass


number = 7


def holding(shape):
    class Held(TypedDict, total=False):
        q: str
        what: shape

    return line(Held)


class Deep(TypedDict):
    locks: list[Optional[threading.RLock().__class__]]


lock = holding(threading.Lock().__class__)
connection = holding(Optional[sqlite3.Connection])
calls = holding(dict[str, Callable[[], int]])
deep = holding(dict[str, list[Deep]])

odd = line(TypedDict("Odd", {"q": str, "~mine": int}, total=False))
barred = line(TypedDict("Barred", {"q": str, "a|b": int}, total=False))
dotted = line(TypedDict("Dotted", {"q": str, "draft.words": int}, total=False))
twice = line(name="draft.write")

nowhere = StateGraph(State)
nowhere.add_node(retrieve)
nowhere.add_edge(START, "retrieve")
nowhere.add_edge("retrieve", "anser")


by_hand = Pregel(
    nodes={name: NodeBuilder().subscribe_only("q").do(len).write_to("q") for name in "ab"},
    channels={"q": EphemeralValue(str)}, input_channels="q", output_channels="q",
)


def needs(q):
    return graph


async def waits():
    return graph


def raises():
    raise KeyError("MODEL_URL")


def makes_seven():
    return 7


class Given(BaseModel):
    q: str
    k: int = 2


class Needed(TypedDict):
    model: str


needing = line(context_schema=Needed)


@dataclass
class Settings:
    model: str


settled = line(context_schema=Settings)
typed = line(input_schema=Given)
talk = StateGraph(MessagesState)
talk.add_node("say", lambda state: {"messages": [("ai", f"{len(state['messages'])}: {state['messages'][0].content}")]})
talk.add_edge(START, "say")
halted = StateGraph(State)
halted.add_node("within", line().compile(interrupt_before=["draft"]))
halted.add_edge(START, "within")
kept = line().compile(checkpointer=InMemorySaver(), interrupt_before=["draft"])
"""


CASE = "[{id: a, input: {q: x}}]"


@dataclass
class Bad:
    """Bad input, and the texts that the message must contain."""

    name: str
    messages: list[str]
    workflow: str = "graphs:graph"
    vary: str = "{retrieve: [default]}"
    more: str = ""
    cases: str = CASE
    args: tuple[str, ...] = field(default=())


BAD = [
    # variants
    Bad("no such node", ["sweep.yaml:5: ", "no node 'retreive'; did you mean 'retrieve'?"], vary="\n  retreive: all"),
    Bad("no such node within", ["has no node 'draft.wirte'; did you mean 'draft.write'?"], vary="{draft.wirte: all}"),
    Bad(
        "the beginning of a node within", ["no node 'dra.write'; did you mean 'draft.write'?"], vary="{dra.write: all}"
    ),
    Bad(
        "a node of a graph that is varied whole",
        ["sweep.yaml:4: node 'draft.write' is part of the node 'draft', which is varied, too", "vary one of them"],
        vary="{draft: [default], draft.write: [default]}",
    ),
    Bad(
        "a graph that is varied whole, after a node of it",
        ["sweep.yaml:4: node 'draft.write' is part of the node 'draft', which is varied, too", "vary one of them"],
        vary="{draft.write: [default], draft: [default]}",
    ),
    Bad(
        "a variant of another state",
        [
            "sweep.yaml:4: node 'retrieve', variant 'odd'",
            "its state has 'query', which the graph's state does not have (it has: q, answer)",
        ],
        vary="{retrieve: [default, {name: odd, with: 'graphs:strange'}]}",
    ),
    Bad(
        "a variant of another state, of typing_extensions",
        ["its state has 'query', which the graph's state does not have (it has: q, answer)"],
        vary="{retrieve: [default, {name: odd, with: 'graphs:stranger'}]}",
    ),
    Bad(
        "a variant that is a number",
        ["sweep.yaml:4: node 'retrieve', variant 'odd'", "found int; expected a function"],
        vary="{retrieve: [default, {name: odd, with: 'graphs:number'}]}",
    ),
    Bad(
        "a variant that is a class",
        ["sweep.yaml:4: node 'retrieve', variant 'odd'", "takes no state"],
        vary="{retrieve: [default, {name: odd, with: 'graphs:Retriever'}]}",
    ),
    Bad(
        "a variant without a state",
        ["takes no state; expected (state), with parameters by keyword"],
        vary="{retrieve: [default, {name: odd, with: 'graphs:nothing'}]}",
    ),
    Bad(
        "a parameter that is not taken",
        ["takes no parameter 'kk'; did you mean 'k'? (it takes: k)"],
        vary="{retrieve: [default, {name: odd, with: 'graphs:bm25', k: 1, kk: 2}]}",
    ),
    Bad(
        "a parameter that is missing",
        ["parameter 'k' has neither a default nor a value"],
        vary="{retrieve: [default, {name: odd, with: 'graphs:bm25'}]}",
    ),
    Bad(
        "a graph variant that is none",
        ["sweep.yaml:4: node 'graph', variant 'odd'", "made int; expected"],
        vary="{graph: [default, {name: odd, with: 'graphs:makes_seven'}]}",
    ),
    Bad(
        "a parameter of a graph that no function makes",
        ["node 'graph', variant 'odd': a CompiledStateGraph takes no parameters ('k')", "a function"],
        vary="{graph: [default, {name: odd, k: 3}]}",
    ),
    Bad(
        "a graph variant that cannot be stored",
        ["node 'graph', variant 'odd': graph 'odd': state key 'what' holds sqlite3.Connection"],
        vary="{graph: [default, {name: odd, with: 'graphs:connection'}]}",
    ),
    # graphs
    Bad("an edge to nowhere", ["'graphs:nowhere'", "LangGraph does not compile it", "anser"], "graphs:nowhere"),
    Bad("a graph put together by hand", ["LangGraph graph that was not built from a StateGraph"], "graphs:by_hand"),
    Bad("a factory with arguments", ["sweep.yaml:2: ", "'graphs:needs' takes q; expected"], "graphs:needs"),
    Bad("a factory that is async", ["'graphs:waits' is async; expected"], "graphs:waits"),
    Bad("a factory that raises", ["'graphs:raises' cannot be called", "KeyError: 'MODEL_URL'"], "graphs:raises"),
    Bad("a factory of something else", ["'graphs:makes_seven' made int; expected"], "graphs:makes_seven"),
    Bad("a class", ["'graphs:State' is of type", "expected a wtb.Workflow, a LangGraph StateGraph"], "graphs:State"),
    Bad(
        "a graph that stops in the middle, as one node",
        ["sweep.yaml:4: node 'within', variant 'default': a graph that was compiled with interrupt_before"],
        "graphs:halted",
        vary="{within: [default]}",
    ),
    Bad(
        "a variant that stops in the middle",
        ["sweep.yaml:4: node 'retrieve', variant 'odd': a graph that was compiled", "let its nodes call interrupt()"],
        vary="{retrieve: [default, {name: odd, with: 'graphs:kept'}]}",
    ),
    # state
    Bad("a lock in the state", ["state key 'what' holds _thread.lock, which cannot be stored"], "graphs:lock"),
    Bad("a connection in the state", ["state key 'what' holds sqlite3.Connection"], "graphs:connection"),
    Bad("a function in the state", ["state key 'what' holds collections.abc.Callable"], "graphs:calls"),
    Bad("a lock deep in the state", ["state key 'what' holds _thread.RLock"], "graphs:deep"),
    Bad("a key of the engine's own", ["state key '~mine'", "without '|' and '~'"], "graphs:odd"),
    Bad("a key as of repeated writes", ["state key 'a|b'", "without '|' and '~'"], "graphs:barred"),
    Bad("a key as one within", ["state key 'draft.words'", "the graph 'draft'"], "graphs:dotted"),
    Bad("a node as one within", ["node 'draft.write'", "the graph 'draft'"], "graphs:twice", "{draft: [default]}"),
    # cases and params
    Bad(
        "a key that the input lacks",
        ["case 'a'", "key 'k' is not in the state"],
        cases="[{id: a, input: {q: x, k: 1}}]",
    ),
    Bad("a key near one", ["case 'a'", "did you mean 'answer'?"], cases="[{id: a, input: {anser: x}}]"),
    Bad("a key that the input needs", ["case 'a'", "key 'q' is missing"], "graphs:typed", cases="[{id: a, input: {}}]"),
    Bad("params that the context does not take", ["params", "modle"], "graphs:settled", more="params: {modle: x}"),
    # places
    Bad("a breakpoint within", ["no node 'draft.wirte'; did you mean 'draft.write'?"], args=("--break", "draft.wirte")),
    Bad(
        "a limit within",
        ["sweep.yaml:5: ", "did you mean 'draft.write'?"],
        more="limits: {nodes: {draft.wirte: {usd: 1}}}",
    ),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("graph_input") / "project")
    project.write({"graphs.py": GRAPHS})
    yield project
    project.close()


def sweep(workflow: str, vary: str, cases: str, more: str = "") -> str:
    return f"sweep: bad\nworkflow: {workflow}\ncases: {cases}\nvary: {vary}\n{more}\n"


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_is_refused_by_name_on_one_screen(project: Project, bad: Bad) -> None:
    project.write({"sweep.yaml": sweep(bad.workflow, bad.vary, bad.cases, bad.more)})
    refused = project.inside("run", "sweep.yaml", *bad.args, check=2)
    for words in bad.messages:
        assert words in refused.output
    assert "Traceback" not in refused.stderr
    assert refused.stderr.count("error:") == 1
    assert len(refused.stderr.splitlines()) <= 24
    assert project.query("SELECT count(*) FROM sweeps") in ([], [(0,)])


WITHOUT = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "langgraph":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
"""
NEWER = """
import importlib.metadata as metadata

version = metadata.version
metadata.version = lambda name: "2.1.0" if name == "langgraph" else version(name)
"""


@pytest.mark.parametrize(
    ("site", "messages"),
    [
        (WITHOUT, ["No module named 'langgraph'", 'pip install "workflow-test-bench[langgraph]"']),
        (
            NEWER,
            [
                sentence("langgraph {} is installed", "2.1.0"),
                "expects langgraph >= 1.2.22, < 1.3",
                'pip install "workflow-test-bench[langgraph]"',
            ],
        ),
    ],
    ids=["missing", "newer"],
)
def test_another_langgraph_than_the_engine_knows_is_refused(project: Project, site: str, messages: list[str]) -> None:
    project.write({"site/sitecustomize.py": site, "sweep.yaml": sweep("graphs:graph", "{retrieve: [default]}", CASE)})
    refused = project.wtb("plan", "sweep.yaml", check=2, env={"PYTHONPATH": str(project.folder / "site")})
    for words in messages:
        assert words in refused.output
    assert "Traceback" not in refused.stderr


def test_a_graph_within_is_no_place_to_start_from(project: Project) -> None:
    for place in ("draft.write", "draft"):
        refused = project.inside("start", "graphs:graph", "--set", "q=x", "--from", place, check=2)
        assert sentence("cannot start at {}, which is a graph within it or in one", f"{place!r}") in refused.output
        assert sentence("expected one of: {}", "retrieve") in refused.output


def test_a_checkpointer_of_the_graph_is_replaced_and_where_it_interrupts_is_a_breakpoint(project: Project) -> None:
    paused = project.inside("start", "graphs:kept", "--set", "q=x", check=1)
    assert "paused: breakpoint before draft.write" in paused.output
    assert project.inside("resume", paused.stderr.split()[1], check=0).json == {"q": "x", "answer": "an answer"}


def test_messages_may_be_given_as_people_write_them(project: Project) -> None:
    setting = "messages=[{role: user, content: hello}]"
    ended = project.inside("start", "graphs:talk", "--set", setting, "--format", "json", check=0)
    assert "1: hello" in ended.stdout
    refused = project.inside("start", "graphs:talk", "--set", "messages=[{rule: user}]", check=2)
    assert "key 'messages'" in refused.output
