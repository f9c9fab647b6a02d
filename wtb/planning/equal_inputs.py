"""Equal and nearly equal inputs under several ids: a workflow answers them alike, so they are one observation.

Inputs are equal if their values are, regardless of the order of keys and of whether a whole number is written 1 or 1.0,
and if their files have equal names and contents. Texts that differ by a space are not equal.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from wtb.core.errors import InputError
from wtb.core.tree.looks import equal_inputs_cluster
from wtb.core.tree.run_order import place_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_CASES = 1_000_000  # that are compared; more would take too much memory
_WHOLE_FLOAT = re.compile(rb"\d(?:\.0|e\+?\d+)[,\]}]")
_EXACT = 1 << 53  # beyond it two floats may be one whole number


class EqualInputs(NamedTuple):
    """The cases of a sweep whose inputs are equal.

    Attributes:
        groups: For each input of several cases, the numbers of these cases in order.
        clusters: The cluster of each case: its own, else that of a case with an equal input.
        apart: The groups whose cases name different clusters, which stay different.
        contradictory: The groups whose cases have different expected values.
    """

    groups: Sequence[Sequence[int]]
    clusters: Sequence[str | None]
    apart: Sequence[Sequence[int]]
    contradictory: Sequence[Sequence[int]]

    @property
    def repeated(self) -> int:
        """Number of cases whose input an earlier case has."""
        return sum(len(group) - 1 for group in self.groups)


class Inputs:
    """Inputs of the first MOST_CASES cases with their expected values, as digests."""

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}
        self._alike: defaultdict[int, list[int]] = defaultdict(list)
        self._expected = array("Q")
        self._files: dict[int, Mapping[str, Path]] = {}

    def add(self, encoded: bytes, files: Mapping[str, Path]) -> None:
        """Add the input of the next case.

        Args:
            encoded: Its `input` by key and its `expected`, as the codec writes them.
            files: Name in the workspace -> path.
        """
        number = len(self._expected)
        if number == MOST_CASES:
            return
        case = orjson.loads(encoded)
        # A search in the bytes is far cheaper than walking every input for floats that hardly any has.
        if _WHOLE_FLOAT.search(encoded):
            case = _with_whole_numbers(case)
        self._expected.append(int.from_bytes(_digest(case["expected"])[:8]))
        digest = _digest(case["input"])
        if files:
            self._files[number] = files
            # Only the sizes of files at first: contents are read for the few cases that agree in everything else.
            digest += _digest({name: _size(path) for name, path in files.items()})
        first = self._first.setdefault(digest, number)
        if first != number:
            self._alike[first].append(number)

    def equal(self, own: Sequence[str | None]) -> EqualInputs:
        """Find the cases with equal inputs.

        Args:
            own: The cluster that each case names.

        Raises:
            InputError: If a file of a case cannot be read.
        """
        groups = sorted(group for first, later in self._alike.items() for group in self._by_files([first, *later]))
        clusters, apart = list(own), []
        for group in groups:
            named = list(dict.fromkeys(name for number in group if (name := own[number]) is not None))
            if len(named) > 1:
                apart.append(group)
            shared = named[0] if named else equal_inputs_cluster(group[0])
            for number in group:
                clusters[number] = own[number] or shared
        contradictory = [group for group in groups if len({self._expected[number] for number in group}) > 1]
        return EqualInputs(groups, clusters, apart, contradictory)

    def _by_files(self, numbers: Sequence[int]) -> list[list[int]]:
        """Split cases with equal values, and files of equal names and sizes, by the contents of the files."""
        groups: defaultdict[tuple[bytes, ...], list[int]] = defaultdict(list)
        contents: dict[Path, bytes] = {}
        for number in numbers:
            files = self._files.get(number, {})
            groups[tuple(_content(files[name], contents) for name in sorted(files))].append(number)
        return [group for group in groups.values() if len(group) > 1]


def _digest(plain: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _with_whole_numbers(plain: Any) -> Any:
    """Return a JSON value in which floats that are whole numbers are integers."""
    if isinstance(plain, float):
        return int(plain) if plain.is_integer() and abs(plain) < _EXACT else plain
    if isinstance(plain, list):
        return [_with_whole_numbers(member) for member in plain]
    if isinstance(plain, dict):
        return {key: _with_whole_numbers(member) for key, member in plain.items()}
    return plain


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error


def _content(path: Path, contents: dict[Path, bytes]) -> bytes:
    """Return the digest of a file; each file is read once."""
    if path not in contents:
        try:
            with path.open("rb") as file:
                contents[path] = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise _unreadable(path, error) from error
    return contents[path]


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"file '{path}' of a case cannot be read ({error.strerror}); expected a file that can")


MOST_TEXTS = 10_000  # that are compared
MOST_CHARACTERS = 2_000  # of a text, half at its beginning and half at its end
SIMILAR = 0.8  # of the pieces of two texts
_FEWEST_CHARACTERS = 40  # of texts that are compared by pieces; of shorter ones a word makes another question
_PIECE = 5
_MAX_PIECES = 256  # pieces of a text
_BANDS, _ROWS = 6, 3  # of the hashes: pairs at the bound are found in 98%
_SIGN = re.compile(r"[\d+*/=<>^%|&-]")  # a text with other numbers or signs is another question


class Texts:
    """The texts of some cases."""

    def __init__(self, cases: int, seed: int) -> None:
        """Choose how many cases to compare: all, or about MOST_TEXTS of so many, drawn with the seed."""
        self._seed, self._last = seed, 2**64 * MOST_TEXTS // max(cases, MOST_TEXTS)
        self._numbers: list[int] = []
        self._texts: list[str] = []
        self._exact: list[bytes] = []

    def add(self, number: int, id: str, content: Any) -> None:
        """Add the input of a case, if it is one of those that are compared."""
        if self._last < 2**64 and place_of(self._seed, id) >= self._last:
            return
        texts, literals = list[str](), list[Any]()
        _part(content, texts, literals)
        text = " ".join(texts)
        if len(text) > MOST_CHARACTERS:
            text = text[: MOST_CHARACTERS // 2] + text[-MOST_CHARACTERS // 2 :]
        text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        if not text:
            return
        self._numbers.append(number)
        self._texts.append(text)
        exact = repr((literals, _SIGN.findall(text)))
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
                # A shared band only makes a pair likely; the pieces themselves decide.
                if (
                    other != index
                    and not groups.are_joined(a, b)
                    and _likeness(pieces[other], pieces[index]) >= SIMILAR
                ):
                    groups.join(a, b)


class _Groups:
    """Sets of places, joined in pairs (union-find)."""

    def __init__(self, size: int) -> None:
        self._parents = list(range(size))

    def _root(self, place: int) -> int:
        # Path halving keeps chains short without recursion.
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


def _part(content: Any, texts: list[str], literals: list[Any]) -> None:
    """Split a value into its texts and its other contents, keys in order."""
    if isinstance(content, str):
        texts.append(content)
    elif isinstance(content, Mapping):
        for key in sorted(content, key=repr):
            _part(content[key], texts, literals)
    elif isinstance(content, list | tuple):
        for member in content:
            _part(member, texts, literals)
    else:
        literals.append(content if isinstance(content, int | float | None) else type(content).__name__)


def _pieces(text: str) -> NDArray[np.uint32]:
    """Return the hashes of the pieces of a text, the lowest ones for a long text."""
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
