"""Invalid LangGraph graphs, and invalid variants beside them, are refused before anything starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

GRAPHS = """
import sqlite3
import threading
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

connection = holding(Optional[sqlite3.Connection])
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


def case(values: str) -> str:
    return f"[{{id: a, input: {{{values}}}}}]"


CASE = case("q: x")
ODD = "sweep.yaml:4: node 'retrieve', variant 'odd'"
ODD_GRAPH = "node 'graph', variant 'odd'"
STOPS = "a graph that was compiled"
OTHER_STATE = "its state has 'query', which the graph's state does not have (it has: q, answer)"
WHOLE = ["sweep.yaml:4: node 'draft.write' is part of the node 'draft', which is varied, too", "vary one of them"]


def odd(source: str, node: str = "retrieve", **params: int) -> str:
    """Return how a sweep file varies a node by a variant `odd`."""
    variant = {"name": "odd", "with": f"graphs:{source}", **params}
    return json.dumps({node: ["default", variant]})


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
    Bad("the beginning of one within", ["no node 'dra.write'; did you mean 'draft.write'?"], vary="{dra.write: all}"),
    Bad("a node of a graph that is varied whole", WHOLE, vary="{draft: [default], draft.write: [default]}"),
    Bad("a graph that is varied whole, after a node of it", WHOLE, vary="{draft.write: [default], draft: [default]}"),
    Bad("a variant of another state", [ODD, OTHER_STATE], vary=odd("strange")),
    Bad("a variant of another state, of typing_extensions", [OTHER_STATE], vary=odd("stranger")),
    Bad("a variant that is a number", [ODD, "found int; expected a function"], vary=odd("number")),
    Bad("a variant that is a class", [ODD, "takes no state"], vary=odd("Retriever")),
    Bad("one without a state", ["takes no state; expected (state), with parameters by keyword"], vary=odd("nothing")),
    Bad(
        "a parameter that is not taken",
        ["takes no parameter 'kk'; did you mean 'k'? (it takes: k)"],
        vary=odd("bm25", k=1, kk=2),
    ),
    Bad("a parameter that is missing", ["parameter 'k' has neither a default nor a value"], vary=odd("bm25")),
    Bad("a variant that stops in the middle", [f"{ODD}: {STOPS}", "let its nodes call interrupt()"], vary=odd("kept")),
    Bad("a graph variant that is none", [ODD_GRAPH, "made int; expected"], vary=odd("makes_seven", "graph")),
    Bad(
        "a parameter of a graph that no function makes",
        [f"{ODD_GRAPH}: a CompiledStateGraph takes no parameters ('k')", "a function"],
        vary="{graph: [default, {name: odd, k: 3}]}",
    ),
    Bad(
        "a graph variant that cannot be stored",
        [f"{ODD_GRAPH}: graph 'odd': state key 'what' holds sqlite3.Connection"],
        vary=odd("connection", "graph"),
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
        [f"sweep.yaml:4: node 'within', variant 'default': {STOPS} with interrupt_before"],
        "graphs:halted",
        vary="{within: [default]}",
    ),
    # state, of which test_graph_types.py tries many types
    Bad("a connection in the state", ["state key 'what' holds sqlite3.Connection"], "graphs:connection"),
    Bad("a lock deep in the state", ["state key 'what' holds _thread.RLock"], "graphs:deep"),
    Bad("a key of the engine's own", ["state key '~mine'", "without '|' and '~'"], "graphs:odd"),
    Bad("a key as of repeated writes", ["state key 'a|b'", "without '|' and '~'"], "graphs:barred"),
    Bad("a key as one within", ["state key 'draft.words'", "the graph 'draft'"], "graphs:dotted"),
    Bad("a node as one within", ["node 'draft.write'", "the graph 'draft'"], "graphs:twice", "{draft: [default]}"),
    # cases and params
    Bad("a key that the input lacks", ["case 'a'", "key 'k' is not in the state"], cases=case("q: x, k: 1")),
    Bad("a key near one", ["case 'a'", "did you mean 'answer'?"], cases=case("anser: x")),
    Bad("a key that the input needs", ["case 'a'", "key 'q' is missing"], "graphs:typed", cases=case("")),
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
        (WITHOUT, ["No module named 'langgraph'"]),
        (NEWER, [sentence("langgraph {} is installed", "2.1.0"), "expects langgraph >= 1.2.22, < 1.3"]),
    ],
    ids=["missing", "newer"],
)
def test_another_langgraph_than_the_engine_knows_is_refused(project: Project, site: str, messages: list[str]) -> None:
    project.write({"site/sitecustomize.py": site, "sweep.yaml": sweep("graphs:graph", "{retrieve: [default]}", CASE)})
    refused = project.wtb("plan", "sweep.yaml", check=2, env={"PYTHONPATH": str(project.folder / "site")})
    for words in (*messages, 'pip install "workflow-test-bench[langgraph]"'):
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
