"""Four ways to score chunks for a query. Each takes an index of N chunks and terms, and returns (N,) scores.

A higher score is a better match; scores of different retrievers cannot be compared.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from examples.retrieval.index import Index

Scores = NDArray[np.float64]


def tfidf(index: Index, query: Sequence[str]) -> Scores:
    """Cosine of the tf-idf vectors of query and chunk, but for the query's length, equal for all chunks."""
    scores = np.zeros(len(index))
    for term, weight in index.weights(query).items():
        postings = index.postings[term]
        scores[postings.chunks] += weight * (1 + np.log(postings.counts)) * index.idf(term)
    return scores / index.norms


def bm25(index: Index, query: Sequence[str], k1: float, b: float) -> Scores:
    """Okapi BM25 (Robertson and Zaragoza, 2009).

    `k1` >= 0 says how soon further occurrences stop counting, `b` in 0..1 how much long chunks are held back.
    """
    scores = np.zeros(len(index))
    relative = index.lengths / index.lengths.mean()
    for term, count in Counter(query).items():
        postings = index.postings.get(term)
        if postings is None:
            continue
        have = len(postings.chunks)
        rarity = np.log(1 + (len(index) - have + 0.5) / (have + 0.5))
        held_back = k1 * (1 - b + b * relative[postings.chunks])
        scores[postings.chunks] += count * rarity * postings.counts * (k1 + 1) / (postings.counts + held_back)
    return scores


def dirichlet(index: Index, query: Sequence[str], mu: float) -> Scores:
    """Log likelihood of the query under each chunk's words, smoothed (Zhai and Lafferty, 2004).

    `mu` > 0 is the number of words of the whole collection that are mixed into each chunk. Terms that
    the collection lacks are left out, and so is what adds the same to all chunks.
    """
    scores = np.zeros(len(index))
    known_terms = 0
    for term, count in Counter(query).items():
        postings = index.postings.get(term)
        if postings is None:
            continue
        known_terms += count
        share = postings.counts.sum() / index.total
        scores[postings.chunks] += count * np.log1p(postings.counts / (mu * share))
    scores += known_terms * np.log(mu / (index.lengths + mu))
    return scores


@dataclass(frozen=True)
class Space:
    """A latent space of `dims` dimensions: a row of the (terms, dims) array for each term."""

    rows: dict[str, int]
    axes: NDArray[np.float64]


def latent_space(documents: Index, dims: int) -> Space:
    """The first `dims` singular dimensions of the documents' tf-idf vectors (Deerwester et al., 1990).

    Fewer where the documents do not span as many.
    """
    rows = {term: row for row, term in enumerate(documents.postings)}
    vectors = np.zeros((len(documents), len(rows)))
    for term, postings in documents.postings.items():
        vectors[postings.chunks, rows[term]] = (1 + np.log(postings.counts)) * documents.idf(term)
    vectors /= documents.norms[:, None]
    # With V = U S A^T, the small matrix V V^T = U S^2 U^T has the same U and is much quicker to take apart.
    left_vectors, squares, _ = np.linalg.svd(vectors @ vectors.T, hermitian=True)
    # Documents that occur twice add no dimension; what rounding leaves of theirs is noise.
    rank = min(dims, int((squares > 1e-9 * squares[0]).sum()))
    return Space(rows, vectors.T @ (left_vectors[:, :rank] / np.sqrt(squares[:rank])))


def fold_in(index: Index, space: Space) -> NDArray[np.float64]:
    """The chunks in a latent space, as (N, dims) vectors of length 1, or 0 for chunks without terms."""
    vectors = np.zeros((len(index), space.axes.shape[1]))
    for term, postings in index.postings.items():
        weight = (1 + np.log(postings.counts)) * index.idf(term)
        vectors[postings.chunks] += weight[:, None] * space.axes[space.rows[term]]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def lsa(index: Index, query: Sequence[str], space: Space, vectors: NDArray[np.float64]) -> Scores:
    """Cosine in the latent space, but for the query's length; `vectors` come from `fold_in`."""
    weights = index.weights(query)
    if not weights:
        return np.zeros(len(index))
    rows = [space.rows[term] for term in weights]
    return vectors @ (np.array(list(weights.values())) @ space.axes[rows])
