"""Sentences about the cases of a sweep: what is wrong with them, what it does to the figures, and what settles it."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.core.scoring.measure import without_expected
from wtb.core.tree.stored_spec import DataFinding
from wtb.planning.data.equal_inputs import EqualInputs


def equal_inputs(found: EqualInputs, ids: Sequence[str]) -> list[DataFinding]:
    """Describe the cases that have equal inputs.

    Args:
        found: The cases.
        ids: The id of each case, by its number.
    """
    return [*_one_cluster(found, ids), *_apart(found, ids), *_contradictory(found, ids)]


def _one_cluster(found: EqualInputs, ids: Sequence[str]) -> list[DataFinding]:
    apart = {group[0] for group in found.apart}
    groups = [group for group in found.groups if group[0] not in apart]
    if not groups:
        return []
    repeated = sum(len(group) - 1 for group in groups)
    units = len({name or number for number, name in enumerate(found.clusters)})
    sentence = (
        f"{_of(repeated, len(ids), 'repeats', 'repeat')} the input of another case{_example(groups[0], ids)}: cases "
        f"with equal inputs count as one cluster, so figures rest on {_many(units, 'cluster')} of cases "
        "(`equal_inputs: independent` counts each case)"
    )
    return [{"kind": "equal_inputs", "cases": repeated, "sentence": sentence, "key": "equal_inputs"}]


def _apart(found: EqualInputs, ids: Sequence[str]) -> list[DataFinding]:
    if not found.apart:
        return []
    many = sum(map(len, found.apart))
    sentence = (
        f"{_of(many, len(ids), 'has', 'have')} an input that a case of another `cluster` has"
        f"{_example(found.apart[0], ids)}: they count as independent, so intervals are too narrow if their results "
        "agree; give them the same `cluster`"
    )
    return [{"kind": "equal_inputs_apart", "cases": many, "sentence": sentence, "key": "cluster"}]


def _contradictory(found: EqualInputs, ids: Sequence[str]) -> list[DataFinding]:
    if not found.contradictory:
        return []
    many = sum(map(len, found.contradictory))
    sentence = (
        f"{_of(many, len(ids), 'has', 'have')} an input of which another case expects another value"
        f"{_example(found.contradictory[0], ids)}: no combination can be right in all of them; correct `expected`"
    )
    return [{"kind": "contradictory_expected", "cases": many, "sentence": sentence, "key": "expected"}]


def lacking_expected(metric: str, count: int, cases: int) -> DataFinding:
    """Describe the cases that have no expected value for a metric that needs one."""
    sentence = without_expected(metric, count, cases)
    return {"kind": "without_expected", "cases": count, "sentence": sentence, "key": "expected"}


def _of(count: int, cases: int, verb: str, verbs: str) -> str:
    return f"{count:,} of {_many(cases, 'case')} {verb if count == 1 else verbs}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _example(group: Sequence[int], ids: Sequence[str]) -> str:
    return f" (such as {ids[group[0]]!r} and {ids[group[1]]!r})"
