"""How a sweep's combinations and cases are recognised in later sweeps: by what they are, and never by their names.

A look is a sweep as later ones over the same cases count it. It outlives its sweep, so it has digests and no contents.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

MOST_DIGESTS: Final = 4_096  # that a look keeps of its cases: the smallest, which is a random sample of them
Code = Mapping[str, Mapping[str, str]]  # node -> variant -> fingerprint


def combination_keys(choices: Sequence[Mapping[str, str]], baseline: Mapping[str, str] | None, code: Code) -> list[str]:
    """Return a key for each combination: what it changes from the baseline, by its code and parameters.

    Args:
        choices: Combinations, each as node -> variant.
        baseline: The one that others are compared with, if there is any.
        code: The fingerprints of variants.

    Returns:
        The keys, in the order of the combinations; that of the baseline is empty.
    """
    unchanged = baseline or {}
    changes = (
        sorted(
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
        code: The fingerprints of variants, also of nodes that are not varied.
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
        input: Key -> digest of its value.
        expected: What is expected of it, as it is stored.
        workspace: The digest of its files.
    """
    content = orjson.dumps([input, expected, workspace], option=orjson.OPT_SORT_KEYS)
    return int.from_bytes(hashlib.sha256(content).digest()[:8])


class CaseSketch:
    """Digests of cases, of which the smallest are kept: enough to tell the share that two sweeps have in common."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, digest: int) -> None:
        self._digests.append(digest)

    def finish(self) -> tuple[int, bytes]:
        """Return how many different cases there are, and the digests that are kept, in order, 8 bytes each."""
        distinct = sorted(set(self._digests))
        return len(distinct), b"".join(digest.to_bytes(8) for digest in distinct[:MOST_DIGESTS])


def without_case(sketch: bytes, digest: int) -> bytes:
    """Return the digests of a look without that of one case."""
    erased = digest.to_bytes(8)
    return b"".join(part for place in range(0, len(sketch), 8) if (part := sketch[place : place + 8]) != erased)


def _digest(value: object) -> str:
    return hashlib.sha256(orjson.dumps(value)).hexdigest()[:16]
