"""Nodes for `examples.langgraph.retrieval.graph` that search the documents that people compared, and evaluators.

Lee's file has, of each two of 50 documents, the mean of how similar people found them: so every answer has a human
side, which is a mean over people, of whom nothing else is known.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from examples.langgraph.retrieval import alternatives, graph
from examples.langgraph.retrieval.graph import State, index, library
from examples.retrieval import cases, retrievers
from examples.retrieval.corpus import JUDGED, judged_id
from examples.retrieval.index import terms
from wtb import evaluator

NUMBERS = {judged_id(number): number for number in range(JUDGED)}


def queries() -> Iterator[dict[str, Any]]:
    """Return the 37 cases of the retrieval example; an answer is expected to agree with the text."""
    for case in cases.queries():
        yield {**case, "expected": {"answer": case["input"]["text"]}}


def tfidf(state: State, *, k: int = 8) -> dict[str, Any]:
    """Return the k best of the compared documents by the cosine of tf-idf vectors."""
    return _compared(state, retrievers.tfidf(index(), terms(state["query"])), k)


def latent(state: State, *, k: int = 8, dims: int = 100) -> dict[str, Any]:
    """Return the k best of the compared documents by the cosine in a latent space."""
    return _compared(state, alternatives.latent_scores(state["query"], dims), k)


def first(state: State) -> dict[str, Any]:
    """Rank by grade, and answer with the whole text of the first."""
    ranking = graph.answer(state)["ranking"]
    return {"ranking": ranking, "answer": library().corpus.documents[ranking[0]]}


def similarity(document: str, other: str) -> float:
    """Return the mean similarity that people gave to two of the compared documents, 0 to 1."""
    return float(library().corpus.similarity[NUMBERS[document], NUMBERS[other]])


@evaluator(better="higher", scale=(0, 1))
def people(case: Any, result: Any) -> float:
    """Return how similar people found the answer to the query text, on average."""
    return similarity(case.input["document"], result.state["ranking"][0])


def _compared(state: State, scores: retrievers.Scores, k: int) -> dict[str, Any]:
    are_compared = np.array([owner in NUMBERS for owner in index().owners])
    return graph.best(state, np.where(are_compared, scores, -np.inf), k)
