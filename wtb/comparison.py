"""Two sweeps side by side: what was changed, and which results got worse or better, paired by case.

Cells are paired by combination and case. Repeats are averaged within the case; cases that were changed or that only
one of the sweeps has are left out, and said to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb import changes
from wtb.divergence import partings
from wtb.evaluation import Measure
from wtb.matching import Pairs, match
from wtb.plain import iso
from wtb.statistics.paired import Tested, holm, paired_tests, subtract
from wtb.store import outcomes, reading
from wtb.store.database import Database
from wtb.verdicts import Facts, of_metric, of_row, of_sweep, sentences

Document = dict[str, Any]
Sweep = Mapping[str, Any]
Floats = NDArray[np.float64]

VERSION = 1
LOOKED_INTO = 20  # cells of which the first node that differs is looked for


def compare_sweeps(
    database: Database,
    before: Sweep,
    after: Sweep,
    tolerance: Mapping[str, float] | None = None,
    *,
    looked_into: int = LOOKED_INTO,
) -> Document:
    """What is different between two sweeps, given their rows of `find_sweep`.

    tolerance: metric -> by how much its mean may be worse, in place of what the later sweep's own says. looked_into: of
    so many cells, the worst first, the node at which they part is told.
    """
    given = dict(tolerance or {})
    own = {name: most for name, most in (after["spec"].get("tolerance") or {}).items() if name not in given}
    pairs = match(database, before, after)
    metrics = _metrics(database, before, after)
    failed, changed = _outcomes(database, before, after, pairs), _changed(database, before, after, pairs, metrics)
    scored = [_scores(database, before, after, pairs, name, measure) for name, measure in metrics.common.items()]
    seed = int(after["spec"].get("seed", 0))
    rows = _rows(pairs, failed, scored, {**own, **given}, seed, changed=changes.may_change_results(changed))
    sizes = {side: _size(pairs, key) for side, key in (("before", "removed"), ("after", "added"))}
    cells = _cells(pairs, failed, scored, rows)
    first = cells[:looked_into]
    for cell, node in zip(first, partings(database, [cell["executions"] for cell in first]), strict=True):
        cell["diverged"] = node
    facts = Facts(
        rows=rows,
        metrics={name: measure.better for name, measure in metrics.common.items()},
        cells=failed.compared,
        later=sizes["after"],
        unpaired=failed.unpaired,
        unscored=sum(int(one.lost.sum()) for one in scored),
        missing=failed.missing,
        changed=changed,
        unknown=[name for name in {**own, **given} if name not in metrics.common],
    )
    return {
        "version": VERSION,
        "before": _heading(before),
        "after": _heading(after),
        "changed": changed,
        "compared": {
            "combinations": len(pairs.choices),
            "cases": len(pairs.ids),
            "cells": failed.compared,
            "of": sizes,
        },
        "tolerance": {"given": given, "of_later": own},
        "failing": {"still": failed.still_failing, "unpaired": failed.unpaired},
        "rows": rows,
        "cells": cells,
        "verdict": of_sweep(facts),
        "because": sentences(facts),
    }


def _size(pairs: Pairs, only: str) -> int:
    """How many cells a sweep has, repeats taken together. only: the key of what the other one lacks."""
    combinations, cases = pairs.combinations, pairs.cases
    return int((combinations["common"] + combinations[only]) * (cases["common"] + len(cases[only])))


def _heading(sweep: Sweep) -> Document:
    times = {key: iso(sweep[key]) for key in ("started_at", "finished_at")}
    return {**{key: sweep[key] for key in ("id", "name", "status")}, **times}


def _changed(database: Database, before: Sweep, after: Sweep, pairs: Pairs, metrics: _Metrics) -> Document:
    graphs = [reading.workflow_graph(database, sweep["workflow_id"]) for sweep in (before, after)]
    return {
        "code": changes.code_changes(before["fingerprints"], after["fingerprints"]),
        "variants": changes.variant_changes(before["fingerprints"], after["fingerprints"]),
        "combinations": pairs.combinations,
        "cases": pairs.cases,
        "metrics": {"common": len(metrics.common), "added": metrics.added, "removed": metrics.removed},
        "settings": changes.setting_changes(before["spec"], after["spec"]),
        "graph": changes.graph_changed(*graphs),
    }


class _Metrics(NamedTuple):
    """Metric -> how it is read, of what both are scored by, and the names of those that only one is."""

    common: Mapping[str, Measure]
    added: Sequence[str]
    removed: Sequence[str]


def _metrics(database: Database, before: Sweep, after: Sweep) -> _Metrics:
    was, now = (
        {row["name"]: Measure.of(row) for row in reading.metric_rows(database, sweep["id"])}
        for sweep in (before, after)
    )
    return _Metrics(
        {name: measure for name, measure in now.items() if name in was},
        [name for name in now if name not in was],
        [name for name in was if name not in now],
    )


@dataclass(frozen=True)
class _Outcomes:
    """Combinations x cases: the share of repeats that failed (NaN: no outcome), and an execution, in each sweep.

    unpaired: cells that fail in the later sweep and have no outcome to be compared with.
    """

    before: Floats
    after: Floats
    executions: tuple[NDArray[Any], NDArray[Any]]
    unpaired: int

    @property
    def compared(self) -> int:
        return int((np.isfinite(self.before) & np.isfinite(self.after)).sum())

    @property
    def still_failing(self) -> int:
        return int(((self.before > 0) & (self.after > 0)).sum())

    @property
    def missing(self) -> tuple[int, int]:
        """Cells without an outcome here that have one in the other sweep: (before, after)."""
        none = np.isnan(self.before), np.isnan(self.after)
        return int((none[0] & ~none[1]).sum()), int((none[1] & ~none[0]).sum())


def _outcomes(database: Database, before: Sweep, after: Sweep, pairs: Pairs) -> _Outcomes:
    found = [outcomes.outcomes(database, sweep["id"]) for sweep in (before, after)]
    was, now = (
        _share_failed(pairs.table(side, rows, 2), pairs.table(side, rows, 3)) for side, rows in enumerate(found)
    )
    first, second = (pairs.table(side, rows, 4, object) for side, rows in enumerate(found))
    failing = sum(row[3] > 0 for row in found[1]) - int(((now > 0) & np.isfinite(was)).sum())
    return _Outcomes(was, now, (first, second), failing)


def _share_failed(succeeded: Floats, failed: Floats) -> Floats:
    ended = succeeded + failed
    return np.asarray(failed / np.where(ended > 0, ended, np.nan))


@dataclass(frozen=True)
class _Scores:
    """One metric, combinations x cases, repeats averaged. lost, regained: whether evaluators fail now, or did."""

    metric: str
    measure: Measure
    before: Floats
    after: Floats
    differences: Floats
    lost: NDArray[np.bool_]
    regained: NDArray[np.bool_]

    @property
    def is_typical(self) -> bool:
        """Whether what counts is the median of the differences, else their mean."""
        return self.measure.compare == "median"

    @property
    def are_rates(self) -> bool:
        """Whether all scores are 0 or 1."""
        return not self.is_typical and all(
            bool(np.isin(table[np.isfinite(table)], (0, 1)).all()) for table in (self.before, self.after)
        )

    def figures(self, row: int, column: int) -> Document:
        """The scores of a cell and their difference, None where there is none."""
        tables = {"before": self.before, "after": self.after, "delta": self.differences}
        return {key: _defined(table[row, column]) for key, table in tables.items()}

    def was_scored(self, row: int) -> bool:
        return bool(np.isfinite(self.before[row]).any())


def _scores(database: Database, before: Sweep, after: Sweep, pairs: Pairs, metric: str, measure: Measure) -> _Scores:
    found = [outcomes.scores_by_case(database, sweep["id"], metric) for sweep in (before, after)]
    was, now = (pairs.table(side, rows, 2) for side, rows in enumerate(found))
    errors = [pairs.table(side, rows, 3) > 0 for side, rows in enumerate(found)]
    lost, regained = np.isfinite(was) & np.isnan(now) & errors[1], np.isnan(was) & np.isfinite(now) & errors[0]
    return _Scores(metric, measure, was, now, subtract(now, was), lost, regained)


def _rows(
    pairs: Pairs,
    failed: _Outcomes,
    scored: Sequence[_Scores],
    tolerance: Mapping[str, float],
    seed: int,
    *,
    changed: bool,
) -> list[Document]:
    tested = [
        paired_tests(one.differences, seed=seed, rates=one.are_rates, compare=one.measure.compare, units=pairs.units)
        for one in scored
    ]
    p = np.array([[np.nan if row.p is None else row.p for row in rows] for rows in tested])
    adjusted = holm(p.ravel()).reshape(p.shape)
    rows = []
    for number, choice in enumerate(pairs.choices):
        metrics: Document = {}
        for place, one in enumerate(scored):
            found, corrected = tested[place][number], float(adjusted[place, number])
            metrics[one.metric] = _metric(one, number, found, corrected, tolerance.get(one.metric), changed)
        counts = {
            "newly_failed": int((failed.after[number] > failed.before[number]).sum()),
            "mended": int((failed.after[number] < failed.before[number]).sum()),
        }
        for one in scored:
            counts["newly_failed"] += int(one.lost[number].sum())
            counts["mended"] += int(one.regained[number].sum())
        verdict = of_row(
            counts,
            metrics,
            gone=any(not metrics[one.metric]["n_pairs"] and one.was_scored(number) for one in scored),
            succeeded=bool(((failed.before[number] < 1) & (failed.after[number] < 1)).any()),
        )
        rows.append({"combination": dict(choice), "verdict": verdict, "cells": counts, "metrics": metrics})
    return rows


def _metric(
    scored: _Scores, row: int, tested: Tested, adjusted: float, tolerance: float | None, changed: bool
) -> Document:
    paired = np.isfinite(scored.differences[row])
    middle = np.median if scored.is_typical else np.mean
    was, now = (
        _defined(middle(table[row][paired])) if paired.any() else None for table in (scored.before, scored.after)
    )
    found: Document = {
        "n_pairs": tested.n,
        "n_differ": int(np.count_nonzero(scored.differences[row][paired])),
        "before": was,
        "after": now,
        "delta": tested.delta,
        "delta_ci": None if tested.ci is None else list(tested.ci),
        "p": tested.p,
        "p_adjusted": _defined(adjusted),
        "effect": tested.effect,
        "detectable": tested.detectable,
        "tolerance": tolerance,
    }
    verdict, because = of_metric(
        scored.measure.better,
        found,
        changed=changed,
        was_scored=scored.was_scored(row),
        measured=scored.is_typical,
    )
    return {**found, "verdict": verdict, "because": because}


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _cells(pairs: Pairs, failed: _Outcomes, scored: Sequence[_Scores], rows: Sequence[Document]) -> list[Document]:
    """Every cell that differs, the worst first: those that fail now, then by the verdicts of their rows."""
    found: list[tuple[tuple[float, ...], Document]] = []
    both = np.isfinite(failed.before) & np.isfinite(failed.after)
    for row, column in np.argwhere(both & (failed.before != failed.after)).tolist():
        was, now = failed.before[row, column], failed.after[row, column]
        what, rank = ("failed", 0) if now > was else ("mended", 3)
        figures = {"metric": None, "before": _outcome(was), "after": _outcome(now), "delta": None, "what": what}
        found.append(((rank, -1, 0.0, row, column), figures))
    for number, one in enumerate(scored):
        for table, what, rank in ((one.lost, "failed", 0), (one.regained, "mended", 3)):
            for row, column in np.argwhere(table).tolist():
                figures = {"metric": one.metric, **one.figures(row, column), "what": what}
                found.append(((rank, number, 0.0, row, column), figures))
        for row, column in np.argwhere(np.nan_to_num(one.differences)).tolist():
            delta = float(one.differences[row, column])
            is_worse = (delta < 0) == (one.measure.better == "higher")
            by_chance = rows[row]["metrics"][one.metric]["verdict"] != "worse"
            figures = {"metric": one.metric, **one.figures(row, column), "what": "worse" if is_worse else "better"}
            found.append(((1 + by_chance if is_worse else 4, number, -abs(delta), row, column), figures))
    found.sort(key=lambda one: one[0])
    return [
        {
            "combination": dict(pairs.choices[int(row)]),
            "case": pairs.ids[int(column)],
            **figures,
            "executions": [side[int(row), int(column)] for side in failed.executions],
            "diverged": None,
        }
        for (*_, row, column), figures in found
    ]


def _outcome(share: float) -> str:
    """How a cell's repeats ended, in a word."""
    return {0.0: "succeeded", 1.0: "failed"}.get(float(share), f"{share:.0%} failed")
