"""Terms of a text, and an inverted index over chunks that all retrievers read."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"[a-z]+|[0-9]+")

_STOP_WORDS = """
a about after against all also although among an and any are as at be because been before being
between both but by can could did do does down during each few for from further had has have having
he her here hers him himself his how i if in into is it its itself just may me might more most must
my no nor not now of off on once only or other our out over own per said same say says she should
since so some such than that the their them then there these they this those through to too under
until up upon us very was we were what when where which while who whom why will with would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def terms(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case and singular, without stop words and single letters."""
    return [_singular(word) for word in _WORD.findall(text.lower()) if len(word) > 1 and word not in STOP_WORDS]


def _singular(word: str) -> str:
    """Harman's "S stemmer" (JASIS 42(1), 1991): the mildest stemming that helps in English."""
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    if word.endswith("es") and not word.endswith(("aes", "ees", "oes")):
        return word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")):
        return word[:-1]
    return word


@dataclass(frozen=True)
class Postings:
    """Where a term occurs: `chunks` and `counts` are equally long, one entry for each chunk that has it."""

    chunks: NDArray[np.intp]
    counts: NDArray[np.float64]


class Index:
    """An inverted index over N chunks.

    `owners[i]` is the id of the document that chunk i is from, `lengths` an (N,) array of terms in
    each chunk, `postings` where each term occurs, `total` the terms in all chunks.
    """

    def __init__(self, chunks: Iterable[tuple[str, str]]) -> None:
        """`chunks` yields (document id, text of the chunk)."""
        self.owners: list[str] = []
        lengths: list[int] = []
        occurrences: dict[str, list[tuple[int, int]]] = {}
        for number, (owner, text) in enumerate(chunks):
            words = terms(text)
            self.owners.append(owner)
            lengths.append(len(words))
            for term, count in Counter(words).items():
                occurrences.setdefault(term, []).append((number, count))
        self.lengths = np.array(lengths, dtype=np.float64)
        self.total = float(self.lengths.sum())
        self.postings = {term: _postings(entries) for term, entries in occurrences.items()}
        self.norms = self._norms()

    def __len__(self) -> int:
        return len(self.owners)

    def idf(self, term: str) -> float:
        """Return the rarity of a term: log(1 + N / n) if n of N chunks have it; 0 if none has."""
        postings = self.postings.get(term)
        return 0.0 if postings is None else float(np.log(1 + len(self) / len(postings.chunks)))

    def weights(self, query: Sequence[str]) -> dict[str, float]:
        """Return the tf-idf weights, (1 + log count) x idf, of the query terms that the index has."""
        return {
            term: float(1 + np.log(count)) * self.idf(term)
            for term, count in Counter(query).items()
            if term in self.postings
        }

    def _norms(self) -> NDArray[np.float64]:
        """The (N,) lengths of the chunks' tf-idf vectors, 1 where a chunk has no terms."""
        squares = np.zeros(len(self))
        for term, postings in self.postings.items():
            squares[postings.chunks] += ((1 + np.log(postings.counts)) * self.idf(term)) ** 2
        return np.sqrt(np.where(squares > 0, squares, 1.0))


def _postings(entries: list[tuple[int, int]]) -> Postings:
    chunks, counts = zip(*entries, strict=True)
    return Postings(np.array(chunks, dtype=np.intp), np.array(counts, dtype=np.float64))
