"""Equal inputs under several ids: a workflow answers them alike, so they are one observation and not several.

Inputs are equal if their values are, whatever the order of keys and whether a whole number is written 1 or 1.0, and if
their files have equal names and contents. Texts that differ by a space are no equal inputs.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from wtb.core.errors import InputError
from wtb.core.tree.clusters import equal_inputs_cluster

MOST_CASES = 1_000_000  # that are compared; more would take too much memory
_WHOLE_FLOAT = re.compile(rb"\d(?:\.0|e\+?\d+)[,\]}]")
_EXACT = 1 << 53  # beyond it two floats may be one whole number


class EqualInputs(NamedTuple):
    """The cases of a sweep whose inputs are equal.

    Attributes:
        groups: The numbers of the cases of each input that several cases have, in order.
        clusters: The cluster of each case: its own, else that of a case with an equal input.
        apart: The groups whose cases name different clusters, which hold.
        contradictory: The groups of whose cases different values are expected.
    """

    groups: Sequence[Sequence[int]]
    clusters: Sequence[str | None]
    apart: Sequence[Sequence[int]]
    contradictory: Sequence[Sequence[int]]

    @property
    def repeated(self) -> int:
        """How many cases have the input of a case before them."""
        return sum(len(group) - 1 for group in self.groups)


class Inputs:
    """The inputs of the first MOST_CASES cases, and what is expected of them, of which it keeps digests only."""

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
        if _WHOLE_FLOAT.search(encoded):
            case = _with_whole_numbers(case)
        self._expected.append(int.from_bytes(_digest(case["expected"])[:8]))
        digest = _digest(case["input"])
        if files:
            self._files[number] = files
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
        """Part cases with equal values, and files of equal names and sizes, by the contents of these."""
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
        return [_with_whole_numbers(element) for element in plain]
    if isinstance(plain, dict):
        return {key: _with_whole_numbers(element) for key, element in plain.items()}
    return plain


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error


def _content(path: Path, contents: dict[Path, bytes]) -> bytes:
    """Return the digest of a file, which is read once."""
    if path not in contents:
        try:
            with path.open("rb") as file:
                contents[path] = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise _unreadable(path, error) from error
    return contents[path]


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"file '{path}' of a case cannot be read ({error.strerror}); expected a file that can")
