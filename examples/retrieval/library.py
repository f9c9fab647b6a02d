"""Expensive objects that nodes share: the corpus, its chunks, their indexes, the latent spaces.

One library serves a whole process (`ctx.resources`). State that travels between nodes names a
chunking and never holds one.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from examples.retrieval import chunkers, corpus, retrievers
from examples.retrieval.index import Index

T = TypeVar("T")

Chunking = tuple[str, dict[str, int]]
"""The name of a function in `chunkers` and its parameters."""


class Library:
    """Builds each index and each space once, at its first use; safe for threads."""

    def __init__(self, source: corpus.Corpus) -> None:
        self.corpus = source
        self._built: dict[Hashable, Any] = {}
        # Building asks for what it builds on, so the same thread must be able to enter again.
        self._building = threading.RLock()

    def index(self, chunking: Chunking) -> Index:
        """The index over the chunks of all 350 documents."""
        name, params = chunking
        cut: Callable[..., list[str]] = getattr(chunkers, name)
        return self._once(
            ("index", name, *sorted(params.items())),
            lambda: Index(
                (document, chunk) for document, text in self.corpus.documents.items() for chunk in cut(text, **params)
            ),
        )

    def space(self, dims: int) -> retrievers.Space:
        """The latent space of whole documents, for all chunkings; that of all chunks takes far longer."""
        return self._once(("space", dims), lambda: retrievers.latent_space(self.index(("whole", {})), dims))

    def vectors(self, chunking: Chunking, dims: int) -> NDArray[np.float64]:
        """The (chunks, dims) vectors of a chunking's chunks in the latent space."""
        name, params = chunking
        return self._once(
            ("vectors", dims, name, *sorted(params.items())),
            lambda: retrievers.fold_in(self.index(chunking), self.space(dims)),
        )

    def _once(self, key: Hashable, build: Callable[[], T]) -> T:
        with self._building:
            if key not in self._built:
                self._built[key] = build()
            built: T = self._built[key]
            return built


def open_library() -> Library:
    """The factory that the workflow names; takes a few milliseconds, since indexes are built when needed."""
    return Library(corpus.read())
