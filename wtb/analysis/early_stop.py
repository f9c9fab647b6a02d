"""`stop: when_known`: a sweep ends by itself when its deciding metric leaves no doubt which combination to take.

It may be looked at again and again, and whatever the durations of cells have to do with their scores: in at most 5% of
sweeps it is wrong (see `wtb.analysis.statistics.sequential.running`).
"""

from __future__ import annotations

import time

from wtb.core.stop import ENOUGH_KNOWN
from wtb.core.tree.added_rows import additions
from wtb.core.tree.combinations import in_words
from wtb.planning.metric_names import margins_of, primary_of
from wtb.store.control import sweeps
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.tables.sweeps import SweepRow

WHEN_KNOWN = "when_known"
SHARE = 0.05  # of the time, at most, goes into looking


def stop_where_known(database: Database, sweep: SweepRow) -> str | None:
    """End a sweep that asks for it where enough is known: the reason; None where it goes on.

    What still runs is ended, and the cells that are left are skipped. Raises ConflictError where it is at its end.
    """
    # Rows that were added since are wanted to their end: they say nothing of which of the planned ones to take.
    if sweep.spec.get("stop") != WHEN_KNOWN or additions(sweep.spec):
        return None
    reason = reason_to_stop(database, sweep)
    if reason is not None:
        sweeps.skip_rest(database, sweep.id, reason=reason, by="wtb")
    return reason


def reason_to_stop(database: Database, sweep: SweepRow) -> str | None:
    """What is known of a sweep that is enough to stop it; None where it is not."""
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
    what = (
        f"is best by {metric}" if estimates.compared.clear else f"is less than {margin:g} behind any other by {metric}"
    )
    return f"{ENOUGH_KNOWN}: {best} {what}, as of {estimates.cases:,} of {len(seen.order):,} cases"


class Stopping:
    """Looks now and then whether enough is known of a sweep, so that it takes little of the time."""

    def __init__(self, database: Database, sweep: SweepRow) -> None:
        self._database = database
        self._sweep = sweep
        self._is_enabled = sweep.spec.get("stop") == WHEN_KNOWN
        self._look_at = 0.0
        self._seen = -1

    def look(self, done: int) -> None:
        """End the sweep where enough is known. done: how many cells have ended, so that there is something new."""
        began = time.monotonic()
        if not self._is_enabled or done == self._seen or began < self._look_at:
            return
        self._seen = done
        # Its row as it is now: whether it may end depends on its status.
        stop_where_known(self._database, queries.find_sweep(self._database, self._sweep.id))
        ended = time.monotonic()
        self._look_at = ended + (ended - began) / SHARE
