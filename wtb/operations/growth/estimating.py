"""How many node runs an extension takes, and what they will cost by what node runs of the sweep have cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.planning.estimate import Estimate, estimate
from wtb.store.database import Database
from wtb.store.read.costs import mean_usd_by_node
from wtb.store.tables.sweeps import SweepRow

Amount = tuple[float, float | None]  # at least, and at most; None if there is no bound
Combinations = Sequence[Mapping[str, str]]


def estimate_runs(
    database: Database,
    sweep: SweepRow,
    workflow: WorkflowFacts,
    combinations: tuple[Combinations, Combinations],
    times: tuple[int, int],
) -> tuple[Amount, Amount | None]:
    """Estimate what an extension takes.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        workflow: Its workflow.
        combinations: Those that are there, and those that are added.
        times: How many cases x repeats are there, and are added.

    Returns:
        Node runs, and US dollars; None for these if a node has not run yet, so that its price is not known.
    """
    (before, added), (old, new), share = combinations, times, sweep.spec["run"]["share"]
    every = estimate(workflow, [*before, *added], share=share)
    present = estimate(workflow, before, share=share)
    by_node = {node: _added(every, present, node, old if added else 0, new) for node in every.executed}
    runs = _sum(by_node.values())
    prices = mean_usd_by_node(database, sweep.id, sweep.spec.get("copied_from"))
    needed = [node for node, (_, high) in by_node.items() if high != 0]
    if not prices or any(node not in prices for node in needed):
        return runs, None
    priced = [
        (low * prices[node], None if high is None else high * prices[node])
        for node, (low, high) in by_node.items()
        if node in prices
    ]
    return runs, _sum(priced)


def _added(every: Estimate, present: Estimate, node: str, old: int, new: int) -> Amount:
    """Return the node runs of a node: for what is there what new combinations add, for what is new all."""
    whole, before = every.executed[node], present.executed[node]
    low = max(0, whole.low - before.low) * old + whole.low * new
    if (whole.high is None or before.high is None) and (old or new):
        return low, None
    high = max(0, (whole.high or 0) - (before.high or 0)) * old + (whole.high or 0) * new
    return low, high


def _sum(amounts: Collection[Amount]) -> Amount:
    highs = [high for _, high in amounts if high is not None]
    return sum(low for low, _ in amounts), sum(highs) if len(highs) == len(amounts) else None
