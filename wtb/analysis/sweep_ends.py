"""Ends of sweeps: when enough is known (`stop: when_known`), or when nothing is left to run; then the matrix is frozen.

The guarantee holds however often the sweep is looked at, and even if the durations of cells depend on their scores: at
most 5% of sweeps stop wrongly (see `wtb.analysis.statistics.running`).
"""

from __future__ import annotations

import time

from wtb.core.stop import ENOUGH_KNOWN
from wtb.core.tree.combinations import in_words
from wtb.core.tree.stored_spec import additions
from wtb.planning.metric_names import margins_of, primary_of
from wtb.store.control import sweeps
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.runs import maintenance
from wtb.store.tables.sweeps import SweepRow

WHEN_KNOWN = "when_known"
SHARE = 0.05  # of the time, at most, goes into looking


def stop_where_known(database: Database, sweep: SweepRow) -> str | None:
    """End a sweep with `stop: when_known` if enough is known. Return the reason, or None if the sweep continues.

    Running cells are ended, and the remaining cells are skipped.

    Raises:
        ConflictError: The sweep has ended.
    """
    # Rows that were added since are wanted to their end: they say nothing of which of the planned ones to take.
    if sweep.spec.get("stop") != WHEN_KNOWN or additions(sweep.spec):
        return None
    reason = reason_to_stop(database, sweep)
    if reason is not None:
        sweeps.skip_rest(database, sweep.id, reason=reason, by="wtb")
    return reason


def reason_to_stop(database: Database, sweep: SweepRow) -> str | None:
    """Return the reason why enough is known to stop a sweep; None if it is not."""
    from wtb.analysis import interim  # with numpy, which whoever runs a sweep that does not ask for this starts without
    from wtb.analysis.scores import Scores
    from wtb.analysis.search_history import Ledger

    choices = queries.choices(database, sweep.id)
    scored = Scores(database, sweep)
    seen = interim.view(database, sweep, len(choices), scored.cell_groups)
    metric = primary_of(sweep.spec, scored.measures)
    if seen is None or metric is None or metric not in scored.measures or scored.measures[metric].low is None:
        return None
    share = Ledger(database, sweep, choices).tries(metric).share
    table = scored.table(metric)
    estimates = seen.look(table.scores, table.cases, scored.design(metric, table, share), scored.measures[metric].scale)
    margin = margins_of(sweep.spec, scored.measures).get(metric, 0.0)
    if not estimates.is_known(margin) or estimates.compared.best is None:
        return None
    best = in_words(choices[estimates.compared.best])
    what = f"is best by {metric}"
    if not estimates.compared.clear:
        what = f"is less than {margin:g} behind any other by {metric}"
    return f"{ENOUGH_KNOWN}: {best} {what}, as of {estimates.cases:,} of {len(seen.order):,} cases"


class Stopping:
    """Checks from time to time whether enough is known of a sweep, and limits the time spent on it."""

    def __init__(self, database: Database, sweep: SweepRow) -> None:
        self._database, self._sweep = database, sweep
        self._is_enabled = sweep.spec.get("stop") == WHEN_KNOWN
        self._look_at, self._seen = 0.0, -1

    def look(self, done: int) -> None:
        """End the sweep if enough is known. `done` is the number of finished cells: without new ones there is nothing
        to do."""
        began = time.monotonic()
        if not self._is_enabled or done == self._seen or began < self._look_at:
            return
        self._seen = done
        # Its row as it is now: whether it may end depends on its status.
        stop_where_known(self._database, queries.find_sweep(self._database, self._sweep.id))
        ended = time.monotonic()
        self._look_at = ended + (ended - began) / SHARE


def complete(database: Database, sweep_id: str) -> bool:
    """End a sweep that has nothing left to run, and freeze its matrix. Return True if this call ended it."""
    # Several workers and schedulers may get here at once; only the one whose update ends the sweep freezes its matrix.
    if not maintenance.finish(database, sweep_id):
        return False
    freeze(database, sweep_id)
    return True


def freeze(database: Database, sweep_id: str) -> None:
    """Store the matrix of a sweep that has ended."""
    from wtb.analysis.matrix import build  # with numpy: workers and schedulers start without it

    build.freeze(database, sweep_id)
