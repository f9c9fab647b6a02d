"""The graph: ask -> retrieve -> grade (one task for each document) -> sift -> (rewrite -> retrieve ...) | answer.

This is known as corrective retrieval (Yan et al., 2024): what was found is graded, and where too little of it is
good, the query is rewritten and the search done again. The graph knows of LangGraph only.
"""

import operator
from collections import Counter
from functools import cache
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from examples.retrieval import chunkers, retrievers
from examples.retrieval.index import Index, terms
from examples.retrieval.library import Library, open_library

ENOUGH = 3  # good documents, with which the search ends
ROUNDS = 3  # of searching, at most


class Question(TypedDict):
    """The input of a case: a document of the corpus; the workflow searches for similar ones."""

    document: str
    text: str


class Grade(TypedDict):
    """How well a document goes with the question, and whether that is good enough."""

    document: str
    score: float
    good: bool


class State(Question):
    """found: ids of the last search, best first. grades: of all rounds. good: ids of the good ones."""

    query: str
    rounds: int
    found: list[str]
    grades: Annotated[list[Grade], operator.add]
    good: list[str]


class Pair(TypedDict):
    """The input of one grader: the query text, and the id of one document."""

    text: str
    document: str


class Answer(TypedDict):
    """ranking: ids, at most ten, the good ones first. answer: the best of them in words. good: ids of the good ones."""

    ranking: list[str]
    answer: str
    good: list[str]
    rounds: int


@cache
def library() -> Library:
    """Return the corpus and its indexes, built once a process."""
    return open_library()


def index() -> Index:
    return library().index(("whole", {}))


def ask(state: Question) -> dict[str, Any]:
    """Start with the first sentence, which in news sums up the rest."""
    return {"query": chunkers.sentences(state["text"])[0], "rounds": 0}


def retrieve(state: State, *, k: int = 8) -> dict[str, Any]:
    """Return the k best documents by the cosine of tf-idf vectors."""
    return best(state, retrievers.tfidf(index(), terms(state["query"])), k)


def best(state: State, scores: retrievers.Scores, k: int) -> dict[str, Any]:
    """Return the k documents with the highest scores, best first; the query document is no candidate."""
    owners = index().owners
    order = [owners[row] for row in np.argsort(-scores, kind="stable") if owners[row] != state["document"]]
    return {"found": order[:k], "rounds": state["rounds"] + 1}


def each_new_one(state: State) -> list[Send] | Literal["sift"]:
    """Send each document that no earlier round has graded to a grader."""
    graded_documents = {grade["document"] for grade in state["grades"]}
    return [
        Send("grade", {"text": state["text"], "document": document})
        for document in state["found"]
        if document not in graded_documents
    ] or "sift"


def grade(state: Pair, *, least: float = 0.1) -> dict[str, Any]:
    """Grade by the cosine with the whole query text: good from `least` on."""
    query = terms(state["text"])
    length = np.sqrt(sum(weight**2 for weight in index().weights(query).values()))
    return graded(state, retrievers.tfidf(index(), query) / length, least)


def graded(state: Pair, scores: retrievers.Scores, least: float) -> dict[str, Any]:
    """Return the grade of the pair's document from the (N,) scores of all."""
    score = float(scores[index().owners.index(state["document"])])
    return {"grades": [Grade(document=state["document"], score=score, good=score >= least)]}


def sift(state: State) -> dict[str, Any]:
    """Keep the documents that any round graded as good."""
    return {"good": [grade["document"] for grade in state["grades"] if grade["good"]]}


def enough(state: State) -> Literal["rewrite", "answer"]:
    return "answer" if len(state["good"]) >= ENOUGH or state["rounds"] >= ROUNDS else "rewrite"


def rewrite(state: State, *, words: int = 10) -> dict[str, Any]:
    """Query also with the most typical terms of the good documents, or else of the first results."""
    texts = library().corpus.documents
    weights: Counter[str] = Counter()
    for document in state["good"] or state["found"][:3]:
        weights.update(index().weights(terms(texts[document])))
    return {"query": " ".join([state["query"], *(term for term, _ in weights.most_common(words))])}


def answer(state: State) -> dict[str, Any]:
    """Rank by grade, and name the best three with their first sentences."""
    order = sorted(state["grades"], key=lambda judged: (judged["good"], judged["score"]), reverse=True)
    ranking = [judged["document"] for judged in order]
    texts = library().corpus.documents
    first = [f"{document}: {chunkers.sentences(texts[document])[0]}" for document in ranking[:3]]
    return {"ranking": ranking[:10], "answer": "\n".join(first)}


def build() -> StateGraph[State, None, Question, Answer]:
    builder = StateGraph(State, input_schema=Question, output_schema=Answer)
    builder.add_node("ask", ask)
    builder.add_node("retrieve", retrieve)
    builder.add_node("grade", grade)
    builder.add_node("sift", sift)
    builder.add_node("rewrite", rewrite)
    builder.add_node("answer", answer)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "retrieve")
    builder.add_conditional_edges("retrieve", each_new_one, ["grade", "sift"])
    builder.add_edge("grade", "sift")
    builder.add_conditional_edges("sift", enough)
    builder.add_edge("rewrite", "retrieve")
    builder.add_edge("answer", END)
    return builder


graph = build()
