"""Inputs that are nearly equal: texts that differ in spaces, case or a few words, with the same numbers and signs.

Texts are similar if four fifths of their pieces of five characters are alike (Jaccard). Pairs are found by min-hashing
(Broder 1997), so that no text is compared with all others. Of more than MOST_CASES cases a random sample is compared,
and of a long text its ends.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wtb.core.tree.run_order import place_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_CASES = 10_000  # that are compared
MOST_CHARACTERS = 2_000  # of a text, half at its beginning and half at its end
SIMILAR = 0.8  # of the pieces of two texts
_FEWEST_CHARACTERS = 40  # of texts that are compared by pieces; of shorter ones a word makes another question
_PIECE = 5
_MAX_PIECES = 256  # pieces of a text
_BANDS, _ROWS = 6, 3  # of the hashes: pairs at the bound are found in 98%
_EXACT = re.compile(r"[\d+*/=<>^%|&-]")  # a text with other numbers or signs is another question


class Texts:
    """The texts of some cases."""

    def __init__(self, cases: int, seed: int) -> None:
        """Choose how many cases to compare: all, or about MOST_CASES of so many, drawn with the seed."""
        self._seed, self._last = seed, 2**64 * MOST_CASES // max(cases, MOST_CASES)
        self._numbers: list[int] = []
        self._texts: list[str] = []
        self._exact: list[bytes] = []

    def add(self, number: int, id: str, value: Any) -> None:
        """Add the input of a case, if it is one of those that are compared."""
        if self._last < 2**64 and place_of(self._seed, id) >= self._last:
            return
        texts, literals = list[str](), list[Any]()
        _part(value, texts, literals)
        text = " ".join(texts)
        if len(text) > MOST_CHARACTERS:
            text = text[: MOST_CHARACTERS // 2] + text[-MOST_CHARACTERS // 2 :]
        text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        if not text:
            return
        self._numbers.append(number)
        self._texts.append(text)
        exact = repr((literals, _EXACT.findall(text)))
        self._exact.append(hashlib.blake2b(exact.encode(errors="replace"), digest_size=8).digest())

    def groups(self) -> list[list[int]]:
        """Return the numbers of cases with similar inputs, equal ones included, each group in order."""
        if len(self._numbers) < 2:
            return []
        groups = _Groups(len(self._numbers))
        first: dict[tuple[str, bytes], int] = {}
        for place, key in enumerate(zip(self._texts, self._exact, strict=True)):
            groups.join(first.setdefault(key, place), place)
        long = [place for place in first.values() if len(self._texts[place]) >= _FEWEST_CHARACTERS]
        self._join_similar(long, groups)
        return [[self._numbers[place] for place in group] for group in groups.of_several()]

    def _join_similar(self, places: Sequence[int], groups: _Groups) -> None:
        import numpy as np

        if len(places) < 2:
            return
        pieces = [_pieces(self._texts[place]) for place in places]
        starts = np.cumsum([0, *map(len, pieces[:-1])])
        every = np.concatenate(pieces)
        hashes = [np.minimum.reduceat(_mixed(every, row), starts) for row in range(_BANDS * _ROWS)]
        for band in range(_BANDS):
            first: dict[tuple[Any, ...], int] = {}
            keys = zip(*(hashes[band * _ROWS + row].tolist() for row in range(_ROWS)), strict=True)
            for index, key in enumerate(keys):
                other = first.setdefault((*key, self._exact[places[index]]), index)
                a, b = places[other], places[index]
                if (
                    other != index
                    and not groups.are_joined(a, b)
                    and _likeness(pieces[other], pieces[index]) >= SIMILAR
                ):
                    groups.join(a, b)


class _Groups:
    """Sets of places that are joined in pairs."""

    def __init__(self, size: int) -> None:
        self._parents = list(range(size))

    def _root(self, place: int) -> int:
        while (parent := self._parents[place]) != place:
            self._parents[place] = self._parents[parent]
            place = parent
        return place

    def are_joined(self, a: int, b: int) -> bool:
        return self._root(a) == self._root(b)

    def join(self, a: int, b: int) -> None:
        low, high = sorted((self._root(a), self._root(b)))
        self._parents[high] = low

    def of_several(self) -> Iterator[list[int]]:
        """Yield each set of several places."""
        sets: dict[int, list[int]] = {}
        for place in range(len(self._parents)):
            sets.setdefault(self._root(place), []).append(place)
        return (places for places in sets.values() if len(places) > 1)


def _part(value: Any, texts: list[str], literals: list[Any]) -> None:
    """Part a value into its texts and what else it has, keys in order."""
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            _part(value[key], texts, literals)
    elif isinstance(value, list | tuple):
        for element in value:
            _part(element, texts, literals)
    else:
        literals.append(value if isinstance(value, int | float | None) else type(value).__name__)


def _pieces(text: str) -> NDArray[np.uint32]:
    """Return the hashes of the pieces of a text, the lowest ones of a long text."""
    import numpy as np

    characters = np.frombuffer(text.encode("utf-32-le", errors="replace"), dtype=np.uint32)
    hashes = np.zeros(len(characters) - _PIECE + 1, dtype=np.uint32)
    for offset in range(_PIECE):
        hashes = hashes * np.uint32(0x01000193) ^ characters[offset : len(characters) - _PIECE + 1 + offset]
    mixed = _mixed(hashes, _BANDS * _ROWS)
    return np.unique(mixed if len(mixed) <= _MAX_PIECES else np.partition(mixed, _MAX_PIECES)[:_MAX_PIECES])


def _mixed(hashes: NDArray[np.uint32], row: int) -> NDArray[np.uint32]:
    """Return other hashes of hashes, by a multiplication and two shifts (Murmur3's finalizer)."""
    import numpy as np

    mixed = hashes ^ np.uint32((row * 0x9E3779B9) & 0xFFFFFFFF)
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return mixed ^ (mixed >> np.uint32(16))


def _likeness(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> float:
    import numpy as np

    every = np.union1d(a, b)[:_MAX_PIECES]  # a random sample of the pieces of both, by their hashes
    return float((np.isin(every, a) & np.isin(every, b)).mean())
