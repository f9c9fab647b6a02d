"""Other ways to do the nodes of the retrieval, for `vary` in the sweep files."""

import re
from collections import Counter
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage

from examples.langgraph.chat import small_model
from examples.langgraph.retrieval.graph import Pair, State, best, graded, index, library
from examples.retrieval import retrievers
from examples.retrieval.index import terms


def bm25(state: State, *, k: int = 8, k1: float = 1.2, b: float = 0.75) -> dict[str, Any]:
    """Return the k best documents by Okapi BM25."""
    return best(state, retrievers.bm25(index(), terms(state["query"]), k1, b), k)


def latent(state: State, *, k: int = 8, dims: int = 100) -> dict[str, Any]:
    """Return the k best documents by the cosine in a latent space."""
    return best(state, latent_scores(state["query"], dims), k)


def latent_grade(state: Pair, *, least: float = 0.2, dims: int = 100) -> dict[str, Any]:
    """Grade by the cosine in a latent space, which other words can reach too: good from `least` on."""
    return graded(state, latent_scores(state["text"], dims), least)


def keywords(state: State, *, words: int = 10) -> dict[str, Any]:
    """Query with the rarest terms of the query text, more of them each round."""
    weights = Counter(index().weights(terms(state["text"])))
    return {"query": " ".join(term for term, _ in weights.most_common(words * state["rounds"]))}


async def headline(state: State, *, max_tokens: int = 24) -> dict[str, Any]:
    """Query also with a headline that a small language model writes for the text."""
    talk = [SystemMessage("Write a short headline for the news."), HumanMessage(state["text"][:1200])]
    reply = await small_model(max_tokens=max_tokens).ainvoke(talk)
    return {"query": f"{state['query']} {reply.text}"}


def names(state: Pair, *, least: int = 2) -> dict[str, Any]:
    """Grade by shared names with the query text: good from `least` on."""
    mine, other = (_names(text) for text in (state["text"], library().corpus.documents[state["document"]]))
    shared = len(mine & other)
    return {"grades": [{"document": state["document"], "score": float(shared), "good": shared >= least}]}


def latent_scores(text: str, dims: int) -> retrievers.Scores:
    """Return the (N,) cosines of a text with all documents in a latent space."""
    space = library().space(dims)
    scores = retrievers.lsa(index(), terms(text), space, library().vectors(("whole", {}), dims))
    return scores / max(float(scores.max()), 1e-9)


def _names(text: str) -> set[str]:
    """Return the capitalized words that do not begin a sentence."""
    return set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", text))
