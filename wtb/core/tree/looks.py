"""Keys by which combinations and cases are recognised in later sweeps, and clusters of equal cases.

A look is a sweep as later sweeps over the same cases count it. It outlives its sweep, so it has digests and no
contents.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

MOST_DIGESTS: Final = 4_096  # digests of cases in a look: the smallest ones, which are a random sample
Code = Mapping[str, Mapping[str, str]]  # node -> variant -> fingerprint


def combination_keys(choices: Sequence[Mapping[str, str]], baseline: Mapping[str, str] | None, code: Code) -> list[str]:
    """Return a key for each combination: its changes from the baseline, by code and parameters.

    Args:
        choices: Combinations, each as variants by node.
        baseline: The combination that others are compared with, if there is any.
        code: The fingerprints of variants.

    Returns:
        The keys, in the order of the combinations; that of the baseline is empty.
    """
    unchanged = baseline or {}
    changes = (
        sorted(
            # By fingerprint, so that a renamed variant is recognised, and a changed one of the same name is not.
            (node, code.get(node, {}).get(variant, variant))
            for node, variant in choice.items()
            if unchanged.get(node) != variant
        )
        for choice in choices
    )
    return [_digest(pairs) if pairs else "" for pairs in changes]


def baseline_key(baseline: Mapping[str, str] | None, code: Code) -> str:
    """Return a key of the code that runs where a combination changes nothing.

    Args:
        baseline: The combination that others are compared with, if there is any.
        code: The fingerprints of variants, including nodes that are not varied.
    """
    choices = baseline or {}
    pairs = [
        (node, [variants.get(choices[node], choices[node])] if node in choices else sorted(variants.values()))
        for node, variants in sorted(code.items())
        if baseline is not None or len(variants) == 1
    ]
    return _digest(pairs)


def case_digest(input: Mapping[str, str], expected: str | None, workspace: str | None) -> int:
    """Return 64 bits by which a case is recognised, whatever its id is.

    Args:
        input: Digests of values by key.
        expected: The expected value, as it is stored.
        workspace: The digest of its files.
    """
    content = orjson.dumps([input, expected, workspace], option=orjson.OPT_SORT_KEYS)
    return int.from_bytes(hashlib.sha256(content).digest()[:8])


class CaseSketch:
    """The smallest digests of cases, which suffice to estimate the share of cases that two sweeps have in common."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, digest: int) -> None:
        self._digests.append(digest)

    def finish(self) -> tuple[int, bytes]:
        """Return the number of different cases, and the kept digests, in order, 8 bytes each."""
        distinct = sorted(set(self._digests))
        return len(distinct), b"".join(digest.to_bytes(8) for digest in distinct[:MOST_DIGESTS])


def without_case(sketch: bytes, digest: int) -> bytes:
    """Return the digests of a look without that of one case."""
    erased = digest.to_bytes(8)
    return b"".join(part for place in range(0, len(sketch), 8) if (part := sketch[place : place + 8]) != erased)


def _digest(document: object) -> str:
    return hashlib.sha256(orjson.dumps(document)).hexdigest()[:16]


_EQUAL_INPUTS = " equal inputs "  # begins with a space, unlike every name that a case gives


def equal_inputs_cluster(number: int) -> str:
    """Return the name of the cluster of all cases with the same input, by the number of the first of them."""
    return f"{_EQUAL_INPUTS}{number}"


def is_of_equal_inputs(cluster: str | None) -> bool:
    """Return whether WTB made a cluster because the inputs of its cases are equal."""
    return cluster is not None and cluster.startswith(_EQUAL_INPUTS)


def united(*clusterings: Sequence[str | None]) -> list[str | None]:
    """Return clusters in which cases share one if they share one in any of several clusterings.

    Args:
        clusterings: The clusters of all cases, None for no cluster, once for each clustering.

    Returns:
        The cluster of each case, by one of its names; None if it has none.
    """
    # Union-find: chains of shared clusters join, in time close to linear.
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while (parent := parents.setdefault(name, name)) != name:
            # Halving the paths keeps them short.
            parents[name] = parents[parent]
            name = parent
        return name

    by_case = [[name for name in names if name is not None] for names in zip(*clusterings, strict=True)]
    for names in by_case:
        for name in names[1:]:
            parents[root(name)] = root(names[0])
    return [root(names[0]) if names else None for names in by_case]
