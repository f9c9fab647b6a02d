"""What a sweep differs by when it is run again and nothing was changed: its noise floor (an A/A comparison).

Repeats are sweeps of their own, of the same cases, combinations, settings and code, and share no result with the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wtb.analysis.comparison.paired_results import read_outcomes, read_scores
from wtb.analysis.comparison.pairing import match
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.power.pairs import spreads
from wtb.core.documents.comparison import FloorDocument, NoiseFloorDocument
from wtb.core.errors import ConflictError
from wtb.core.tree.stored_code import why
from wtb.planning.binding import Bound
from wtb.planning.environment import changed_tools, present_tools
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.comparison import FloorDocument, NoiseFloorDocument


def check_code(database: Database, sweep: SweepRow, bound: Bound) -> None:
    """Raises ConflictError where code of a sweep, or a tool of a server, has changed: it has no repeats then."""
    recorded, present = leases.recorded_code(database, sweep), bound.present_code
    if changed := recorded.changed(present):
        names = ", ".join(f"{node}={variant}" for node, variant in changed)
        causes = why(recorded.code, present.code, changed)
        raise ConflictError(
            f"sweep {sweep.id}: the code of {names} has changed since it ran {causes}, so another run would be no "
            f"repeat of it; run the sweep file anew with `wtb run`, and name that one"
        )
    if tools := changed_tools(sweep.spec, present_tools(bound.workflow)):
        raise ConflictError(
            f"sweep {sweep.id}: servers have changed {', '.join(tools)} since it ran, so another run would be no "
            f"repeat of it; run the sweep file anew with `wtb run`, and name that one"
        )


def noise_floor(database: Database, sweep: SweepRow, repeats: Sequence[str]) -> NoiseFloorDocument:
    """What repeats of a sweep differ from it by.

    Args:
        database: that of all of them.
        sweep: its row of `find_sweep`.
        repeats: the ids of its repeats.

    Returns:
        repeats, sweeps (their ids), cells and metrics by name. Of each: `compared`, how many pairs of cells; `differ`,
        the share of these that do; `sd`, the standard deviation of the differences within a combination, in the unit of
        the metric; `deterministic`, whether all that were compared are the same.
    """
    failing: list[Floats] = []
    scored: dict[str, list[Floats]] = {}
    measures = queries.measures(database, sweep.id)
    for id in repeats:
        repeat = queries.find_sweep(database, id)
        pairs = match(database, sweep, repeat)
        repeat_outcomes = read_outcomes(database, sweep, repeat, pairs)
        failing.append(repeat_outcomes.after - repeat_outcomes.before)
        for scores in read_scores(database, sweep, repeat, pairs, measures, repeat_outcomes.lost):
            failing[-1][scores.lost | scores.regained] = 1.0
            scored.setdefault(scores.metric, []).append(scores.differences)
    return {
        "repeats": len(repeats),
        "sweeps": list(repeats),
        "cells": _floor(np.vstack(failing)),
        "metrics": {name: _floor(np.vstack(tables)) for name, tables in scored.items()},
    }


def _floor(differences: Floats) -> FloorDocument:
    """Of rows of differences, each of one combination in one repeat."""
    compared = np.isfinite(differences)
    count, differ = int(compared.sum()), int(np.count_nonzero(differences[compared]))
    row_spreads = spreads(differences)
    row_spreads = row_spreads[np.isfinite(row_spreads)]
    spread = math.sqrt(float((row_spreads**2).mean())) if row_spreads.size else 0.0
    return {
        "compared": count,
        "differ": differ / count if count else 0.0,
        "sd": spread,
        "deterministic": count > 0 and not differ,
    }
