"""The workflow: chunk -> query -> retrieve -> rank, with variants for the first three."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, TypedDict

import numpy as np

from examples.retrieval import chunkers, retrievers
from examples.retrieval.index import terms
from examples.retrieval.library import Chunking, Library, open_library
from wtb import END, Context, Workflow


class Question(TypedDict):
    """The input of a case: a document of the corpus; the workflow searches for similar ones."""

    document: str
    text: str


class State(Question, total=False):
    """The state that nodes share: names, terms and scores, a few kilobytes at most."""

    chunking: Chunking
    terms: list[str]
    hits: list[tuple[str, float]]
    ranking: list[str]


wf = Workflow(
    "retrieval",
    state=State,
    input=Question,
    resources=open_library,
    description="Find the news documents that people call similar to a given one.",
    version="1",
)


@wf.node(variant="whole")
def chunk(state: State, ctx: Context) -> dict[str, Any]:
    """Search documents as they are."""
    return _chunked(ctx, ("whole", {}))


@chunk.variant("sentences", description="Search single sentences.")
def _sentences(state: State, ctx: Context) -> dict[str, Any]:
    return _chunked(ctx, ("sentences", {}))


@chunk.variant("windows", description="Search overlapping windows of words.")
def _windows(state: State, ctx: Context, *, size: int = 60, overlap: int = 30) -> dict[str, Any]:
    return _chunked(ctx, ("windows", {"size": size, "overlap": overlap}))


def _chunked(ctx: Context, chunking: Chunking) -> dict[str, Any]:
    library: Library = ctx.resources
    library.index(chunking)  # built here, so that the time it takes is counted where it belongs
    return {"chunking": chunking}


@wf.node(variant="whole")
def query(state: State) -> dict[str, Any]:
    """Query with all words of the document."""
    return {"terms": terms(state["text"])}


@query.variant("lead", description="Ask with the first sentence, which in news sums up the rest.")
def _lead(state: State) -> dict[str, Any]:
    return {"terms": terms(chunkers.sentences(state["text"])[0])}


@wf.node(variant="tfidf")
def retrieve(state: State, ctx: Context) -> dict[str, Any]:
    """Cosine of tf-idf vectors."""
    index = ctx.resources.index(state["chunking"])
    return _hits(state, index.owners, retrievers.tfidf(index, state["terms"]))


@retrieve.variant("bm25", description="Okapi BM25.")
def _bm25(state: State, ctx: Context, *, k1: float = 1.2, b: float = 0.75) -> dict[str, Any]:
    index = ctx.resources.index(state["chunking"])
    return _hits(state, index.owners, retrievers.bm25(index, state["terms"], k1, b))


@retrieve.variant("dirichlet", description="Query likelihood with Dirichlet smoothing.")
def _dirichlet(state: State, ctx: Context, *, mu: float = 300.0) -> dict[str, Any]:
    index = ctx.resources.index(state["chunking"])
    return _hits(state, index.owners, retrievers.dirichlet(index, state["terms"], mu))


@retrieve.variant("lsa", description="Cosine in a latent space (singular value decomposition).")
def _lsa(state: State, ctx: Context, *, dims: int = 100) -> dict[str, Any]:
    library: Library = ctx.resources
    chunking = state["chunking"]
    index = library.index(chunking)
    scores = retrievers.lsa(index, state["terms"], library.space(dims), library.vectors(chunking, dims))
    return _hits(state, index.owners, scores)


def _hits(state: State, owners: Sequence[str], scores: retrievers.Scores, limit: int = 60) -> dict[str, Any]:
    """Return the best chunks as (document, score), best first; the query document is no candidate."""
    order = np.argsort(-scores, kind="stable")
    candidates = (i for i in order if owners[i] != state["document"])
    return {"hits": [(owners[i], float(scores[i])) for i in islice(candidates, limit)]}


@wf.node(variant="best")
def rank(state: State, *, top: int = 10) -> dict[str, Any]:
    """Order documents by their best chunk."""
    best = dict.fromkeys(document for document, _ in state["hits"])
    return {"ranking": list(best)[:top]}


wf.entry(chunk)
wf.edge(chunk, query)
wf.edge(query, retrieve)
wf.edge(retrieve, rank)
wf.edge(rank, END)
