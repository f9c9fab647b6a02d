"""What failed in a sweep, grouped by cause: cells by node, error and message, scores by metric and message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.analysis.failure_causes import alike, causes
from wtb.store.database import Database
from wtb.store.read import evidence
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.report import FailuresDocument, ScoreFailure, Unscored


MOST = 20  # causes that are listed, the most frequent first


def failures(database: Database, sweep: SweepRow) -> FailuresDocument:
    """Causes of failed cells, as `causes` gives them, and of failed scores."""
    cells, more = causes(database, sweep, MOST)
    failed = evidence.failed_scores(database, sweep.id)
    scores = _scores(failed)
    return {
        "cells": cells,
        "scores": scores[:MOST],
        "unscored": _unscored(failed),
        "left_out": more + max(0, len(scores) - MOST),
    }


def _scores(failed: evidence.Rows) -> list[ScoreFailure]:
    groups: dict[tuple[str, str], ScoreFailure] = {}
    for metric, message, combination, count in failed:
        found = groups.setdefault(
            (metric, alike(message)), {"scores": 0, "metric": metric, "message": message, "combinations": []}
        )
        found["scores"] += count
        found["combinations"] = sorted({*found["combinations"], combination})
    return sorted(groups.values(), key=lambda one: -one["scores"])


def _unscored(failed: evidence.Rows) -> list[Unscored]:
    """How many scores each combination has not by each metric, since they failed, and one of the reasons."""
    groups: dict[tuple[int, str], Unscored] = {}
    for metric, message, combination, count in failed:
        one: Unscored = {"combination": combination, "metric": metric, "scores": 0, "message": message}
        groups.setdefault((combination, metric), one)["scores"] += count
    return [groups[key] for key in sorted(groups)]
