"""Where two executions part: the first node whose result is not the same in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from wtb.store.database import Database
from wtb.store.read import outcomes, queries

Wrote = tuple[str, Mapping[str, str] | None, str | None]  # variant, key -> digest, snapshot
Step = Mapping[str, Sequence[Wrote | None] | str]  # node -> what its tasks wrote, or how it failed


def partings(database: Database, pairs: Sequence[Sequence[str | None]]) -> list[str | None]:
    """For each pair of executions, also of different sweeps: the first node whose result is not the same in both.

    Several of one step are parted by commas. None where nothing differs, their inputs do, or it was collected.
    """
    ends = outcomes.ends(database, [id for pair in pairs for id in pair if id is not None])
    results = (tuple(_results(database, ends.get(id or "")) for id in pair) for pair in pairs)
    return [_parting(before, after) for before, after in results]


def _parting(before: Sequence[Step], after: Sequence[Step]) -> str | None:
    if not before or not after:
        return None
    nothing: Step = {}
    for step, other_step in zip_longest(before, after, fillvalue=nothing):
        if step != other_step:
            both = {**step, **other_step}
            return ", ".join(node for node in both if node and step.get(node) != other_step.get(node)) or None
    return None


def _results(database: Database, end: outcomes.End | None) -> list[Step]:
    """For each step after the input: node -> what its tasks wrote; last the node that an execution failed in."""
    head, failure = end or (None, None)
    line = queries.line(database, head) if head else []
    ids = [writer.node_run for checkpoint in line for writer in checkpoint.writers]
    runs = {run.id: (run.variant, run.writes, run.workspace) for run in queries.node_runs_by_id(database, ids)}
    steps: list[dict[str, list[Wrote | None]]] = [{} for _ in line[1:]]
    for step, each in zip(steps, line[1:], strict=True):
        for task in each.writers:
            step.setdefault(task.node, []).append(runs.get(task.node_run))
    return [*steps, {failure["node"] or "": failure["type"]}] if failure else [*steps]
