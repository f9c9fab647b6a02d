"""Earlier looks at the same cases: with enough looks, some combination seems better by luck.

An earlier sweep of the same project and workflow that shares cases is a look. Each of its combinations counts, even if
it is compared again: more cases, fresh noise, a superset of the cases or another primary metric are further looks at
one question. A combination is identified by its changes from the baseline and their code: renamed it is the same, with
other code it is another. Looks are stored, so they count after their sweeps are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.claims import SIGNIFICANT
from wtb.analysis.statistics.running import EarlierLook, count_before, share_of_next, spendable
from wtb.core.frozen import frozen
from wtb.core.texts import listed_names, ordinal, plural
from wtb.core.tree.looks import combination_keys
from wtb.core.tree.stored_spec import planned_at
from wtb.planning.metric_names import primary_of
from wtb.store.database import Database
from wtb.store.housekeeping import retention
from wtb.store.housekeeping.retention import Claim, LookRow
from wtb.store.read import evidence, queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument

SAME = 0.5  # of a sweep's cases: one that has as many used the cases that were kept for the end
SEEN = 0.1  # of a sweep's cases: one that has fewer counts, and is not called a look at the same rows
POOLED = 12  # sweeps that a sentence names
BEST = "best"  # the direction of a claim that a combination beats every other
GAIN, LOSS = "+", "-"  # directions of a difference from the baseline, as scores go


@frozen
class Tried:
    """Combinations that were tried over the cases of a sweep.

    Attributes:
        n: Number of combinations other than the baseline, including this sweep's.
        before: Number of combinations in other sweeps, each counted as often as it was compared.
        sweeps: Number of those sweeps.
        share: The part of the level that new combinations of this sweep may use.
        uses: How often held-out cases were used before.
        looks: The ordinal of this look at the rows of the sweep.
        pool: Sweeps of exactly these rows and cases, including this one; empty if there is no other.
        claimed: (row, sign of the difference) of differences that an earlier look has shown.
        best: Rows that an earlier look found better than all others.
        share_of_next: The share for a sweep of the same rows over the given number of cases, which include these.
    """

    n: int
    before: float = 0.0
    sweeps: int = 0
    share: float = 1.0
    uses: int = 0
    looks: int = 1
    pool: tuple[str, ...] = ()
    claimed: frozenset[tuple[int, int]] = frozenset()
    best: frozenset[int] = frozenset()
    share_of_next: Callable[[int], float] | None = None


def whole(before: float) -> int:
    """Return how many combinations count as tried before, rounded for display."""
    return max(1, round(before)) if before else 0


@frozen
class _Shared:
    """An earlier look, and the part of this sweep's cases that it had."""

    look: LookRow
    share: float


class Ledger:
    """The earlier looks at the cases of a sweep.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        choices: Its combinations.
        before: Count only looks before this time, and not this sweep before an extension. None counts looks up to the
            submission or latest extension.
    """

    def __init__(
        self, database: Database, sweep: SweepRow, choices: Sequence[Mapping[str, str]], before: float | None = None
    ) -> None:
        self._database, self._sweep = database, sweep
        self._with_own = before is None
        self._before = planned_at(sweep.spec, sweep.created_at) if before is None else before
        self._rows = combination_keys(choices, sweep.spec.get("baseline_row"), sweep.fingerprints)
        self._mine = {key for key in self._rows if key}
        self._scored_by: dict[str | None, set[str]] = {}

    def tries(self, metric: str) -> Tried:
        """Return the earlier tries that count for a metric."""
        shared = self._counted(metric)
        new = len(self._mine)
        each = [EarlierLook(earlier.share, earlier.look.cases, len(earlier.look.combinations)) for earlier in shared]
        before = count_before(each, new)
        seen = (earlier for earlier in shared if earlier.share >= SEEN)
        repeated = [earlier for earlier in seen if self._mine.intersection(earlier.look.combinations)]
        return Tried(
            new + whole(before),
            before,
            len(shared),
            spendable(before, new),
            self._uses(shared),
            1 + len(repeated),
            self._pool(repeated),
            frozenset(self._claimed(metric, shared)),
            frozenset(self._best(metric, shared)),
            partial(share_of_next, each, self._look.cases, new) if self._look else None,
        )

    def standings(self, metric: str, margin: float) -> frozenset[tuple[int, bool]]:
        """Return (row, is_within) for rows that an earlier look showed to be within or beyond a margin of the best."""
        # "Best" depends on the competitors: only looks that compared all of these rows can have settled it.
        claims = self._claims(metric, self._wide(self._counted(metric)))
        return frozenset(
            (row, is_within)
            for row, key in enumerate(self._rows)
            for is_within in (True, False)
            if (way_of(margin, is_within=is_within), key) in claims
        )

    def _counted(self, metric: str) -> list[_Shared]:
        scored = self._scored(metric)
        return [earlier for earlier in self._shared if earlier.look.sweep_id in scored]

    def _wide(self, shared: Sequence[_Shared]) -> list[_Shared]:
        """Return the looks that compared all rows of this sweep."""
        return [earlier for earlier in shared if self._mine <= set(earlier.look.combinations)]

    def share_of_one_more(self, metric: str) -> float:
        """Return the part of the level for one further combination that is tried after all of these."""
        return spendable(self.tries(metric).before + len(self._mine), 1)

    def note(self, matrix: MatrixDocument) -> None:
        """Record the differences that a matrix of the sweep shows, for later looks."""
        if self._look is not None:
            retention.note_claims(self._database, self._look, claims_of(matrix, self._rows))

    @cached_property
    def _look(self) -> LookRow | None:
        return retention.find_look(self._database, self._sweep.id)

    @cached_property
    def _shared(self) -> list[_Shared]:
        """Earlier looks that share cases and compared anything."""
        if self._look is None or not self._mine:
            return []
        mine, shares = _digests(self._look.sketch), dict[bytes, float]()
        earlier = retention.earlier_looks(self._database, self._look, self._before)
        shared = []
        # An extension stores the sweep's former self as a look; by default it is part of this look.
        for look in earlier:
            if look.extended_id == self._sweep.id and not self._with_own:
                continue
            # Repeated sweeps have equal sketches, and comparing two sketches is the expensive part.
            if look.sketch not in shares:
                shares[look.sketch] = shared_part(mine, _digests(look.sketch), look.cases)
            if look.combinations and shares[look.sketch]:
                shared.append(_Shared(look, shares[look.sketch]))
        return shared

    @cached_property
    def _primary(self) -> str | None:
        return primary_of(self._sweep.spec, [row.name for row in queries.metric_rows(self._database, self._sweep.id)])

    def _scored(self, metric: str) -> set[str]:
        """Return the earlier looks that count for a metric; for the deciding metric, all looks that scored anything."""
        by = None if metric == self._primary else metric
        if by not in self._scored_by:
            alive = [earlier.look.sweep_id for earlier in self._shared if earlier.look.metrics is None]
            scored = retention.scored_sweeps(self._database, alive, by) if alive else set()
            # Looks keep their metric names when their sweep is deleted; of living sweeps the tables are up to date.
            for earlier in self._shared:
                if names := earlier.look.metrics:
                    scored |= {earlier.look.sweep_id} if by is None or by in names else set()
            self._scored_by[by] = scored
        return self._scored_by[by]

    def _uses(self, shared: Sequence[_Shared]) -> int:
        if not self._sweep.spec.get("final"):
            return 0
        return sum(earlier.look.final and earlier.share >= SAME for earlier in shared)

    def _claimed(self, metric: str, shared: Sequence[_Shared]) -> set[tuple[int, int]]:
        """Return the differences from the same baseline that were shown earlier."""
        claims = self._claims(metric, shared)
        signs = {GAIN: 1, LOSS: -1}
        return {
            (row, sign) for row, key in enumerate(self._rows) for name, sign in signs.items() if (name, key) in claims
        }

    def _best(self, metric: str, shared: Sequence[_Shared]) -> set[int]:
        claims = self._claims(metric, self._wide(shared))
        return {row for row, key in enumerate(self._rows) if (BEST, key) in claims}

    def _claims(self, metric: str, shared: Sequence[_Shared]) -> set[tuple[str, str]]:
        same = [earlier.look for earlier in shared if self._look and earlier.look.baseline == self._look.baseline]
        return {(way, key) for look in same for name, way, key in look.claims if name == metric}

    def _pool(self, repeated: Sequence[_Shared]) -> tuple[str, ...]:
        """Return the sweeps that are repeats of each other, this one last; empty if there is no other."""
        own = self._look
        if own is None:
            return ()
        same = [
            earlier.look.sweep_id
            for earlier in repeated
            if earlier.look.extended_id is None
            and (earlier.look.sketch, earlier.look.cases, earlier.look.baseline)
            == (own.sketch, own.cases, own.baseline)
            and set(earlier.look.combinations) == set(own.combinations)
        ]
        repeat_ids = evidence.repeats_of(self._database, self._sweep, same[:POOLED]) if same else []
        return (*repeat_ids, self._sweep.id) if repeat_ids else ()


def shared_part(mine: NDArray[np.uint64], theirs: NDArray[np.uint64], cases: int) -> float:
    """Return the approximate part of a sweep's cases that another sweep shares.

    Args:
        mine: The smallest digests of the sweep's cases.
        theirs: Those of the other one.
        cases: How many cases that has.
    """
    if not len(mine) or not len(theirs):
        return 0.0
    if cases > len(theirs):  # beyond its largest digest nothing is known of it
        mine = mine[mine <= theirs[-1]]
    return float(np.isin(mine, theirs).mean()) if len(mine) else 0.0


def _digests(sketch: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(sketch, dtype=">u8").astype(np.uint64)


def way_of(margin: float, *, is_within: bool) -> str:
    """Return the name of the claim that a row is within a margin of the best, or is not."""
    return f"{'within' if is_within else 'beyond'} {margin:g}"


def claims_of(matrix: MatrixDocument, keys: Sequence[str]) -> list[Claim]:
    """Return the differences that a matrix shows.

    Args:
        matrix: A matrix by its sweep's own settings.
        keys: Of its rows, those that were added since left out.
    """
    claims: list[Claim] = []
    # Added rows come last and have no key, so the shorter sequence ends the loop.
    for key, row in zip(keys, matrix["rows"], strict=False):
        for name, figures in row["metrics"].items():
            interval, p, delta = figures["delta_ci"], figures["p_adjusted"], figures["delta"]
            excludes_zero = interval is not None and not interval[0] <= 0 <= interval[1]
            is_shown = p < SIGNIFICANT if p is not None else excludes_zero and matrix["figures"] == "anytime"
            if key and delta and is_shown:
                claims.append((name, GAIN if delta > 0 else LOSS, key))
            if (within := figures.get("within")) and within["shown"] is not None:
                claims.append((name, way_of(within["margin"], is_within=within["shown"]), key))
    by_choice = {tuple(row["combination"].items()): key for key, row in zip(keys, matrix["rows"], strict=False)}
    for name, best in matrix["best"].items():
        # A best row that was not compared with all rows is no claim that a later look could rely on.
        if best["clear"] and not best["unranked"] and best["combination"] is not None:
            claims.append((name, BEST, by_choice[tuple(best["combination"].items())]))
    return claims


def sentences(tries_by_metric: Mapping[str, Tried]) -> list[str]:
    """Return the notes on earlier looks for readers of a matrix; empty if there was none.

    Args:
        tries_by_metric: Metric -> what was tried before.
    """
    metrics_by_counts: dict[tuple[int, int, int, int], list[str]] = {}
    for metric, tries in tries_by_metric.items():
        if tries.share < 1:
            metrics_by_counts.setdefault((tries.n, whole(tries.before), tries.sweeps, tries.looks), []).append(metric)
    lines = [_used_before(uses)] if (uses := max((tries.uses for tries in tries_by_metric.values()), default=0)) else []
    for (n, earlier, sweeps, look), metrics in metrics_by_counts.items():
        lines.append(_looked(look, metrics) if look > 1 else _corrected_for(n, earlier, sweeps, metrics))
        if look > 1 and earlier > look - 1:
            lines[-1] += f", and for the {n:,} combinations that were compared over these cases in all"
    if pool := max((tries.pool for tries in tries_by_metric.values()), key=len, default=()):
        lines.append(
            f"{plural(len(pool), 'sweep')} ran these rows over these cases: pool them as repeats with "
            f"`wtb pool {' '.join(pool)}` for narrower intervals"
        )
    return lines


def _looked(look: int, metrics: Sequence[str]) -> str:
    return f"{ordinal(look)} look at these rows by {listed_names(metrics)}: p, ★ and * allow for it"


def _corrected_for(n: int, earlier: int, sweeps: int, metrics: Sequence[str]) -> str:
    tries = "1 earlier try" if earlier == 1 else f"{earlier:,} earlier tries"
    where = "another sweep" if sweeps == 1 else f"{sweeps:,} other sweeps"
    return (
        f"p, ★ and * of {listed_names(metrics)} are corrected for {tries} on these cases (in {where}), besides the "
        f"{plural(n - earlier, 'combination')} here"
    )


def _used_before(uses: int) -> str:
    times = "once" if uses == 1 else f"{uses:,} times"
    return f"the cases that were kept for the end were used {times} before: what they show now is no longer new"
