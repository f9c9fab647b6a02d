"""Which cells go on together: the tree of a sweep, one step at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from wtb.core.tree.checkpoints import NodeTask

Choices = tuple[str, ...]
TaskVariant = tuple[NodeTask, str]  # a task, and the variant of its node


def groups(
    nodes: Sequence[str], combinations: Sequence[int], variant_of: Callable[[int, str], str]
) -> dict[Choices, list[int]]:
    """Group combinations by the variants that they choose for the next nodes, in order of first appearance.

    One group: the execution goes on. Several: it forks, and each group goes on as its own execution.
    """
    by_choices: dict[Choices, list[int]] = {}
    for number in combinations:
        by_choices.setdefault(tuple(variant_of(number, node) for node in nodes), []).append(number)
    return by_choices


def agreed(choices: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The variants that all of some combinations choose, by node."""
    first = choices[0]
    return {node: variant for node, variant in first.items() if all(choice[node] == variant for choice in choices)}


def task_variants(tasks: Sequence[NodeTask], choices: Choices) -> list[TaskVariant]:
    """The tasks of a step with the variants that one group chooses, one for each node: its tasks run the same."""
    if len(tasks) == len(choices):  # no node has several
        return list(zip(tasks, choices, strict=True))
    variants = dict(zip(dict.fromkeys(task.node for task in tasks), choices, strict=True))
    return [(task, variants[task.node]) for task in tasks]


def node_runs(tasks: Sequence[NodeTask], grouped: Mapping[Choices, Sequence[int]]) -> dict[TaskVariant, int]:
    """The distinct (task, variant) of a step, each to be run once, with the number of cells that take part."""
    cells: dict[TaskVariant, int] = {}
    for choices, members in grouped.items():
        for task_variant in task_variants(tasks, choices):
            cells[task_variant] = cells.get(task_variant, 0) + len(members)
    return cells
