"""What failures cost each combination, beside what success costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.store.database import Database
from wtb.store.read import aggregates

if TYPE_CHECKING:
    from wtb.core.documents.matrix import RowDocument


def failed_attempts_usd(
    database: Database, sweep_id: str, choices: Sequence[Mapping[str, str]]
) -> tuple[list[float], list[float]]:
    """US dollars of each combination's failed attempts, had each of its cells made alone those that it took part in.

    Returns:
        Those of attempts that failed, and those of innocent ones, which ended for the sake of another attempt.
    """
    failed, innocent = [0.0] * len(choices), [0.0] * len(choices)
    for group, node, variant, lost, usd in aggregates.failed_attempts_usd(database, sweep_id):
        costs = innocent if lost else failed
        for number in json.loads(group):
            # An execution may stand at a node for combinations that choose other variants of it, too.
            if choices[number].get(node, variant) == variant:
                costs[number] += usd
    return failed, innocent


def add_costs(row: RowDocument, succeeded_usd: float | None, failed_usd: float) -> None:
    """Set the costs of a row: of a cell that succeeded, of all that failed, and of both for each success."""
    row["cost_usd"] = succeeded_usd
    row["cost_failed_usd"] = failed_usd
    row["cost_per_success_usd"] = None if succeeded_usd is None else succeeded_usd + failed_usd / row["succeeded"]
