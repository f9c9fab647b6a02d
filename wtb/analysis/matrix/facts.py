"""What a matrix is made of: all that is read of a sweep, once."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wtb.analysis import interim
from wtb.analysis.failure_causes import causes
from wtb.analysis.judges.models import models_of_judges
from wtb.analysis.matrix.added_rows import AddedRows
from wtb.analysis.matrix.failure_costs import failed_attempts_usd
from wtb.analysis.matrix.noise_sources import noise_of
from wtb.analysis.matrix.stopped_rows import StoppedRows
from wtb.analysis.scores import Scores
from wtb.analysis.search_history import Ledger
from wtb.core.status import FINAL_CELLS
from wtb.store.database import Database
from wtb.store.read import aggregates, outcomes, queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.common import FailureCause
    from wtb.core.documents.matrix import Latency, NoiseDocument, ProviderDocument


@dataclass(frozen=True, slots=True)
class SweepFacts:
    """What is known of a sweep when its matrix is made. Rows are combinations, planned ones first.

    Attributes:
        sweep: Its row.
        scored: Its scores.
        counts: How many cells there are of each status.
        seen: What may be seen of it before its end; None at its end.
        runs: Node runs, and what they cost.
        causes: Why cells failed, and `more_causes`: how many causes there are besides.
        provider: What failed providers took.
        failed_usd: Of each row, US dollars of failed attempts.
        innocent_usd: Of each row, US dollars of attempts that ended for the sake of another one.
        latencies: Of each row, the quantiles of the seconds of its cells; None where no cell has any.
        added: The rows that were added since somebody saw results.
        stopped: The rows that somebody stopped.
        ledger: What was tried before over these cases.
        tags: Case number -> its tags, of a sweep that has ended.
        noise: The components of the variance of its primary metric, of a sweep that has ended.
        erased: Cases that were erased: id, who erased it, when.
        undeclared: Metrics that do not say which values are better.
        changed_tools: Tools that their servers changed while it ran.
        judges: Metric -> the models that answered for its judge.
    """

    sweep: SweepRow
    scored: Scores
    counts: Mapping[str, int]
    seen: interim.View | None
    runs: aggregates.NodeRunTotals
    causes: list[FailureCause]
    more_causes: int
    provider: ProviderDocument
    failed_usd: Sequence[float]
    innocent_usd: Sequence[float]
    latencies: Sequence[Latency | None]
    added: AddedRows
    stopped: StoppedRows
    ledger: Ledger
    tags: Mapping[int, Sequence[str]]
    noise: NoiseDocument | None
    erased: aggregates.Rows
    undeclared: Sequence[str]
    changed_tools: Sequence[str]
    judges: Mapping[str, Sequence[str]]

    @property
    def has_ended(self) -> bool:
        """Whether every cell has an outcome."""
        return all(status in FINAL_CELLS for status in self.counts)

    @property
    def cells(self) -> int:
        """How many cells it has."""
        return sum(self.counts.values())


def read_facts(database: Database, sweep: SweepRow, scored: Scores) -> SweepFacts:
    """Read what a matrix is made of.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        scored: Its scores, none of which were read before this: a cell has them as soon as it has ended.
    """
    counts = Counter[str]()
    for group in scored.cell_groups:
        counts[group.status] += group.cells
    seen = interim.view(database, sweep, scored.planned, scored.cell_groups)
    runs = aggregates.node_run_totals(database, sweep.id)
    has_failures = bool(counts.keys() & {"failed", "set_aside"})
    causes_found, more = causes(database, sweep) if has_failures else ([], 0)
    failed_usd, innocent_usd = [0.0] * len(scored.choices), [0.0] * len(scored.choices)
    if runs.has_failed:
        failed_usd, innocent_usd = failed_attempts_usd(database, sweep.id, scored.choices)
    planned = scored.choices[: scored.planned]
    primary = scored.primary if seen is None else None
    return SweepFacts(
        sweep=sweep,
        scored=scored,
        counts=counts,
        seen=seen,
        runs=runs,
        causes=causes_found,
        more_causes=more,
        provider=_provider(database, sweep.id, scored, counts.total(), has_failed=runs.has_failed),
        failed_usd=failed_usd,
        innocent_usd=innocent_usd,
        latencies=_latencies(len(scored.choices), aggregates.latencies(database, sweep.id, edited=scored.edited)),
        stopped=StoppedRows(scored),
        added=AddedRows(database, sweep, scored),
        ledger=Ledger(database, sweep, planned),
        tags={} if primary is None else outcomes.tags(database, sweep.id),
        noise=None if primary is None else noise_of(database, sweep, primary, planned),
        erased=aggregates.erased_cases(database, sweep.id),
        undeclared=[metric.name for metric in queries.metric_rows(database, sweep.id) if not metric.declared],
        changed_tools=aggregates.drifted_tools(database, sweep),
        judges=models_of_judges(database, sweep),
    )


def _provider(database: Database, sweep_id: str, scored: Scores, cells: int, *, has_failed: bool) -> ProviderDocument:
    lost = sum(scored.lost_of.values())
    attempts = aggregates.provider_attempts(database, sweep_id) if has_failed else 0
    lost_scores = outcomes.scores_lost_to_provider(database, sweep_id) if scored.errors else []
    return {
        "lost": lost,
        "share": lost / cells if cells else 0.0,
        "attempts": attempts,
        "scores": sum(count for *_, count in lost_scores),
        "answered_after_failure": aggregates.answered_after_failure(database, sweep_id),
    }


def _latencies(rows: int, parts: Iterable[aggregates.Columns]) -> list[Latency | None]:
    """Return the quantiles of each row, of columns (row, seconds) that are read a part at a time."""
    seconds = [array("d") for _ in range(rows)]
    for part in parts:
        columns = np.column_stack(part)
        columns = columns[np.argsort(columns[:, 0], kind="stable")]
        numbers, starts = np.unique(columns[:, 0], return_index=True)
        for number, durations in zip(numbers, np.split(columns[:, 1], starts[1:]), strict=True):
            seconds[int(number)].frombytes(durations.tobytes())
    return [_quantiles(durations) if durations else None for durations in seconds]


def _quantiles(seconds: Sequence[float]) -> Latency:
    p50, p95 = np.percentile(seconds, [50, 95])
    return {"p50": float(p50), "p95": float(p95)}
