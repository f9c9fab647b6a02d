"""Estimate of the node runs of a sweep before it runs: exact if the path does not depend on the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from wtb.authoring.graph import Routes, is_conditional, reachable, successors
from wtb.authoring.workflow_facts import END, WorkflowFacts
from wtb.core.tree.checkpoints import NodeTask
from wtb.core.tree.run_order import groups, node_runs

_Key = TypeVar("_Key")


@dataclass
class Count:
    """A number of node runs between two bounds, which are equal if it is exact. `high` is None if unbounded."""

    low: int = 0
    high: int | None = 0

    @property
    def exact(self) -> bool:
        return self.low == self.high


@dataclass
class Estimate:
    """Node runs of one case and repeat by node, with and without sharing, and node runs to do by node and variant."""

    executed: dict[str, Count] = field(default_factory=dict)
    unshared: dict[str, Count] = field(default_factory=dict)
    by_variant: dict[tuple[str, str], Count] = field(default_factory=dict)

    def total(self, of: str) -> Count:
        counts = getattr(self, of).values()
        highs = [count.high for count in counts if count.high is not None]
        return Count(sum(count.low for count in counts), sum(highs) if len(highs) == len(counts) else None)


def estimate(workflow: WorkflowFacts, choices: Sequence[Mapping[str, str]], *, share: bool = True) -> Estimate:
    """Return the node runs of one case under these combinations."""
    total = _bounded(workflow, choices) if is_conditional(workflow) else _exact(workflow, choices)
    if not share:
        total.by_variant = _unshared_by_variant(workflow, choices, total)
        total.executed = total.unshared
    return total


def _exact(workflow: WorkflowFacts, choices: Sequence[Mapping[str, str]]) -> Estimate:
    """Walk the tree without running anything, because no edge depends on the state."""
    total = Estimate()
    variant = _variant_of(workflow, choices)
    routes = Routes(workflow)
    heads = [(routes.entry, list(range(len(choices))))]
    for _ in range(workflow.max_steps):
        following = []
        for head, members in heads:
            grouped = groups(head.next, members, variant)
            for (task, variant_name), cells in node_runs(tuple(map(NodeTask.of, head.next)), grouped).items():
                _add(total.executed, task.node, 1)
                _add(total.by_variant, (task.node, variant_name), 1)
                _add(total.unshared, task.node, cells)
            after = routes.after(head.next, head.arrived, None)
            if after.next:
                following += [(after, group) for group in grouped.values()]
        heads = following
    return total


def _bounded(workflow: WorkflowFacts, choices: Sequence[Mapping[str, str]]) -> Estimate:
    """Return bounds for graphs with conditions or loops.

    Lower: every node that lies on all paths runs once for each of its variants. Upper: a node runs once at every depth
    at which it can be reached, for every distinct choice of the nodes that may have run before it. There is no upper
    bound for nodes that a step may run several times, and after a loop without a limit.
    """
    after = successors(workflow)
    for branch in workflow.branches:
        if not workflow.sent_to.isdisjoint(branch.targets.values()):
            after[branch.source].add(END)  # nothing may be sent
    # A step decides from the state how often it sends to a node, which nobody knows beforehand.
    endless = set(workflow.sent_to)
    if not workflow.is_limited:
        endless |= reachable(after, [node for node in workflow.nodes if node in reachable(after, after[node])])
    depths = _depths(workflow, after)
    variant = _variant_of(workflow, choices)
    cells = range(len(choices))
    total = Estimate()
    for node in workflow.nodes:
        # A node lies on all paths if nobody reaches the end without it.
        required = END not in reachable(_without(after, node), [n for n in workflow.entries if n != node])
        variants = list(dict.fromkeys(variant(cell, node) for cell in cells))
        least = len(variants) if required else 0
        before = [n for n in workflow.nodes if n == node or min(depths[n]) < max(depths[node])]
        # Cells with the same variants of all nodes before share the run of this node.
        ways = {tuple(variant(cell, n) for n in before): variant(cell, node) for cell in cells}
        highest, visits = len(ways), len(depths[node])
        for name in variants:
            often = sum(variant_name == name for variant_name in ways.values()) * visits
            total.by_variant[node, name] = Count(int(required), None if node in endless else often)
        total.executed[node] = Count(least, None if node in endless else highest * visits)
        alone = len(choices) if required else 0
        total.unshared[node] = Count(alone, None if node in endless else len(choices) * visits)
    return total


def _depths(workflow: WorkflowFacts, after: Mapping[str, set[str]]) -> dict[str, set[int]]:
    """Return the steps in which each node may run, up to the limit of steps, or that of a path without loops."""
    depths: dict[str, set[int]] = {node: set() for node in workflow.nodes}
    level = set(workflow.entries)
    for step in range(workflow.max_steps if workflow.is_limited else len(workflow.nodes)):
        for node in level:
            depths[node].add(step)
        level = {target for node in level for target in after[node]} - {END}
        if not level:
            break
    return depths


def _without(after: Mapping[str, set[str]], node: str) -> dict[str, set[str]]:
    return {source: targets - {node} for source, targets in after.items() if source != node}


def _variant_of(workflow: WorkflowFacts, choices: Sequence[Mapping[str, str]]) -> Callable[[int, str], str]:
    return lambda cell, node: choices[cell].get(node, workflow.nodes[node].default)


def _unshared_by_variant(
    workflow: WorkflowFacts, choices: Sequence[Mapping[str, str]], shared: Estimate
) -> dict[tuple[str, str], Count]:
    """Return the node runs by node and variant if nothing is shared: each cell has the same number of its own."""
    variant, cells = _variant_of(workflow, choices), max(1, len(choices))
    counts: dict[tuple[str, str], Count] = {}
    for node, count in shared.unshared.items():
        high = None if count.high is None else count.high // cells
        for cell in range(len(choices)):
            total = counts.setdefault((node, variant(cell, node)), Count())
            total.low += count.low // cells
            total.high = None if total.high is None or high is None else total.high + high
    return counts


def _add(counts: dict[_Key, Count], key: _Key, number: int) -> None:
    count = counts.setdefault(key, Count())
    count.low += number
    count.high = None if count.high is None else count.high + number
