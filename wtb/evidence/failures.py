"""What failed in a sweep, grouped by cause: cells by node, error and message, scores by metric and message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from wtb.store import evidence, reading
from wtb.store.database import Database

MOST = 20  # causes that are listed, the most frequent first
_VARYING = [
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4,}){1,4}\b"), "…"),
    (re.compile(r"(?:\b[bru]|(?<!\w))(?:'[^']*'|\"[^\"]*\")(?!\w)"), "'…'"),  # not what is between two apostrophes
    (re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"), "…"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "N"),
]

Document = dict[str, Any]


def failures(database: Database, sweep: Mapping[str, Any]) -> Document:
    """Causes of failed cells and of failed scores, each with counts, the combinations it concerns, and an example.

    Messages that differ only in numbers, addresses and quoted texts are one cause; the example's is shown as it is.
    """
    groups: dict[tuple[Any, ...], Document] = {}
    for combination, status, node, kind, message, count, execution, case in evidence.failed_cells(
        database, sweep["id"]
    ):
        found = groups.setdefault(
            (node, kind, _alike(message or "")),
            {
                "cells": 0,
                "set_aside": 0,
                "node": node,
                "type": kind,
                "message": message,
                "combinations": [],
                "example": {"execution": execution, "case": case},
            },
        )
        found["cells"] += count
        found["set_aside"] += count if status == "set_aside" else 0
        found["combinations"] = sorted({*found["combinations"], combination})
    causes = sorted(groups.values(), key=lambda one: -one["cells"])
    names = reading.case_rows(database, sweep["id"], {one["example"]["case"] for one in causes[:MOST]})
    for one in causes[:MOST]:
        one["example"]["case"] = names[one["example"]["case"]]["id"]
    failed = evidence.failed_scores(database, sweep["id"])
    scores = _scores(failed)
    return {
        "cells": causes[:MOST],
        "scores": scores[:MOST],
        "unscored": _unscored(failed),
        "left_out": max(0, len(causes) - MOST) + max(0, len(scores) - MOST),
    }


def _scores(failed: evidence.Rows) -> list[Document]:
    groups: dict[tuple[str, str], Document] = {}
    for metric, message, combination, count in failed:
        found = groups.setdefault(
            (metric, _alike(message)), {"scores": 0, "metric": metric, "message": message, "combinations": []}
        )
        found["scores"] += count
        found["combinations"] = sorted({*found["combinations"], combination})
    return sorted(groups.values(), key=lambda one: -one["scores"])


def _unscored(failed: evidence.Rows) -> list[Document]:
    """How many scores each combination has not by each metric, since they failed, and one of the reasons."""
    groups: dict[tuple[int, str], Document] = {}
    for metric, message, combination, count in failed:
        one = {"combination": combination, "metric": metric, "scores": 0, "message": message}
        groups.setdefault((combination, metric), one)["scores"] += count
    return [groups[key] for key in sorted(groups)]


@lru_cache(10_000)
def _alike(message: str) -> str:
    """A message without what differs from case to case."""
    for pattern, stand_in in _VARYING:
        message = pattern.sub(stand_in, message)
    return message
