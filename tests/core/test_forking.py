"""Cells with the same variants of the next nodes continue together."""

from __future__ import annotations

from collections.abc import Callable

from wtb.core.tree.checkpoints import NodeTask, Position
from wtb.core.tree.run_order import groups, node_runs


def choosing(*choices: dict[str, str]) -> Callable[[int, str], str]:
    return lambda combination, node: choices[combination].get(node, "default")


FOUR = choosing({"b": "x", "c": "p"}, {"b": "x", "c": "q"}, {"b": "y", "c": "p"}, {"b": "y", "c": "q"})
ALL = range(4)


def test_there_is_a_group_for_each_choice_in_the_order_in_which_they_first_appear() -> None:
    assert groups(["a"], ALL, FOUR) == {("default",): [0, 1, 2, 3]}
    assert groups(["b"], ALL, FOUR) == {("x",): [0, 1], ("y",): [2, 3]}
    assert list(groups(["b"], [3, 0, 2], FOUR)) == [("y",), ("x",)]
    assert groups(["b"], [2, 3], FOUR) == {("y",): [2, 3]}


def test_in_a_step_of_several_nodes_the_choices_of_all_make_the_group() -> None:
    grouped = groups(["b", "c"], ALL, FOUR)

    assert grouped == {("x", "p"): [0], ("x", "q"): [1], ("y", "p"): [2], ("y", "q"): [3]}


B, C = NodeTask("b", "b"), NodeTask("c", "c")


def test_each_distinct_node_and_variant_of_a_step_is_one_node_run() -> None:
    assert node_runs([B, C], groups(["b", "c"], ALL, FOUR)) == {(B, "x"): 2, (C, "p"): 2, (C, "q"): 2, (B, "y"): 2}
    part = groups(["b", "c"], [0, 1, 2], FOUR)
    assert node_runs([B, C], part) == {(B, "x"): 2, (C, "p"): 2, (C, "q"): 1, (B, "y"): 1}


def test_all_tasks_of_a_node_run_the_variant_that_its_cells_choose() -> None:
    tasks = Position(1, ("b", "c"), fan_out={"b": 2}).tasks

    runs = node_runs(tasks, groups(["b", "c"], [0, 1, 2], FOUR))

    first, second = NodeTask("b|0", "b", 0), NodeTask("b|1", "b", 1)
    assert tasks == (first, second, C)
    assert runs == {
        (first, "x"): 2,
        (second, "x"): 2,
        (C, "p"): 2,
        (C, "q"): 1,
        (first, "y"): 1,
        (second, "y"): 1,
    }
