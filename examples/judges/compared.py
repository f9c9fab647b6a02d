"""Nodes for `examples.langgraph.retrieval.graph` that search among the documents that people compared, and evaluators.

Lee's file has, of each two of 50 documents, the mean of how similar people found them: so every answer has a human
side, which is a mean over people, of whom nothing else is known.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from examples.langgraph.retrieval import alternatives, graph
from examples.langgraph.retrieval.graph import State, index, library
from examples.retrieval import retrievers
from examples.retrieval.corpus import JUDGED, judged_id
from examples.retrieval.index import terms
from wtb import evaluator

NUMBERS = {judged_id(number): number for number in range(JUDGED)}


def tfidf(state: State, *, k: int = 8) -> dict[str, Any]:
    """The k best of the compared documents by the cosine of tf-idf vectors."""
    return _compared(state, retrievers.tfidf(index(), terms(state["query"])), k)


def latent(state: State, *, k: int = 8, dims: int = 100) -> dict[str, Any]:
    """The same by the cosine in a latent space."""
    return _compared(state, alternatives.latent_scores(state["query"], dims), k)


def first(state: State) -> dict[str, Any]:
    """Rank by grade, and answer with the whole text of the first."""
    ranking = graph.answer(state)["ranking"]
    return {"ranking": ranking, "answer": library().corpus.documents[ranking[0]]}


def similarity(document: str, other: str) -> float:
    """The mean similarity that people gave to two of the compared documents, 0 to 1."""
    return float(library().corpus.similarity[NUMBERS[document], NUMBERS[other]])


@evaluator(better="higher", scale=(0, 1))
def people(case: Any, result: Any) -> float:
    """How similar people found the answer to the text that asks, on average."""
    return similarity(case.input["document"], result.state["ranking"][0])


@evaluator(better="higher", scale=(0, 1))
def embedded(case: Any, result: Any) -> float:
    """A judge that reads no instructions: the cosine of both texts by WordLlama, 0 where it is less."""
    return min(max(float(_words().similarity(case.input["text"], result.state["answer"])), 0.0), 1.0)


def _compared(state: State, scores: retrievers.Scores, k: int) -> dict[str, Any]:
    are_compared = np.array([owner in NUMBERS for owner in index().owners])
    return graph.best(state, np.where(are_compared, scores, -np.inf), k)


@cache
def _words() -> Any:
    import wordllama

    # Its weights and its tokenizer are in the wheel, which finds the latter only where it would keep a download.
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
