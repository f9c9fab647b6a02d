"""A LangGraph graph that knows nothing of WTB: it retrieves, grades each document, begins anew, drafts, and asks.

Tests copy this module into a user's folder, and import it to run it with LangGraph alone. If there is a file `log`
beside it, nodes write a line to it when they start. A document waits in `grade` while there is a file `hold-` and its
name.
"""

import operator
import os
import time
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

FOLDER = Path(__file__).parent


def note(*words):
    if (FOLDER / "log").exists():
        with (FOLDER / "log").open("a") as log:
            log.write(" ".join(map(str, [*words, os.getpid()])) + "\n")


class State(TypedDict, total=False):
    q: str
    found: list[str]
    graded: Annotated[list[str], operator.add]
    rounds: int
    answer: str
    asks: bool
    broken: str


class Draft(TypedDict, total=False):
    graded: list[str]
    words: int
    answer: str
    broken: str


class Drafted(TypedDict):
    answer: str


def retrieve(state: State, *, k: int = 2):
    """Find documents."""
    number = state.get("rounds", 0) + 1
    note("retrieve", state["q"], number)
    return {"found": [f"{state['q']}{number}{letter}" for letter in "abcdefgh"[:k]], "rounds": number}


def each(state: State):
    return [Send("grade", {"doc": doc}) for doc in state["found"]]


def grade(state):
    note("grade", state["doc"])
    while (FOLDER / f"hold-{state['doc']}").exists():
        time.sleep(0.01)
    return {"graded": [state["doc"].upper()]}


def check(state: State):
    return {}


def choose_next(state: State) -> Literal["retrieve", "draft"]:
    return "draft" if state["rounds"] >= 2 else "retrieve"


def at_once(state: State) -> Literal["draft"]:
    return "draft"


def count(state: Draft):
    note("count", *state["graded"][:1])
    return {"words": len(state["graded"])}


def write(state: Draft):
    """Ask a model."""
    note("write", *state["graded"][:1])
    while (FOLDER / f"hold-write-{state['graded'][0]}").exists():
        time.sleep(0.01)
    return {"answer": ask_model(f"{state['words']} documents")}


def shout(state: Draft, *, mark: str = "!"):
    """Ask a model, and return the answer in capitals."""
    note("shout", *state["graded"][:1])
    if state.get("broken") and not (FOLDER / state["broken"]).exists():
        raise ValueError("it is not fixed")
    return {"answer": ask_model(f"{state['words']} documents").upper() + mark}


def ask_model(words):
    """Return the reply of a model that uses a million tokens, for 15 cents."""
    used = {"input_tokens": 1_000_000, "output_tokens": 0, "total_tokens": 1_000_000}
    reply = AIMessage(words, usage_metadata=used, response_metadata={"model_name": "gpt-4o-mini"})
    return FakeMessagesListChatModel(responses=[reply]).invoke("how many?").content


def review(state: State):
    if not state.get("asks"):
        return {}
    decision = interrupt({"question": "send it?", "answer": state["answer"]})
    return {"answer": f"{state['answer']}: {decision}"}


def build(loop=choose_next, retrieve=retrieve, write=write):
    draft = StateGraph(Draft, output_schema=Drafted)
    draft.add_node(count)
    draft.add_node("write", write)
    draft.add_edge(START, "count")
    draft.add_edge("count", "write")
    graph = StateGraph(State)
    graph.add_node("retrieve", retrieve)
    for node in (grade, check, review):
        graph.add_node(node)
    graph.add_node("draft", draft.compile())
    graph.add_edge(START, "retrieve")
    graph.add_conditional_edges("retrieve", each, ["grade"])
    graph.add_edge("grade", "check")
    graph.add_conditional_edges("check", loop)
    graph.add_edge("draft", "review")
    graph.add_edge("review", END)
    return graph


def short():
    """The whole graph with one round."""
    return build(at_once)


graph = build()


def length(case, result):
    return len(result.state["answer"])
