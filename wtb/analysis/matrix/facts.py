"""The facts that a matrix is made of: everything that is read of a sweep, once."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wtb.analysis import interim
from wtb.analysis.failure_causes import causes, failed_attempts_usd
from wtb.analysis.judge_check import models_of_judges
from wtb.analysis.scores import Scores, ScoreTable
from wtb.analysis.search_history import Ledger
from wtb.analysis.statistics.comparing import Design, Estimate, compare
from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.power import Components, components
from wtb.core.documents.matrix import ExploratoryDocument, StoppedDocument
from wtb.core.serialization.plain_json import iso
from wtb.core.status import FINAL_CELLS
from wtb.core.texts import plural
from wtb.core.tree.combinations import in_words
from wtb.core.tree.stored_spec import Addition, StoredStop
from wtb.store.database import Database
from wtb.store.read import aggregates, evidence, queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import Latency, Narrower, NoiseDocument, ProviderDocument
    from wtb.core.documents.shared_types import FailureCause
    from wtb.core.documents.workflows import WorkflowDocument

_NOTHING = Estimate(0, 0, None, None, None, None, None, None)


class AddedRows:
    """Rows that were added to a sweep after its submission.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        scored: Its scores.
    """

    def __init__(self, database: Database, sweep: SweepRow, scored: Scores) -> None:
        self._database, self._sweep, self._scored = database, sweep, scored
        self.count = len(scored.added)

    @cached_property
    def _unfinished(self) -> set[int]:
        return {group.combination for group in self._scored.cell_groups if group.status not in FINAL_CELLS}

    @cached_property
    def _ledgers(self) -> list[Ledger]:
        """For each row its ledger: the rows above it, and other sweeps' combinations, had been tried before it."""
        choices = self._scored.choices
        return [
            Ledger(self._database, self._sweep, choices[: addition.combination], before=addition.added_at)
            for addition in self._scored.added
        ]

    @cached_property
    def _everything(self) -> Ledger:
        return Ledger(self._database, self._sweep, self._scored.choices)

    def documents(self) -> dict[int, ExploratoryDocument]:
        """Return `exploratory` of the matrix, by row number."""
        return {
            addition.combination: {
                "base": self._scored.choices[addition.base],
                "changed": dict(addition.changed),
                "suggested_by": addition.case,
                "cases_left_out": len(addition.left_out),
                "execution": addition.execution,
                "by": addition.by,
                "reason": addition.reason,
                "added_at": str(iso(addition.added_at)),
            }
            for addition in self._scored.added
        }

    def estimates(self, metric: str) -> list[Estimate]:
        """Return the figures of each added row by a metric; none before all of its cells have ended."""
        return [
            # Nobody planned how many cases an added row gets, so its figures would change with every look.
            _NOTHING if addition.combination in self._unfinished else self._estimate(addition, ledger, metric)
            for addition, ledger in zip(self._scored.added, self._ledgers, strict=True)
        ]

    def _estimate(self, addition: Addition, ledger: Ledger, metric: str) -> Estimate:
        selected = ~np.isin(self._scored.table(metric).cases, addition.left_out)
        share = ledger.share_of_one_more(metric)
        part, design = _beside_baseline(self._scored, metric, addition.combination, selected, share)
        return dataclasses.replace(compare(part.scores, design).rows[-1], ranks=None, common_mean=None)

    def tries(self, metric: str) -> int:
        """Return how many combinations were tried over these cases, including added ones; 0 without any."""
        return self._everything.tries(metric).n if self.count else 0

    def shares(self, metrics: Sequence[str]) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield for each row its number and, by metric, the part of the level that it may use."""
        for addition, ledger in zip(self._scored.added, self._ledgers, strict=True):
            yield addition.combination, {metric: ledger.share_of_one_more(metric) for metric in metrics}

    def sentences(self) -> list[str]:
        """Return a sentence for readers of the matrix on each row."""
        return [self._sentence(addition) for addition in self._scored.added]

    def _sentence(self, addition: Addition) -> str:
        name = in_words(self._scored.choices[addition.combination])
        more = len(addition.left_out) - 1
        cases = f"case {addition.case}" + (f" and {more:,} more that go with it" if more else "")
        come = "come when all of its cells have ended, and " if addition.combination in self._unfinished else ""
        return (
            f"{name} is exploratory: it was added after results were seen, since {cases} suggested it, so its figures "
            f"{come}leave that out; it is not ranked: run it with other cases to know"
        )


class StoppedRows:
    """Rows of a sweep that were stopped.

    Args:
        scored: The scores of the sweep.
    """

    def __init__(self, scored: Scores) -> None:
        self._scored = scored

    def documents(self) -> dict[int, StoppedDocument]:
        """Return `stopped` of the matrix, by row number."""
        return {number: self._document(number, stop) for number, stop in self._scored.stopped.items()}

    def _document(self, number: int, stop: StoredStop) -> StoppedDocument:
        return {"by": stop["by"], "reason": stop["reason"], "at": str(iso(stop["at"])), "cases": self._cases(number)}

    def _cases(self, number: int) -> int:
        metric = self._scored.primary
        return 0 if metric is None else int((self._scored.table(metric).behind[number] > 0).sum())

    def blanked(self, table: ScoreTable) -> ScoreTable:
        """Return a table in which these rows have no score, so that nothing is chosen or corrected for them."""
        numbers = [number for number in self._scored.stopped if number < len(table.scores)]
        if not numbers:
            return table
        scores, behind = table.scores.copy(), table.behind.copy()
        scores[numbers], behind[numbers] = np.nan, 0
        return dataclasses.replace(table, scores=scores, behind=behind)

    def placed_in(self, estimates: list[Estimate], metric: str) -> list[Estimate]:
        """Return the estimates of all rows, including the stopped ones.

        A row is stopped because of its results, so it has no test and no interval.
        """
        return [
            self._estimate(number, metric) if number in self._scored.stopped else estimate
            for number, estimate in enumerate(estimates)
        ]

    def _estimate(self, number: int, metric: str) -> Estimate:
        has = self._scored.table(metric).behind[number] > 0
        part, design = _beside_baseline(self._scored, metric, number, has, 1.0)
        if not has.any() or design.figure is not None:
            return _NOTHING
        estimate = compare(part.scores, dataclasses.replace(design, missing=None)).rows[-1]
        return dataclasses.replace(
            _NOTHING, n=estimate.n, n_pairs=estimate.n_pairs, mean=estimate.mean, delta=estimate.delta
        )

    def sentences(self) -> list[str]:
        """Return a sentence for readers of the matrix on each row."""
        return [self._sentence(number, stop) for number, stop in self._scored.stopped.items()]

    def _sentence(self, number: int, stop: StoredStop) -> str:
        name, cases = in_words(self._scored.choices[number]), plural(self._cases(number), "case")
        return (
            f"{name} was stopped by {stop['by']} after {cases}: its Δ is over the cases that both have, and it is "
            "never the best"
        )


def _beside_baseline(
    scored: Scores, metric: str, number: int, selected: NDArray[np.bool_], share: float
) -> tuple[ScoreTable, Design]:
    """Return some cases of a row, below the baseline if there is one, and how they are compared."""
    numbers = [number] if scored.baseline is None else [scored.baseline, number]
    part = scored.table(metric).part(numbers, selected)
    design = scored.design(metric, part, share)
    return part, dataclasses.replace(design, baseline=None if scored.baseline is None else 0)


def noise_of(
    database: Database, sweep: SweepRow, metric: str, choices: Sequence[Mapping[str, str]]
) -> NoiseDocument | None:
    """Return the components of variance of one score by `metric`, as `noise` of the JSON contract.

    None without repeats, or if fewer than two cases have all of their scores.
    """
    repeats, scored = int(sweep.spec["repeats"]), Scores(database, sweep)
    if repeats < 2 or scored.measures[metric].passes is not None:  # one repeat has no such figure
        return None
    found_scores = scored.by_repeat(metric)
    scores = _by_repeat(found_scores[found_scores[:, 0] < len(choices)], len(choices), repeats)
    nodes = in_order(queries.workflow_graph(database, sweep.workflow_id), choices)
    shared = _common_prefixes(choices, nodes)
    parts = components(scores, shared, len(nodes))
    if parts is None:
        return None
    return {
        "metric": metric,
        "case": parts.case,
        "common": parts.common,
        "nodes": [{"node": node, "variance": part} for node, part in zip(nodes, parts.nodes, strict=True)],
        "rest": parts.rest,
        "cases": parts.cases,
        "incomplete": parts.incomplete,
        "repeats": parts.repeats,
        "narrower": _narrower(scores, parts),
    }


def in_order(graph: WorkflowDocument, choices: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the varied nodes in the order in which a cell passes them; empty if they are not one line of nodes.

    Combinations share their common prefix, so what two of them share is known only for such a line.
    """
    varied = {node for row in choices for node in row if len({other.get(node) for other in choices}) > 1}
    following: dict[str, list[str]] = {}
    for edge in graph.get("edges", ()):
        for source in edge["from"]:
            following.setdefault(source, []).append(edge["to"])
    for branch in graph.get("branches", ()):
        following.setdefault(branch["from"], []).extend(branch["to"].values())
    names: list[str] = []
    step, seen = list(graph.get("entries", ())), set[str]()
    while step:
        reached = [node for node in step if node in varied]
        # Two varied nodes in one step run side by side: neither is before the other in what is shared.
        if len(reached) > 1:
            return []
        names += reached
        seen.update(step)
        step = list(dict.fromkeys(to for node in step for to in following.get(node, ()) if to not in seen))
    return names if set(names) == varied else []


def _by_repeat(scores: Floats, combinations: int, repeats: int) -> Floats:
    """Return combinations x cases x repeats, NaN without a score."""
    cases, columns = np.unique(scores[:, 1], return_inverse=True)
    table = np.full((combinations, len(cases), repeats), np.nan)
    table[scores[:, 0].astype(int), columns, scores[:, 2].astype(int)] = scores[:, 3]
    return table


def _common_prefixes(choices: Sequence[Mapping[str, str]], nodes: Sequence[str]) -> NDArray[np.int64]:
    """Return rows x rows: how many of the varied nodes two combinations share from the first on."""
    names = np.array([[row.get(node, "") for node in nodes] for row in choices], dtype=object)
    names = names.reshape(len(choices), len(nodes))
    same = (names[:, None, :] == names[None, :, :]).astype(np.int64)
    return np.asarray(np.cumprod(same, axis=2).sum(axis=2), dtype=np.int64)


def _narrower(scores: Floats, parts: Components) -> Narrower:
    """Return how wide the interval of a difference would be, as a share of its width now.

    Once for twice the cases, once for twice the repeats, which cost the same.
    """
    complete = scores[:, np.isfinite(scores).all(axis=(0, 2))]
    differences = complete[1:] - complete[:1]
    # The variance of a case's mean difference.
    each = float(differences.mean(axis=2).var(axis=1, ddof=1).mean()) if len(differences) else 0.0
    if each <= 0:
        return {"cases": None, "repeats": None}
    within = float(differences.var(axis=2, ddof=1).mean())
    less = max(each - within / (2 * parts.repeats), 0.0)
    # More repeats reduce only the noise within cases; they cannot help more than twice the cases, which reduce all of
    # it.
    return {"cases": math.sqrt(0.5), "repeats": max(math.sqrt(less / each), math.sqrt(0.5))}


@dataclass(frozen=True, slots=True)
class SweepFacts:
    """Facts of a sweep from which its matrix is made. Rows are combinations, planned ones first.

    Attributes:
        sweep: Its row.
        scored: Its scores.
        counts: How many cells have each status.
        seen: The part that may be used before the end; None at the end.
        runs: Node runs and their costs.
        causes: The causes of failed cells.
        more_causes: How many further causes there are.
        provider: The losses to failed providers.
        failed_usd: For each row, US dollars of failed attempts.
        innocent_usd: For each row, US dollars of attempts that ended because of another one.
        latencies: For each row, the quantiles of the seconds of its cells; None if no cell has any.
        added: The rows that were added after results were seen.
        stopped: The rows that somebody stopped.
        ledger: The earlier tries over these cases.
        tags: Case number -> its tags, for a sweep that has ended.
        noise: The components of the variance of its primary metric, for a sweep that has ended.
        erased: Erased cases: id, who erased it, when.
        undeclared: Metrics that do not declare which values are better.
        changed_tools: Tools that their servers changed during the sweep.
        judges: Metric -> the models that its judge used.
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
        """True if every cell has an outcome."""
        return all(status in FINAL_CELLS for status in self.counts)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return sum(self.counts.values())


def read_facts(database: Database, sweep: SweepRow, scored: Scores) -> SweepFacts:
    """Read the facts that a matrix is made of.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        scored: Its scores, none of which may have been read yet: a cell has them as soon as it has ended.
    """
    counts = Counter[str]()
    for group in scored.cell_groups:
        counts[group.status] += group.cells
    # Before any scores: cells that finish in between then have scores that are not used, instead of the reverse.
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
        tags={} if primary is None else evidence.tags(database, sweep.id),
        noise=None if primary is None else noise_of(database, sweep, primary, planned),
        erased=aggregates.erased_cases(database, sweep.id),
        undeclared=[metric.name for metric in queries.metric_rows(database, sweep.id) if not metric.declared],
        changed_tools=aggregates.drifted_tools(database, sweep),
        judges=models_of_judges(database, sweep),
    )


def _provider(database: Database, sweep_id: str, scored: Scores, cells: int, *, has_failed: bool) -> ProviderDocument:
    lost = sum(scored.lost_of.values())
    attempts = aggregates.provider_attempts(database, sweep_id) if has_failed else 0
    lost_scores = evidence.scores_lost_to_provider(database, sweep_id) if scored.errors else []
    return {
        "lost": lost,
        "share": lost / cells if cells else 0.0,
        "attempts": attempts,
        "scores": sum(count for *_, count in lost_scores),
        "answered_after_failure": aggregates.answered_after_failure(database, sweep_id),
    }


def _latencies(rows: int, parts: Iterable[aggregates.Columns]) -> list[Latency | None]:
    """Return the quantiles of each row from columns (row, seconds) that are read in parts."""
    # 8 bytes a cell: a million cells as Python floats in lists would take four times as much.
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
