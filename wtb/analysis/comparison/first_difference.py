"""Where two executions part: the first node whose result is not the same in both."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from wtb.store.database import Database
from wtb.store.read import outcomes, queries

Document = dict[str, Any]


def partings(database: Database, pairs: Sequence[tuple[str, str]]) -> list[str | None]:
    """For each pair of executions, also of different sweeps: the first node whose result is not the same in both.

    Several of one step are parted by commas. None where nothing differs, their inputs do, or it was collected.
    """
    ends = outcomes.ends(database, [id for pair in pairs for id in pair])
    return [_parting(_results(database, ends.get(a)), _results(database, ends.get(b))) for a, b in pairs]


def _parting(before: Sequence[Document], after: Sequence[Document]) -> str | None:
    if not before or not after:
        return None
    nothing: Document = {}
    for one, other in zip_longest(before, after, fillvalue=nothing):
        if one != other:
            both = {**one, **other}
            return ", ".join(node for node in both if node and one.get(node) != other.get(node)) or None
    return None


def _results(database: Database, end: outcomes.End | None) -> list[Document]:
    """For each step after the input: node -> what its tasks wrote; last the node that an execution failed in."""
    head, failure = end or (None, None)
    line = queries.line(database, head) if head else []
    ids = [writer.node_run for checkpoint in line for writer in checkpoint.writers]
    runs = {
        run["id"]: (run["variant"], run["writes"], run["workspace"]) for run in queries.node_runs_by_id(database, ids)
    }
    steps: list[Document] = [{} for _ in line[1:]]
    for step, each in zip(steps, line[1:], strict=True):
        for one in each.writers:
            step.setdefault(one.node, []).append(runs.get(one.node_run))
    return [*steps, {failure["node"]: failure["type"]}] if failure else steps
