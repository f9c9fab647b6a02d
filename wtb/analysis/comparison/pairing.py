"""The combinations and cases that two sweeps have in common, and their results as tables of the same shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.comparison.changed_files import renamed_variants
from wtb.analysis.statistics.units import Units, numbered
from wtb.core.errors import InputError
from wtb.core.tree.clusters import is_of_equal_inputs, united
from wtb.store.database import Database
from wtb.store.read import outcomes, queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.comparison import CaseChanges, CombinationChanges


Integers = NDArray[np.int64]


class Pairs(NamedTuple):
    """What two sweeps have in common.

    choices, ids: the combinations, and the ids of the cases, that are in both and unchanged. rows, columns: for each
    sweep, the place of its combination or case number among them, or -1. combinations, cases: what is in one only.
    units: the cluster of each case, None where none has one.
    """

    choices: Sequence[Mapping[str, str]]
    ids: Sequence[str]
    rows: tuple[Integers, Integers]
    columns: tuple[Integers, Integers]
    combinations: CombinationChanges
    cases: CaseChanges
    units: Units = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.choices), len(self.ids)

    def table(self, side: int, found: Sequence[Sequence[Any]], column: int, dtype: Any = float) -> NDArray[Any]:
        """A column of rows (combination, case number, ...) as combinations x cases; NaN or None where there is none."""
        values = np.full(self.shape, None if dtype is object else np.nan, dtype)
        if found:
            numbers = np.array([row[:2] for row in found], dtype=np.int64)
            row, place = self.rows[side][numbers[:, 0]], self.columns[side][numbers[:, 1]]
            kept = (row >= 0) & (place >= 0)
            values[row[kept], place[kept]] = np.array([one[column] for one in found], dtype)[kept]
        return values


def match(database: Database, before: SweepRow, after: SweepRow) -> Pairs:
    """Pair two sweeps, given their rows. Grid points that differ only in the text of files are the same combination.

    Cases are the same where their input, expected value and files are.

    Raises InputError for a case of which the two say that it belongs to different clusters.
    """
    choices = [queries.choices(database, sweep.id) for sweep in (before, after)]
    renamed = renamed_variants(before.spec, after.spec)  # since only the text of a file was changed
    choices[0] = [{node: renamed.get(node, {}).get(name, name) for node, name in one.items()} for one in choices[0]]
    named = [{tuple(sorted(choice.items())): number for number, choice in enumerate(side)} for side in choices]
    common = [key for key in named[1] if key in named[0]]
    contents = [
        {id: (number, content) for number, id, content in outcomes.case_contents(database, sweep.id)}
        for sweep in (before, after)
    ]
    both = [id for id in contents[1] if id in contents[0]]
    same = [id for id in both if contents[0][id][1] == contents[1][id][1]]
    unchanged = set(same)
    return Pairs(
        [choices[1][named[1][key]] for key in common],
        same,
        (_places(named[0], common), _places(named[1], common)),
        (
            _places({id: number for id, (number, _) in contents[0].items()}, same),
            _places({id: number for id, (number, _) in contents[1].items()}, same),
        ),
        {"common": len(common), "added": len(named[1]) - len(common), "removed": len(named[0]) - len(common)},
        {
            "common": len(both),
            "added": [id for id in contents[1] if id not in contents[0]],
            "removed": [id for id in contents[0] if id not in contents[1]],
            "changed": [id for id in both if id not in unchanged],
        },
        _units(database, (before, after), contents, same),
    )


def _units(
    database: Database,
    sweeps: Sequence[SweepRow],
    contents: Sequence[Mapping[str, tuple[int, Any]]],
    same: Sequence[str],
) -> Units:
    """The clusters of the cases. A case that has none in one of the sweeps is in that of the other.

    Clusters of equal inputs are those of either sweep, because they depend on which cases a sweep has. The clusters
    that cases name come first, and the later sweep says whether equal inputs are independent.
    """
    named, alike = [], []
    for sweep, side in zip(sweeps, contents, strict=True):
        clusters = outcomes.clusters(database, sweep.id)
        names = [clusters.get(number) for number, _ in (side[id] for id in same)]
        named.append([None if is_of_equal_inputs(name) else name for name in names])
        alike.append([f"{name} of {sweep.id}" if is_of_equal_inputs(name) else None for name in names])
    for id, was, now in zip(same, *named, strict=True):
        if was is not None and now is not None and was != now:
            raise InputError(
                f"case {id!r} is in cluster {was!r} in sweep {sweeps[0].id} and in cluster {now!r} in sweep "
                f"{sweeps[1].id}; expected the same in both, since the cases of a cluster count together"
            )
    both = [now or was for was, now in zip(*named, strict=True)]
    if sweeps[1].spec.get("equal_inputs") == "independent":
        return numbered(both)
    unnamed = [[None if name else other for name, other in zip(both, side, strict=True)] for side in alike]
    return numbered(united(both, *unnamed))


def _places(numbers: Mapping[Any, int], common: Sequence[Any]) -> Integers:
    """Number in a sweep -> place among what is common, or -1."""
    places = np.full(max(numbers.values(), default=-1) + 1, -1, dtype=np.int64)
    places[[numbers[key] for key in common]] = np.arange(len(common))
    return places
